//! The input of the engine: packets, and transactions of applications.

use crate::names::{App, Buffer, Number};
use packet::Flow;
use std::ops::Range;

/// A parsed TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Flag bits.
    pub flags: u8,
    /// The unscaled window.
    pub window: u16,
    /// The maximum segment size option, if present.
    pub mss: Option<u16>,
    /// The window scale option, if present.
    pub scale: Option<u8>,
}

/// A parsed ICMP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier and sequence number, if the message is an echo.
    pub echo: Option<(u16, u16)>,
}

/// A packet as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Addresses and ports in the packet's direction; `None`: not IP.
    pub flow: Option<Flow>,
    /// 4 or 6; 0: not IP.
    pub version: u8,
    /// Time in ns since 1970 UTC.
    pub time: u64,
    /// From the link header to the network header.
    pub link: &'a [u8],
    /// The network header with options or extension headers.
    pub network: &'a [u8],
    /// The transport header.
    pub transport: &'a [u8],
    /// The bytes behind the transport header.
    pub payload: &'a [u8],
    /// Payload bytes on the wire; the capture may have fewer.
    pub payload_len: u32,
    /// The TCP header, if the packet is TCP.
    pub tcp: Option<TcpHeader>,
    /// The ICMP header, if the packet is ICMP.
    pub icmp: Option<IcmpHeader>,
    /// The packet goes to the server.
    pub to_server: bool,
    /// Both sides had sent packets before this one.
    pub established: bool,
    /// The payload is also part of a stream.
    pub in_stream: bool,
    /// The packet is a fragment.
    pub fragment: bool,
    /// Decoder and stream events of the packet: names of [`EVENTS`](crate::names::EVENTS).
    pub events: &'a [&'static str],
}

#[derive(Clone, Debug)]
/// Where the bytes of a buffer are stored.
enum Stored {
    Among(Range<usize>),
    Body(usize),
}

/// Fewer bytes of a transaction are not worth a search for unused ones.
const UNUSED_BYTES: usize = 4096;

/// A buffer that grows.
#[derive(Clone, Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    /// The first `seen` bytes were shown to rules.
    seen: usize,
}

/// One exchange of an application, as far as it was seen. Arrays by side have the direction to the server at `[0]`.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The protocol.
    pub app: App,
    /// Number in its connection, from 0.
    pub id: u64,
    bytes: Vec<u8>,
    bodies: Vec<Body>,
    buffers: Vec<(Buffer, bool, Stored)>,
    /// By side: other readings of its body. They belong to its first file.
    readings: [Vec<Body>; 2],
    numbers: Vec<(Number, bool, u64)>,
    /// Facts that no rule asks for, by their numbers in the protocol's table.
    facts: Vec<(usize, bool, Box<[u8]>)>,
    /// Rules that matched, with the side they matched.
    pub(crate) matched: Vec<(u32, bool)>,
    /// By side: rules that more bytes of a body may complete.
    pub(crate) waiting: [Vec<Waiting>; 2],
    /// Steps spent on bodies that grow.
    pub(crate) body_steps: u32,
    /// Rules on files that matched: rule, side, number of the file. A rule may match once per file.
    matched_files: Vec<(u32, bool, usize)>,
    /// The file that rules look at; `None`: all files.
    pub(crate) file: Option<usize>,
    /// The rule set that `matched`, `waiting` and `matched_files` refer to.
    set_number: u64,
    /// By side: it has sent everything.
    pub complete: [bool; 2],
    /// Application events with their side: names of [`EVENTS`](crate::names::EVENTS).
    pub events: Vec<(&'static str, bool)>,
    /// Numbers are little-endian; `dce` uses this.
    pub little_endian: bool,
    /// Rules treat both sides as one, and match the transaction once.
    pub is_one: bool,
    /// For protocols with one message per transaction: the message, for records.
    pub message: Vec<u8>,
    /// By side: bytes of bodies, including those beyond the limit.
    pub body_bytes: [u64; 2],
    /// By side: the body is still growing. Rules check what must be absent only at its end.
    pub growing: [bool; 2],
    /// By side: the newest file is still growing.
    pub file_growing: [bool; 2],
}

