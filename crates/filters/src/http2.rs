//! HTTP/2 messages out of byte streams, with the records of `http`.
//!
//! The conversation is in `protocols::http2`. Content codings and limits are shared with HTTP/1, and so are records and
//! blocks of bodies (`http/exit.rs`). This file gives each stream a class of its own. HTTP/2 inside TLS and HTTP/3 are not
//! read.

use crate::http::exit::{Apart, Before, Common, Output};
use crate::http::{PARAMS, SCHEMA, common, memory};
use filter::prelude::*;
use protocols::app::App;
use protocols::conversation::{Fed, Run, Side};
use protocols::http::shared::Shared;
use protocols::http::upgrade::Turn;
use protocols::http2::Conversation;
use std::collections::BTreeMap;

/// What `http2` is.
pub static KIND: Kind = Kind::new("http2", "takes HTTP/2 messages out of byte streams", make)
    .help(
        "Reads connections that begin with the preface of HTTP/2 or with settings of the server, on any port, and gives each request and each response as a \
         message: the same records, bodies, parameters and limits as of `http`, with `http.protocol` HTTP/2. Each stream of \
         a connection has a class of its own, so that messages that interleave stay apart.\n\n\
         Of a request that the server answers unasked only the response is given. Where bytes are missing in a body they \
         are missing in the message; elsewhere nothing more can be read of that direction, and that is counted.\n\n\
         Behind an upgrade of HTTP/1 to `h2c`, and in the tunnel of a proxy, HTTP/2 is read too; the request of the upgrade \
         is that of the first response. The HTTP/1 in front is records of `http`: `tcp | { http + http2 }`.",
    )
    .params(&PARAMS)
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .class(ClassUse::Sets("stream * 2 + direction"))
    .mode(Mode::Session(SessionKey::Connection))
    .touches(Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS), Parts::STREAMS)
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap http2.pcap | http2 | json", output: MESSAGES }]);

const MESSAGES: &str = r#"{"timestamp":"2020-09-14T15:50:30.225046000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"192.168.122.3","src_port":56238,"dest_ip":"172.217.4.78","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.youtube.com","url":"/robots.txt","protocol":"HTTP/2","http_user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.135 Safari/537.36","length":0,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:30.225214000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"192.168.122.3","src_port":56238,"dest_ip":"172.217.4.78","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"POST","hostname":"www.youtube.com","url":"/youtubei/v1/log_event?alt=json&key=AIzaSyAO_FJ2SlqU8Q4STEHLGCilw_Y9_11qcW8","protocol":"HTTP/2","http_content_type":"application/json","http_user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.135 Safari/537.36","http_refer":"https://www.youtube.com/","length":1284,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:30.249989000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"172.217.4.78","src_port":443,"dest_ip":"192.168.122.3","dest_port":56238,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.youtube.com","url":"/robots.txt","protocol":"HTTP/2","status":200,"http_content_type":"text/plain","content_encoding":"gzip","length":639,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:30.253237000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"172.217.4.78","src_port":443,"dest_ip":"192.168.122.3","dest_port":56238,"proto":"TCP","http":{"direction":"response","http_method":"POST","hostname":"www.youtube.com","url":"/youtubei/v1/log_event?alt=json&key=AIzaSyAO_FJ2SlqU8Q4STEHLGCilw_Y9_11qcW8","protocol":"HTTP/2","status":200,"http_content_type":"application/json","content_encoding":"br","length":28,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:30.352178000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"192.168.122.3","src_port":56238,"dest_ip":"172.217.4.78","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.youtube.com","url":"/favicon.ico","protocol":"HTTP/2","http_user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.135 Safari/537.36","http_refer":"https://www.youtube.com/robots.txt","length":0,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:30.376026000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"172.217.4.78","src_port":443,"dest_ip":"192.168.122.3","dest_port":56238,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.youtube.com","url":"/favicon.ico","protocol":"HTTP/2","status":200,"http_content_type":"image/x-icon","content_encoding":"gzip","length":1150,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:32.124621000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"192.168.122.3","src_port":56238,"dest_ip":"172.217.4.78","dest_port":443,"proto":"TCP","http":{"direction":"request","http_method":"GET","hostname":"www.youtube.com","url":"/sw.js","protocol":"HTTP/2","http_user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.135 Safari/537.36","http_refer":"https://www.youtube.com/sw.js","length":0,"state":"complete"}}
{"timestamp":"2020-09-14T15:50:32.157024000Z","flow_id":4979841782832296,"event_type":"http","src_ip":"172.217.4.78","src_port":443,"dest_ip":"192.168.122.3","dest_port":56238,"proto":"TCP","http":{"direction":"response","http_method":"GET","hostname":"www.youtube.com","url":"/sw.js","protocol":"HTTP/2","status":200,"http_content_type":"text/javascript","content_encoding":"br","length":880,"state":"complete"}}
"#;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let before = Shared::new(false, u64::MAX, u64::MAX, memory(params));
    Ok(Instance::session(SessionKey::Connection, Http2 { common: common(params), before }))
}

