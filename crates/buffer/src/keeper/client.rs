//! The side of writers and readers: find a keeper, ask it, map what it hands over.

use super::content::Content;
use super::message::{self, GivenReader, Message, PROTOCOL, RingState, WantedReader, WantedWriter};
use super::place;
use crate::control;
use crate::ring::consumers::{Change, Membership, NewReader};
use crate::ring::layout::{AnyLayout, Layout};
use crate::ring::map::RingMap;
use crate::ring::memory::{Geometry, RingMemory};
use crate::ring::words::ReaderPage;
use crate::ring::{From, OnFull, Reader, RingKind, Signalling, Writer};
use crate::shared::lifeline::Lifeline;
use crate::shared::segment::{Access, PAGE_BYTES, Segment};
use crate::shared::words::Shared;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection to a keeper. Closing it gives back everything obtained through it.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Changes that arrived while something else was awaited.
    changes: Vec<Change>,
    /// It asked to write, so it must note which readers join and leave.
    writes: bool,
    /// Questions without an answer so far. A keeper answers in order: all but the last answer are to abandoned ones.
    owed: u32,
}

enum Heard {
    Answer(Message, Vec<OwnedFd>),
    /// A reader that joined or left, which is noted; or an answer to a question that was given up.
    News,
    Closed,
}

/// Longest time for an answer that needs no waiting. A keeper that takes longer is stopped, or is not a keeper.
const ANSWER: Duration = Duration::from_secs(5);

fn at_once() -> Option<Instant> {
    Some(Instant::now() + ANSWER)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn not_in_time() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the keeper does not answer in time")
}

impl Connection {
    fn open(named: &Named) -> io::Result<Connection> {
        Connection::open_until(named, None)
    }

    /// Like `open`, for a keeper that may not answer: gives up at `deadline` (`None`: after `ANSWER`).
    fn open_until(named: &Named, deadline: Option<Instant>) -> io::Result<Connection> {
        let Named { path, owner } = named;
        let deadline = deadline.or_else(at_once);
        let left = deadline.map_or(ANSWER, |deadline| {
            // At least a little, because 0 would mean for ever.
            deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
        });
        let socket = control::connect(path, *owner, SocketFlags::empty(), left).map_err(|error| {
            let told = match error.kind() {
                io::ErrorKind::TimedOut => return not_in_time(),
                io::ErrorKind::NotFound => format!("no ring at `{}`", path.display()),
                io::ErrorKind::ConnectionRefused => format!("the keeper of `{}` is dead", path.display()),
                _ => format!("no way to the keeper of `{}`: {error}", path.display()),
            };
            io::Error::new(error.kind(), told)
        })?;
        let mut connection = Connection { socket, changes: Vec::new(), writes: false, owed: 0 };
        match connection.call(&Message::Hello(PROTOCOL), deadline)? {
            (Message::Done, _) => Ok(connection),
            _ => Err(invalid("the keeper answers something else")),
        }
    }