impl Transaction {
    /// Creates an empty transaction.
    pub fn new(app: App, id: u64) -> Transaction {
        Transaction { app, id, ..Transaction::default() }
    }

    /// Drops matches and waiting rules of an older rule set. Returns whether the set was another.
    pub(crate) fn meet_set(&mut self, number: u64) -> bool {
        let is_other = std::mem::replace(&mut self.set_number, number) != number;
        if is_other {
            self.matched.clear();
            self.waiting.iter_mut().for_each(Vec::clear);
            self.matched_files.clear();
        }
        is_other
    }

    /// Whether the rule has matched this side, or the file it looks at.
    pub(crate) fn has_matched(&self, rule: u32, to_server: bool) -> bool {
        let of_file = |file| self.matched_files.contains(&(rule, to_server, file));
        self.matched.contains(&(rule, to_server)) || self.file.is_some_and(of_file)
    }

    /// Whether the rule has matched this side, or its newest file.
    pub(crate) fn has_matched_last(&self, rule: u32, to_server: bool) -> bool {
        let last = self.files(to_server).saturating_sub(1);
        self.matched.contains(&(rule, to_server)) || self.matched_files.contains(&(rule, to_server, last))
    }

    /// Records that the rule matched.
    pub(crate) fn note_match(&mut self, rule: u32, to_server: bool) {
        match self.file {
            Some(file) => self.matched_files.push((rule, to_server, file)),
            None => self.matched.push((rule, to_server)),
        }
    }

    /// Number of files on this side.
    pub fn files(&self, to_server: bool) -> usize {
        self.buffers.iter().filter(|entry| entry.0 == Buffer::FILE_DATA && entry.1 == to_server).count()
    }

    /// Whether the buffer may still grow. A file cannot once the next file has begun.
    pub(crate) fn grows(&self, buffer: Buffer, to_server: bool) -> bool {
        let side = usize::from(!to_server);
        match buffer {
            Buffer::HTTP_REQUEST_BODY | Buffer::HTTP_RESPONSE_BODY | Buffer::DCERPC_STUB_DATA => self.growing[side],
            Buffer::FILE_DATA => {
                self.file_growing[side] && self.file.is_none_or(|file| file + 1 >= self.files(to_server))
            }
            _ => false,
        }
    }

    /// Removes all files of one side.
    pub fn forget_files(&mut self, to_server: bool) {
        self.matched_files.retain(|matched| matched.1 != to_server);
        self.buffers.retain(|(name, side, _)| *side != to_server || !is_file(*name));
        self.drop_unused();
    }

    /// Drops bodies that no buffer has, and bytes outside all buffers once they are the larger part.
    fn drop_unused(&mut self) {
        let Transaction { bytes, bodies, buffers, .. } = self;
        let mut old = std::mem::take(bodies);
        let mut moved = vec![None; old.len()];
        let mut used = 0;
        for (.., stored) in buffers.iter_mut() {
            match stored {
                Stored::Among(range) => used += range.len(),
                Stored::Body(body) => {
                    *body = *moved[*body].get_or_insert_with(|| {
                        bodies.push(std::mem::take(&mut old[*body]));
                        bodies.len() - 1
                    });
                }
            }
        }
        if bytes.len() <= UNUSED_BYTES.max(2 * used) {
            return;
        }
        let old = std::mem::replace(bytes, Vec::with_capacity(used));
        for (.., stored) in buffers {
            if let Stored::Among(range) = stored {
                let from = bytes.len();
                bytes.extend_from_slice(&old[range.clone()]);
                *range = from..bytes.len();
            }
        }
    }

    /// Copies a buffer into the transaction. Some buffers occur several times.
    pub fn put_copy(&mut self, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.buffers.push((buffer, to_server, Stored::Among(from..self.bytes.len())));
    }