/// State that connections share.
struct Http2 {
    common: Common,
    /// Of HTTP/1 in front.
    before: Shared,
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    before: Before,
    /// The stream numbers of exchanges in the output.
    numbers: BTreeMap<u64, u32>,
    /// Where the last call stopped, if before the end of its batch: block and offset.
    stopped: Option<(usize, usize)>,
}

/// Counts streams that are left out.
const UNNUMBERED: &str = "http2 streams without a number";

impl SessionFilter for Http2 {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let from = session.stopped.take();
        let (mut out, shared) = Output::new(cx, &mut self.common);
        let Session { conversation, before, numbers, .. } = session;
        for (place, block) in batch.iter() {
            let mut offset = match from {
                Some((stopped, _)) if place < stopped => continue,
                Some((stopped, offset)) if place == stopped => Some(offset),
                _ => None,
            };
            (out.place, out.block) = (place, *block);
            let run = Run { bytes: out.rings.bytes(block), time: block.time };
            let side = Side::to_server(block.class.direction() == 0);
            if conversation.is_confirmed() {
                before.end(&mut self.before);
            }
            let turn = if offset.is_none() { before.turn(block, &out, &mut self.before) } else { None };
            let mut ear = Apart { out: &mut out, numbers, class: block.class, unnumbered: UNNUMBERED };
            if let Some(Turn { offset: at, to, request }) = turn {
                conversation.end(shared, &mut ear);
                *conversation = match to {
                    Some(App::Http2) => Conversation::upgraded(request.question(), &mut ear),
                    _ => Conversation::default(),
                };
                offset = Some(at);
            } else if offset.is_none() && block.gap() > 0 {
                conversation.gap(side, block.gap(), shared, &mut ear);
            }
            match conversation.feed(side, run, offset.unwrap_or_default(), shared, &mut ear) {
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
        let Session { mut conversation, mut before, mut numbers, .. } = session;
        before.end(&mut self.before);
        let (mut out, shared) = Output::new(cx, &mut self.common);
        out.block = out.nothing(class);
        let mut ear = Apart { out: &mut out, numbers: &mut numbers, class, unnumbered: UNNUMBERED };
        conversation.end(shared, &mut ear);
        Ok(())
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        let are_even = self.common.shared.is_even() && self.before.is_even();
        debug_assert!(are_even, "a closed connection keeps no memory");
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use proptest::prelude::*;
    use protocols::http2::PREFACE;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    fn frame(kind: u8, flags: u8, stream: u8, contents: &[u8]) -> Vec<u8> {
        [&(contents.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], contents].concat()
    }

    const SETTINGS: u8 = 4;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    /// GET / of this host, or POST.
    fn request(method: u8, host: &[u8]) -> Vec<u8> {
        [&[method, 0x84, 0x41, host.len() as u8], host].concat()
    }

    fn client() -> Vec<u8> {
        [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &[]),
            frame(1, END_HEADERS | END_STREAM, 1, &request(0x82, b"a.example")),
            // Padded, with a priority, and with its last fields in another frame.
            frame(1, 8 | 32, 3, &[&[2][..], &[0, 0, 0, 0, 9], &request(0x83, b"b")[..4], &[0, 0]].concat()),
            frame(9, END_HEADERS, 3, b"b"),
            frame(0, 8, 3, b"\x03po\0\0\0"),
            frame(6, 0, 0, b"pingpong"),
            frame(0, END_STREAM, 3, b"st"),
        ]
        .concat()
    }

    fn server() -> Vec<u8> {
        let gzip = [0x5a, 4, b'g', b'z', b'i', b'p'];
        let body = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\x48\xcd\xc9\xc9\x07\0\x86\xa6\x10\x36\x05\0\0\0";
        [
            frame(SETTINGS, 0, 0, &[]),
            frame(1, END_HEADERS, 1, &[&[0x88], &gzip[..]].concat()),
            frame(1, END_HEADERS, 3, &[0x8d, 0x5f, 1, b't']),
            frame(0, 0, 1, &body[..9]),
            frame(0, 0, 3, b"not "),
            frame(0, 0, 1, &body[9..]),
            frame(0, 0, 1, b""),
            frame(0, 0, 3, b"found"),
            // Trailer fields.
            frame(1, END_HEADERS | END_STREAM, 3, &[0, 1, b'x', 1, b'y']),
            frame(0, END_STREAM, 1, b""),
        ]
        .concat()
    }

    fn chain(pieces: Vec<Piece>) -> Chain {
        Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[])
    }

