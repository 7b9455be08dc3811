//! SIP for rules: each message is a transaction of the side that sent it.

use super::transactions::Transactions;
use base::limits::SIP_HEAD_BYTES;
use protocols::sip::{Head, Start, head};
use rules::names::{App, Buffer};

#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    /// The current head.
    head: Vec<u8>,
    /// Offset of the current line in the head.
    line: usize,
    /// Body bytes still to come.
    body_left: usize,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        if gap {
            *side = Side::default();
        }
        let mut rest = bytes;
        loop {
            let skip = side.body_left.min(rest.len());
            side.body_left -= skip;
            let Some(part) = rest[skip..].split_inclusive(|byte| *byte == b'\n').next() else { return };
            rest = &rest[skip + part.len()..];
            side.add(part, to_server, to);
        }
    }

    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.head.capacity()).sum()
    }
}

impl Side {
    /// Takes bytes up to a line end. An empty line completes the head; a head that is too long is cut.
    fn add(&mut self, part: &[u8], to_server: bool, to: &mut Transactions) {
        let room = SIP_HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        if part.last() != Some(&b'\n') {
            return;
        }
        let is_first = self.line == 0;
        let is_over = matches!(self.head[self.line..], [b'\n'] | [b'\r', b'\n']) || part.len() >= room;
        self.line = self.head.len();
        if !is_first && !is_over {
            return;
        }
        let found = head(&self.head);
        if let Some(head) = found.as_ref().filter(|_| is_over) {
            message(head, to_server, to);
            self.body_left = head.body_len().unwrap_or(0);
        }
        if found.is_none() || is_over {
            (self.head, self.line) = (Vec::new(), 0);
        }
    }
}

pub(super) fn datagram(bytes: &[u8], to_server: bool, to: &mut Transactions) {
    if let Some(head) = head(bytes) {
        message(&head, to_server, to);
    }
}

fn message(head: &Head<'_>, to_server: bool, to: &mut Transactions) {
    let one = to.begin(App::Sip);
    let id = one.id;
    one.complete = [true; 2];
    let mut put = |buffer: Buffer, bytes: &[u8]| one.put_copy(buffer, to_server, bytes);
    match head.start {
        Start::Request { method, uri, version } => {
            put(Buffer::SIP_REQUEST_LINE, head.line);
            put(Buffer::SIP_METHOD, method);
            put(Buffer::SIP_URI, uri);
            put(Buffer::SIP_PROTOCOL, version);
        }
        Start::Response { version, code, reason } => {
            put(Buffer::SIP_RESPONSE_LINE, head.line);
            put(Buffer::SIP_PROTOCOL, version);
            put(Buffer::SIP_STAT_CODE, code);
            put(Buffer::SIP_STAT_MSG, reason);
        }
    }
    for (name, value) in head.fields() {
        match &name.to_ascii_lowercase()[..] {
            b"from" | b"f" => put(Buffer::SIP_FROM, value),
            b"to" | b"t" => put(Buffer::SIP_TO, value),
            b"via" | b"v" => put(Buffer::SIP_VIA, value),
            b"user-agent" => put(Buffer::SIP_USER_AGENT, value),
            b"content-type" | b"c" => put(Buffer::SIP_CONTENT_TYPE, value),
            b"content-length" | b"l" => put(Buffer::SIP_CONTENT_LENGTH, value),
            _ => {}
        }
    }
    to.change(id, to_server);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the URIs and receivers that rules see.
    fn check(stream: &[u8], expected: &[&str]) {
        for size in [1, 5, stream.len()] {
            let (mut reader, mut to) = (Stream::default(), Transactions::default());
            stream.chunks(size).for_each(|piece| reader.feed(piece, true, false, &mut to));
            let seen = (0..9).filter_map(|id| to.find(id));
            let seen = seen.flat_map(|one| one.all(Buffer::SIP_URI, true).chain(one.all(Buffer::SIP_TO, true)));
            let seen: Vec<_> = seen.map(String::from_utf8_lossy).collect();
            assert_eq!(seen, expected, "by {size}");
            assert!(reader.kept_bytes() <= 2 * SIP_HEAD_BYTES);
        }
    }

    #[test]
    fn messages_of_a_stream() {
        check(
            b"INVITE sip:a SIP/2.0\r\nt: x\r\nl: 4\r\n\r\nbody\r\n\r\nBYE sip:b SIP/2.0\nTo: y\n\n",
            &["sip:a", "x", "sip:b", "y"],
        );
        let long = [&b"INVITE sip:a SIP/2.0\r\nt: x\r\n"[..], &b"v: z\r\n".repeat(20_000), b"\r\n"].concat();
        check(&long, &["sip:a", "x"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, size in 1usize..20) {
            let (mut reader, mut to) = (Stream::default(), Transactions::default());
            let bytes = [b"INVITE sip:a SIP/2.0\r\nl: ", &bytes[..]].concat();
            bytes.chunks(size).for_each(|piece| reader.feed(piece, true, false, &mut to));
        }
    }
}
