//! SIP (RFC 3261): heads of messages, with their first line and header fields, and messages in streams. Bodies and
//! dialogues are not read.

mod conversation;

pub use conversation::{Conversation, KEPT_BYTES};

use crate::conversation::{About, Kind};
use crate::fit::Fit;

/// A fact about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The method of a request.
    Method,
    /// The target of a request.
    Uri,
    /// `SIP/2.0`.
    Version,
    /// The first line of a request.
    RequestLine,
    /// The code of a response.
    Code,
    /// The text of the code.
    Reason,
    /// The first line of a response.
    ResponseLine,
    /// The header field From, as the next ones, which may come several times.
    From,
    /// To.
    To,
    /// Call-ID.
    CallId,
    /// User-Agent.
    UserAgent,
    /// Content-Type.
    ContentType,
    /// Via.
    Via,
    /// Content-Length.
    ContentLength,
}

/// Either side sends requests and responses.
const fn both(field: &'static str, buffer: &'static str) -> About {
    About { field: [field; 2], buffer: [buffer; 2], kind: Kind::Text }
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        both("sip.method", "sip.method"),
        both("sip.uri", "sip.uri"),
        both("sip.version", "sip.protocol"),
        both("sip.request_line", "sip.request_line"),
        both("sip.code", "sip.stat_code"),
        both("sip.reason", "sip.stat_msg"),
        both("sip.response_line", "sip.response_line"),
        both("sip.from", "sip.from"),
        both("sip.to", "sip.to"),
        both("sip.call_id", ""),
        both("sip.user_agent", "sip.user_agent"),
        both("sip.content_type", "sip.content_type"),
        both("", "sip.via"),
        both("", "sip.content_length"),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

impl Fact {
    /// The fact that a header field says, by its name or its short name (RFC 3261, 7.3.3).
    fn of_field(name: &[u8]) -> Option<Fact> {
        const NAMES: [(Fact, &str, &str); 7] = [
            (Fact::From, "From", "f"),
            (Fact::To, "To", "t"),
            (Fact::CallId, "Call-ID", "i"),
            (Fact::UserAgent, "User-Agent", ""),
            (Fact::ContentType, "Content-Type", "c"),
            (Fact::Via, "Via", "v"),
            (Fact::ContentLength, "Content-Length", "l"),
        ];
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        NAMES.iter().find(|(_, long, short)| is(long) || !name.is_empty() && is(short)).map(|known| known.0)
    }
}

/// A head.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The first line, without its end.
    pub line: &'a [u8],
    /// The contents of the first line.
    pub start: Start<'a>,
    fields: &'a [u8],
    /// Length of the head with its empty line; without an empty line, all bytes.
    pub len: usize,
    /// The head has its empty line.
    pub is_whole: bool,
}

/// The contents of a first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// A request.
    Request {
        /// The method.
        method: &'a [u8],
        /// The target.
        uri: &'a [u8],
        /// `SIP/2.0`.
        version: &'a [u8],
    },
    /// A response.
    Response {
        /// `SIP/2.0`.
        version: &'a [u8],
        /// Three digits.
        code: &'a [u8],
        /// The text of the code.
        reason: &'a [u8],
    },
}

const VERSION: &[u8] = b"SIP/";

/// The longest known name of a method is SUBSCRIBE.
const METHOD_LIMIT: usize = 32;

/// Whether a message can begin with these bytes, however few.
pub fn may_begin(bytes: &[u8]) -> bool {
    let word = bytes.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_cut = !word.is_empty() && word.len() == bytes.len();
    if word.starts_with(VERSION) || is_cut && VERSION.starts_with(word) {
        return true;
    }
    let is_method = word.len() <= METHOD_LIMIT && word.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    is_method && !word.is_empty()
}

/// Reads the head at the start of `bytes`; `None` if none begins there. Of a truncated head, reads what is there.
pub fn head(bytes: &[u8]) -> Option<Head<'_>> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = without_return(&bytes[..end]);
    let start = start(line)?;
    let (mut at, mut is_whole) = (end + 1, false);
    while let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        let is_empty = without_return(&bytes[at..at + length]).is_empty();
        at += length + 1;
        if is_empty {
            is_whole = true;
            break;
        }
    }
    let len = if is_whole { at } else { bytes.len() };
    Some(Head { line, start, fields: &bytes[end + 1..len], len, is_whole })
}