    fn records(pieces: Vec<Piece>) -> Vec<Value> {
        let outcome = chain(pieces).then(&json::KIND, &[]).run();
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["http"].take();
        outcome.stdout.lines().map(record).collect()
    }

    fn bodies(outcome: &Outcome) -> Vec<String> {
        outcome
            .by_class()
            .into_values()
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .filter(|body| !body.is_empty())
            .collect()
    }

    fn piece(class: u32, bytes: &[u8]) -> Piece {
        block(class, Flags::NONE, bytes, 0)
    }

    #[test]
    fn messages_interleave() {
        let mut records = records(vec![piece(0, &client()), piece(1, &server())]);
        records.sort_by_key(|record| record.to_string());
        let request = |method: &str, host: &str, length: u64| {
            json!({"direction": "request", "http_method": method, "hostname": host, "url": "/", "protocol": "HTTP/2",
                "length": length, "state": "complete"})
        };
        let response = |method: &str, host: &str, status: u64, length: u64, more: [&str; 2]| {
            let mut record = json!({"direction": "response", "http_method": method, "hostname": host, "url": "/",
                "protocol": "HTTP/2", "status": status, "length": length, "state": "complete"});
            record[more[0]] = more[1].into();
            record
        };
        let mut expected = [
            request("GET", "a.example", 0),
            request("POST", "b", 4),
            response("GET", "a.example", 200, 5, ["content_encoding", "gzip"]),
            response("POST", "b", 404, 9, ["http_content_type", "t"]),
        ];
        expected.sort_by_key(|record| record.to_string());
        assert_eq!(records, expected);
    }

    #[test]
    fn what_is_not_http2_is_rejected() {
        let outcome = chain(vec![piece(0, b"GET / HTTP/1.1\r\n\r\n"), piece(1, b"HTTP/1.1 200 OK\r\n\r\n")]).run();
        assert_eq!((outcome.blocks.len(), outcome.counters("http2").blocks_rejected), (0, 2));
    }

    #[test]
    fn gaps() {
        let bytes = [&client()[..], &frame(0, 0, 5, b"x")].concat();
        let start = bytes.windows(2).position(|two| two == b"po").unwrap();
        // A gap inside of data, then one outside.
        let pieces = vec![
            piece(0, &bytes[..start]),
            block(0, Flags::GAP_BEFORE, &bytes[start + 1..start + 7], 1),
            block(0, Flags::GAP_BEFORE, &bytes[start + 20..], 13),
        ];
        let outcome = chain(pieces.clone()).run();
        assert_eq!(outcome.counters("http2").events.get("http2 directions lost to a gap"), 1);
        let post = &records(pieces)[1];
        assert_eq!((&post["length"], &post["state"]), (&json!(1), &json!("truncated")));
    }

    #[test]
    fn a_reset_stream_is_cut() {
        let pieces = vec![
            piece(0, &client()),
            piece(1, &[frame(SETTINGS, 0, 0, &[]), frame(1, END_HEADERS, 1, &[0x88]), frame(0, 0, 1, b"be")].concat()),
            piece(0, &frame(3, 0, 1, &[0; 4])),
        ];
        let response = records(pieces).into_iter().find(|record| record["direction"] == "response").unwrap();
        assert_eq!((&response["length"], &response["state"]), (&json!(2), &json!("truncated")));
    }

    proptest! {
        /// Bodies do not depend on how streams are cut into segments.
        #[test]
        fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..260, 0..16)) {
            let mut pieces = Vec::new();
            for (class, bytes) in [(0, client()), (1, server())] {
                let mut cuts: Vec<_> = cuts.iter().map(|cut| *cut.min(&bytes.len())).chain([0, bytes.len()]).collect();
                cuts.sort_unstable();
                pieces.extend(cuts.windows(2).map(|ends| piece(class, &bytes[ends[0]..ends[1]])));
            }
            let mut bodies = bodies(&chain(pieces).run());
            bodies.sort();
            prop_assert_eq!(bodies, ["hello", "not found", "post"]);
        }

        #[test]
        fn damaged(at in 24usize..400, value: u8, cut in 0usize..400, turned: bool) {
            let mut sides = [client(), server()];
            let side = &mut sides[usize::from(turned)];
            if let Some(byte) = side.get_mut(at) { *byte = value; }
            side.truncate(cut.max(30));
            let pieces = (0..).zip(&sides).map(|(class, bytes)| piece(class, bytes)).collect();
            prop_assert!(records(pieces).len() < 40);
        }
    }
}
