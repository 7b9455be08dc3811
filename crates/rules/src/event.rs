//! What the caller shows the engine: a packet, and a transaction of an application.

use crate::engine::Waiting;
use crate::names::{App, Buffer, Number};
use packet::Flow;
use std::ops::Range;

/// A TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Flag bits.
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Maximum segment size, where that option is there.
    pub mss: Option<u16>,
    /// Window scale, where that option is there.
    pub scale: Option<u8>,
}

/// An ICMP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier and sequence number of an echo.
    pub echo: Option<(u16, u16)>,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Addresses and ports in the direction of the packet; `None` where it is not IP.
    pub flow: Option<Flow>,
    /// 4, 6, or 0 where it is not IP.
    pub version: u8,
    /// Time, ns since 1970 UTC.
    pub time: u64,
    /// From the link header to the network header.
    pub link: &'a [u8],
    /// The network header with options or extensions.
    pub network: &'a [u8],
    /// The transport header.
    pub transport: &'a [u8],
    /// What is behind it.
    pub payload: &'a [u8],
    /// Bytes of it on the wire.
    pub payload_len: u32,
    /// TCP.
    pub tcp: Option<TcpHeader>,
    /// ICMP.
    pub icmp: Option<IcmpHeader>,
    /// It goes to the server.
    pub to_server: bool,
    /// Both sides had spoken before it.
    pub established: bool,
    /// Its payload is in a stream.
    pub in_stream: bool,
    /// It is a fragment.
    pub fragment: bool,
    /// What is odd about it: names of [`EVENTS`](crate::names::EVENTS).
    pub events: &'a [&'static str],
}

/// Where the bytes of a buffer lie.
#[derive(Clone, Debug)]
enum Place {
    Among(Range<usize>),
    Body(usize),
}

/// A buffer that grows.
#[derive(Clone, Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    /// How many of them rules have seen.
    seen: usize,
}

/// What one exchange of an application has shown so far.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// Which protocol.
    pub app: App,
    /// Its number in its connection, from 0.
    pub id: u64,
    bytes: Vec<u8>,
    /// Bytes of buffers that grow, each by itself.
    bodies: Vec<Body>,
    buffers: Vec<(Buffer, bool, Place)>,
    numbers: Vec<(Number, bool, u64)>,
    /// Rules that have matched, with the side.
    pub(crate) matched: Vec<(u32, bool)>,
    /// By side, the server's first: rules that more of a body may complete.
    pub(crate) waiting: [Vec<Waiting>; 2],
    /// Steps that rules have taken with each piece of bodies.
    pub(crate) body_steps: u32,
    /// The same of rules that look at files, with the number of the file: they may match each.
    matched_files: Vec<(u32, bool, usize)>,
    /// The file that rules see; none: all of them.
    pub(crate) file: Option<usize>,
    /// The number of the set that these rules are of.
    set_number: u64,
    /// By side, the server's first: it has sent all it will.
    pub complete: [bool; 2],
    /// What is odd about it, by side: names of [`EVENTS`](crate::names::EVENTS).
    pub events: Vec<(&'static str, bool)>,
    /// Numbers in it begin with the least byte: what `dce` asks.
    pub little_endian: bool,
    /// Rules ask for what both sides said together, and match it once.
    pub is_one: bool,
    /// The message that it is, of protocols whose transactions are one message each; for records.
    pub message: Vec<u8>,
    /// Bytes of bodies by side, those beyond the bound, too.
    pub body_bytes: [u64; 2],
    /// By side: the body is still growing. What must not be there is looked for at its end.
    pub growing: [bool; 2],
    /// The same of the file that began last.
    pub file_growing: [bool; 2],
}

impl Transaction {
    /// A new one.
    pub fn new(app: App, id: u64) -> Transaction {
        Transaction { app, id, ..Transaction::default() }
    }

    /// Forgets which rules of another set matched, and which wait; says whether another set was there before.
    pub(crate) fn meet_set(&mut self, number: u64) -> bool {
        let is_other = std::mem::replace(&mut self.set_number, number) != number;
        if is_other {
            self.matched.clear();
            self.waiting.iter_mut().for_each(Vec::clear);
            self.matched_files.clear();
        }
        is_other
    }

    /// Has this rule matched this side, or the file of it that it sees?
    pub(crate) fn has_matched(&self, rule: u32, to_server: bool) -> bool {
        let of_file = |file| self.matched_files.contains(&(rule, to_server, file));
        self.matched.contains(&(rule, to_server)) || self.file.is_some_and(of_file)
    }

    /// Has this rule matched this side, or the file of it that began last?
    pub(crate) fn has_matched_last(&self, rule: u32, to_server: bool) -> bool {
        let last = self.files(to_server).saturating_sub(1);
        self.matched.contains(&(rule, to_server)) || self.matched_files.contains(&(rule, to_server, last))
    }

    /// Notes that it has.
    pub(crate) fn note_match(&mut self, rule: u32, to_server: bool) {
        match self.file {
            Some(file) => self.matched_files.push((rule, to_server, file)),
            None => self.matched.push((rule, to_server)),
        }
    }

    /// Files of one side.
    pub fn files(&self, to_server: bool) -> usize {
        self.buffers.iter().filter(|entry| entry.0 == Buffer::FILE_DATA && entry.1 == to_server).count()
    }