    /// Asks and waits for the answer. A refusal is an error; a passed `deadline` is [`io::ErrorKind::TimedOut`].
    fn call(&mut self, message: &Message, deadline: Option<Instant>) -> io::Result<(Message, Vec<OwnedFd>)> {
        match self.ask(message) {
            // A client that is not let in is told the reason before it asks.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return match self.hear() {
                    Ok(Heard::Answer(Message::Refused(refusal, text), _)) => Err(refusal.to_error(text)),
                    _ => Err(error),
                };
            }
            asked => asked?,
        }
        loop {
            match self.answer(deadline) {
                // A signal does not take the question back: the keeper carries it out in any case.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => return answer,
            }
        }
    }

    fn ask(&mut self, message: &Message) -> io::Result<()> {
        control::send(&self.socket, message, &[])?;
        self.owed += 1;
        Ok(())
    }

    fn answer(&mut self, deadline: Option<Instant>) -> io::Result<(Message, Vec<OwnedFd>)> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.readable(left)? {
                return Err(not_in_time());
            }
            match self.hear()? {
                Heard::Closed => return Err(io::Error::new(io::ErrorKind::NotConnected, "the ring's keeper is gone")),
                Heard::Answer(Message::Refused(refusal, text), _) => return Err(refusal.to_error(text)),
                Heard::Answer(answer, fds) => return Ok((answer, fds)),
                // A keeper that only sends news does not answer either.
                Heard::News if left.is_some_and(|left| left.is_zero()) => return Err(not_in_time()),
                Heard::News => {}
            }
        }
    }

    fn hear(&mut self) -> io::Result<Heard> {
        Ok(match control::receive(&self.socket)? {
            None => Heard::Closed,
            Some((change @ (Message::Joined(_) | Message::Left(_)), fds)) => {
                // Without this check the list would grow: only a writer ever takes it.
                if self.writes {
                    self.note(change, fds);
                }
                Heard::News
            }
            Some((answer, fds)) => {
                self.owed = self.owed.saturating_sub(1);
                if self.owed == 0 { Heard::Answer(answer, fds) } else { Heard::News }
            }
        })
    }

    fn readable(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            // A signal: the caller's deadline decides whether to go on.
            Err(rustix::io::Errno::INTR) => Err(io::ErrorKind::Interrupted.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut polled, Some(&now));
        !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn note(&mut self, change: Message, fds: Vec<OwnedFd>) {
        match change {
            Message::Joined(joined) => {
                let mut fds = fds.into_iter();
                // Without a valid page the writer could not wait for this reader: the reader is on its own.
                let page = fds.next().and_then(|fd| map_page(fd, Access::Read).ok());
                if let Some(page) = page {
                    let message::JoinedReader { slot, serial, contract, hold } = joined;
                    let (slot, line) = (slot as usize, fds.next().map(Lifeline::from));
                    self.changes.push(Change::Joined(NewReader { slot, serial, page, line, contract, hold }));
                }
            }
            Message::Left(serial) => self.changes.push(Change::Left(serial)),
            _ => {}
        }
    }

    fn changes(&mut self) -> Vec<Change> {
        while self.readable(Some(Duration::ZERO)).unwrap_or(false) {
            // A keeper that is gone reports no more changes; the ring itself goes on.
            if let Err(_) | Ok(Heard::Closed) = self.hear() {
                break;
            }
        }
        std::mem::take(&mut self.changes)
    }
}

fn map_page(fd: OwnedFd, access: Access) -> io::Result<Shared<ReaderPage>> {
    let segment = Segment::receive_page(fd, PAGE_BYTES).map_err(io::Error::other)?;
    let mapping = segment.map(0, PAGE_BYTES, access)?;
    Shared::in_mapping(&mapping, 0).ok_or_else(|| invalid("not a reader's page"))
}

fn map_ring(fd: OwnedFd, geometry: Geometry, access: Access) -> io::Result<RingMap> {
    let memory = RingMemory::receive(fd, geometry, access).map_err(io::Error::other)?;
    let map = memory.map(access)?;
    if memory.is_known(&map.words) { Ok(map) } else { Err(invalid("the ring is of another version")) }
}

fn all_fds<const N: usize>(fds: Vec<OwnedFd>) -> io::Result<[OwnedFd; N]> {
    fds.try_into().map_err(|_| invalid("the keeper sent other files than it should"))
}

/// A connection that a writer shares with its successor in a ring of another size.
type SharedConnection = Arc<Mutex<Connection>>;

fn locked(connection: &SharedConnection) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

struct FromKeeper(SharedConnection);

impl Membership for FromKeeper {
    fn changes(&mut self) -> Vec<Change> {
        locked(&self.0).changes()
    }
}

/// A named ring, for asking about it or opening it.
#[derive(Clone, Debug)]
pub struct Named {
    path: PathBuf,
    /// The user who must own the keeper; `None`: any user.
    owner: Option<u32>,
}

impl Named {
    /// The ring with this name (or with its keeper's socket at this path). Asks nothing yet.
    pub fn at(name: &str) -> io::Result<Named> {
        Ok(Named { path: place::socket(name)?, owner: None })
    }

    /// The ring with its keeper's socket at this path. Connecting fails unless the socket is this user's
    /// ([`peer::connect_to`](crate::control::peer::connect_to)). For a path from another process, which must not make
    /// this one connect to any socket it likes.
    pub fn of_user(path: &Path, user: u32) -> Named {
        Named { path: path.into(), owner: Some(user) }
    }

    /// The path of its keeper's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails where no keeper answers. Every client that can connect may ask this, whatever the ring's policy.
    pub fn greet(&self) -> io::Result<()> {
        Connection::open(self).map(drop)
    }

