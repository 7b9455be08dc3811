//! The limits of an HTTP/1.x head: its first line and its empty line (RFC 9112 sections 2 to 4). `head` reads the
//! fields between them.

use crate::probe::METHODS;
use base::limits::HTTP_METHOD_BYTES;
use memchr::memchr_iter;

/// The first word of a response, and of a request's version.
const NAME: &[u8] = b"HTTP/";

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartLine<'a> {
    /// Of a request.
    Request {
        /// The method.
        method: &'a [u8],
        /// The target.
        target: &'a [u8],
        /// The version.
        protocol: &'a [u8],
    },
    /// Of a response.
    Response {
        /// The version.
        protocol: &'a [u8],
        /// The status; `None` if it cannot be read.
        status: Option<u16>,
    },
}

/// The first word of a radio stream.
const RADIO: &[u8] = b"ICY";

/// Whether a response of this status announces another one. 101 does not: other bytes follow it.
pub fn is_interim(status: u16) -> bool {
    matches!(status, 100 | 102..=199)
}

/// Bytes of junk that browsers accept before the version of a response.
const JUNK_BYTES: usize = 4;

/// Whether a message can begin with these bytes. Only the first few are checked, so later bytes may still say no.
pub fn may_begin(bytes: &[u8]) -> bool {
    let token = bytes.iter().take(HTTP_METHOD_BYTES + 1).take_while(|byte| is_token(**byte)).count();
    let method = bytes.first().is_some_and(u8::is_ascii_alphabetic) && token <= HTTP_METHOD_BYTES;
    method && bytes.get(token).is_none_or(|byte| is_blank(*byte)) || version_at(bytes, token + 1).is_some()
}

/// Whether a response can begin with these bytes. Only the first few are checked.
pub fn may_answer(bytes: &[u8]) -> bool {
    let token = bytes.iter().take(JUNK_BYTES + NAME.len()).take_while(|byte| is_token(**byte)).count();
    let undecided = token == bytes.len() && token < JUNK_BYTES + NAME.len();
    undecided || version_at(bytes, token + 1).is_some() || bytes[..token].eq_ignore_ascii_case(RADIO)
}

/// Where the version of a response begins in `line`. `end` is the end of the first word plus the byte behind it.
fn version_at(line: &[u8], end: usize) -> Option<usize> {
    let from = end.checked_sub(NAME.len()).filter(|from| *from <= JUNK_BYTES)?;
    line.get(from..end).filter(|word| word.eq_ignore_ascii_case(NAME)).map(|_| from)
}

/// RFC 9110 section 5.6.2.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Removes white space and control characters from both ends.
pub fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && *first <= b' '
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && *last <= b' '
    {
        text = rest;
    }
    text
}

/// Reads a first line, with or without its line end.
pub fn start_line(line: &[u8]) -> Option<StartLine<'_>> {
    if !may_begin(line) {
        return None;
    }
    let line = line.split(|byte| *byte == b'\r').next()?;
    let token = line.iter().take_while(|byte| is_token(**byte)).count();
    let radio = line[..token].eq_ignore_ascii_case(RADIO).then_some(0);
    if let Some(from) = version_at(line, token + 1).or(radio) {
        let line = &line[from..];
        let end = line.iter().position(|byte| *byte <= b' ').unwrap_or(line.len());
        let status = status(&line[end..]);
        if radio.is_none() || status.is_some() {
            return Some(StartLine::Response { protocol: &line[..end], status });
        }
    }
    let line = trim(line);
    let method = line.split(|byte| is_blank(*byte)).next()?;
    let protocol = line.rsplit(|byte| is_blank(*byte)).next()?;
    // The preface of HTTP/2 (RFC 9113 section 3.4) looks like a request that no HTTP/1 server understands.
    let major = protocol.get(NAME.len()).filter(|_| protocol[..NAME.len()].eq_ignore_ascii_case(NAME))?;
    if !matches!(major, b'0' | b'1') {
        return None;
    }
    let target = trim(line.get(method.len()..line.len() - protocol.len())?);
    (!target.is_empty()).then_some(StartLine::Request { method, target, protocol })
}

/// A line without its end, LF or CRLF.
pub fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads the beginning of a first line, if it names HTTP and more than that. Also returns the value that is cut, by its
/// name in records.
pub fn cut_line(line: &[u8]) -> Option<(StartLine<'_>, &'static str)> {
    let (first, rest) = line.split_at(line.iter().position(|byte| is_blank(*byte))?);
    if first.len() > NAME.len() && version_at(first, NAME.len()) == Some(0) {
        // A digit more would make the status another one.
        let status = status(rest).filter(|_| trim(rest).len() > 3);
        let cut = if status.is_some() { CUT_HEAD } else { "status" };
        return Some((StartLine::Response { protocol: first, status }, cut));
    }
    let rest = trim(rest);
    if !METHODS.contains(&first) || rest.is_empty() {
        return None;
    }
    let end = rest.iter().rposition(|byte| is_blank(*byte));
    let version = end.map(|end| &rest[end + 1..]).filter(|text| text.len() < NAME.len() + 3);
    let (target, cut) = match (end, version) {
        (Some(end), Some(text)) if b"HTTP/".starts_with(text) || text.starts_with(NAME) => {
            (trim(&rest[..end]), "protocol")
        }
        _ => (&b""[..], "url"),
    };
    Some((StartLine::Request { method: first, target, protocol: b"" }, cut))
}

/// Stands for a part of a head that is no value of a record.
pub const CUT_HEAD: &str = "head";

