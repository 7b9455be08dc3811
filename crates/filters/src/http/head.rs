//! The head of an HTTP/1.x message: is this one, where does it end, what does it say (RFC 9112 sections 2 to 5).
//!
//! Reads as tolerant receivers do: lines may end in LF alone, fields may be folded, white space may stand before the colon,
//! lines without a colon are passed over. Copies nothing. What a body's framing follows from this is in `framing`.

use base::limits::{HTTP_CODINGS, HTTP_METHOD_BYTES};
use memchr::{memchr, memchr_iter};

/// The word responses begin with, and the version of requests.
const NAME: &[u8] = b"HTTP/";

/// A first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartLine<'a> {
    /// Method, target, version.
    Request { method: &'a [u8], target: &'a [u8], protocol: &'a [u8] },
    /// Version and status; `None` where it cannot be read.
    Response { protocol: &'a [u8], status: Option<u16> },
}

/// Can a message begin with these bytes? Looks at the first few only; more may show that it cannot.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    let common = bytes.len().min(NAME.len());
    if bytes[..common].eq_ignore_ascii_case(&NAME[..common]) {
        return true;
    }
    let token = bytes.iter().take(HTTP_METHOD_BYTES + 1).take_while(|byte| is_token(**byte)).count();
    let method = bytes.first().is_some_and(u8::is_ascii_alphabetic) && token <= HTTP_METHOD_BYTES;
    method && bytes.get(token).is_none_or(|byte| is_blank(*byte))
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Without white space and control characters at either end.
fn trim(mut text: &[u8]) -> &[u8] {
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
pub(super) fn start_line(line: &[u8]) -> Option<StartLine<'_>> {
    if !may_begin(line) {
        return None;
    }
    let line = trim(line);
    if line.len() >= NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
        let protocol = line.split(|byte| is_blank(*byte)).next()?;
        let rest = trim(&line[protocol.len()..]);
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit());
        let status = digits.fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        return Some(StartLine::Response { protocol, status: (status >= 100).then_some(status) });
    }
    let method = line.split(|byte| is_blank(*byte)).next()?;
    let protocol = line.rsplit(|byte| is_blank(*byte)).next()?;
    // The preface of HTTP/2 (RFC 9113 section 3.4) is made to look like a request that no HTTP/1 server understands.
    let major = protocol.get(NAME.len()).filter(|_| protocol[..NAME.len()].eq_ignore_ascii_case(NAME))?;
    if !matches!(major, b'0' | b'1') {
        return None;
    }
    let target = trim(line.get(method.len()..line.len() - protocol.len())?);
    (!target.is_empty()).then_some(StartLine::Request { method, target, protocol })
}

/// Finds the empty line that ends a head, in pieces of it that come one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmptyLine {
    /// The line under way has had nothing but CR.
    empty: bool,
}

impl EmptyLine {
    /// At the beginning of a line.
    pub(super) const START: EmptyLine = EmptyLine { empty: true };

    /// How many of these bytes belong to the head; `None` where it goes on.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        let only_cr = |part: &[u8]| part.iter().all(|byte| *byte == b'\r');
        let mut at = 0;
        for end in memchr_iter(b'\n', bytes) {
            if self.empty && only_cr(&bytes[at..end]) {
                return Some(end + 1);
            }
            (self.empty, at) = (true, end + 1);
        }
        self.empty &= only_cr(&bytes[at..]);
        None
    }
}

/// How a body is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or RFC 1951 as some servers have it.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// One that is not known here.
    Unknown,
}

/// Codings in the order in which they were applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Codings {
    list: [Option<Coding>; HTTP_CODINGS],
    count: usize,
}

impl Codings {
    /// They, the first applied first.
    pub(super) fn list(&self) -> &[Option<Coding>] {
        &self.list[..self.count]
    }

    /// Adds one; where there are too many, all before it cannot be undone, as if it were unknown.
    pub(super) fn push(&mut self, coding: Coding) {
        if self.count == HTTP_CODINGS {
            (self.list[0], self.count) = (Some(Coding::Unknown), 1);
        }
        self.list[self.count] = Some(coding);
        self.count += 1;
    }
}

