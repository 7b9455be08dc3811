//! HTTP/1.1 (RFC 9110, RFC 9112) for `net serve` and `net get`: reads heads and bodies from a stream.
//!
//! - [`Wire`] — a stream and its read-ahead buffer; gives heads and bytes. Start reading here.
//! - [`Request`], [`Response`] — heads; [`Framing`] — how a body ends; [`Body`] — reads one.
//! - `date` — dates; `range` — parts of a file; `target` — the path of a request and its way back.
//!
//! Everything that comes from a peer has a limit of length and of time. The crate `httparse` splits heads into fields.

pub(super) mod date;
pub(super) mod range;
pub(super) mod target;

use super::tcp::{Stream, is_timeout};
use std::io;
use std::time::{Duration, Instant};

pub(super) const HEAD_BYTES: usize = 16 << 10;

const FIELDS: usize = 128;

/// The most bytes of a line before a chunk with its extensions, and of all trailers.
const CHUNK_LINE_BYTES: usize = 4 << 10;

const READ_BYTES: usize = 16 << 10;

/// How often a wait for a head asks whether to go on.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum NoHead {
    /// The peer closed, or the wait was given up, before the first byte.
    End,
    /// The head was not complete in time.
    Slow,
    /// The head is longer than [`HEAD_BYTES`].
    Long,
    /// The stream failed, or ended within the head.
    Stream(io::Error),
}

/// Time limits of a head.
pub(super) struct Patience<'a> {
    /// From now to the first byte.
    pub(super) idle: Duration,
    /// From the first byte to the last.
    pub(super) head: Duration,
    /// Called now and then before the first byte. `false` ends the wait.
    pub(super) goes_on: &'a dyn Fn() -> bool,
}

/// A stream and its read-ahead buffer.
pub(super) struct Wire<S> {
    pub(super) stream: S,
    buffer: Vec<u8>,
}

impl<S: Stream> Wire<S> {
    pub(super) fn new(stream: S) -> Wire<S> {
        Wire { stream, buffer: Vec::new() }
    }

    /// Reads more into the buffer; 0 at the end of the stream.
    fn fill(&mut self) -> io::Result<usize> {
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let read = loop {
            match self.stream.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Reads the next head, including its empty line.
    pub(super) fn head(&mut self, patience: &Patience<'_>) -> Result<Vec<u8>, NoHead> {
        let began = Instant::now();
        let mut first = None;
        let mut searched = 0;
        loop {
            // RFC 9112 2.2: skip empty lines before a head.
            if searched == 0 {
                let empty = self.buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                if empty > 0 {
                    first.get_or_insert_with(Instant::now);
                    self.buffer.drain(..empty);
                }
            }
            if let Some(len) = end_of_head(&self.buffer, searched) {
                if len > HEAD_BYTES {
                    return Err(NoHead::Long);
                }
                return Ok(self.buffer.drain(..len).collect());
            }
            if self.buffer.len() > HEAD_BYTES {
                return Err(NoHead::Long);
            }
            // The end may have begun in the last two bytes of the buffer.
            searched = self.buffer.len().saturating_sub(2);
            if !self.buffer.is_empty() {
                first.get_or_insert_with(Instant::now);
            }
            let left = match first {
                Some(first) => patience.head.saturating_sub(first.elapsed()),
                None => patience.idle.saturating_sub(began.elapsed()).min(LOOK),
            };
            let is_over = left.is_zero();
            match first {
                Some(_) if is_over => return Err(NoHead::Slow),
                None if is_over => return Err(NoHead::End),
                _ => {}
            }
            self.stream.set_read_timeout(Some(left)).map_err(NoHead::Stream)?;
            match self.fill() {
                Ok(0) if self.buffer.is_empty() => return Err(NoHead::End),
                Ok(0) => return Err(NoHead::Stream(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {
                    if first.is_none() && !(patience.goes_on)() {
                        return Err(NoHead::End);
                    }
                }
                Err(error) => return Err(NoHead::Stream(error)),
            }
        }
    }

    /// Reads from the buffer, then from the stream.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            return loop {
                match self.stream.read(to) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
        }
        let len = to.len().min(self.buffer.len());
        to[..len].copy_from_slice(&self.buffer[..len]);
        self.buffer.drain(..len);
        Ok(len)
    }
}

/// The length of a head that ends within these bytes. The first `searched` bytes contain no end.
fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let lines = bytes.iter().enumerate().skip(searched).filter(|(_, byte)| **byte == b'\n');
    let mut ends = lines.filter_map(|(at, _)| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    });
    ends.next()
}

