//! Messages of WebSockets out of byte streams.
//!
//! The conversation is in `protocols::websocket`, and HTTP/1 in front of it in `protocols::http::upgrade`. Records and blocks
//! are made as those of HTTP (`http/exit.rs`). Each message has a class of its own, since control frames stand within others.

use crate::http::exit::{Apart, Before, Common, Output};
use crate::http::memory;
use crate::parts::fact_fields::FactFields;
use filter::kind::Example;
use filter::prelude::*;
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::{Fact as _, Fed, Run, Side};
use protocols::http::shared::Shared;
use protocols::websocket::{Conversation, Fact};
use std::collections::BTreeMap;

static SCHEMA: Schema =
    const { &FactFields::record(Fact::ALL) }.schema("websocket").summary(&["websocket.opcode", "websocket.coding"]);

/// What `websocket` is.
pub static KIND: Kind = Kind::new("websocket", "takes messages of WebSockets out of byte streams", make)
    .help(
        "Reads connections that HTTP/1 upgrades to a WebSocket (RFC 6455), on any port, from the response 101 on, and \
         gives each message: a record, then its contents. The record has `websocket.opcode` (text, binary, \
         connection_close, ping, pong), `websocket.mask` of a message under a mask, which a client's always is, and \
         `websocket.coding` of a compressed one (deflate). Frames of one message are joined, masks are removed, and \
         compressed messages are decoded (RFC 7692). Contents without both are not copied. Each message has a class of \
         its own, since a ping may stand between the frames of another one.\n\n\
         Bytes missing within a frame's contents are missing in the message; behind others nothing more can be read of \
         that direction, and this is counted. So are compressed messages that refer to missing or damaged ones, which \
         have no contents. The messages of a side may give 100 bytes for each compressed one, beyond the first 1 MiB; the \
         one that gives more is cut, and later compressed ones have no contents.\n\n\
         The upgrade must be in the capture. Its head is a record of `http`: `tcp | { http + websocket }`.",
    )
    .params(&[Param::new(
        "memory",
        ParamType::Size,
        "bytes kept at most for decoders, and the same for HTTP/1 in front, of all connections together",
    )
    .default("1G")])
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .class(ClassUse::Sets("stream * 2 + direction"))
    .mode(Mode::Session(SessionKey::Connection))
    .touches(Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS), Parts::STREAMS)
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap websocket.pcap | websocket | json", output: MESSAGES }]);

const MESSAGES: &str = r#"{"timestamp":"2026-05-28T20:26:40.050000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.2","src_port":80,"dest_ip":"192.0.2.1","dest_port":40001,"proto":"TCP","websocket":{"opcode":"text","length":7,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.070000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":80,"proto":"TCP","websocket":{"opcode":"ping","mask":2596069104,"length":1,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.080000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.2","src_port":80,"dest_ip":"192.0.2.1","dest_port":40001,"proto":"TCP","websocket":{"opcode":"pong","length":1,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.060000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":80,"proto":"TCP","websocket":{"opcode":"text","mask":305419896,"length":12,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.100000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.2","src_port":80,"dest_ip":"192.0.2.1","dest_port":40001,"proto":"TCP","websocket":{"opcode":"text","coding":"deflate","length":36,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.100000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.2","src_port":80,"dest_ip":"192.0.2.1","dest_port":40001,"proto":"TCP","websocket":{"opcode":"text","coding":"deflate","length":36,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.110000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":80,"proto":"TCP","websocket":{"opcode":"binary","mask":3405691582,"length":16,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.120000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.1","src_port":40001,"dest_ip":"192.0.2.2","dest_port":80,"proto":"TCP","websocket":{"opcode":"connection_close","mask":16909060,"length":2,"state":"complete"}}
{"timestamp":"2026-05-28T20:26:40.130000000Z","flow_id":5613856355649124,"event_type":"websocket","src_ip":"192.0.2.2","src_port":80,"dest_ip":"192.0.2.1","dest_port":40001,"proto":"TCP","websocket":{"opcode":"connection_close","length":2,"state":"complete"}}
"#;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let memory = memory(params);
    let common = Common::new(Shared::new(false, u64::MAX, u64::MAX, memory), &SCHEMA);
    Ok(Instance::session(SessionKey::Connection, WebSocket { common, carried: Carried::new(memory) }))
}

/// State that connections share.
struct WebSocket {
    /// Limits and memory of HTTP/1 in front.
    common: Common,
    /// Decoders, and starts of headers.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    before: Before,
    /// `None`: the connection is no WebSocket, or not yet.
    conversation: Option<Conversation>,
    /// The stream numbers of messages in the output.
    numbers: BTreeMap<u64, u32>,
    /// Where the last call stopped, if before the end of its batch: block and offset.
    stopped: Option<(usize, usize)>,
}

/// Counts messages that are left out.
const UNNUMBERED: &str = "websocket messages without a number";