/// A parsed head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) start: StartLine<'a>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) content_encoding: Option<&'a [u8]>,
    pub(super) user_agent: Option<&'a [u8]>,
    pub(super) referer: Option<&'a [u8]>,
    /// Content-Length; the first where there are several.
    pub(super) length: Option<u64>,
    /// Lengths that contradict the first, or are none.
    pub(super) bad_lengths: u32,
    /// Transfer-Encoding has chunked.
    pub(super) chunked: bool,
    /// What else Transfer-Encoding has.
    pub(super) transfer: Codings,
    /// Content-Encoding.
    pub(super) content: Codings,
}

impl<'a> Head<'a> {
    /// Reads a head, or the part of it that is there.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Head<'a>> {
        let (line, mut rest) = split_line(bytes);
        let mut head = Head {
            start: start_line(line)?,
            host: None,
            content_type: None,
            content_encoding: None,
            user_agent: None,
            referer: None,
            length: None,
            bad_lengths: 0,
            chunked: false,
            transfer: Codings::default(),
            content: Codings::default(),
        };
        while !rest.is_empty() {
            let (field, after) = split_field(rest);
            head.field(field);
            rest = after;
        }
        Some(head)
    }

    fn field(&mut self, field: &'a [u8]) {
        let Some(colon) = memchr(b':', field) else { return };
        let (name, value) = (trim(&field[..colon]), trim(&field[colon + 1..]));
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        // The length tells most fields apart before their letters are looked at.
        match name.len() {
            4 if is(b"host") => drop(self.host.get_or_insert(value)),
            7 if is(b"referer") => drop(self.referer.get_or_insert(value)),
            10 if is(b"user-agent") => drop(self.user_agent.get_or_insert(value)),
            12 if is(b"content-type") => drop(self.content_type.get_or_insert(value)),
            14 if is(b"content-length") => value.split(|byte| *byte == b',').for_each(|one| self.length(trim(one))),
            16 if is(b"content-encoding") => {
                self.content_encoding.get_or_insert(value);
                tokens(value).filter_map(coding).for_each(|one| self.content.push(one));
            }
            17 if is(b"transfer-encoding") => {
                for token in tokens(value) {
                    match coding(token) {
                        _ if token.eq_ignore_ascii_case(b"chunked") => self.chunked = true,
                        // What no receiver knows is no coding that a sender could use: browsers read over it.
                        None | Some(Coding::Unknown) => {}
                        Some(coding) => self.transfer.push(coding),
                    }
                }
            }
            _ => {}
        }
    }

    /// RFC 9112 section 6.3: digits only, and all equal. Where they are not, receivers differ: the first counts.
    fn length(&mut self, text: &[u8]) {
        let digits = text.iter().try_fold(0u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        });
        match digits.filter(|_| !text.is_empty()) {
            Some(length) if *self.length.get_or_insert(length) == length => {}
            _ => self.bad_lengths += 1,
        }
    }
}

/// The first line without its LF, and what comes after.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// The first field with its folded lines (RFC 9112 section 5.2), and what comes after.
fn split_field(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (mut line, mut rest) = split_line(bytes);
    while rest.first().is_some_and(|byte| is_blank(*byte)) {
        rest = split_line(rest).1;
        line = &bytes[..bytes.len() - rest.len()];
    }
    (line, rest)
}

/// The elements of a list, without parameters.
fn tokens(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bare = |element| {
        let element = trim(element);
        element.split(|byte| *byte == b';' || *byte <= b' ').next().unwrap_or_default()
    };
    list.split(|byte| *byte == b',').map(bare).filter(|token| !token.is_empty())
}

/// `None` for identity.
fn coding(token: &[u8]) -> Option<Coding> {
    let is = |word: &[u8]| token.eq_ignore_ascii_case(word);
    match token.len() {
        2 if is(b"br") => Some(Coding::Brotli),
        4 if is(b"gzip") => Some(Coding::Gzip),
        6 if is(b"x-gzip") => Some(Coding::Gzip),
        7 if is(b"deflate") => Some(Coding::Deflate),
        8 if is(b"identity") => None,
        _ => Some(Coding::Unknown),
    }
}