    /// Copies bytes to the end of the newest buffer with this name; adds the buffer if it is missing.
    pub fn append_copy(&mut self, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        let of_name = |entry: &(Buffer, bool, Stored)| entry.0 == buffer && entry.1 == to_server;
        let at = self.buffers.iter().rposition(of_name).unwrap_or_else(|| {
            self.buffers.push((buffer, to_server, Stored::Among(0..0)));
            self.buffers.len() - 1
        });
        let body = match &self.buffers[at].2 {
            Stored::Body(body) => *body,
            Stored::Among(range) => {
                self.bodies.push(Body { bytes: self.bytes[range.clone()].to_vec(), seen: 0 });
                self.bodies.len() - 1
            }
        };
        self.buffers[at].2 = Stored::Body(body);
        self.bodies[body].bytes.extend_from_slice(bytes);
    }

    /// Copies bytes to the end of another reading of a side's body, as other receivers have it: of the reading `number`,
    /// from 0, up to `most` bytes. Returns how many bytes that reading had, and has.
    pub fn append_reading_copy(&mut self, number: usize, to_server: bool, bytes: &[u8], most: usize) -> (usize, usize) {
        let readings = &mut self.readings[usize::from(!to_server)];
        if number >= readings.len() {
            readings.resize_with(number + 1, Body::default);
        }
        let kept = &mut readings[number].bytes;
        let had = kept.len();
        kept.extend_from_slice(&bytes[..bytes.len().min(most.saturating_sub(had))]);
        (had, kept.len())
    }

    /// The other readings of a side's body, for this buffer.
    fn readings(&self, buffer: Buffer, to_server: bool) -> &[Body] {
        let is_of_body =
            matches!((buffer, to_server), (Buffer::HTTP_REQUEST_BODY, true) | (Buffer::HTTP_RESPONSE_BODY, false));
        let is_of_file = buffer == Buffer::FILE_DATA && self.file.is_none_or(|file| file == 0);
        if is_of_body || is_of_file { &self.readings[usize::from(!to_server)] } else { &[] }
    }

    /// The same with their names, for all buffers.
    fn all_readings(&self, to_server: bool) -> impl Iterator<Item = (Buffer, &Body)> {
        let of_body = if to_server { Buffer::HTTP_REQUEST_BODY } else { Buffer::HTTP_RESPONSE_BODY };
        let of = move |buffer| self.readings(buffer, to_server).iter().map(move |body| (buffer, body));
        [of_body, Buffer::FILE_DATA].into_iter().flat_map(of)
    }

    fn bytes_at(&self, stored: &Stored) -> &[u8] {
        match stored {
            Stored::Among(range) => &self.bytes[range.clone()],
            Stored::Body(body) => &self.bodies[*body].bytes,
        }
    }

    /// Makes `buffer` refer to the bytes of the buffer `of`.
    pub fn alias(&mut self, buffer: Buffer, to_server: bool, of: Buffer) {
        let known =
            self.buffers.iter().find(|entry| entry.0 == of && entry.1 == to_server).map(|entry| entry.2.clone());
        self.buffers.retain(|entry| !(entry.0 == buffer && entry.1 == to_server));
        if let Some(range) = known {
            self.buffers.push((buffer, to_server, range));
        }
    }

    /// Removes the buffers with these names from one side.
    pub fn forget(&mut self, names: &[Buffer], to_server: bool) {
        let before = self.buffers.len();
        self.buffers.retain(|entry| entry.1 != to_server || !names.contains(&entry.0));
        if self.buffers.len() == before {
            return;
        }
        // Move the remaining bytes together.
        let old = std::mem::take(&mut self.bytes);
        for (_, _, stored) in &mut self.buffers {
            if let Stored::Among(range) = stored {
                let from = self.bytes.len();
                self.bytes.extend_from_slice(&old[range.clone()]);
                *range = from..self.bytes.len();
            }
        }
    }

    /// Adds a fact for alerts. No rule asks for it.
    pub fn put_fact(&mut self, fact: usize, to_server: bool, value: &[u8]) {
        self.facts.push((fact, to_server, value.into()));
    }

