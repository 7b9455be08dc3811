//! SIP for rules: each message is a transaction of its own side.

use super::transactions::Transactions;
use rules::names::{App, Buffer};

/// Bytes of one side that wait for the rest of a message.
const WAITING_BYTES: usize = 64 << 10;

/// A connection: what waits on either side.
#[derive(Debug, Default)]
pub(super) struct Stream {
    waiting: [Vec<u8>; 2],
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        let waiting = &mut self.waiting[usize::from(!to_server)];
        waiting.extend_from_slice(bytes);
        while let Some(end) = memchr::memmem::find(waiting, b"\r\n\r\n").map(|at| at + 4) {
            let length = fields(&waiting[..end])
                .find(|(name, _)| name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"l"))
                .and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse::<usize>().ok())
                .unwrap_or(0);
            if waiting.len() < end.saturating_add(length) && length < WAITING_BYTES {
                break;
            }
            message(&waiting[..end], to_server, to);
            waiting.drain(..end.saturating_add(length).min(waiting.len()));
        }
        if waiting.len() > WAITING_BYTES {
            waiting.clear();
        }
    }
}

/// Words that requests begin with, and responses.
pub(super) const BEGINS: &[&[u8]] = &[
    b"INVITE ",
    b"REGISTER ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"OPTIONS sip",
    b"SIP/2.0 ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"MESSAGE ",
    b"PUBLISH ",
    b"UPDATE ",
    b"PRACK ",
    b"REFER ",
    b"INFO ",
];

fn fields(message: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    message.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
    })
}

/// Takes a message.
pub(super) fn message(bytes: &[u8], to_server: bool, to: &mut Transactions) {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (Some(first), Some(second), Some(third)) = (words.next(), words.next(), words.next()) else { return };
    let one = to.begin(App::Sip);
    let id = one.id;
    one.complete = [true; 2];
    if first.starts_with(b"SIP/") {
        one.put_copy(Buffer::SIP_RESPONSE_LINE, to_server, line);
        one.put_copy(Buffer::SIP_PROTOCOL, to_server, first);
        one.put_copy(Buffer::SIP_STAT_CODE, to_server, second);
        one.put_copy(Buffer::SIP_STAT_MSG, to_server, third);
    } else {
        one.put_copy(Buffer::SIP_REQUEST_LINE, to_server, line);
        one.put_copy(Buffer::SIP_METHOD, to_server, first);
        one.put_copy(Buffer::SIP_URI, to_server, second);
        one.put_copy(Buffer::SIP_PROTOCOL, to_server, third);
    }
    let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes, |end| &bytes[..end]);
    for (name, value) in fields(head) {
        let buffer = match &name.to_ascii_lowercase()[..] {
            b"from" | b"f" => Buffer::SIP_FROM,
            b"to" | b"t" => Buffer::SIP_TO,
            b"via" | b"v" => Buffer::SIP_VIA,
            b"user-agent" => Buffer::SIP_USER_AGENT,
            b"content-type" | b"c" => Buffer::SIP_CONTENT_TYPE,
            b"content-length" | b"l" => Buffer::SIP_CONTENT_LENGTH,
            _ => continue,
        };
        one.put_copy(buffer, to_server, value);
    }
    to.change(id, to_server);
}