#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    fn new(fields: &[httparse::Header<'_>]) -> Fields {
        // RFC 9110 5.5: bytes beyond ASCII are opaque data.
        let field =
            |one: &httparse::Header<'_>| (one.name.to_string(), String::from_utf8_lossy(one.value).into_owned());
        Fields(fields.iter().map(field).collect())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = move |(one, _): &&(String, String)| one.eq_ignore_ascii_case(name);
        self.0.iter().filter(named).map(|(_, value)| value.trim_matches([' ', '\t']))
    }

    pub(super) fn one<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// The members of a list field, in lower case.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let members = self.all(name).flat_map(|value| value.split(','));
        members.map(|one| one.trim().to_ascii_lowercase()).filter(|one| !one.is_empty()).collect()
    }

    /// How the body ends, by the rules common to requests and responses (RFC 9112 6.3). `None`: the head does not say.
    pub(super) fn framing(&self) -> Result<Option<Framing>, BadFraming> {
        let (codings, lengths) = (self.list("transfer-encoding"), self.list("content-length"));
        match (&codings[..], &lengths[..]) {
            ([], []) => Ok(None),
            ([], [first, rest @ ..]) => {
                let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
                let length = first.parse().ok().filter(|_| is_number && rest.iter().all(|one| one == first));
                length.map(|length| Some(Framing::Bytes(length))).ok_or(BadFraming::Damaged)
            }
            // Two different lengths: a proxy before us may have used the other one (RFC 9112 6.1).
            (_, [_, ..]) => Err(BadFraming::Damaged),
            ([coding], []) if coding == "chunked" => Ok(Some(Framing::Chunked)),
            _ => Err(BadFraming::UnknownCoding),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadFraming {
    Damaged,
    UnknownCoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Bytes(u64),
    Chunked,
    ToEnd,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    /// The minor version of HTTP/1.x: 0 or 1.
    pub(super) minor: u8,
    pub(super) fields: Fields,
}

impl Request {
    pub(super) fn parse(head: &[u8]) -> Result<Request, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match (request.parse(head)?, request.method, request.path, request.version) {
            (httparse::Status::Complete(_), Some(method), Some(target), Some(minor)) => Ok(Request {
                method: method.into(),
                target: target.into(),
                minor,
                fields: Fields::new(request.headers),
            }),
            _ => Err(httparse::Error::NewLine),
        }
    }

    /// Whether the peer wants to keep the connection (RFC 9112 9.3).
    pub(super) fn keeps_alive(&self) -> bool {
        let wishes = self.fields.list("connection");
        let has = |wish: &str| wishes.iter().any(|one| one == wish);
        !has("close") && (self.minor == 1 || has("keep-alive"))
    }
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) fields: Fields,
}

impl Response {
    pub(super) fn parse(head: &[u8]) -> Result<Response, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match (response.parse(head)?, response.code) {
            (httparse::Status::Complete(_), Some(status)) => Ok(Response {
                status,
                reason: response.reason.unwrap_or_default().into(),
                fields: Fields::new(response.headers),
            }),
            _ => Err(httparse::Error::NewLine),
        }
    }
}

pub(super) struct Body<'a, S> {
    wire: &'a mut Wire<S>,
    framing: Framing,
    /// Bytes left of the body, or of the current chunk.
    left: u64,
    /// In a chunked body: the position of the stream. A read that timed out goes on there.
    at: At,
}

/// The position in a chunked body (RFC 9112 7.1).
#[derive(Clone, Copy)]
enum At {
    /// Before the line with a chunk's length.
    Length,
    /// In a chunk, or before the end of line that follows it.
    Chunk,
    /// In the trailers, behind this number of their bytes.
    Trailers(usize),
    /// Behind the whole body.
    End,
}

impl<'a, S: Stream> Body<'a, S> {
    pub(super) fn new(wire: &'a mut Wire<S>, framing: Framing) -> Body<'a, S> {
        let left = if let Framing::Bytes(len) = framing { len } else { 0 };
        Body { wire, framing, left, at: At::Length }
    }

    /// Reads the next bytes; 0 at the end. A truncated body is an error.
    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.framing == Framing::ToEnd {
            return self.wire.read(to);
        }
        while self.framing == Framing::Chunked && self.left == 0 {
            match self.at {
                At::End => break,
                at => self.at = self.next(at)?,
            }
        }
        if self.left == 0 {
            return Ok(0);
        }
        let most = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        match self.wire.read(&mut to[..most])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended within the body")),
            len => {
                self.left -= len as u64;
                Ok(len)
            }
        }
    }

    /// Reads a line between chunks. Returns the position behind it.
    fn next(&mut self, at: At) -> io::Result<At> {
        let mut line = self.line()?;
        match at {
            At::Chunk if line.is_empty() => Ok(At::Length),
            At::Chunk => Err(damaged("a chunk is longer than it said")),
            At::Length => {
                line.extend(b"\r\n");
                match httparse::parse_chunk_size(&line) {
                    Ok(httparse::Status::Complete((_, 0))) => Ok(At::Trailers(0)),
                    Ok(httparse::Status::Complete((_, len))) => {
                        self.left = len;
                        Ok(At::Chunk)
                    }
                    _ => Err(damaged("a chunk has no length")),
                }
            }
            At::Trailers(_) if line.is_empty() => Ok(At::End),
            At::Trailers(before) if before + line.len() > CHUNK_LINE_BYTES => Err(damaged("the trailers are too long")),
            At::Trailers(before) => Ok(At::Trailers(before + line.len())),
            At::End => Ok(At::End),
        }
    }

    /// The next line without its line end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.wire.buffer.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.wire.buffer.drain(..=at).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.wire.buffer.len() > CHUNK_LINE_BYTES {
                return Err(damaged("a chunk's line is too long"));
            }
            if self.wire.fill()? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended within the body"));
            }
        }
    }
}

fn damaged(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