/// Whether these bytes, the ones from `from` on, fit a status line of HTTP/1 (RFC 9112 section 4). `None`: too few bytes to
/// tell. Stricter than [`start_line`], because a body may begin with anything.
pub fn is_status_line(from: usize, bytes: &[u8]) -> Option<bool> {
    const LIKE: &[u8] = b"HTTP/1.0 000";
    let like = LIKE.get(from..)?;
    let fits = |(byte, like): (&u8, &u8)| if *like == b'0' { byte.is_ascii_digit() } else { byte == like };
    if !bytes.iter().zip(like).all(fits) {
        return Some(false);
    }
    (bytes.len() >= like.len()).then_some(true)
}

/// Three digits, and no more.
fn status(text: &[u8]) -> Option<u16> {
    let text = trim(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.clone().take(3).fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
    (digits.count() == 3 && number >= 100).then_some(number)
}

/// Finds the line that ends a head, over consecutive pieces: LF or CR LF, or as libhtp and browsers have it one blank
/// and LF. A line of one CR before CR LF does not end it.
#[derive(Clone, Copy, Debug)]
pub struct EmptyLine {
    /// The current line so far.
    line: Line,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    /// One CR, space or tab.
    One,
    More,
}

impl EmptyLine {
    /// The state at the beginning of a line.
    pub const START: EmptyLine = EmptyLine { line: Line::Nothing };

    /// How many of these bytes belong to the head; `None` if it goes on.
    pub fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        for end in memchr_iter(b'\n', bytes) {
            self.add(&bytes[at..end]);
            if self.line != Line::More {
                return Some(end + 1);
            }
            (self.line, at) = (Line::Nothing, end + 1);
        }
        self.add(&bytes[at..]);
        None
    }

    fn add(&mut self, part: &[u8]) {
        self.line = match (self.line, part) {
            (line, []) => line,
            (Line::Nothing, [b'\r' | b' ' | b'\t']) => Line::One,
            _ => Line::More,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(method: &'a str, target: &'a str, protocol: &'a str) -> Option<StartLine<'a>> {
        let [method, target, protocol] = [method, target, protocol].map(str::as_bytes);
        Some(StartLine::Request { method, target, protocol })
    }

    fn response(protocol: &str, status: Option<u16>) -> Option<StartLine<'_>> {
        Some(StartLine::Response { protocol: protocol.as_bytes(), status })
    }

    #[test]
    fn first_lines() {
        let rows = [
            ("GET / HTTP/1.1\r\n", request("GET", "/", "HTTP/1.1")),
            ("M-SEARCH * HTTP/1.0", request("M-SEARCH", "*", "HTTP/1.0")),
            ("get\t/a b \thttp/1.1\n", request("get", "/a b", "http/1.1")),
            ("CONNECT a.example:443 HTTP/1.1", request("CONNECT", "a.example:443", "HTTP/1.1")),
            ("PRI * HTTP/2.0\r\n", None),
            ("GET /\r\n", None),
            ("GET HTTP/1.1", None),
            ("INVITE sip:a@b SIP/2.0", None),
            ("USER anonymous\r\n", None),
            ("220 ready", None),
            ("\x16\x03\x01", None),
            ("HTTP/1.1 200 OK\r\n", response("HTTP/1.1", Some(200))),
            ("http/1.0\t404", response("http/1.0", Some(404))),
            ("HTTP/1.1 200ok", response("HTTP/1.1", Some(200))),
            ("HTTP/1.1\r\n", response("HTTP/1.1", None)),
            ("HTTP/1.1 20 OK", response("HTTP/1.1", None)),
            ("HTTP/1.1 2000 OK", response("HTTP/1.1", None)),
            ("HTTP/1.1\r 304 OK\r\n", response("HTTP/1.1", None)),
            ("HTTP/1.1\x00204\0ok", response("HTTP/1.1", Some(204))),
            ("HTTP/9.-1 200 ok", response("HTTP/9.-1", Some(200))),
            ("HTTP/", response("HTTP/", None)),
            ("HTTXHTTP/1.1 200 OK", response("HTTP/1.1", Some(200))),
            ("HTTXYHTTP/1.1 200 OK", None),
            ("ICY 200 OK", response("ICY", Some(200))),
            ("ICY weather", None),
            ("HTTPS", None),
        ];
        for (line, expected) in rows {
            assert_eq!(start_line(line.as_bytes()), expected, "{line:?}");
            if expected.is_some() {
                assert!((1..line.len()).all(|len| may_begin(&line.as_bytes()[..len])), "{line:?}");
                let answers = (1..line.len()).all(|len| may_answer(&line.as_bytes()[..len]));
                assert_eq!(answers, matches!(expected, Some(StartLine::Response { .. })), "{line:?}");
            }
        }
        for text in ["220 ", "\x16\x03", "SSH-2.0-x@", "{\"a\"", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "GET/"] {
            assert!(!may_begin(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_head() {
        let rows = [
            ("GET / HTTP/1.1\r\nA: b\r\n\r\nbody", Some(24)),
            ("GET / HTTP/1.1\nA: b\n\nbody", Some(21)),
            ("GET / HTTP/1.1\r\r\n\r\nbody", Some(19)),
            ("GET / HTTP/1.1\r\n\r\r\nA: b\r\n\r\nbody", Some(27)),
            ("GET / HTTP/1.1\r\n\r\r\nbody", None),
            ("GET / HTTP/1.1\n \nbody", Some(17)),
            ("GET / HTTP/1.1\r\n\t\nbody", Some(18)),
            ("GET / HTTP/1.1\r\n \r\nA: b\r\n", None),
        ];
        for (text, expected) in rows {
            let bytes = text.as_bytes();
            for split in 0..=bytes.len() {
                let mut line = EmptyLine::START;
                let first = line.find(&bytes[..split]);
                let end = first.or_else(|| line.find(&bytes[split..]).map(|end| split + end));
                assert_eq!(end, expected, "{text:?} at {split}");
            }
        }
    }
}
