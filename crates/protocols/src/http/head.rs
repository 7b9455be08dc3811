//! The fields of an HTTP/1.x head (RFC 9112 sections 3 to 6). `start` finds its beginning and end.
//!
//! Reads as tolerantly as the most tolerant receiver, because whatever one receiver accepts is a message. Lines may
//! end in LF or CR alone, fields may be folded, white space and control characters may surround names and values, and
//! lines without a colon are skipped. Most of these cases come from HTTP Evader, a collection of such responses.
//! Copies nothing. `body` applies the fields to the body.

use super::start::{CUT_HEAD, StartLine, cut_line, is_token, start_line, trim};
use base::limits::HTTP_CODINGS;
use memchr::{memchr, memchr2, memrchr, memrchr2};

/// The coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or RFC 1951 as some servers send it.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
    /// For rules alone.
    Lzma,
    Unknown,
}

/// Codings in the order in which they were applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codings {
    list: [Option<Coding>; HTTP_CODINGS],
    count: usize,
    /// There were more codings than the list has room for.
    pub over: bool,
}

impl Codings {
    pub fn list(&self) -> &[Option<Coding>] {
        &self.list[..self.count]
    }

    /// Adds a coding. When the list is full, the codings so far become one unknown coding.
    pub fn push(&mut self, coding: Coding) {
        if self.count == HTTP_CODINGS {
            (self.list[0], self.count, self.over) = (Some(Coding::Unknown), 1, true);
        }
        self.list[self.count] = Some(coding);
        self.count += 1;
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub start: StartLine<'a>,
    pub host: Option<&'a [u8]>,
    pub content_type: Option<&'a [u8]>,
    pub content_encoding: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    /// Content-Disposition (RFC 6266).
    pub disposition: Option<&'a [u8]>,
    /// The protocol to switch to.
    pub upgrade: Option<&'a [u8]>,
    /// Content-Length; the first if there are several.
    pub length: Option<u64>,
    /// Number of lengths that are invalid or differ from the first.
    pub bad_lengths: u32,
    /// Transfer-Encoding contains chunked.
    pub chunked: bool,
    /// Transfer-Encoding is other than `chunked` alone, spelled as usual.
    pub odd_transfer: bool,
    /// The same for Content-Encoding and one coding.
    pub odd_content: bool,
    /// The other codings of Transfer-Encoding.
    pub transfer: Codings,
    pub content: Codings,
}

impl<'a> Head<'a> {
    /// Reads the beginning of a head. Also returns the value that is cut, by its name in records; it is left out.
    pub fn parse_cut(bytes: &'a [u8]) -> Option<(Head<'a>, &'static str)> {
        let Some(end) = memrchr(b'\n', bytes) else {
            let (start, cut) = cut_line(bytes)?;
            return Some((Head::new(start), cut));
        };
        let line = &bytes[end + 1..];
        let name = trim(line.split(|byte| *byte == b':').next().unwrap_or_default());
        // The end of a name may be cut, too.
        let is_named = memchr(b':', line).is_some();
        let value = VALUES.iter().find(|value| is_named && name.eq_ignore_ascii_case(value.0));
        Some((Head::parse(&bytes[..=end])?, value.map_or(CUT_HEAD, |value| value.1)))
    }