impl SessionFilter for WebSocket {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let from = session.stopped.take();
        let (mut out, shared) = Output::new(cx, &mut self.common);
        let Session { before, conversation, numbers, .. } = session;
        for (place, block) in batch.iter() {
            let mut offset = match from {
                Some((stopped, _)) if place < stopped => continue,
                Some((stopped, offset)) if place == stopped => Some(offset),
                _ => None,
            };
            (out.place, out.block) = (place, *block);
            if conversation.is_none()
                && let Some(turn) = before.turn(block, &out, shared)
                && turn.to == Some(App::WebSocket)
            {
                (*conversation, offset) = (Some(Conversation::default()), Some(turn.offset));
            }
            let run = Run { bytes: out.rings.bytes(block), time: block.time };
            let side = Side::to_server(block.class.direction() == 0);
            let Some(socket) = conversation.as_mut().filter(|_| offset.is_none_or(|at| at < run.bytes.len())) else {
                out.reject_block();
                continue;
            };
            let mut ear = Apart { out: &mut out, numbers, class: block.class, unnumbered: UNNUMBERED };
            if offset.is_none() {
                socket.gap(side, block.gap(), &self.carried, &mut ear);
            }
            match socket.feed(side, run, offset.unwrap_or_default(), &self.carried, &mut ear) {
                Fed::Mine | Fed::LeftOut { .. } | Fed::HandsOn { .. } => {}
                Fed::NotMine => out.reject_block(),
                Fed::Full { used } => {
                    session.stopped = Some((place, used));
                    return Ok(Status::More);
                }
            }
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let Session { mut before, conversation, mut numbers, .. } = session;
        let (mut out, shared) = Output::new(cx, &mut self.common);
        before.end(shared);
        out.block = out.nothing(class);
        let mut ear = Apart { out: &mut out, numbers: &mut numbers, class, unnumbered: UNNUMBERED };
        if let Some(mut conversation) = conversation {
            conversation.end(&self.carried, &mut ear);
        }
        Ok(())
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        let are_even = self.common.shared.is_even() && self.carried.bytes() == 0;
        debug_assert!(are_even, "a closed connection keeps no memory");
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    const REQUEST: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";
    const RESPONSE: &[u8] = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n";

    fn piece(class: u32, bytes: &[u8]) -> Piece {
        block(class, Flags::NONE, bytes, 0)
    }

    fn chain(pieces: Vec<Piece>) -> Chain {
        let opened = [block(0, Flags::FIRST, REQUEST, 0), block(1, Flags::FIRST, RESPONSE, 0)];
        let pieces = opened.into_iter().chain(pieces).collect();
        Chain::pieces(Type::Bytes, Some(1), pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[])
    }

    fn records(pieces: Vec<Piece>) -> Vec<Value> {
        let text = chain(pieces).then(&json::KIND, &[]).run().stdout;
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["websocket"].take()).collect()
    }

    fn contents(outcome: &Outcome) -> Vec<String> {
        let contents = outcome.by_class().into_values().map(|bytes| String::from_utf8(bytes).unwrap());
        contents.filter(|contents| !contents.is_empty()).collect()
    }

    #[test]
    fn a_ping_within_a_message_stays_apart() {
        let pieces = vec![
            piece(1, b"\x01\x04one \x89\x04pi"),
            piece(1, b"ng\x80\x03two"),
            piece(0, b"\x82\x82\x01\x02\x03\x04\x6e\x69"),
        ];
        let outcome = chain(pieces.clone()).run();
        assert_eq!(contents(&outcome), ["one two", "ping", "ok"]);
        assert_eq!(outcome.counters("websocket").blocks_rejected, 2, "those of HTTP");
        let mut found = records(pieces);
        found.sort_by_key(|record| record["length"].as_u64());
        let mask = 0x0102_0304;
        let expected = [
            json!({"opcode": "binary", "mask": mask, "length": 2, "state": "complete"}),
            json!({"opcode": "ping", "length": 4, "state": "complete"}),
            json!({"opcode": "text", "length": 7, "state": "complete"}),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn contents_without_a_mask_are_not_copied() {
        let outcome = chain(vec![piece(1, b"\x81\x05hello")]).run();
        let body = outcome.blocks.iter().find(|block| block.bytes == b"hello").unwrap();
        assert!(body.from_source);
    }

    #[test]
    fn frames_behind_the_response_in_its_segment() {
        let pieces = vec![
            block(0, Flags::FIRST, REQUEST, 0),
            block(1, Flags::FIRST, &[RESPONSE, b"\x81\x02ok\x88\0"].concat(), 0),
        ];
        let chain = Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[]);
        assert_eq!(contents(&chain.run()), ["ok"]);
    }

    #[test]
    fn a_gap_in_contents_is_one_of_the_message() {
        let pieces = vec![piece(1, b"\x81\x06he"), block(1, Flags::GAP_BEFORE, b"lo", 2), piece(1, b"\x81\x01x")];
        assert_eq!(contents(&chain(pieces.clone()).run()), ["helo", "x"]);
        let found = records(pieces);
        assert_eq!((&found[0]["length"], &found[0]["state"]), (&json!(4), &json!("gap")));
    }

    #[test]
    fn what_is_no_websocket_is_rejected() {
        let get = block(0, Flags::FIRST, b"GET / HTTP/1.1\r\n\r\n", 0);
        let chain = Chain::pieces(Type::Bytes, None, vec![get, piece(1, b"\x81\x05hello")]);
        let outcome = chain.streams(&[facts(4000, 6, 0)]).then(&KIND, &[]).run();
        assert_eq!((outcome.blocks.len(), outcome.counters("websocket").blocks_rejected), (0, 2));
    }

    /// A message that grows too large ends decoding, and comes in several calls.
    #[test]
    fn a_bomb_is_cut() {
        let mut compress = flate2::Compress::new(flate2::Compression::best(), false);
        let mut bomb = Vec::with_capacity(20_000);
        compress.compress_vec(&vec![b'a'; 5 << 18], &mut bomb, flate2::FlushCompress::Sync).unwrap();
        let frame = [&[0xc2, 0x7f][..], &(bomb.len() as u64).to_be_bytes(), &bomb].concat();
        let found = records(vec![piece(1, &frame)]);
        assert_eq!((&found[0]["state"], &found[0]["reason"]), (&json!("truncated"), &json!("limit")));
        assert!(found[0]["length"].as_u64().unwrap() < 5 << 18);
    }
}
