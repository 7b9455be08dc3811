//! Both sides of SMB. A request with its response is an exchange. So is an open file that is read or written: its body
//! is the bytes that the client wrote, and those that the server read. Bytes of pipes are DCE/RPC.
//!
//! Bytes of files and pipes are not copied. Of other messages the start is kept until it is whole.

use super::pipes::{Hears, Pipes};
use super::{Body, Fact, File, Header, PENDING, PREFIX_BYTES, Transfer, names, prefix, probe};
use crate::carry::Carried;
use crate::conversation::{self, Fed, How, Id, Run, Side};
use crate::dcerpc;
use crate::fit::Fit;
use std::collections::VecDeque;

/// Most bytes kept of a message: those of most dialogues with pipes, and the headers. Longer ones are cut.
const MESSAGE_BYTES: usize = 104 << 10;
/// Length of the longest header.
const HEADER_BYTES: usize = 64;
/// Most shares of pipes, and most open files, of one connection.
pub const KEPT: usize = 1024;
/// Most requests that may wait for a response: servers grant 8192 credits at most.
pub const ASKED: usize = 8192;
/// Most bytes of names in these requests.
const NAMES_BYTES: usize = 1 << 20;

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = 4 << 20;

/// Names of losses: something that a limit pushed out, and messages that needed it.
const PUSHED_OUT: &str = "smb requests and open files no longer known";
/// Bytes of files, of pipes, or the kinds of these are not seen.
pub const UNSEEN: &str = "smb messages of requests that are no longer known";
const CUT: &str = "smb messages longer than what is read";
const LOST: &str = "smb directions lost to a gap";
const NO_ROOM: &str = "smb messages not read for want of memory";
const LATE: &str = "smb pieces of files out of order";

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Stream; 2],
    /// Shares, and whether they have pipes.
    shares: Vec<(u32, bool)>,
    files: Vec<(File, Open)>,
    pipes: Pipes,
    asked: VecDeque<Asked>,
    /// Bytes of the names in `asked`.
    names: usize,
    /// A share, an open file, or a request was pushed out of its table.
    pushed_out: [bool; 3],
    /// Exchanges so far.
    exchanges: u64,
    /// Memory of the tables and names that is counted.
    counted: usize,
}

/// A side.
#[derive(Debug, Default)]
struct Stream {
    phase: Phase,
    /// The start of the next message.
    bytes: Vec<u8>,
    /// Its first bytes came.
    is_begun: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Where a message begins is unknown.
    #[default]
    Lost,
    Prefix,
    /// Bytes of a message to pass over, and those of the chain behind it.
    Skip(usize, usize),
    /// The header of a message, and the bytes of the chain from it on.
    Header(usize),
    /// The message: its bytes, and those of the chain behind it.
    Message(Header, usize, usize),
    /// Bytes in front of those of a file or pipe, and these; then as [`Phase::Skip`].
    Data {
        place: Place,
        pad: usize,
        data: usize,
        behind: (usize, usize),
    },
}

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A file, of which `known` of the bytes came before.
    File {
        exchange: u64,
        known: u64,
    },
    Pipe(u64),
}

/// An open file or pipe.
#[derive(Debug)]
enum Open {
    File {
        exchange: u64,
        name: Vec<u8>,
        sides: [Half; 2],
        /// It may be a pipe: no byte of it has come, and no response has told.
        may_be_pipe: bool,
    },
    Pipe(u64),
}

impl Open {
    fn file(exchange: u64, name: Vec<u8>, may_be_pipe: bool) -> Open {
        Open::File { exchange, name, sides: Default::default(), may_be_pipe }
    }

    /// Its first bytes tell a pipe: messages of DCE/RPC.
    fn settle(&mut self, start: &[u8]) {
        if let Open::File { exchange, may_be_pipe, .. } = self
            && std::mem::take(may_be_pipe)
            && dcerpc::Header::parse(start).is_some()
        {
            *self = Open::Pipe(*exchange);
        }
    }
}

/// What a side said of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    is_begun: bool,
    /// Bytes are missing.
    has_gap: bool,
    /// The end of the bytes seen.
    end: u64,
}

/// A request waiting for its response.
#[derive(Debug)]
struct Asked {
    version: u8,
    command: u16,
    message: u64,
    exchange: Option<u64>,
    /// The file, and an offset in it.
    file: Option<(File, u64)>,
    /// The name to open, or the share.
    name: Vec<u8>,
}

struct Talk<'a> {
    side: Side,
    kept: &'a Carried,
    ear: &'a mut dyn Hears,
    time: u64,
}

