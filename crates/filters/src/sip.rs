//! SIP messages as records.
//!
//! `protocols::sip` reads heads. This file finds messages in datagrams and in TCP streams, where each head tells the
//! length of its body. Bodies are skipped.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::{SIP_BUFFERED_BYTES, SIP_HEAD_BYTES};
use filter::prelude::*;
use memchr::memchr_iter;
use packet::frame::protocol;
use protocols::carry::Carried;
use protocols::sip::{self, Head, Start};

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
    .mode(Mode::Session(SessionKey::Class))
    .wants(&[(Type::Frame, "{ udp + tcp }"), (Type::Packet, "{ udp + tcp }")])
    .parses_payload()
    .examples(&[Example { request: "pcap sip.pcap | udp | sip | head 2", output: A_CALL }]);

const A_CALL: &str = r#"{"timestamp":"2005-01-14T17:58:02.965944000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.195","src_port":5060,"dest_ip":"200.57.7.204","dest_port":5061,"proto":"UDP","sip":{"method":"INVITE","uri":"sip:francisco@bestel.com:55060","version":"SIP/2.0","request_line":"INVITE sip:francisco@bestel.com:55060 SIP/2.0","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>","call_id":"12013223@200.57.7.195","content_type":"application/sdp"}}
{"timestamp":"2005-01-14T17:58:02.973833000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.204","src_port":5061,"dest_ip":"200.57.7.195","dest_port":5060,"proto":"UDP","sip":{"version":"SIP/2.0","code":"100","reason":"Trying","response_line":"SIP/2.0 100 Trying","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>;tag=298852044","call_id":"12013223@200.57.7.195"}}
"#;

const _: () = assert!(SIP_HEAD_BYTES == 64 << 10, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let sip = Sip { row: RowWriter::new(&SCHEMA), carried: Carried::new(SIP_BUFFERED_BYTES) };
    Ok(Instance::session(SessionKey::Class, sip))
}

struct Sip {
    row: RowWriter,
    /// Copied parts of heads of all streams.
    carried: Carried,
}

/// The state of one direction of a connection or flow.
enum Session {
    Datagrams,
    Stream(Stream),
    /// Not SIP.
    Gone,
}

#[derive(Default)]
struct Stream {
    /// A copy of the beginning of an unfinished head.
    part: Vec<u8>,
    /// `part` has a whole first line of SIP.
    has_line: bool,
    /// Bytes of a body that are still to come.
    body_left: u64,
    /// A message came.
    is_confirmed: bool,
}

impl SessionFilter for Sip {
    type State = Session;

    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Session {
        match cx.streams.get(class).map(|facts| facts.flow.protocol) {
            Some(protocol::UDP) => Session::Datagrams,
            Some(_) => Session::Stream(Stream::default()),
            None => Session::Gone,
        }
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            let bytes = outlet.bytes(block);
            let is_sip = match session {
                Session::Datagrams => match sip::head(bytes) {
                    Some(head) => {
                        self.give(&head, block, &mut outlet);
                        true
                    }
                    None => false,
                },
                Session::Stream(stream) => {
                    let is_sip = self.segment(stream, block, bytes, &mut outlet);
                    if !is_sip && !stream.is_confirmed {
                        self.carried.clear(&mut stream.part);
                        *session = Session::Gone;
                    }
                    is_sip
                }
                Session::Gone => false,
            };
            if !is_sip {
                outlet.reject_block();
            }
        }
        Ok(Status::Done)
    }

    fn close(&mut self, session: Session, _: Class, _: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        if let Session::Stream(mut stream) = session {
            self.forget(&mut stream, &mut Outlet::new(cx));
        }
        Ok(())
    }
}

impl Sip {
    fn give(&mut self, head: &Head<'_>, block: &Descriptor, outlet: &mut Outlet<'_>) {
        let row = &mut self.row;
        begin_row(row, block.time, block.class, outlet.facts(block.class));
        match head.start {
            Start::Request { method, uri, version } => {
                row.text("sip.method", method).text("sip.uri", uri).text("sip.version", version);
                row.text("sip.request_line", head.line);
            }
            Start::Response { version, code, reason } => {
                row.text("sip.version", version).text("sip.code", code).text("sip.reason", reason);
                row.text("sip.response_line", head.line);
            }
        }
        let fields = [
            ("sip.from", "From", Some(b'f')),
            ("sip.to", "To", Some(b't')),
            ("sip.call_id", "Call-ID", Some(b'i')),
            ("sip.user_agent", "User-Agent", None),
            ("sip.content_type", "Content-Type", Some(b'c')),
        ];
        for (field, name, short) in fields {
            if let Some(value) = head.field(name, short) {
                row.text(field, value);
            }
        }
        outlet.record(row, block.time, block.class);
    }

