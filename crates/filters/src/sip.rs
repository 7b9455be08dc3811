//! SIP messages as records.
//!
//! The conversation is in `protocols::sip`. This file gives it datagrams and streams, and makes a record of each message.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::{SIP_BUFFERED_BYTES, SIP_HEAD_BYTES};
use filter::prelude::*;
use packet::frame::protocol;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, Fed, How, Id, Run, Side};
use protocols::sip::{Conversation, Fact};

static SCHEMA: Schema = Schema::new(
    "sip",
    &eve_fields![
        Field::new("sip.method", FieldType::Text),
        Field::new("sip.uri", FieldType::Text),
        Field::new("sip.version", FieldType::Text),
        Field::new("sip.request_line", FieldType::Text),
        Field::new("sip.code", FieldType::Text),
        Field::new("sip.reason", FieldType::Text),
        Field::new("sip.response_line", FieldType::Text),
        Field::new("sip.from", FieldType::Text),
        Field::new("sip.to", FieldType::Text),
        Field::new("sip.call_id", FieldType::Text),
        Field::new("sip.user_agent", FieldType::Text),
        Field::new("sip.content_type", FieldType::Text),
    ],
);

/// What `sip` is.
pub static KIND: Kind = Kind::new("sip", "reads SIP messages and gives a record of each", make)
    .help(
        "Finds SIP over UDP and TCP on any port, by the first line of its messages, and gives a record of each: of a request \
         `sip.method`, `sip.uri` and `sip.request_line`, of a response `sip.code`, `sip.reason` and `sip.response_line`; of \
         both `sip.version`, `sip.from`, `sip.to`, `sip.call_id`, `sip.user_agent` and `sip.content_type`, as far as they \
         are there. Bodies are passed over.\n\n\
         In a TCP stream with missing bytes, reading goes on at the next segment that begins with a message. A head of \
         more than 64 KiB is read as far as that.",
    )
    .takes(&[Type::Bytes, Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "{ udp + tcp }"), (Type::Packet, "{ udp + tcp }")])
    .parses_payload()
    .examples(&[Example { request: "pcap sip.pcap | udp | sip | head 2", output: A_CALL }]);

const A_CALL: &str = r#"{"timestamp":"2005-01-14T17:58:02.965944000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.195","src_port":5060,"dest_ip":"200.57.7.204","dest_port":5061,"proto":"UDP","sip":{"method":"INVITE","uri":"sip:francisco@bestel.com:55060","version":"SIP/2.0","request_line":"INVITE sip:francisco@bestel.com:55060 SIP/2.0","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>","call_id":"12013223@200.57.7.195","content_type":"application/sdp"}}
{"timestamp":"2005-01-14T17:58:02.973833000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.204","src_port":5061,"dest_ip":"200.57.7.195","dest_port":5060,"proto":"UDP","sip":{"version":"SIP/2.0","code":"100","reason":"Trying","response_line":"SIP/2.0 100 Trying","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>;tag=298852044","call_id":"12013223@200.57.7.195"}}
"#;

const _: () = assert!(SIP_HEAD_BYTES == 64 << 10, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let sip = Sip { row: RowWriter::new(&SCHEMA), carried: Carried::new(SIP_BUFFERED_BYTES) };
    Ok(Instance::session(SessionKey::Connection, sip))
}

struct Sip {
    row: RowWriter,
    /// Copied parts of heads of all streams.
    carried: Carried,
}

/// The state of a connection or flow.
enum Session {
    Datagrams(Conversation),
    Stream(Conversation),
    /// Not SIP.
    Gone,
}

/// Makes records of the messages that it hears.
struct Listener<'a, 'b> {
    row: &'a mut RowWriter,
    /// The facts that the row has, by their numbers. The first one counts.
    has: u32,
    outlet: &'a mut Outlet<'b>,
    block: &'a Descriptor,
}

impl Ear<Fact> for Listener<'_, '_> {
    fn begin(&mut self, _id: Id) {
        self.has = 0;
        begin_row(self.row, self.block.time, self.block.class, self.outlet.facts(self.block.class));
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let (field, bit) = (Fact::ALL[fact.number()].field[id.side.index()], 1 << fact.number());
        if !field.is_empty() && self.has & bit == 0 {
            self.has |= bit;
            self.row.text(field, value);
        }
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn end(&mut self, _id: Id, _how: How) {
        self.outlet.record(self.row, self.block.time, self.block.class);
    }
}

impl SessionFilter for Sip {
    type State = Session;

    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Session {
        match cx.streams.get(class).map(|facts| facts.flow.protocol) {
            Some(protocol::UDP) => Session::Datagrams(Conversation::default()),
            Some(_) => Session::Stream(Conversation::default()),
            None => Session::Gone,
        }
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            let bytes = outlet.bytes(block);
            let side = Side::to_server(block.class.direction() == 0);
            let fed = match session {
                Session::Datagrams(conversation) => {
                    conversation.datagram(side, bytes, &mut self.ear(block, &mut outlet))
                }
                Session::Stream(conversation) => {
                    if block.gap() > 0 && conversation.gap(side, block.gap(), &self.carried) {
                        outlet.count(REST_MISSING, 1);
                    }
                    let run = Run { bytes, time: block.time };
                    let Sip { row, carried } = self;
                    let mut ear = Listener { row, has: 0, outlet: &mut outlet, block };
                    conversation.feed(side, run, carried, &mut ear)
                }
                Session::Gone => Fed::NotMine,
            };
            if fed == Fed::NotMine {
                outlet.reject_block();
            }
        }
        Ok(Status::Done)
    }