    /// The state of the ring.
    pub fn state(&self) -> io::Result<RingState> {
        match Connection::open(self)?.call(&Message::AskState, at_once())? {
            (Message::State(state), _) => Ok(state),
            _ => Err(invalid("the keeper answers something else")),
        }
    }

    /// Removes the ring for good; readers take the rest.
    pub fn remove(&self) -> io::Result<()> {
        Connection::open(self)?.call(&Message::Remove, at_once()).map(drop)
    }

    /// Reads a generation from its oldest block on without becoming a reader: neither the keeper nor the writer knows
    /// of it. Ask the result for blocks, but do not wait with it: no bell would wake it.
    pub fn glance(&self, generation: u32) -> io::Result<Reader> {
        let slot =
            ReaderSlot { page: Shared::private(ReaderPage::new()), slot: 0, serial: 0, line: None, held: Box::new(()) };
        let reader = Reader::of_map(self.map(generation, at_once())?, slot, OnFull::Overwrite, From::Oldest);
        Ok(reader.expect("the first slot is one"))
    }

    /// Opens the ring for writing, without declaring the content.
    pub fn open_writer(&self, signalling: Signalling) -> io::Result<NamedWriter> {
        self.open_writer_of(WantedWriter::default(), signalling)
    }

    /// Opens the ring for writing. [`io::ErrorKind::InvalidInput`]: the ring has another content.
    pub fn open_writer_of(&self, wanted: WantedWriter, signalling: Signalling) -> io::Result<NamedWriter> {
        let mut connection = Connection::open(self)?;
        connection.writes = true;
        let offer = connection.call(&Message::OpenWriter(wanted), at_once())?;
        let connection = Arc::new(Mutex::new(connection));
        let Given { writer, geometry, generation, held } = take_offer(&connection, offer, signalling)?;
        Ok(NamedWriter { writer: Some(writer), connection, geometry, generation, signalling, _held: held })
    }

    /// Opens the ring for reading. Waits for a writer until `deadline` (`None`: for ever).
    pub fn open_reader(&self, contract: OnFull, from: From, deadline: Option<Instant>) -> io::Result<NamedReader> {
        let waits = deadline.is_none_or(|deadline| deadline > Instant::now());
        let asking = self.ask(contract, from, waits, None)?;
        // If the call does not wait, a running keeper refuses at once.
        asking
            .answer(if waits { deadline } else { at_once() })?
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "nobody writes this ring"))
    }

    /// Asks to open the ring for reading, for callers that wait for other things meanwhile. The ring must have the
    /// content `content` (`None`: any).
    pub fn ask_to_read(&self, contract: OnFull, from: From, content: Option<Content>) -> io::Result<AskedReader> {
        self.ask(contract, from, true, content)
    }

    fn ask(&self, contract: OnFull, from: From, wait: bool, content: Option<Content>) -> io::Result<AskedReader> {
        let mut connection = Connection::open(self)?;
        let wanted = WantedReader { contract, oldest: from == From::Oldest, after: 0, wait, content };
        connection.ask(&Message::OpenReader(wanted))?;
        Ok(AskedReader { connection, contract, from })
    }

    /// Maps one generation read-only, for blocks of it that were forwarded. The keeper decides whether that is allowed,
    /// and has until `deadline` to answer.
    pub fn map(&self, generation: u32, deadline: Option<Instant>) -> io::Result<RingMap> {
        match Connection::open_until(self, deadline)?.call(&Message::Map(generation), deadline)? {
            (Message::Mapping(geometry, _), fds) => {
                let [segment] = all_fds(fds)?;
                map_ring(segment, geometry, Access::Read)
            }
            _ => Err(invalid("the keeper answers something else")),
        }
    }
}

/// A request to read that waits for a writer.
#[derive(Debug)]
pub struct AskedReader {
    connection: Connection,
    contract: OnFull,
    from: From,
}

impl AskedReader {
    /// Readable when the keeper has answered.
    pub fn answer_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.connection.socket)
    }

    /// The reader, if the keeper answers before `deadline`; else the request again.
    pub fn answer(mut self, deadline: Option<Instant>) -> io::Result<Result<NamedReader, AskedReader>> {
        match given_to_read(&mut self.connection, self.contract, self.from, deadline) {
            Ok((reader, given)) => {
                let AskedReader { connection, contract, .. } = self;
                Ok(Ok(NamedReader { reader, given, contract, connection, asked: false }))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(Err(self)),
            Err(error) => Err(error),
        }
    }
}

