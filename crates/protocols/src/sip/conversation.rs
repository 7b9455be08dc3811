//! Both sides of SIP. An exchange is a message; nothing joins a response to its request.

use super::{Fact, Head, Start, head, may_begin, probe};
use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, Ear, Fed, How, Id, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use base::limits::SIP_HEAD_BYTES;
use memchr::memchr;
use packet::Flow;
use packet::frame::protocol;

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 2 * SIP_HEAD_BYTES;

const HELP: &str = "Finds SIP over UDP and TCP on any port, by the first line of its messages, and gives a record of each: of a request \
         `sip.method`, `sip.uri` and `sip.request_line`, of a response `sip.code`, `sip.reason` and `sip.response_line`; of \
         both `sip.version`, `sip.from`, `sip.to`, `sip.call_id`, `sip.user_agent` and `sip.content_type`, as far as they \
         are there. Bodies are passed over.\n\n\
         In a TCP stream with missing bytes, reading goes on at the next segment that begins with a message. A head of \
         more than 64 KiB is read as far as that.";

const _: () = assert!(SIP_HEAD_BYTES == 64 << 10, "the help says so");

const EXAMPLE: &str = r#"{"timestamp":"2005-01-14T17:58:02.965944000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.195","src_port":5060,"dest_ip":"200.57.7.204","dest_port":5061,"proto":"UDP","sip":{"method":"INVITE","uri":"sip:francisco@bestel.com:55060","version":"SIP/2.0","request_line":"INVITE sip:francisco@bestel.com:55060 SIP/2.0","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>","call_id":"12013223@200.57.7.195","content_type":"application/sdp"}}
{"timestamp":"2005-01-14T17:58:02.973833000Z","flow_id":6983567778052717,"event_type":"sip","src_ip":"200.57.7.204","src_port":5061,"dest_ip":"200.57.7.195","dest_port":5060,"proto":"UDP","sip":{"version":"SIP/2.0","code":"100","reason":"Trying","response_line":"SIP/2.0 100 Trying","from":"<sip:200.57.7.195:55061;user=phone>;tag=GR52RWG346-34","to":"\"francisco@bestel.com\" <sip:francisco@bestel.com:55060>;tag=298852044","call_id":"12013223@200.57.7.195"}}
"#;

/// A connection or flow.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Messages; 2],
    /// The number of the next message.
    next: u64,
    /// Each run is a datagram.
    is_datagrams: bool,
}

/// The messages of one side.
#[derive(Debug, Default)]
struct Messages {
    /// The beginning of an unfinished head, and where its current line begins.
    part: Vec<u8>,
    line: usize,
    /// Bytes of a body that are still to come.
    body_left: u64,
    /// The line that comes next is no line of a message, or not all of one.
    skip: bool,
    /// The next bytes are the first ones behind a gap.
    is_behind_gap: bool,
    /// A message came.
    is_confirmed: bool,
    /// This is not SIP.
    is_over: bool,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        is_of_sender: true,
        summary: &["sip.method", "sip.code", "sip.from", "sip.to"],
        does: "reads SIP messages and gives a record of each",
        help: HELP,
        example: ("pcap sip.pcap | udp | sip | head 2", EXAMPLE),
        ..Protocol::of(App::Sip, Over::Both, <Fact as conversation::Fact>::ALL)
    };

    fn new(flow: &Flow) -> Conversation {
        Conversation { is_datagrams: flow.protocol == protocol::UDP, ..Conversation::default() }
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_datagrams {
            let Some(head) = head(run.bytes) else { return Fed::NotMine };
            self.tell(side, &head, ear);
            return Fed::Mine;
        }
        let mut messages = std::mem::take(&mut self.sides[side.index()]);
        let mut is_mine = run.bytes.is_empty();
        // Where the other side began with another protocol, this one speaks that, too.
        messages.is_over |= !messages.is_confirmed && self.sides[1 - side.index()].is_over;
        messages.begin(run.bytes);
        let mut rest = run.bytes;
        while !messages.is_over && !rest.is_empty() {
            is_mine |= self.step(&mut messages, side, &mut rest, kept, ear);
        }
        if messages.is_over {
            kept.clear(&mut messages.part);
        }
        let is_over = messages.is_over;
        self.sides[side.index()] = messages;
        if is_mine && !is_over { Fed::Mine } else { Fed::NotMine }
    }

    fn gap(&mut self, side: Side, missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        let messages = &mut self.sides[side.index()];
        let had_begun = !messages.part.is_empty();
        if had_begun {
            ear.count("sip messages whose rest is missing", 1);
        }
        kept.clear(&mut messages.part);
        messages.is_behind_gap |= had_begun || messages.body_left < missing.into();
        messages.body_left = messages.body_left.saturating_sub(missing.into());
        messages.line = 0;
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        [Side::Client, Side::Server].into_iter().for_each(|side| self.gap(side, 0, kept, ear));
    }
}

