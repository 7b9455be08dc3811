//! Where the body of a message ends (RFC 9112 section 6).

use super::chunks::Chunks;
use super::head::Head;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked(Chunks),
    /// At the end of the stream.
    Close,
}

impl Framing {
    /// RFC 9112 section 6.3, rules 4 to 7, for messages that may have a body. Chunked wins over a length. An invalid
    /// length is ignored.
    pub fn of(head: &Head<'_>, request: bool) -> Framing {
        if head.chunked { Framing::Chunked(Chunks::START) } else { Framing::unchunked(head, request) }
    }

    pub fn unchunked(head: &Head<'_>, request: bool) -> Framing {
        match head.length {
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            None if request => Framing::None,
            None => Framing::Close,
        }
    }
}