    fn new(start: StartLine<'a>) -> Head<'a> {
        Head {
            start,
            host: None,
            content_type: None,
            content_encoding: None,
            user_agent: None,
            referer: None,
            disposition: None,
            upgrade: None,
            length: None,
            bad_lengths: 0,
            chunked: false,
            odd_transfer: false,
            odd_content: false,
            transfer: Codings::default(),
            content: Codings::default(),
        }
    }

    /// Reads a head, or the beginning of one.
    pub fn parse(bytes: &'a [u8]) -> Option<Head<'a>> {
        let (line, mut rest) = split_line(bytes);
        let mut head = Head::new(start_line(line)?);
        while !rest.is_empty() {
            let (field, after) = split_field(rest);
            head.field(field);
            rest = after;
        }
        Some(head)
    }

    /// Whether some clients see chunks where others see none.
    pub fn doubts_chunks(&self) -> bool {
        let (StartLine::Request { protocol, .. } | StartLine::Response { protocol, .. }) = self.start;
        let is_old = !protocol.eq_ignore_ascii_case(b"HTTP/1.1");
        self.chunked && (self.odd_transfer || self.length.is_some() || self.bad_lengths > 0 || is_old)
    }

    /// Why clients disagree about the message, as a list; empty: they agree. `is_bodyless`: it has a body that its status
    /// rules out.
    pub fn ambiguous(&self, is_bodyless: bool) -> String {
        let reasons = [
            (self.bad_lengths > 0, "length"),
            (self.doubts_chunks() || !self.transfer.list().is_empty(), "transfer coding"),
            (self.odd_content, "content coding"),
            (is_bodyless && (self.chunked || self.length.is_some_and(|length| length > 0)), "body of this status"),
        ];
        let said: Vec<&str> = reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect();
        said.join(", ")
    }

    fn field(&mut self, field: &'a [u8]) {
        let Some(colon) = memchr(b':', field) else { return };
        let (name, value) = (trim(&field[..colon]), trim(&field[colon + 1..]));
        let mut letters = [0; NAME_BYTES];
        let name = only_tokens(name, &mut letters);
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        // The length rules out most fields before letters are compared.
        match name.len() {
            4 if is(b"host") => drop(self.host.get_or_insert(value)),
            7 if is(b"referer") => drop(self.referer.get_or_insert(value)),
            7 if is(b"upgrade") => drop(self.upgrade.get_or_insert(value)),
            10 if is(b"user-agent") => drop(self.user_agent.get_or_insert(value)),
            12 if is(b"content-type") => drop(self.content_type.get_or_insert(value)),
            14 if is(b"content-length") => value.split(|byte| *byte == b',').for_each(|one| self.length(trim(one))),
            16 if is(b"content-encoding") => {
                self.odd_content |= self.content_encoding.is_some() || !is_usual(field, b"content-encoding", CODINGS);
                self.content_encoding.get_or_insert(value);
                self.codings(value, |head, coding| head.content.push(coding));
            }
            17 if is(b"transfer-encoding") => {
                self.odd_transfer |= self.chunked || !is_usual(field, b"transfer-encoding", &[b"chunked"]);
                self.codings(value, |head, coding| {
                    // No receiver knows such a coding, so no sender can use it; browsers ignore it.
                    if coding != Coding::Unknown {
                        head.transfer.push(coding);
                    }
                });
            }
            19 if is(b"content-disposition") => drop(self.disposition.get_or_insert(value)),
            _ => {}
        }
    }

    /// Reads a list of codings without their parameters. Chunked counts at any place; the body shows if it is true.
    fn codings(&mut self, list: &[u8], push: impl Fn(&mut Head<'a>, Coding)) {
        for element in list.split(|byte| *byte == b',') {
            let token = element.split(|byte| *byte == b';').map(trim).find(|part| !part.is_empty());
            let mut letters = [0; NAME_BYTES];
            match token.map(|token| only_tokens(token, &mut letters)) {
                Some(token) if contains(token, b"chunked") => self.chunked = true,
                Some(token) => coding(token).into_iter().for_each(|coding| push(self, coding)),
                None => {}
            }
        }
    }

    /// RFC 9112 section 6.3: digits only, and all lengths equal. Otherwise receivers differ. The largest length wins,
    /// so that no byte is skipped that some receiver takes for body.
    fn length(&mut self, text: &[u8]) {
        let digits = text.iter().try_fold(0u64, |number, byte| {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        });
        let length = digits.filter(|_| !text.is_empty());
        self.bad_lengths += u32::from(length.is_none() || self.length.is_some_and(|other| Some(other) != length));
        self.length = self.length.max(length);
    }
}

/// The fields of a head, and what stands around each name and value is gone. A line that is cut is left out.
pub fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let end = memrchr2(b'\r', b'\n', head).map_or(0, |end| end + 1);
    let (_, mut rest) = split_line(&head[..end]);
    let lines = std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let (field, after) = split_field(rest);
            rest = after;
            field
        })
    });
    lines.filter_map(|field| {
        let colon = memchr(b':', field)?;
        Some((trim(&field[..colon]), trim(&field[colon + 1..])))
    })
}

/// The first line without its end (CR LF, or either alone), and the rest.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr2(b'\r', b'\n', bytes) {
        Some(end) => {
            let both = bytes[end..].starts_with(b"\r\n");
            (&bytes[..end], &bytes[end + 1 + usize::from(both)..])
        }
        None => (bytes, &[]),
    }
}

/// The first field with its folded lines (RFC 9112 section 5.2), and the rest.
fn split_field(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (mut line, mut rest) = split_line(bytes);
    while rest.first().is_some_and(|byte| (*byte <= b' ' && !matches!(byte, b'\r' | b'\n')) || *byte == 0xa0) {
        rest = split_line(rest).1;
        line = &bytes[..bytes.len() - rest.len()];
    }
    (line, rest)
}

/// Fields whose values are in records, and their names there.
const VALUES: &[(&[u8], &str)] = &[
    (b"host", "hostname"),
    (b"content-type", "http_content_type"),
    (b"content-encoding", "content_encoding"),
    (b"user-agent", "http_user_agent"),
    (b"referer", "http_refer"),
    (b"content-disposition", "filename"),
];

/// Content codings as they are usually spelled.
const CODINGS: &[&[u8]] = &[b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"identity"];