    /// All values of such a fact on one side.
    pub fn facts(&self, fact: usize, to_server: bool) -> impl Iterator<Item = &[u8]> {
        self.facts.iter().filter(move |entry| entry.0 == fact && entry.1 == to_server).map(|entry| &*entry.2)
    }

    /// Adds an event, unless the transaction has it already.
    pub fn put_event(&mut self, event: &'static str, to_server: bool) {
        if !self.events.contains(&(event, to_server)) {
            self.events.push((event, to_server));
        }
    }

    /// Adds a number to one side, unless the side has it already.
    pub fn put_number_once(&mut self, number: Number, to_server: bool, value: u64) {
        if !self.numbers.contains(&(number, to_server, value)) {
            self.put_number(number, to_server, value);
        }
    }

    /// Adds a number to one side.
    pub fn put_number(&mut self, number: Number, to_server: bool, value: u64) {
        self.numbers.push((number, to_server, value));
    }

    /// All buffers with this name on one side.
    pub fn all(&self, buffer: Buffer, to_server: bool) -> impl Iterator<Item = &[u8]> {
        let wanted = self.file.filter(|_| is_file(buffer));
        // A file's name comes before its bytes; its digests and size come behind them.
        let mut number = 0;
        let of = move |entry: &&(Buffer, bool, Stored)| {
            let is_behind = !matches!(entry.0, Buffer::FILE_NAME | Buffer::FILE_DATA);
            let file = number - usize::from(is_behind && number > 0);
            number += usize::from(entry.0 == Buffer::FILE_DATA && entry.1 == to_server);
            entry.0 == buffer && entry.1 == to_server && wanted.is_none_or(|wanted| wanted == file)
        };
        let readings = self.readings(buffer, to_server).iter().map(|body| &body.bytes[..]);
        self.buffers.iter().filter(of).map(|entry| self.bytes_at(&entry.2)).chain(readings)
    }

    /// The first buffer with this name on one side.
    pub fn first(&self, buffer: Buffer, to_server: bool) -> Option<&[u8]> {
        self.all(buffer, to_server).next()
    }

    /// All numbers with this name on one side.
    pub fn numbers(&self, number: Number, to_server: bool) -> impl Iterator<Item = u64> {
        self.numbers.iter().filter(move |entry| entry.0 == number && entry.1 == to_server).map(|entry| entry.2)
    }

    /// All buffers of one side, with their names.
    pub fn buffers(&self, to_server: bool) -> impl Iterator<Item = (Buffer, &[u8])> {
        let own = self.buffers.iter().filter(move |entry| entry.1 == to_server);
        let readings = self.all_readings(to_server).map(|(name, body)| (name, &body.bytes[..]));
        own.map(|entry| (entry.0, self.bytes_at(&entry.2))).chain(readings)
    }

    /// Buffers of one side with new bytes. Yields name, all bytes, and how many of them rules have seen.
    pub(crate) fn grown(&self, to_server: bool) -> impl Iterator<Item = (Buffer, &[u8], usize)> {
        let own = self.buffers.iter().filter(move |entry| entry.1 == to_server).filter_map(|entry| match &entry.2 {
            Stored::Body(body) => Some((entry.0, &self.bodies[*body])),
            Stored::Among(_) => None,
        });
        let all = own.chain(self.all_readings(to_server));
        all.filter(|(_, body)| body.seen < body.bytes.len()).map(|(name, body)| (name, &body.bytes[..], body.seen))
    }

    /// Marks all bytes of one side as seen.
    pub(crate) fn see_bodies(&mut self, to_server: bool) {
        let Transaction { buffers, bodies, readings, .. } = self;
        for body in &mut readings[usize::from(!to_server)] {
            body.seen = body.bytes.len();
        }
        for entry in buffers.iter().filter(|entry| entry.1 == to_server) {
            if let Stored::Body(body) = &entry.2 {
                bodies[*body].seen = bodies[*body].bytes.len();
            }
        }
    }