/// A generation as its writer gets it.
struct Given {
    writer: Writer,
    geometry: Geometry,
    generation: u32,
    held: OwnedFd,
}

fn take_offer(
    connection: &SharedConnection,
    offer: (Message, Vec<OwnedFd>),
    signalling: Signalling,
) -> io::Result<Given> {
    let (Message::Writer(geometry, generation), fds) = offer else {
        return Err(invalid("the keeper answers something else"));
    };
    let [segment, held] = all_fds(fds)?;
    let RingMap { words, payload, layout } = map_ring(segment, geometry, Access::Write)?;
    let mut asked = locked(connection);
    // Readers noted so far belong to the ring before this one.
    asked.changes.clear();
    match asked.call(&Message::Mapped, at_once())? {
        (Message::Sealed, _) => {}
        _ => return Err(invalid("the keeper answers something else")),
    }
    drop(asked);
    let membership = Box::new(FromKeeper(Arc::clone(connection)));
    let writer = Writer::new(words, payload, layout, signalling, membership);
    Ok(Given { writer, geometry, generation, held })
}

fn given_to_read(
    connection: &mut Connection,
    contract: OnFull,
    from: From,
    deadline: Option<Instant>,
) -> io::Result<(Reader, GivenReader)> {
    let (Message::Reader(given), fds) = connection.answer(deadline)? else {
        return Err(invalid("the keeper answers something else"));
    };
    let GivenReader { geometry, slot, serial, .. } = given;
    let [segment, page, line, held] = all_fds(fds)?;
    let page = map_page(page, Access::Write)?;
    let map = map_ring(segment, geometry, Access::Read)?;
    let slot = ReaderSlot { page, slot: slot as usize, serial, line: Some(line.into()), held: Box::new(held) };
    let reader =
        Reader::of_map(map, slot, contract, from).ok_or_else(|| invalid("the keeper gives a slot that is none"))?;
    Ok((reader, given))
}

/// The writing side of a named ring.
#[derive(Debug)]
pub struct NamedWriter {
    /// `None` only within `resize`.
    writer: Option<Writer>,
    connection: SharedConnection,
    geometry: Geometry,
    generation: u32,
    signalling: Signalling,
    /// Holds the line that readers watch. Dropped after the writer, which ends the ring first.
    _held: OwnedFd,
}

impl NamedWriter {
    /// The ring's writer.
    pub fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("there is one but within `resize`")
    }

    /// Size and kind of the ring.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The generation that it writes.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Goes on in a ring of another size. Readers finish the old one and follow. A failure changes nothing.
    pub fn resize(&mut self, bytes: u64, slots: u64) -> io::Result<()> {
        let geometry = Geometry::new(self.geometry.kind, bytes, slots);
        let offer = locked(&self.connection).call(&Message::Resize(geometry), None)?;
        let mut given = take_offer(&self.connection, offer, self.signalling)?;
        if let Some(old) = &self.writer {
            given.writer.go_on_from(old);
        }
        (self.geometry, self.generation) = (given.geometry, given.generation);
        if let Some(old) = self.writer.replace(given.writer) {
            old.close_moved();
        }
        self._held = given.held;
        Ok(())
    }

    /// Whether the ring's keeper is still there. Without it the ring goes on with the readers that it has.
    pub fn is_kept(&self) -> bool {
        locked(&self.connection).is_open()
    }

    /// Readable when a reader joined or left, or the keeper is gone; asking for the number of readers empties it.
    pub fn news_fd(&self) -> io::Result<OwnedFd> {
        locked(&self.connection).socket.try_clone()
    }

    /// Gets a number by which descriptors written from now on may name that ring's blocks.
    pub fn register(&mut self, ring: &Path, generation: u32) -> io::Result<u16> {
        let path = ring.to_str().ok_or_else(|| invalid("the keeper's path is not text"))?.to_owned();
        match locked(&self.connection).call(&Message::Register(generation, path), None)? {
            (Message::Registered(number), _) => Ok(number),
            _ => Err(invalid("the keeper answers something else")),
        }
    }

    /// Waits until there is a reader, at most until `deadline`; says whether there is one.
    pub fn wait_for_reader(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        loop {
            if self.writer().readers() > 0 {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            let connection = Arc::clone(&self.connection);
            let mut connection = locked(&connection);
            if connection.readable(left)?
                && let Heard::Closed = connection.hear()?
            {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the ring's keeper is gone"));
            }
            drop(connection);
            self.writer().meet_now();
        }
    }
}