/// Whether the field is `name` with one of these values, spelled as usual.
fn is_usual(field: &[u8], name: &[u8], values: &[&[u8]]) -> bool {
    let is_named = field.get(..name.len()).is_some_and(|text| text.eq_ignore_ascii_case(name));
    let value = field.get(name.len()..).and_then(|rest| rest.strip_prefix(b":")).unwrap_or_default();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value.iter().take_while(|byte| blank(byte)).count();
    let value = &value[from..];
    let value = &value[..value.len() - value.iter().rev().take_while(|byte| blank(byte)).count()];
    is_named && values.iter().any(|usual| value.eq_ignore_ascii_case(usual))
}

/// No known name or coding is longer.
const NAME_BYTES: usize = 32;

/// `text` without bytes that are not part of a token. Texts longer than [`NAME_BYTES`] come back unchanged.
fn only_tokens<'a>(text: &'a [u8], room: &'a mut [u8; NAME_BYTES]) -> &'a [u8] {
    if text.len() > NAME_BYTES || text.iter().all(|byte| is_token(*byte)) {
        return text;
    }
    let mut len = 0;
    for byte in text.iter().filter(|byte| is_token(**byte)) {
        room[len] = *byte;
        len += 1;
    }
    &room[..len]
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.len() <= NAME_BYTES && says(text, word)
}

/// Whether the word is somewhere in the text, in any case.
pub fn says(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// `None` for identity.
pub fn coding(token: &[u8]) -> Option<Coding> {
    let is = |word: &[u8]| token.eq_ignore_ascii_case(word);
    match token {
        _ if is(b"identity") => None,
        _ if is(b"br") => Some(Coding::Brotli),
        _ if is(b"zstd") => Some(Coding::Zstd),
        _ if is(b"lzma") || is(b"x-lzma") => Some(Coding::Lzma),
        _ if is(b"deflate") || is(b"x-deflate") => Some(Coding::Deflate),
        // The decoder checks whether it is gzip.
        _ if contains(token, b"gzip") => Some(Coding::Gzip),
        _ => Some(Coding::Unknown),
    }
}

/// EVE's content type: without parameters.
pub fn media_type(value: &[u8]) -> &[u8] {
    trim(value.split(|byte| *byte == b';').next().unwrap_or_default())
}

/// EVE's host name, without the port: from an absolute target, otherwise from Host (RFC 9112 section 3.3).
pub fn host_name<'a>(target: &'a [u8], host: Option<&'a [u8]>) -> Option<&'a [u8]> {
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

    #[test]
    fn each_field_of_a_head() {
        let check = |head: &str, expected: &[(&str, &str)]| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let found: Vec<_> = super::fields(head.as_bytes()).map(|(name, value)| (text(name), text(value))).collect();
            let found: Vec<_> = found.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            assert_eq!(found, expected, "{head:?}");
        };
        check("GET / HTTP/1.1\r\nHost: a\r\nX :b\r\n c\r\nno field\r\n\r\n", &[("Host", "a"), ("X", "b\r\n c")]);
        check("HTTP/1.1 200 OK\nServer: x\nX-Cut: va", &[("Server", "x")]);
        check("GET / HT", &[]);
        check("", &[]);
    }

    #[test]
    fn fields_as_they_are_met() {
        let rows = [
            ("Transfer-Encoding\t :\x0bchunked", true, None),
            ("Transfer\0-encoding:chun\0ked", true, None),
            ("Transfer-Encoding\r\n :\r\n chunked", true, None),
            ("Transfer-Encoding:\n\0chunked", true, None),
            ("Transfer-Encoding:: chunked;", true, None),
            ("Transfer-Encoding:;chunked", true, None),
            ("Transfer-Encoding: lalala\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding:", true, None),
            ("Transfer-Encoding: x chunked", true, None),
            ("X-Foo: bar\rTransfer-Encoding: chunked", true, None),
            ("Content-Encoding: chunked", true, None),
            ("Transfer-Encoding: chu", false, None),
            ("Content-Encoding:\r\n \x7fgz\0ip", false, Some(Coding::Gzip)),
            ("Content-Encoding:;gzip", false, Some(Coding::Gzip)),
            ("Content-Encoding: x gzip", false, Some(Coding::Gzip)),
            ("Content-Encoding: zstd", false, Some(Coding::Zstd)),
            ("Content-Encoding: compress", false, Some(Coding::Unknown)),
        ];
        for (fields, chunked, content) in rows {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\nX: y\r\n\r\n");
            let head = Head::parse(text.as_bytes()).unwrap();
            assert_eq!(
                (head.chunked, head.content.list().first().copied().flatten()),
                (chunked, content),
                "{fields:?}"
            );
        }
    }

    #[test]
    fn heads() {
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
        let rows: [(&str, Option<u64>, u32); 10] = [
            ("Content-Length: 5", Some(5), 0),
            ("Content-Length: 5\r\ncontent-length:\t5", Some(5), 0),
            ("Content-Length: 5, 5", Some(5), 0),
            ("Content-Length: 5\r\nContent-Length: 6", Some(6), 1),
            ("Content-Length: 6\r\nContent-Length: x\r\nContent-Length: 5", Some(6), 2),
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