/// What EVE calls the content type: without parameters.
pub(super) fn media_type(value: &[u8]) -> &[u8] {
    trim(value.split(|byte| *byte == b';').next().unwrap_or_default())
}

/// What EVE calls the host's name: from a target in absolute form, else from the Host field (RFC 9112 section 3.3), without
/// the port.
pub(super) fn host_name<'a>(target: &'a [u8], host: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let absolute = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"http://"));
    let host = match absolute {
        Some(_) => target[7..].split(|byte| *byte == b'/' || *byte == b'?').next()?,
        None => host?,
    };
    // An IPv6 address stands in brackets.
    let from = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let port = memchr(b':', &host[from..]).map_or(host.len(), |colon| from + colon);
    Some(&host[..port])
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
            ("HTTPS", None),
        ];
        for (line, expected) in rows {
            assert_eq!(start_line(line.as_bytes()), expected, "{line:?}");
            if expected.is_some() {
                assert!((0..line.len()).all(|len| may_begin(&line.as_bytes()[..len])), "{line:?}");
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
            ("GET / HTTP/1.1\r\r\n\r\r\nbody", Some(20)),
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

    #[test]
    fn fields() {
        let text = "POST /x HTTP/1.1\r\nhOST : a.example:80\r\nnonsense\r\nHost: second\r\nContent-Type:text/html ; charset=x\r\n\
                    User-Agent: one\r\n two\r\nReferer:\r\nTransfer-Encoding:\r\n gzip,\r\n\tChunked\r\n\
                    Content-Encoding: x-gzip, br;q=1, identity\r\n\r\n";
        let head = Head::parse(text.as_bytes()).unwrap();
        assert_eq!(head.host, Some(&b"a.example:80"[..]));
        assert_eq!(head.content_type.map(media_type), Some(&b"text/html"[..]));
        assert_eq!(head.user_agent, Some(&b"one\r\n two"[..]));
        assert_eq!(head.referer, Some(&b""[..]));
        assert!(head.chunked);
        assert_eq!(head.transfer.list(), [Some(Coding::Gzip)]);
        assert_eq!(head.content.list(), [Some(Coding::Gzip), Some(Coding::Brotli)]);
    }

    #[test]
    fn lengths() {
        let rows: [(&str, Option<u64>, u32); 9] = [
            ("Content-Length: 5", Some(5), 0),
            ("Content-Length: 5\r\ncontent-length:\t5", Some(5), 0),
            ("Content-Length: 5, 5", Some(5), 0),
            ("Content-Length: 5\r\nContent-Length: 6", Some(5), 1),
            ("Content-Length: -1", None, 1),
            ("Content-Length: 0x5", None, 1),
            ("Content-Length:", None, 1),
            ("Content-Length: 99999999999999999999", None, 1),
            ("X-Content-Length: 5", None, 0),
        ];
        for (fields, length, bad) in rows {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap();
            assert_eq!((head.length, head.bad_lengths), (length, bad), "{fields}");
        }
    }

    #[test]
    fn host_names() {
        let rows = [
            ("/", Some("a.example:8080"), Some("a.example")),
            ("/", Some("[2001:db8::1]:80"), Some("[2001:db8::1]")),
            ("http://b.example:81/x", Some("a.example"), Some("b.example")),
            ("/", None, None),
        ];
        for (target, host, expected) in rows {
            assert_eq!(host_name(target.as_bytes(), host.map(str::as_bytes)), expected.map(str::as_bytes));
        }
    }

    #[test]
    fn too_many_codings_leave_the_inner_ones() {
        let mut codings = Codings::default();
        (0..HTTP_CODINGS).for_each(|_| codings.push(Coding::Gzip));
        codings.push(Coding::Brotli);
        assert_eq!(codings.list(), [Some(Coding::Unknown), Some(Coding::Brotli)]);
    }
}