/// The reading side of a named ring.
#[derive(Debug)]
pub struct NamedReader {
    reader: Reader,
    given: GivenReader,
    contract: OnFull,
    connection: Connection,
    /// The keeper was asked for the next generation and has not answered yet.
    asked: bool,
}

impl NamedReader {
    /// The ring's reader.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The ring's kind.
    pub fn kind(&self) -> RingKind {
        self.reader.layout().kind()
    }

    /// Whether the ring's keeper is still there. Without it the ring goes on, but a writer that dies is not found dead.
    pub fn is_kept(&self) -> bool {
        self.connection.is_open()
    }

    /// The ring's reader, read-only.
    pub fn reader_ref(&self) -> &Reader {
        &self.reader
    }

    /// The generation that it reads.
    pub fn generation(&self) -> u32 {
        self.given.generation
    }

    /// The declaration of this generation's writer.
    pub fn written(&self) -> WantedWriter {
        self.given.written
    }

    /// After the end of a generation: goes on with the next one, waiting for it until `deadline`.
    ///
    /// - `false`: there will be no other generation.
    /// - [`io::ErrorKind::TimedOut`]: not yet. The question stands and is not asked again.
    /// - [`io::ErrorKind::NotConnected`]: the keeper died, so that no next generation can come.
    pub fn next_generation(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        let given = if self.asked { Ok(()) } else { self.ask_for_next() };
        let given = given.and_then(|()| given_to_read(&mut self.connection, self.contract, From::Next, deadline));
        // The question stands only without an answer in time or without a keeper. Any other result was the answer.
        self.asked &= given.as_ref().is_err_and(|error| {
            use io::ErrorKind::{ConnectionReset, Interrupted, NotConnected, TimedOut};
            matches!(error.kind(), TimedOut | Interrupted | NotConnected | ConnectionReset)
        });
        match given {
            Ok((mut reader, given)) => {
                reader.go_on_from(&self.reader);
                self.reader = reader;
                self.given = given;
                Ok(true)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Err(error),
                io::ErrorKind::UnexpectedEof => Ok(false),
                // A keeper that removes its ring marks it as removed before it goes.
                _ if self.reader.is_removed() => Ok(false),
                _ if self.connection.is_open() => Err(error),
                _ => Err(io::Error::new(io::ErrorKind::NotConnected, "the ring's keeper died")),
            },
        }
    }

    fn ask_for_next(&mut self) -> io::Result<()> {
        let wanted = WantedReader {
            contract: self.contract,
            oldest: false,
            after: self.given.generation,
            wait: true,
            content: self.given.written.content,
        };
        self.connection.ask(&Message::OpenReader(wanted))?;
        self.asked = true;
        Ok(())
    }

    /// Whether the keeper's answer about the next generation is still due.
    pub fn is_asking(&self) -> bool {
        self.asked
    }

    /// Readable when the keeper has answered the question for the next generation.
    pub fn answer_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.connection.socket)
    }

    /// The keeper's socket and the generation of the ring that this number means.
    pub fn whereabouts(&mut self, ring: u16, deadline: Option<Instant>) -> io::Result<(Named, u32)> {
        if self.asked {
            // One answer is still due; the next one would be mistaken for it.
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the keeper is asked for the next ring"));
        }
        match self.connection.call(&Message::Where(ring), deadline)? {
            (Message::Elsewhere(generation, path), _) => {
                Ok((Named { path: PathBuf::from(path), owner: None }, generation))
            }
            _ => Err(invalid("the keeper answers something else")),
        }
    }
}

struct ReaderSlot {
    page: Shared<ReaderPage>,
    slot: usize,
    serial: u32,
    line: Option<Lifeline>,
    /// Holds the line by which the writer learns of this reader's death.
    held: Box<dyn Send>,
}

impl Reader<AnyLayout> {
    /// A reader of a mapped ring; `None` where the slot is out of range.
    fn of_map(map: RingMap, slot: ReaderSlot, contract: OnFull, from: From) -> Option<Reader> {
        let RingMap { words, payload, layout } = map;
        let ReaderSlot { page, slot, serial, line, held: leave } = slot;
        let parts =
            crate::ring::reader::Parts { words, page, payload, layout, slot, serial, contract, from, line, leave };
        (slot < crate::ring::words::READERS).then(|| Reader::new(parts))
    }
}