    /// Bytes of memory that the transaction holds.
    pub fn kept_bytes(&self) -> usize {
        let bodies = self.readings.iter().flatten().chain(&self.bodies);
        let in_bodies = bodies.map(|body| size_of::<Body>() + body.bytes.len()).sum::<usize>();
        let matched = self.matched.len() * size_of::<(u32, bool)>();
        let matched_files = self.matched_files.len() * size_of::<(u32, bool, usize)>();
        self.message.len() + self.bytes.len() + in_bodies + self.lists_bytes() + matched + matched_files
    }

    /// Memory of the lists of buffers, numbers and events.
    fn lists_bytes(&self) -> usize {
        self.buffers.len() * size_of::<(Buffer, bool, Stored)>()
            + self.numbers.len() * size_of::<(Number, bool, u64)>()
            + self.events.len() * size_of::<(&str, bool)>()
            + self.facts.iter().map(|fact| size_of_val(fact) + fact.2.len()).sum::<usize>()
    }
}

/// A rule that more bytes may complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) rule: u32,
    /// A content not in the body yet: index of list and step.
    pub(crate) missing: Option<(usize, usize)>,
}

/// Whether the buffer belongs to a file: its bytes, name, digest or size.
pub(crate) fn is_file(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::FILE_DATA
            | Buffer::FILE_NAME
            | Buffer::FILE_MD5
            | Buffer::FILE_SHA1
            | Buffer::FILE_SHA256
            | Buffer::FILE_SIZE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form may have any number of files: a transaction keeps only those that rules have not seen.
    #[test]
    fn forgotten_files_leave_nothing() {
        let mut one = Transaction::new(App::Http1, 0);
        one.put_copy(Buffer::HTTP_METHOD, true, b"POST");
        one.append_copy(Buffer::HTTP_REQUEST_BODY, true, b"all of it");
        let mut most = 0;
        for number in 0..10_000 {
            one.forget_files(true);
            let name = format!("file {number}");
            one.put_copy(Buffer::FILE_NAME, true, name.as_bytes());
            one.put_copy(Buffer::FILE_DATA, true, b"");
            one.append_copy(Buffer::FILE_DATA, true, name.as_bytes());
            one.put_copy(Buffer::FILE_MD5, true, &[7; 16]);
            assert_eq!(one.first(Buffer::FILE_NAME, true), Some(name.as_bytes()));
            assert_eq!(one.all(Buffer::FILE_DATA, true).collect::<Vec<_>>(), [name.as_bytes()]);
            assert_eq!(one.first(Buffer::FILE_MD5, true), Some(&[7; 16][..]));
            most = most.max(one.kept_bytes());
        }
        assert!(one.bodies.len() == 2 && most < 2 * UNUSED_BYTES, "{most} bytes");
        assert_eq!(one.first(Buffer::HTTP_METHOD, true), Some(&b"POST"[..]));
        assert_eq!(one.first(Buffer::HTTP_REQUEST_BODY, true), Some(&b"all of it"[..]));
    }

    /// Empty buffers, numbers and events take memory too.
    #[test]
    fn lists_count_as_memory() {
        let mut one = Transaction::new(App::Http2, 0);
        for value in 0..1000 {
            one.put_copy(Buffer::EMAIL_TO, true, b"");
            one.put_number(Number::HTTP2_WINDOW, true, value);
            one.events.push(("http.missing_host_header", true));
        }
        assert!(one.kept_bytes() >= 3 * 1000 * size_of::<u64>());
    }

    /// A body may have two names.
    #[test]
    fn a_body_stays_while_another_buffer_has_it() {
        let mut one = Transaction::new(App::Http1, 0);
        one.append_copy(Buffer::HTTP_REQUEST_BODY, true, b"body");
        one.alias(Buffer::FILE_DATA, true, Buffer::HTTP_REQUEST_BODY);
        one.forget_files(true);
        assert_eq!(one.files(true), 0);
        assert_eq!(one.first(Buffer::HTTP_REQUEST_BODY, true), Some(&b"body"[..]));
    }
}