impl Conversation {
    /// Reads a part of `rest`, at least a byte; returns whether it was SIP's.
    fn step(
        &mut self,
        messages: &mut Messages,
        side: Side,
        rest: &mut &[u8],
        kept: &Carried,
        ear: &mut dyn Ear<Fact>,
    ) -> bool {
        let bytes = *rest;
        if messages.body_left > 0 {
            let len = bytes.len().min(usize::try_from(messages.body_left).unwrap_or(usize::MAX));
            messages.body_left -= len as u64;
            *rest = &bytes[len..];
            return true;
        }
        let is_new = messages.part.is_empty();
        // Empty lines between messages keep connections alive (RFC 5626, 4.4.1).
        if is_new && !messages.skip && matches!(bytes[0], b'\r' | b'\n') {
            *rest = &bytes[1..];
            return messages.is_confirmed;
        }
        if is_new
            && !messages.skip
            && let Some(head) = head(bytes).filter(|head| head.is_whole && head.len <= SIP_HEAD_BYTES)
        {
            messages.have(&head);
            self.tell(side, &head, ear);
            *rest = &bytes[head.len..];
            return true;
        }
        let end = memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let (piece, behind) = bytes.split_at(end);
        *rest = behind;
        if messages.skip || is_new && !may_begin(piece) {
            messages.pass(piece);
            return false;
        }
        let room = SIP_HEAD_BYTES - messages.part.len();
        let is_full = piece.len() >= room;
        if !kept.keep(&mut messages.part, &piece[..piece.len().min(room)]) {
            ear.lost(Id { exchange: self.next, side }, "sip messages given up for want of memory");
            kept.clear(&mut messages.part);
            messages.pass(piece);
            return false;
        }
        if !piece.ends_with(b"\n") && !is_full {
            return true;
        }
        let is_first = messages.line == 0;
        let is_last = matches!(messages.part[messages.line..], [b'\n'] | [b'\r', b'\n']) || is_full;
        messages.line = messages.part.len();
        if !is_first && !is_last {
            return true;
        }
        let mut part = std::mem::take(&mut messages.part);
        let found = head(&part);
        let is_sip = found.is_some();
        match found {
            Some(head) if is_last => {
                messages.have(&head);
                self.tell(side, &head, ear);
            }
            Some(_) => {
                messages.part = part;
                return true;
            }
            None => messages.is_over = !messages.is_confirmed,
        }
        messages.line = 0;
        messages.skip = !piece.ends_with(b"\n");
        kept.clear(&mut part);
        is_sip
    }