impl Conversation {
    /// Reads the next bytes of a side.
    pub fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Hears) -> Fed {
        let mut talk = Talk { side, kept, ear, time: run.time };
        let at = side.index();
        if let Phase::Lost = self.sides[at].phase
            && !run.bytes.is_empty()
        {
            // Servers answer a NetBIOS session request first.
            let is_name = !self.sides[at].is_begun && matches!(run.bytes[0], 0x81..=0x85);
            if is_name || probe(run.bytes, false) != Fit::No {
                self.sides[at].phase = Phase::Prefix;
            }
            self.sides[at].is_begun = true;
        }
        let mut used = 0;
        while used < run.bytes.len() {
            used += self.step(run.bytes, used, &mut talk);
        }
        let tables = self.table_bytes();
        if !kept.recount(&mut self.counted, tables) {
            talk.ear.lost(Id { exchange: self.exchanges, side }, NO_ROOM);
            self.end(run.time, kept, talk.ear);
        }
        if let Phase::Lost = self.sides[at].phase { Fed::NotMine } else { Fed::Mine }
    }

    /// `missing` bytes of a side are missing before its next run.
    pub fn gap(&mut self, side: Side, missing: u32, time: u64, kept: &Carried, ear: &mut dyn Hears) {
        if missing == 0 {
            return;
        }
        let mut talk = Talk { side, kept, ear, time };
        let (stream, missing) = (&mut self.sides[side.index()], missing as usize);
        let skip = match stream.phase {
            Phase::Lost => return,
            Phase::Data { place, pad: 0, data, behind } if missing <= data => {
                stream.phase = Phase::Data { place, pad: 0, data: data - missing, behind };
                self.miss(place, missing as u64, &mut talk);
                return self.settle(side);
            }
            Phase::Data { place, pad, data, behind } => {
                self.miss(place, data as u64, &mut talk);
                pad + data + behind.0 + behind.1
            }
            Phase::Skip(here, behind) if missing <= here => {
                stream.phase = Phase::Skip(here - missing, behind);
                return self.settle(side);
            }
            Phase::Skip(here, behind) => here + behind,
            Phase::Prefix => 0,
            Phase::Header(left) => left - stream.bytes.len(),
            Phase::Message(_, own, behind) => own + behind - stream.bytes.len(),
        };
        let stream = &mut self.sides[side.index()];
        kept.clear(&mut stream.bytes);
        stream.phase = if missing <= skip { Phase::Skip(skip - missing, 0) } else { Phase::Lost };
        talk.ear.lost(Id { exchange: self.exchanges, side }, LOST);
        self.settle(side);
    }

    /// Nothing more comes.
    pub fn end(&mut self, time: u64, kept: &Carried, ear: &mut dyn Hears) {
        let mut talk = Talk { side: Side::Client, kept, ear, time };
        for Asked { exchange, .. } in std::mem::take(&mut self.asked) {
            exchange.into_iter().for_each(|exchange| talk.ear.end(Id { exchange, side: Side::Server }, How::Cut));
        }
        for (_, open) in std::mem::take(&mut self.files) {
            self.end_open(open, How::Cut, &mut talk);
        }
        for stream in &mut self.sides {
            kept.clear(&mut stream.bytes);
            stream.phase = Phase::Lost;
        }
        (self.names, self.shares, self.pipes) = Default::default();
        _ = kept.recount(&mut self.counted, 0);
    }

    fn table_bytes(&self) -> usize {
        let open = |(_, open): &(File, Open)| match open {
            Open::File { name, .. } => name.capacity(),
            Open::Pipe(_) => 0,
        };
        self.files.iter().map(open).sum::<usize>()
            + self.files.capacity() * size_of::<(File, Open)>()
            + self.pipes.table_bytes()
            + self.asked.capacity() * size_of::<Asked>()
            + self.names
    }

    /// Goes on behind a part that is over.
    fn settle(&mut self, side: Side) {
        let phase = &mut self.sides[side.index()].phase;
        if let Phase::Data { pad: 0, data: 0, behind: (here, behind), .. } = *phase {
            *phase = Phase::Skip(here, behind);
        }
        *phase = match *phase {
            Phase::Skip(0, 0) => Phase::Prefix,
            Phase::Skip(0, behind) => Phase::Header(behind),
            other => other,
        };
    }

    /// Reads some bytes of the run from `from` on; returns how many.
    fn step(&mut self, bytes: &[u8], from: usize, talk: &mut Talk<'_>) -> usize {
        let (at, rest) = (talk.side.index(), &bytes[from..]);
        let used = match self.sides[at].phase {
            Phase::Lost => rest.len(),
            Phase::Skip(here, behind) => {
                let used = here.min(rest.len());
                self.sides[at].phase = Phase::Skip(here - used, behind);
                used
            }
            Phase::Prefix => {
                let (used, is_whole) = self.gather(PREFIX_BYTES, rest, talk);
                if is_whole && let Some(start) = self.take(talk).first_chunk() {
                    let (length, is_message) = prefix(start);
                    self.sides[at].phase = match is_message && length > 0 {
                        true => Phase::Header(length),
                        false => Phase::Skip(length, 0),
                    };
                }
                used
            }
            Phase::Header(left) => {
                let (mut used, is_whole) = self.gather(left.min(HEADER_BYTES), rest, talk);
                if is_whole {
                    self.header(left, talk);
                }
                if let Phase::Message(header, own, behind) = self.sides[at].phase {
                    used += self.message(header, own, behind, &rest[used..], talk);
                }
                used
            }
            Phase::Message(header, own, behind) => self.message(header, own, behind, rest, talk),
            Phase::Data { place, pad, data, behind } => {
                let passed = pad.min(rest.len());
                let taken = data.min(rest.len() - passed);
                let range = from + passed..from + passed + taken;
                let place = self.give(place, &bytes[range.clone()], conversation::Body::Range(range), talk);
                self.sides[at].phase = Phase::Data { place, pad: pad - passed, data: data - taken, behind };
                passed + taken
            }
        };
        self.settle(talk.side);
        used
    }

    /// Keeps bytes until there are `need`; returns how many it took, and whether all are there.
    fn gather(&mut self, need: usize, rest: &[u8], talk: &mut Talk<'_>) -> (usize, bool) {
        let stream = &mut self.sides[talk.side.index()];
        let taken = need.saturating_sub(stream.bytes.len()).min(rest.len());
        if !talk.kept.keep(&mut stream.bytes, &rest[..taken]) {
            talk.ear.lost(Id { exchange: self.exchanges, side: talk.side }, NO_ROOM);
            talk.kept.clear(&mut stream.bytes);
            stream.phase = Phase::Lost;
            return (rest.len(), false);
        }
        (taken, stream.bytes.len() >= need)
    }

    /// The bytes that were kept, which are released.
    fn take(&mut self, talk: &Talk<'_>) -> Vec<u8> {
        let kept = &mut self.sides[talk.side.index()].bytes;
        let bytes = kept.clone();
        talk.kept.clear(kept);
        bytes
    }

    /// A header came, at the start of `left` bytes.
    fn header(&mut self, left: usize, talk: &Talk<'_>) {
        let stream = &mut self.sides[talk.side.index()];
        let came = stream.bytes.len();
        let header = Header::parse(&stream.bytes).filter(|header| header.is_response != talk.side.is_client());
        stream.phase = match header {
            Some(header) if header.next == 0 || header.next >= left => Phase::Message(header, left, 0),
            Some(header) if header.next >= came => Phase::Message(header, header.next, left - header.next),
            _ => {
                talk.kept.clear(&mut stream.bytes);
                Phase::Skip(left - came, 0)
            }
        };
    }

    /// A message of `own` bytes. Returns how many it took.
    fn message(&mut self, header: Header, own: usize, behind: usize, rest: &[u8], talk: &mut Talk<'_>) -> usize {
        let at = talk.side.index();
        let need = header.transfer_bytes().unwrap_or(MESSAGE_BYTES).min(own);
        let (mut used, is_whole) = self.gather(need, rest, talk);
        if !is_whole {
            return used;
        }
        let transfer = header.transfer(&self.sides[at].bytes).filter(|transfer| transfer.data.start <= own);
        let file = transfer.as_ref().and_then(|transfer| transfer.file.or_else(|| self.read_by(&header)));
        let need = match (&transfer, file) {
            // The first bytes of an unknown file tell a pipe.
            (Some(transfer), Some((file, _))) if !self.is_settled(file) => {
                transfer.data.end.min(transfer.data.start + dcerpc::Header::BYTES).max(need)
            }
            (Some(_), Some(_)) => need,
            _ => MESSAGE_BYTES,
        };
        let (more, is_whole) = self.gather(need.min(own), &rest[used..], talk);
        used += more;
        if !is_whole {
            return used;
        }
        let start = self.take(talk);
        let left = own - start.len();
        self.sides[at].phase = Phase::Skip(left, behind);
        match (transfer, file) {
            (Some(transfer), Some(file)) => self.transfer(&header, &transfer, file, &start, (own, behind), talk),
            _ => {
                if left > 0 {
                    talk.ear.lost(Id { exchange: self.exchanges, side: talk.side }, CUT);
                }
                self.bodies(&header, &start, talk);
            }
        }
        used
    }

    /// The file and offset of the read that this answers.
    fn read_by(&self, header: &Header) -> Option<(File, u64)> {
        self.asked.iter().find(|asked| asked.is_of(header))?.file
    }

    /// Whether it is known if this is a file or a pipe.
    fn is_settled(&self, file: File) -> bool {
        let open = self.files.iter().find(|open| open.0 == file);
        open.is_some_and(|open| !matches!(open.1, Open::File { may_be_pipe: true, .. }))
    }

    /// A message with bytes of a file, of which `start` came.
    fn transfer(
        &mut self,
        header: &Header,
        transfer: &Transfer,
        (file, offset): (File, u64),
        start: &[u8],
        (own, behind): (usize, usize),
        talk: &mut Talk<'_>,
    ) {
        if header.is_response {
            self.forget(header);
        } else {
            self.ask(header, None, None, Vec::new(), talk);
        }
        let end = transfer.data.end.min(own);
        let length = end - transfer.data.start;
        let came = start.get(transfer.data.start..end.min(start.len())).unwrap_or_default();
        let place = self.place(file, Some(offset), length as u64, came, talk);
        let place = self.give(place, came, conversation::Body::Kept(came, talk.time), talk);
        let data = length - came.len();
        let pad = transfer.data.start.saturating_sub(start.len());
        self.sides[talk.side.index()].phase =
            Phase::Data { place, pad, data, behind: (own - end.max(start.len()), behind) };
    }

    /// Reads the commands of a message.
    fn bodies(&mut self, header: &Header, message: &[u8], talk: &mut Talk<'_>) {
        let mut bodies = Vec::new();
        if !header.bodies(message, |body| bodies.push(body)) {
            talk.ear.lost(Id { exchange: self.exchanges, side: talk.side }, UNSEEN);
        }
        match talk.side {
            Side::Client => bodies.into_iter().for_each(|body| self.request(header, body, talk)),
            Side::Server => self.response(header, &bodies, talk),
        }
    }

    fn request(&mut self, header: &Header, body: Body<'_>, talk: &mut Talk<'_>) {
        let (mut file, mut name) = (None, Vec::new());
        // Bytes of pipes and files have exchanges of their own.
        let mut has_own = true;
        match body {
            Body::Write { file, offset, data } => self.bytes(file, Some(offset), data, talk),
            Body::Read { file: of, offset } => file = Some((of, offset)),
            Body::Transact { file: of, data } => {
                file = Some((of, 0));
                self.bytes(of, None, data, talk);
            }
            Body::Create { name: text } | Body::TreeConnect { path: text } => {
                (name, has_own) = (plain(text, header.is_unicode), false);
            }
            Body::Close { file } => {
                self.close(file, talk);
                has_own = false;
            }
            _ => has_own = false,
        }
        let exchange = (!has_own).then(|| {
            let id = Id { exchange: self.next(), side: Side::Client };
            talk.ear.begin(id);
            talk.ear.number(id, Fact::Version, header.version.into());
            talk.ear.fact(id, Fact::Command, names::command(header.version, header.command).as_bytes());
            talk.ear.number(id, Fact::Session, header.session);
            talk.ear.number(id, Fact::Tree, header.tree.into());
            if let Body::Create { .. } = body {
                talk.ear.fact(id, Fact::Name, &name);
            }
            talk.ear.end(id, How::Complete);
            id.exchange
        });
        self.ask(header, exchange, file, name, talk);
    }

    /// The number of a new exchange.
    fn next(&mut self) -> u64 {
        self.exchanges += 1;
        self.exchanges - 1
    }

    /// A request waits for its response.
    fn ask(
        &mut self,
        header: &Header,
        exchange: Option<u64>,
        file: Option<(File, u64)>,
        name: Vec<u8>,
        talk: &mut Talk<'_>,
    ) {
        self.names += name.capacity();
        let Header { version, command, message, .. } = *header;
        self.asked.push_back(Asked { version, command, message, exchange, file, name });
        while self.asked.len() > ASKED || self.names > NAMES_BYTES {
            let Some(oldest) = self.asked.pop_front() else { break };
            self.names -= oldest.name.capacity();
            self.pushed_out[2] = true;
            let id = Id { exchange: oldest.exchange.unwrap_or(self.exchanges), side: Side::Server };
            talk.ear.lost(id, PUSHED_OUT);
            oldest.exchange.into_iter().for_each(|_| talk.ear.end(id, How::Cut));
        }
    }

    /// Takes the request that this answers.
    fn forget(&mut self, header: &Header) -> Option<Asked> {
        let at = self.asked.iter().position(|asked| asked.is_of(header))?;
        let asked = self.asked.remove(at)?;
        self.names -= asked.name.capacity();
        Some(asked)
    }

    fn response(&mut self, header: &Header, bodies: &[Body<'_>], talk: &mut Talk<'_>) {
        let tells =
            |body: &Body<'_>| matches!(body, Body::TreeConnected { .. } | Body::Created { .. } | Body::Data { .. });
        if self.pushed_out[2] && bodies.iter().any(tells) && !self.asked.iter().any(|asked| asked.is_of(header)) {
            talk.ear.lost(Id { exchange: self.exchanges, side: Side::Server }, UNSEEN);
        }
        if header.version == 2 && header.status == PENDING {
            return;
        }
        // Responses are chained as their requests were.
        for body in bodies {
            let Some(asked) = self.forget(header) else { return };
            self.answer(header, &asked, body, talk);
            if let Some(exchange) = asked.exchange {
                let id = Id { exchange, side: Side::Server };
                talk.ear.number(id, Fact::Version, asked.version.into());
                names::result(header.status)
                    .into_iter()
                    .for_each(|name| talk.ear.fact(id, Fact::Status, name.as_bytes()));
                talk.ear.fact(id, Fact::StatusCode, format!("{:#x}", header.status).as_bytes());
                talk.ear.end(id, How::Complete);
            }
            if header.version == 2 {
                return;
            }
        }
    }

    fn answer(&mut self, header: &Header, asked: &Asked, body: &Body<'_>, talk: &mut Talk<'_>) {
        let id = asked.exchange.map(|exchange| Id { exchange, side: Side::Client });
        match *body {
            Body::Negotiated { dialect } => id.into_iter().for_each(|id| {
                talk.ear.fact(Id { side: Side::Server, ..id }, Fact::Dialect, names::dialect(dialect).as_bytes());
            }),
            Body::TreeConnected { is_pipe } => {
                self.disconnect(header.tree);
                let over = self.shares.len().saturating_sub(KEPT - 1);
                self.pushed_out[0] |= self.shares.drain(..over).any(|share| share.1);
                if over > 0 {
                    talk.ear.lost(Id { exchange: self.exchanges, side: Side::Server }, PUSHED_OUT);
                }
                self.shares.push((header.tree, is_pipe));
                // Only the response tells a pipe from a share.
                let fact = if is_pipe { Fact::Pipe } else { Fact::Share };
                id.into_iter().for_each(|id| talk.ear.fact(id, fact, &asked.name));
            }
            Body::Created { file } => {
                self.close(file, talk);
                let exchange = self.next();
                let is_pipe = self.shares.iter().find(|share| share.0 == header.tree).map(|share| share.1);
                let open = match is_pipe {
                    Some(true) => Open::Pipe(exchange),
                    _ => Open::file(exchange, asked.name.clone(), is_pipe.is_none()),
                };
                if self.pushed_out[0] && is_pipe.is_none() {
                    talk.ear.lost(Id { exchange, side: Side::Server }, UNSEEN);
                }
                self.open(file, open, talk);
            }
            Body::Data { data } => {
                if let Some((file, offset)) = asked.file {
                    self.bytes(file, Some(offset), data, talk);
                }
            }
            // The share is disconnected.
            _ if header.status == 0 && matches!((asked.version, asked.command), (2, 4) | (1, 0x71)) => {
                self.disconnect(header.tree);
            }
            _ => {}
        }
    }

    fn disconnect(&mut self, tree: u32) {
        self.shares.retain(|share| share.0 != tree);
    }

    /// Adds an open file. If there are too many, closes the oldest that is no pipe: pipes know their interfaces.
    fn open(&mut self, file: File, open: Open, talk: &mut Talk<'_>) {
        if self.files.len() >= KEPT {
            let oldest = self.files.iter().position(|(_, open)| matches!(open, Open::File { .. })).unwrap_or(0);
            let oldest = self.files.remove(oldest).1;
            self.end_open(oldest, How::Cut, talk);
            self.pushed_out[1] = true;
            talk.ear.lost(Id { exchange: self.exchanges, side: talk.side }, PUSHED_OUT);
        }
        self.files.push((file, open));
    }

    /// Bytes of a file or a pipe that a message has whole.
    fn bytes(&mut self, file: File, offset: Option<u64>, data: &[u8], talk: &mut Talk<'_>) {
        let place = self.place(file, offset, data.len() as u64, data, talk);
        self.give(place, data, conversation::Body::Kept(data, talk.time), talk);
    }

    /// Where `length` bytes of a file or a pipe go, of which `start` came.
    fn place(&mut self, file: File, offset: Option<u64>, length: u64, start: &[u8], talk: &mut Talk<'_>) -> Place {
        if !self.files.iter().any(|open| open.0 == file) {
            // The open request is unknown or unanswered.
            let exchange = self.next();
            if self.pushed_out[1] {
                talk.ear.lost(Id { exchange, side: talk.side }, UNSEEN);
            }
            self.open(file, Open::file(exchange, Vec::new(), true), talk);
        }
        if length > 0
            && let Some((_, open)) = self.files.iter_mut().find(|open| open.0 == file)
        {
            open.settle(start);
        }
        let (exchange, name, half) = match self.files.iter_mut().find(|open| open.0 == file) {
            Some((_, Open::File { exchange, name, sides, .. })) => (*exchange, name, &mut sides[talk.side.index()]),
            Some((_, Open::Pipe(pipe))) => return Place::Pipe(*pipe),
            None => return Place::Pipe(u64::MAX),
        };
        let id = Id { exchange, side: talk.side };
        if length > 0 && !std::mem::replace(&mut half.is_begun, true) {
            talk.ear.begin(id);
            if !name.is_empty() {
                talk.ear.fact(id, Fact::File, name);
            }
            talk.ear.head_done(id);
        }
        let offset = offset.unwrap_or(half.end);
        let known = half.end.saturating_sub(offset);
        if known > 0 && length > 0 {
            talk.ear.odd(id, "smb.file_overlap");
            if half.has_gap {
                talk.ear.lost(id, LATE);
            }
        }
        let missing = offset.saturating_sub(half.end);
        if missing > 0 && length > 0 {
            half.has_gap = true;
            talk.ear.body(id, conversation::Body::Missing(u32::try_from(missing).unwrap_or(u32::MAX)));
        }
        if length > 0 {
            half.end = offset.saturating_add(length).max(half.end);
        }
        Place::File { exchange, known: known.min(length) }
    }

    /// Gives bytes of a place; returns where the next ones go.
    fn give(&mut self, place: Place, bytes: &[u8], piece: conversation::Body<'_>, talk: &mut Talk<'_>) -> Place {
        if bytes.is_empty() {
            return place;
        }
        match place {
            Place::Pipe(pipe) => {
                let run = Run { bytes, time: talk.time };
                self.pipes.read(pipe, talk.side, run, 0, talk.kept, talk.ear);
                place
            }
            Place::File { exchange, known } => {
                let passed = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
                let id = Id { exchange, side: talk.side };
                if passed < bytes.len() {
                    let piece = match piece {
                        conversation::Body::Range(range) => conversation::Body::Range(range.start + passed..range.end),
                        conversation::Body::Kept(bytes, time) => conversation::Body::Kept(&bytes[passed..], time),
                        missing => missing,
                    };
                    talk.ear.body(id, piece);
                }
                Place::File { exchange, known: known - passed as u64 }
            }
        }
    }

    /// Bytes of a place are missing.
    fn miss(&mut self, place: Place, missing: u64, talk: &mut Talk<'_>) {
        match place {
            Place::Pipe(pipe) => {
                let run = Run { bytes: b"", time: talk.time };
                self.pipes.read(pipe, talk.side, run, missing, talk.kept, talk.ear);
            }
            Place::File { exchange, known } => {
                let missing = u32::try_from(missing.saturating_sub(known)).unwrap_or(u32::MAX);
                let halves = self.files.iter_mut().find_map(|(_, open)| match open {
                    Open::File { exchange: of, sides, .. } if *of == exchange => Some(sides),
                    _ => None,
                });
                if let Some(halves) = halves.filter(|_| missing > 0) {
                    halves[talk.side.index()].has_gap = true;
                    talk.ear.body(Id { exchange, side: talk.side }, conversation::Body::Missing(missing));
                }
            }
        }
    }

    fn close(&mut self, file: File, talk: &mut Talk<'_>) {
        if let Some(at) = self.files.iter().position(|open| open.0 == file) {
            let open = self.files.remove(at).1;
            self.end_open(open, How::Complete, talk);
        }
    }

    /// A file or pipe is closed, or no longer known.
    fn end_open(&mut self, open: Open, how: How, talk: &mut Talk<'_>) {
        match open {
            Open::Pipe(pipe) => self.pipes.close(pipe, talk.kept, talk.ear),
            Open::File { exchange, sides, .. } => {
                for side in [Side::Client, Side::Server] {
                    let half = sides[side.index()];
                    let how = if half.has_gap && how == How::Complete { How::Gap } else { how };
                    if half.is_begun {
                        talk.ear.end(Id { exchange, side }, how);
                    }
                }
            }
        }
    }
}