    /// Reads a piece of a stream; returns whether it was SIP.
    fn segment(&mut self, stream: &mut Stream, block: &Descriptor, bytes: &[u8], outlet: &mut Outlet<'_>) -> bool {
        if block.gap() > 0 {
            self.forget(stream, outlet);
            stream.body_left = stream.body_left.saturating_sub(u64::from(block.gap()));
        }
        let mut rest = bytes;
        let mut is_sip = false;
        while !rest.is_empty() {
            if stream.body_left > 0 {
                let len = rest.len().min(usize::try_from(stream.body_left).unwrap_or(usize::MAX));
                stream.body_left -= len as u64;
                (rest, is_sip) = (&rest[len..], true);
                continue;
            }
            // Empty lines between messages keep connections alive (RFC 5626, 4.4.1).
            if stream.part.is_empty() {
                let start = rest.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
                rest = &rest[start..];
                if rest.is_empty() {
                    return is_sip || stream.is_confirmed;
                }
            }
            let before = stream.part.len();
            let limit = SIP_HEAD_BYTES - before;
            let may_begin = before > 0 || sip::may_begin(rest);
            let part = &rest[..rest.len().min(limit)];
            let had_line = std::mem::take(&mut stream.has_line);
            let joined = if before == 0 {
                None
            } else if self.carried.keep(&mut stream.part, part) {
                Some(std::mem::take(&mut stream.part))
            } else {
                outlet.count("sip messages given up for want of memory", 1);
                self.carried.clear(&mut stream.part);
                return is_sip;
            };
            let seen = joined.as_deref().unwrap_or(part);
            let is_full = seen.len() == SIP_HEAD_BYTES;
            let is_new = is_full || goes_further(seen, before, had_line);
            let found = if is_new { sip::head(seen) } else { None };
            let has_line = if is_new { found.is_some() } else { had_line };
            match found.filter(|head| head.is_whole || is_full) {
                Some(head) => {
                    self.give(&head, block, outlet);
                    stream.body_left = head.body_len().unwrap_or(0) as u64;
                    (stream.is_confirmed, is_sip) = (true, true);
                    rest = rest.get(head.len.saturating_sub(before)..).unwrap_or_default();
                }
                None if may_begin && !is_full && (has_line || !is_new || !seen.contains(&b'\n')) => {
                    match joined {
                        Some(joined) => stream.part = joined,
                        None if self.carried.keep(&mut stream.part, seen) => {}
                        None => {
                            outlet.count("sip messages given up for want of memory", 1);
                            return is_sip;
                        }
                    }
                    stream.has_line = has_line;
                    return true;
                }
                None => {
                    if let Some(mut joined) = joined {
                        self.carried.clear(&mut joined);
                    }
                    return is_sip;
                }
            }
            if let Some(mut joined) = joined {
                self.carried.clear(&mut joined);
            }
        }
        is_sip || bytes.is_empty()
    }

    /// Drops an unfinished head whose rest will not come.
    fn forget(&mut self, stream: &mut Stream, outlet: &mut Outlet<'_>) {
        if !stream.part.is_empty() {
            outlet.count("sip messages whose rest is missing", 1);
        }
        self.carried.clear(&mut stream.part);
        stream.has_line = false;
    }
}

/// Do the bytes from `before` on complete the first line or, after it, the head? Otherwise there is nothing new to
/// parse, so a head in small segments is not parsed again for each.
fn goes_further(bytes: &[u8], before: usize, had_line: bool) -> bool {
    if !had_line {
        return before == 0 || bytes[before..].contains(&b'\n');
    }
    let near = &bytes[before.saturating_sub(2)..];
    memchr_iter(b'\n', near).any(|end| matches!(near[end + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
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
    fn a_head_in_small_segments_is_not_read_anew_for_each() {
        for head in [INVITE, b"INVITE sip:b@x SIP/2.0\na: b\n\n"] {
            let start = head.iter().position(|byte| *byte == b'\n').unwrap();
            let steps = 1..=sip::head(head).unwrap().len;
            let looks: Vec<_> =
                steps.clone().filter(|end| goes_further(&head[..*end], end - 1, *end > start + 1)).collect();
            assert_eq!(looks, [1, start + 1, *steps.end()]);
        }
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