fn start(line: &[u8]) -> Option<Start<'_>> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (first, second, third) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    if first.starts_with(VERSION) {
        let is_code = second.len() == 3 && second.iter().all(u8::is_ascii_digit);
        return is_code.then_some(Start::Response { version: first, code: second, reason: third });
    }
    let is_request = may_begin(first) && third.starts_with(VERSION) && !second.is_empty();
    is_request.then_some(Start::Request { method: first, uri: second, version: third })
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl<'a> Head<'a> {
    /// Names and values of the fields. Of a folded field only the first line is given.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let lines = self.fields.split(|byte| *byte == b'\n');
        // A line that begins with a space or tab continues the field before it (RFC 3261, 7.3.1).
        lines.filter(|line| !matches!(line.first(), Some(b' ' | b'\t'))).filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((line[..colon].trim_ascii(), line[colon + 1..].trim_ascii()))
        })
    }

    /// The first field of this name, or of this short name (RFC 3261, 7.3.3).
    pub fn field(&self, name: &str, short: Option<u8>) -> Option<&'a [u8]> {
        let is_short = |found: &[u8]| short.is_some_and(|short| found.eq_ignore_ascii_case(&[short]));
        let mut fields = self.fields();
        fields.find(|(found, _)| is_short(found) || found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The length of the body; `None` if the head does not tell it.
    pub fn body_len(&self) -> Option<usize> {
        std::str::from_utf8(self.field("Content-Length", Some(b'l'))?).ok()?.parse().ok()
    }
}

/// Whether the bytes begin with a SIP message. In an incomplete first line the request target decides.
pub fn probe(bytes: &[u8]) -> Fit {
    if bytes.contains(&b'\n') {
        return Fit::of(head(bytes).is_some());
    }
    let mut words = bytes.split(|byte| *byte == b' ');
    let (word, next) = (words.next(), words.next().unwrap_or_default());
    let is_asked = |scheme: &&[u8]| next.get(..scheme.len()).is_some_and(|found| found.eq_ignore_ascii_case(scheme));
    match may_begin(bytes) {
        true if word == Some(b"SIP/2.0") || [&b"sip:"[..], b"sips:", b"tel:"].iter().any(is_asked) => Fit::Is,
        true => Fit::More,
        false => Fit::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INVITE: &[u8] = b"INVITE sip:b@x SIP/2.0\r\nFrom: <sip:a@x>\r\nl: 3\r\nCall-ID : 7\r\n\r\nabc";

    #[test]
    fn heads() {
        let found = head(INVITE).unwrap();
        assert_eq!(found.start, Start::Request { method: b"INVITE", uri: b"sip:b@x", version: b"SIP/2.0" });
        assert_eq!((found.len, found.is_whole, found.body_len()), (INVITE.len() - 3, true, Some(3)));
        assert_eq!(found.field("from", Some(b'f')), Some(&b"<sip:a@x>"[..]));
        assert_eq!(found.field("Call-ID", Some(b'i')), Some(&b"7"[..]));
        assert_eq!(found.field("To", Some(b't')), None);
        let found = head(b"SIP/2.0 180 Ringing now\nx").unwrap();
        assert_eq!(found.start, Start::Response { version: b"SIP/2.0", code: b"180", reason: b"Ringing now" });
        assert_eq!((found.is_whole, found.body_len()), (false, None));
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"SIP/2.0 1800 x\r\n", b"INVITE", b"", b"invite a SIP/2.0\r\n"] {
            assert!(head(other).is_none(), "{other:?}");
        }
        assert!(
            may_begin(b"SI") && may_begin(b"INV") && may_begin(b"SIP/2.0 2") && !may_begin(b"\x16") && !may_begin(b"")
        );
    }

    #[test]
    fn a_folded_line_is_no_field() {
        let found =
            head(b"INVITE sip:b@x SIP/2.0\r\nSubject: a\r\n To: no\r\n\tl: 9\r\nt: yes\r\nl: 3\r\n\r\n").unwrap();
        assert_eq!((found.field("To", Some(b't')), found.body_len()), (Some(&b"yes"[..]), Some(3)));
    }

    proptest! {
        #[test]
        fn any_bytes(at in 0usize..90, value: u8, cut in 0usize..90) {
            let mut bytes = INVITE.to_vec();
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut);
            let _ = probe(&bytes);
            if let Some(head) = head(&bytes) {
                prop_assert!(head.len <= bytes.len());
                let _ = (head.body_len(), head.field("From", Some(b'f')));
            }
        }
    }

    #[test]
    fn beginnings() {
        let check = |bytes: &[u8], fit: Fit| assert_eq!(probe(bytes), fit, "{bytes:?}");
        check(b"SIP/2.0 200 OK\r\n", Fit::Is);
        check(b"FOO tel:1 SIP/2.0\r\nx", Fit::Is);
        check(b"OPTIONS SIP:a@", Fit::Is);
        check(b"OPTIONS / HTTP/1.1\r\n", Fit::No);
        check(b"INV", Fit::More);
        check(b"220 mail", Fit::No);
    }
}