impl Asked {
    /// Whether the response is to it. Version 2 may answer a version 1 negotiation, if the client offered both.
    fn is_of(&self, header: &Header) -> bool {
        (self.version, self.message) == (header.version, header.message)
            || header.command == 0 && header.version == 2 && (self.version, self.command) == (1, 0x72)
    }
}

/// Converts a text to UTF-8.
fn plain(text: &[u8], is_unicode: bool) -> Vec<u8> {
    if !is_unicode {
        return text.to_vec();
    }
    let units: Vec<u16> = text.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    String::from_utf16_lossy(&units).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Ear;
    use crate::conversation::heard::Heard;
    use proptest::prelude::*;

    impl Hears for Heard {
        fn pipe(&mut self, _pipe: u64, bytes: &[u8], tell: &mut dyn FnMut(&mut dyn Ear<dcerpc::Fact>)) {
            self.said.push(format!("pipe {}", bytes.escape_ascii()));
            tell(self);
        }
    }

    pub(super) fn message(command: u8, id: u8, is_response: bool, body: &[u8]) -> Vec<u8> {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16], header[24]) = (command, u8::from(is_response), id);
        let length = (header.len() + body.len()) as u32;
        [&length.to_be_bytes()[..], &header, body].concat()
    }

    /// A request and its response: share 0 is one of files (1) or pipes (2).
    fn connect(kind: u8) -> [(Side, Vec<u8>); 2] {
        let share = [9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0];
        [(Side::Client, message(3, 1, false, &share)), (Side::Server, message(3, 1, true, &[16, 0, kind, 0]))]
    }

    fn create() -> [(Side, Vec<u8>); 2] {
        let name = [&[57, 0][..], &[0; 42], &[120, 0, 4, 0], &[0; 8], b"f\0x\0"].concat();
        let created = [&[89, 0][..], &[0; 62], &[7; 16]].concat();
        [(Side::Client, message(5, 2, false, &name)), (Side::Server, message(5, 2, true, &created))]
    }

    fn write(offset: u8, data: &[u8]) -> (Side, Vec<u8>) {
        let start = [49, 0, 112, 0, data.len() as u8, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0, 0];
        (Side::Client, message(9, 3, false, &[&start[..], &[7; 16], &[0; 16], data].concat()))
    }

    fn read(offset: u8, data: &[u8]) -> [(Side, Vec<u8>); 2] {
        let ask = [&[49, 0, 0, 0, 9, 0, 0, 0, offset][..], &[0; 7], &[7; 16], &[0; 16]].concat();
        let answer = [&[17, 0, 80, 0, data.len() as u8, 0, 0, 0][..], &[0; 8], data].concat();
        [(Side::Client, message(8, 4, false, &ask)), (Side::Server, message(8, 4, true, &answer))]
    }

    fn close() -> (Side, Vec<u8>) {
        (Side::Client, message(6, 5, false, &[&[24, 0, 0, 0, 0, 0, 0, 0][..], &[7; 16]].concat()))
    }

    /// What is heard of files and pipes when each message comes in pieces; pieces of bodies are joined.
    fn talk(said: &[(Side, Vec<u8>)], size: usize) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(KEPT_BYTES), Heard::default());
        let mut heard: Vec<String> = Vec::new();
        for (side, bytes) in said {
            for piece in bytes.chunks(size) {
                conversation.feed(*side, Run { bytes: piece, time: 0 }, &kept, &mut ear);
                for one in ear.said.drain(..) {
                    let text = match one.strip_prefix("bytes ").map(|range| range.split_once("..").unwrap()) {
                        Some((from, to)) => {
                            let range = from.parse().unwrap()..to.parse().unwrap();
                            format!("+{}", piece[range].escape_ascii())
                        }
                        None => one.replace("kept ", "+").replace(" of 0", ""),
                    };
                    match (heard.last_mut(), text.strip_prefix('+')) {
                        (Some(last), Some(more)) if last.starts_with('+') => last.push_str(more),
                        _ => heard.push(text),
                    }
                }
            }
        }
        conversation.end(0, &kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        heard.extend(ear.said);
        let is_noise = |one: &String| {
            ["Version", "Command", "Session", "Tree", "Status", "Name", "Share", "Pipe"]
                .iter()
                .any(|it| one.starts_with(it))
        };
        heard.retain(|one| !is_noise(one));
        heard
    }

    fn check(said: &[&[(Side, Vec<u8>)]], expected: &[&str]) {
        for size in [1, 50, 70, 1000] {
            let heard: Vec<_> = talk(&said.concat(), size).into_iter().filter(|one| one != "Complete").collect();
            assert_eq!(heard, expected, "by {size}");
        }
    }

    #[test]
    fn files() {
        let file = [connect(1), create()].concat();
        check(
            &[&file, &[write(0, b"one "), write(4, b"two")], &read(0, b"abc"), &[close()]],
            &["File=fx", "head", "+one two", "File=fx", "head", "+abc", "Cut"],
        );
        // Written twice, and with a hole.
        let pieces = [write(0, b"one"), write(2, b"e two"), write(9, b"x")];
        check(
            &[&file, &pieces, &[close()]],
            &["File=fx", "head", "+one", "smb.file_overlap", "+ two", "missing 2", "+x", "Gap", "Cut"],
        );
    }

    #[test]
    fn pipes() {
        let bytes = [5, 0, 11, 3, 0x10, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
        let said = "pipe \\x05\\x00\\x0b\\x03\\x10\\x00\\x00\\x00\\x10\\x00\\x00\\x00\\x01\\x00\\x00\\x00";
        let heard = |said: &[&[(Side, Vec<u8>)]]| talk(&said.concat(), 1000);
        let pipe = [write(0, &bytes)];
        assert!(heard(&[&connect(2), &create(), &pipe]).contains(&said.to_string()));
        // The share, or even the pipe is not known.
        assert!(heard(&[&create(), &pipe]).contains(&said.to_string()));
        assert!(heard(&[&pipe]).contains(&said.to_string()));
        // A file that looks like it.
        assert!(!heard(&[&connect(1), &create(), &pipe]).contains(&said.to_string()));
    }

    /// A gap within bytes of a file is one of the file, and behind others the next message counts.
    #[test]
    fn gaps() {
        let (_, bytes) = write(0, b"abcdef");
        let at = bytes.len() - 4;
        let check = |until: usize, missing: u32, rest: &[u8], expected: &[&str]| {
            let (mut conversation, kept, mut ear) =
                (Conversation::default(), Carried::new(KEPT_BYTES), Heard::default());
            let mut feed = |side, bytes: &[u8], gap: u32| {
                ear.said.clear();
                conversation.gap(side, gap, 0, &kept, &mut ear);
                conversation.feed(side, Run { bytes, time: 0 }, &kept, &mut ear);
                ear.said.clone()
            };
            [connect(1), create()].concat().iter().for_each(|(side, bytes)| _ = feed(*side, bytes, 0));
            let first = feed(Side::Client, &bytes[..until], 0);
            let heard = [first, feed(Side::Client, rest, missing), feed(Side::Client, &write(6, b"g").1, 0)];
            assert_eq!(heard.concat(), expected);
        };
        let head = ["File=fx", "head"];
        let end = bytes.len();
        let (lost, last) = ("lost smb directions lost to a gap", "bytes 116..117");
        check(at, 2, b"ef", &[&head[..], &["bytes 116..118", "missing 2", "bytes 0..2", last]].concat());
        check(at, 4, b"", &[&head[..], &["bytes 116..118", "missing 4", last]].concat());
        check(at, 9, b"junk", &[&head[..], &["bytes 116..118", "missing 4", lost, last]].concat());
        check(20, 9, &bytes[29..end], &[&[lost], &head[..], &["missing 6", last]].concat());
        check(20, 900, b"junk", &[&[lost], &head[..], &["missing 6", last]].concat());
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, 0u8..3, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..90)), 0..20), size in 1usize..99) {
            let said: Vec<_> = said.into_iter().map(|(command, id, is_response, body)| {
                (Side::to_server(!is_response), message(command, id, is_response, &body))
            }).collect();
            prop_assert_eq!(talk(&said, size), talk(&said, 999));
        }
    }
}