    fn close(&mut self, session: Session, _: Class, _: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        if let Session::Stream(mut conversation) = session {
            let count = |side| u64::from(conversation.gap(side, 0, &self.carried));
            let missing: u64 = [Side::Client, Side::Server].map(count).iter().sum();
            if missing > 0 {
                cx.count(REST_MISSING, missing);
            }
        }
        Ok(())
    }
}

const REST_MISSING: &str = "sip messages whose rest is missing";

impl Sip {
    fn ear<'a, 'b>(&'a mut self, block: &'a Descriptor, outlet: &'a mut Outlet<'b>) -> Listener<'a, 'b> {
        Listener { row: &mut self.row, has: 0, outlet, block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    const INVITE: &[u8] = b"INVITE sip:b@x SIP/2.0\r\nf: <sip:a@x>\r\nCall-ID: 7\r\nContent-Length: 5\r\n\r\na\r\nb\n";
    const RINGING: &[u8] = b"SIP/2.0 180 Ringing\r\nTo: b\r\n\r\n";

    fn piece(bytes: &[u8]) -> Piece {
        block(0, Flags::NONE, bytes, 0)
    }

    fn run(pieces: Vec<Piece>, number: u8) -> Outcome {
        let of = if number == protocol::UDP { Type::Message } else { Type::Bytes };
        let chain = Chain::pieces(of, None, pieces).streams(&[facts(4000, number, 0)]);
        chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
    }

    fn records(outcome: &Outcome) -> Vec<Value> {
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["sip"].take();
        outcome.stdout.lines().map(record).collect()
    }

    fn expected() -> Vec<Value> {
        vec![
            json!({
                "method": "INVITE", "uri": "sip:b@x", "version": "SIP/2.0", "request_line": "INVITE sip:b@x SIP/2.0",
                "from": "<sip:a@x>", "call_id": "7",
            }),
            json!({
                "version": "SIP/2.0", "code": "180", "reason": "Ringing", "response_line": "SIP/2.0 180 Ringing",
                "to": "b",
            }),
        ]
    }

    #[test]
    fn datagrams() {
        let outcome = run(vec![piece(INVITE), piece(b"\x80\x00"), piece(RINGING)], protocol::UDP);
        assert_eq!((records(&outcome), outcome.counters("sip").blocks_rejected), (expected(), 1));
    }

    #[test]
    fn streams() {
        let outcome = run(vec![piece(b"GET / HTTP/1.1\r\n\r\n"), piece(INVITE)], protocol::TCP);
        assert_eq!((records(&outcome).len(), outcome.counters("sip").blocks_rejected), (0, 2));
        let gap = block(0, Flags::GAP_BEFORE, RINGING, 9);
        let outcome = run(vec![piece(INVITE), piece(&INVITE[..30]), gap], protocol::TCP);
        assert_eq!(records(&outcome), expected());
        assert_eq!(outcome.counters("sip").events.get("sip messages whose rest is missing"), 1);
        let long = [&INVITE[..24], &[b'x'; SIP_HEAD_BYTES]].concat();
        assert_eq!(records(&run(long.chunks(1000).map(piece).collect(), protocol::TCP)).len(), 1);
    }

    #[test]
    fn a_head_in_small_segments_is_one_message() {
        let long = [&INVITE[..24], &[b'x'; SIP_HEAD_BYTES]].concat();
        let outcome = run(long.chunks(1).map(piece).collect(), protocol::TCP);
        assert_eq!(records(&outcome).len(), 1);
    }

    proptest! {
        /// Messages do not depend on how a stream is cut into segments.
        #[test]
        fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..120, 0..12)) {
            let bytes = [INVITE, b"\r\n\r\n", RINGING].concat();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| piece(&bytes[ends[0]..ends[1]])).collect();
            prop_assert_eq!(records(&run(pieces, protocol::TCP)), expected());
        }

        #[test]
        fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5), start in 0usize..80, udp: bool) {
            let start = &INVITE[..start.min(INVITE.len())];
            let pieces = blocks.iter().map(|bytes| piece(&[start, bytes].concat())).collect();
            let number = if udp { protocol::UDP } else { protocol::TCP };
            prop_assert!(records(&run(pieces, number)).len() <= 10);
        }
    }
}
