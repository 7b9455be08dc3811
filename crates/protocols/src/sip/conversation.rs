//! Both sides of SIP. An exchange is a message; nothing joins a response to its request.

use super::{Fact, Head, Start, head, may_begin, probe};
use crate::carry::Carried;
use crate::conversation::{Ear, Fed, How, Id, Run, Side};
use crate::fit::Fit;
use base::limits::SIP_HEAD_BYTES;
use memchr::memchr;

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 2 * SIP_HEAD_BYTES;

/// A connection or flow.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Messages; 2],
    /// The number of the next message.
    next: u64,
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

impl Conversation {
    /// Reads a datagram; returns whether a message begins it.
    pub fn datagram(&mut self, side: Side, bytes: &[u8], ear: &mut dyn Ear<Fact>) -> Fed {
        let Some(head) = head(bytes) else { return Fed::NotMine };
        self.tell(side, &head, ear);
        Fed::Mine
    }

    /// Reads the next bytes of a side of a stream.
    pub fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
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

    /// `missing` bytes of a side are missing. Returns whether a head had begun.
    pub fn gap(&mut self, side: Side, missing: u32, kept: &Carried) -> bool {
        let messages = &mut self.sides[side.index()];
        let had_begun = !messages.part.is_empty();
        kept.clear(&mut messages.part);
        messages.is_behind_gap |= had_begun || messages.body_left < missing.into();
        messages.body_left = messages.body_left.saturating_sub(missing.into());
        messages.line = 0;
        had_begun
    }

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
                Ok(missing) => _ = conversation.gap(Side::Client, missing, &kept),
                Err(_) => {
                    for bytes in text.as_bytes().chunks(size) {
                        conversation.feed(Side::to_server(side == "C"), Run { bytes, time: 0 }, &kept, &mut ear);
                    }
                }
            }
        }
        conversation.gap(Side::Client, 0, &kept);
        conversation.gap(Side::Server, 0, &kept);
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