    fn tell(&mut self, side: Side, head: &Head<'_>, ear: &mut dyn Ear<Fact>) {
        let id = Id { exchange: self.next, side };
        self.next += 1;
        ear.begin(id);
        match head.start {
            Start::Request { method, uri, version } => {
                ear.fact(id, Fact::Method, method);
                ear.fact(id, Fact::Uri, uri);
                ear.fact(id, Fact::Version, version);
                ear.fact(id, Fact::RequestLine, head.line);
            }
            Start::Response { version, code, reason } => {
                ear.fact(id, Fact::Version, version);
                ear.fact(id, Fact::Code, code);
                ear.fact(id, Fact::Reason, reason);
                ear.fact(id, Fact::ResponseLine, head.line);
            }
        }
        for (name, value) in head.fields() {
            if let Some(fact) = Fact::of_field(name) {
                ear.fact(id, fact, value);
            }
        }
        ear.end(id, How::Complete);
        ear.over(id.exchange);
    }
}

impl Messages {
    /// Behind a gap, what does not begin like a message is the rest of a line.
    fn begin(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || !std::mem::take(&mut self.is_behind_gap) {
            return;
        }
        self.skip = probe(bytes) == Fit::No;
        self.is_over |= self.skip && !self.is_confirmed;
    }

    /// A message was read, and its body comes next.
    fn have(&mut self, head: &Head<'_>) {
        self.body_left = head.body_len().unwrap_or(0) as u64;
        self.is_confirmed = true;
    }

    /// Passes over a line, or a part of one.
    fn pass(&mut self, piece: &[u8]) {
        self.line = 0;
        self.skip = !piece.ends_with(b"\n");
        self.is_over = !self.is_confirmed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;

    /// The targets and codes of the messages that an ear hears of client (`C`) and server (`S`) runs; a digit is a gap in
    /// the client's side. Each run is cut into pieces of `size` bytes.
    fn talk(runs: &[&str], size: usize) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(KEPT_BYTES), Heard::default());
        for run in runs {
            let (side, text) = run.split_at(1);
            match side.parse::<u32>() {
                Ok(missing) => conversation.gap(Side::Client, missing, &kept, &mut ear),
                Err(_) => {
                    for bytes in text.as_bytes().chunks(size) {
                        conversation.feed(Side::to_server(side == "C"), Run { bytes, time: 0 }, &kept, &mut ear);
                    }
                }
            }
        }
        conversation.end(&kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        ear.said.retain(|said| said.starts_with("Uri=") || said.starts_with("Code="));
        ear.said
    }

    const FIRST: &str = "COPTIONS sip:a SIP/2.0\r\nl: 9\r\n\r\n";
    const SECOND: &str = "CBYE sip:b SIP/2.0\r\n\r\n";

    /// See docs/decisions/protocols.md.
    #[test]
    fn where_record_and_alert_disagreed() {
        let check = |runs: &[&str], expected: &[&str]| {
            for size in [1, 5, 1000] {
                assert_eq!(talk(runs, size), expected, "{runs:?} by {size}");
            }
        };
        check(&[FIRST, "C123456789", SECOND], &["Uri=sip:a", "Uri=sip:b"]);
        // The other side is HTTP.
        check(&["CGET / HTTP/1.1\r\n\r\n", "SSIP/2.0 200 OK\r\n\r\n"], &[]);
        check(&["SSIP/2.0 200 OK\r\n\r\n", "CGET / HTTP/1.1\r\n\r\n"], &["Code=200"]);
        // A line of no message.
        check(&[FIRST, "C123456789what\n", SECOND], &["Uri=sip:a", "Uri=sip:b"]);
        // Gaps within a body, and beyond it.
        check(&[FIRST, "C123", "6", SECOND], &["Uri=sip:a", "Uri=sip:b"]);
    }

    #[test]
    fn behind_a_gap_a_message_begins_the_next_bytes() {
        assert_eq!(talk(&[FIRST, "C12345678", "9", SECOND], 1000), ["Uri=sip:a", "Uri=sip:b"]);
        assert_eq!(talk(&[FIRST, "C12345678", "9", "Cx sip:b SIP/2.0\r\n\r\n"], 1000), ["Uri=sip:a"]);
    }
}