    /// May the buffer go on? A file does not where another one has begun.
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

    /// Forgets the files of one side.
    pub fn forget_files(&mut self, to_server: bool) {
        self.matched_files.retain(|matched| matched.1 != to_server);
        for (name, side, place) in std::mem::take(&mut self.buffers) {
            match place {
                _ if side != to_server || !is_file(name) => self.buffers.push((name, side, place)),
                Place::Body(body) => self.bodies[body] = Body::default(),
                Place::Among(_) => {}
            }
        }
    }

    /// Adds a buffer of one side. Some buffers come several times.
    pub fn put_copy(&mut self, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.buffers.push((buffer, to_server, Place::Among(from..self.bytes.len())));
    }

    /// Puts bytes behind those of the last buffer with this name on this side; adds it where there is none.
    pub fn append_copy(&mut self, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        let of_name = |entry: &(Buffer, bool, Place)| entry.0 == buffer && entry.1 == to_server;
        let at = self.buffers.iter().rposition(of_name).unwrap_or_else(|| {
            self.buffers.push((buffer, to_server, Place::Among(0..0)));
            self.buffers.len() - 1
        });
        let body = match &self.buffers[at].2 {
            Place::Body(body) => *body,
            Place::Among(range) => {
                self.bodies.push(Body { bytes: self.bytes[range.clone()].to_vec(), seen: 0 });
                self.bodies.len() - 1
            }
        };
        self.buffers[at].2 = Place::Body(body);
        self.bodies[body].bytes.extend_from_slice(bytes);
    }

    fn bytes_at(&self, place: &Place) -> &[u8] {
        match place {
            Place::Among(range) => &self.bytes[range.clone()],
            Place::Body(body) => &self.bodies[*body].bytes,
        }
    }

    /// Gives a buffer the bytes of another one.
    pub fn alias(&mut self, buffer: Buffer, to_server: bool, of: Buffer) {
        let known =
            self.buffers.iter().find(|entry| entry.0 == of && entry.1 == to_server).map(|entry| entry.2.clone());
        self.buffers.retain(|entry| !(entry.0 == buffer && entry.1 == to_server));
        if let Some(range) = known {
            self.buffers.push((buffer, to_server, range));
        }
    }

    /// Adds a number of one side.
    pub fn put_number(&mut self, number: Number, to_server: bool, value: u64) {
        self.numbers.push((number, to_server, value));
    }

    /// The bytes of all buffers with this name on one side.
    pub fn all(&self, buffer: Buffer, to_server: bool) -> impl Iterator<Item = &[u8]> {
        let wanted = self.file.filter(|_| is_file(buffer));
        // The name of a file stands before its bytes, its digests and size behind them.
        let mut number = 0;
        let of = move |entry: &&(Buffer, bool, Place)| {
            let is_behind = !matches!(entry.0, Buffer::FILE_NAME | Buffer::FILE_DATA);
            let file = number - usize::from(is_behind && number > 0);
            number += usize::from(entry.0 == Buffer::FILE_DATA && entry.1 == to_server);
            entry.0 == buffer && entry.1 == to_server && wanted.is_none_or(|wanted| wanted == file)
        };
        self.buffers.iter().filter(of).map(|entry| self.bytes_at(&entry.2))
    }

    /// The first of them.
    pub fn first(&self, buffer: Buffer, to_server: bool) -> Option<&[u8]> {
        self.all(buffer, to_server).next()
    }

    /// The numbers with this name on one side.
    pub fn numbers(&self, number: Number, to_server: bool) -> impl Iterator<Item = u64> {
        self.numbers.iter().filter(move |entry| entry.0 == number && entry.1 == to_server).map(|entry| entry.2)
    }

    /// The names of the buffers of one side, with their bytes.
    pub fn buffers(&self, to_server: bool) -> impl Iterator<Item = (Buffer, &[u8])> {
        self.buffers.iter().filter(move |entry| entry.1 == to_server).map(|entry| (entry.0, self.bytes_at(&entry.2)))
    }

    /// The buffers of one side with bytes that rules have not seen: their bytes, and how many of them rules have seen.
    pub(crate) fn grown(&self, to_server: bool) -> impl Iterator<Item = (Buffer, &[u8], usize)> {
        self.buffers.iter().filter(move |entry| entry.1 == to_server).filter_map(|entry| match &entry.2 {
            Place::Body(body) => {
                let Body { bytes, seen } = &self.bodies[*body];
                (*seen < bytes.len()).then_some((entry.0, &bytes[..], *seen))
            }
            Place::Among(_) => None,
        })
    }

    /// Rules have seen all bodies of a side.
    pub(crate) fn see_bodies(&mut self, to_server: bool) {
        let Transaction { buffers, bodies, .. } = self;
        for entry in buffers.iter().filter(|entry| entry.1 == to_server) {
            if let Place::Body(body) = &entry.2 {
                bodies[*body].seen = bodies[*body].bytes.len();
            }
        }
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.message.len() + self.bytes.len() + self.bodies.iter().map(|body| body.bytes.len()).sum::<usize>()
    }
}

/// Does it hold a file, or its name?
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
