//! The keeper: one thread that answers a ring's clients.
//!
//! A *generation* is one writer's ring. It is made before its writer is there, handed to it, sealed once it is mapped, and
//! only then shown to readers. When the writer goes, in order or not, the generation is retired and never given to
//! another; the next writer gets the next one. Nothing a client says or does not read makes the keeper wait for it.

use super::message::{
    GivenReader, JoinedReader, MESSAGE_BYTES, Message, PROTOCOL, ReaderState, Refusal, RingState, WantedReader,
};
use super::place;
use super::policy::{Peer, Policy, Reach};
use super::{message, policy};
use crate::ring::doorbell;
use crate::ring::memory::{Geometry, RingMap, RingMemory};
use crate::ring::retire::retire;
use crate::ring::words::{READERS, ReaderPage};
use crate::ring::{Hold, OnFull};
use crate::shared::segment::{Access, PAGE_BYTES, Pages, Segment};
use crate::shared::words::Shared;
use base::atomic::Ordering;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Clients one keeper has at a time, whatever they want.
pub const CLIENTS: usize = 256;

/// Rings of other keepers that a ring's descriptors may name at a time.
pub const FOREIGN_RINGS: usize = 1024;

/// Longest path of another keeper's socket: what a socket's address takes.
pub const FOREIGN_PATH_BYTES: usize = 108;

/// Rings left for one of another size that are kept for who has to read them yet. Where somebody who holds is further
/// behind, the next change of size is refused; who does not hold goes on in a younger one.
pub const PAST: usize = 8;

/// What a ring is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Size and kind.
    pub geometry: Geometry,
    /// Pages it is made of.
    pub pages: Pages,
    /// Who may do what.
    pub policy: Policy,
    /// How long a reader may hold the full ring.
    pub hold: Hold,
    /// Do readers wait for the next writer when one closes?
    pub keep_open: bool,
}

/// One writer's ring.
struct Generation {
    number: u32,
    memory: RingMemory,
    /// The keeper's own map, made before the seal.
    map: RingMap,
    stage: Stage,
    hold: Hold,
    /// Who reads it.
    readers: BTreeMap<u32, KeptReader>,
    /// Pages of those that left and of whom the writer was not told yet: it may be asleep waiting for one of them.
    gone: Vec<Shared<ReaderPage>>,
}

/// A ring of another keeper that descriptors of this one may name.
struct Foreign {
    number: u16,
    generation: u32,
    /// Its keeper's socket.
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody has it yet.
    Made,
    /// The writer has it, and has not mapped it yet.
    Offered,
    /// The writer writes it; readers may come.
    Written,
    /// The writer is gone.
    Over,
}

struct KeptReader {
    slot: usize,
    segment: Segment,
    page: Shared<ReaderPage>,
    wanted: OnFull,
    peer: Peer,
}

struct Client {
    socket: OwnedFd,
    peer: Peer,
    greeted: bool,
    role: Role,
}

enum Role {
    /// Has not said what it wants, or only asks.
    Guest,
    /// Waits for a generation to read.
    Waiting(WantedReader),
    /// Reads under this number; `waits` for the next generation, where it has a place, to be sealed.
    Reader { serial: u32, waits: bool },
    /// Writes; these readers it was told of.
    Writer { told: Vec<u32> },
}

/// The keeper of one ring.
pub struct Keeper {
    path: PathBuf,
    listener: OwnedFd,
    /// Held as long as the keeper lives; whoever finds it free may replace the socket.
    _lock: OwnedFd,
    owner: Peer,
    options: RingOptions,
    /// The ring there is, and the number of the last one.
    current: Generation,
    /// Rings that their writer left for one of another size, oldest first, as long as somebody has to read them yet.
    past: Vec<Generation>,
    serial: u32,
    /// What descriptors may name, whoever wrote them and whatever the size of the ring then; latest asked for last.
    foreign: VecDeque<Foreign>,
    last_foreign: u16,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    removed: bool,
}

/// Why a client is let go.
enum Gone {
    Closed,
    Broken,
}

impl Keeper {
    /// Makes the ring and the socket it is found at. Fails where a keeper of this name lives.
    pub fn create(path: &Path, options: RingOptions) -> io::Result<Keeper> {
        if let Some(folder) = path.parent().filter(|folder| *folder == place::folder()) {
            place::make_folder(folder)?;
        }
        let lock = lock(path)?;
        // Nobody keeps it: what lies there is what a killed keeper left.
        remove_socket(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        // Who may talk to the keeper at all; who may do what is checked for each message.
        let mode = if options.policy.farthest() >= Reach::Group { 0o666 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&listener, 64)?;
        let owner = policy::Peer {
            process: rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        let current = Generation::make(&options, 1)?;
        Ok(Keeper {
            path: path.to_owned(),
            listener,
            _lock: lock,
            owner,
            options,
            current,
            past: Vec::new(),
            serial: 0,
            foreign: VecDeque::new(),
            last_foreign: 0,
            clients: BTreeMap::new(),
            last_client: 0,
            removed: false,
        })
    }

    /// Makes `owner` the one whom the policy's `process` means, in place of this process's parent.
    pub fn set_owner_process(&mut self, process: i32) {
        self.owner.process = process;
    }

    /// Answers until somebody with the right to asks for the ring's removal.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.removed {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Waits for something to do, does it. For callers with a loop of their own, at most `timeout_ms` milliseconds.
    pub fn turn(&mut self, timeout_ms: Option<u32>) -> io::Result<()> {
        let ready = {
            let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
            for client in self.clients.values() {
                let wants_out = match &client.role {
                    Role::Writer { told } => self.current.news_for(told),
                    _ => false,
                };
                let flags = if wants_out { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                polled.push(PollFd::new(&client.socket, flags));
            }
            let timeout = timeout_ms.map(|ms| rustix::event::Timespec {
                tv_sec: i64::from(ms / 1000),
                tv_nsec: i64::from(ms % 1000) * 1_000_000,
            });
            match rustix::event::poll(&mut polled, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => return Ok(()),
                result => result?,
            };
            let mut flags = polled.iter().map(|polled| polled.revents());
            let listener = flags.next().is_some_and(|flags| !flags.is_empty());
            let keys = self.clients.keys().copied().zip(flags).filter(|(_, flags)| !flags.is_empty());
            (listener, keys.map(|(key, _)| key).collect::<Vec<u64>>())
        };
        for key in ready.1 {
            if let Err(gone) = self.hear(key) {
                self.let_go(key, gone);
            }
        }
        if ready.0 {
            self.accept();
        }
        self.tell_writer();
        Ok(())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else { return };
        let Ok(peer) = rustix::net::sockopt::socket_peercred(&socket) else { return };
        if self.clients.len() >= CLIENTS {
            let text = format!("the ring has {CLIENTS} clients already");
            let _ = message::send(&socket, &Message::Refused(Refusal::Full, text), &[]);
            return;
        }
        let peer = Peer { process: peer.pid.as_raw_nonzero().get(), user: peer.uid.as_raw(), group: peer.gid.as_raw() };
        self.last_client += 1;
        self.clients.insert(self.last_client, Client { socket, peer, greeted: false, role: Role::Guest });
    }

    /// One message of a client that has something to say.
    fn hear(&mut self, key: u64) -> Result<(), Gone> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let message = match message::receive(&client.socket) {
            Ok(Some((message, _no_fds_are_expected))) => message,
            Ok(None) => return Err(Gone::Closed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Gone::Broken),
            Err(_) => return Err(Gone::Closed),
        };
        if !client.greeted {
            client.greeted = true;
            return match message {
                Message::Hello(PROTOCOL) => self.answer(key, &Message::Done),
                Message::Hello(other) => self.refuse(
                    key,
                    Refusal::Wrong,
                    &format!("this ring is kept by a program that speaks version {PROTOCOL}, not {other}"),
                ),
                _ => Err(Gone::Broken),
            };
        }
        let peer = client.peer;
        let may = |reach: Reach| reach.covers(self.owner, peer);
        let policy = self.options.policy;
        match message {
            Message::OpenWriter | Message::Resize(_) | Message::Register(..) | Message::Remove if !may(policy.write) => {
                self.refuse(key, Refusal::Denied, &format!("only {} may write this ring", who(policy.write)))
            }
            Message::OpenReader(_) | Message::AskState | Message::Map(_) | Message::Where(_) if !may(policy.read) => {
                self.refuse(key, Refusal::Denied, &format!("only {} may read this ring", who(policy.read)))
            }
            Message::OpenReader(wanted) if wanted.contract.holds() && !may(policy.hold) => {
                let text = format!(
                    "only {} may hold this ring: read it with `on-full=overwrite` or `on-full=shared`",
                    who(policy.hold)
                );
                self.refuse(key, Refusal::Denied, &text)
            }
            Message::OpenWriter => self.open_writer(key),
            Message::Mapped => self.mapped(key),
            Message::Resize(geometry) => self.resize(key, geometry),
            Message::OpenReader(wanted) => self.open_reader(key, wanted),
            Message::AskState => {
                let state = Message::State(self.state());
                self.answer(key, &state)
            }
            Message::Map(generation) => self.map(key, generation),
            Message::Register(generation, path) => self.register(key, generation, path),
            Message::Where(ring) => match self.foreign.iter().find(|foreign| foreign.number == ring) {
                Some(Foreign { generation, path, .. }) => {
                    self.answer(key, &Message::Elsewhere(*generation, path.clone()))
                }
                None => self.refuse(key, Refusal::Nothing, "no block of this ring can lie there"),
            },
            Message::Remove => {
                // Who has the answer may make another ring of this name.
                self.remove();
                self.answer(key, &Message::Done)
            }
            _ => Err(Gone::Broken),
        }
    }

    fn answer(&self, key: u64, message: &Message) -> Result<(), Gone> {
        self.answer_with(key, message, &[])
    }

    /// A client that does not read its answers is let go: it has asked for each of them.
    fn answer_with(&self, key: u64, message: &Message, fds: &[std::os::fd::BorrowedFd<'_>]) -> Result<(), Gone> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        debug_assert!(message.encode().len() <= MESSAGE_BYTES);
        message::send(&client.socket, message, fds).map_err(|_| Gone::Broken)
    }

    fn refuse(&self, key: u64, refusal: Refusal, text: &str) -> Result<(), Gone> {
        self.answer(key, &Message::Refused(refusal, text.to_owned()))
    }

    fn open_writer(&mut self, key: u64) -> Result<(), Gone> {
        match self.current.stage {
            Stage::Offered | Stage::Written => {
                return self.refuse(key, Refusal::Busy, "the ring has a writer already: each ring has one at a time");
            }
            Stage::Made => {}
            Stage::Over => {
                // Numbers do not come back while anybody may remember them.
                let made = Generation::make(&self.options, self.current.number.wrapping_add(1).max(1));
                match made.and_then(|next| self.with_readers(next)) {
                    Ok(next) => {
                        if let Err((refusal, text)) = self.make_room_in_past() {
                            return self.refuse(key, refusal, &text);
                        }
                        self.succeed(next);
                    }
                    Err(error) => {
                        return self.refuse(key, Refusal::Failed, &format!("no memory for the ring: {error}"));
                    }
                }
            }
        }
        let offer = Message::Writer(self.current.memory.geometry(), self.current.number);
        self.answer_with(key, &offer, &[self.current.memory.segment().fd()])?;
        self.current.stage = Stage::Offered;
        if let Some(client) = self.clients.get_mut(&key) {
            client.role = Role::Writer { told: Vec::new() };
        }
        Ok(())
    }

    /// Where readers wait for the next writer they keep their places: what it writes first is for them, however late they
    /// ask.
    fn with_readers(&self, mut next: Generation) -> io::Result<Generation> {
        if self.options.keep_open {
            for (serial, reader) in &self.current.readers {
                next.readers.insert(*serial, KeptReader::make(reader.slot, reader.wanted, reader.peer)?);
            }
        }
        Ok(next)
    }

    /// Room for one more generation that somebody has to read yet.
    fn make_room_in_past(&mut self) -> Result<(), (Refusal, String)> {
        if self.past.len() >= PAST {
            if self.past[0].readers.values().any(|reader| reader.wanted.holds()) {
                return Err((Refusal::Busy, format!("somebody has yet to read the ring of {PAST} generations ago")));
            }
            self.past.remove(0);
        }
        Ok(())
    }

    /// Makes this the current generation, and keeps the last one as long as somebody reads it.
    fn succeed(&mut self, next: Generation) {
        let mut last = std::mem::replace(&mut self.current, next);
        last.stage = Stage::Over;
        if !last.readers.is_empty() {
            self.past.push(last);
        }
    }

    fn mapped(&mut self, key: u64) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer || self.current.stage != Stage::Offered {
            return Err(Gone::Broken);
        }
        if self.current.memory.segment().seal_for_readers().is_err() {
            return self.refuse(key, Refusal::Failed, "the ring cannot be sealed");
        }
        self.current.stage = Stage::Written;
        // Who reads it is said before the first block can be written, who waited for it included.
        self.tell_writer();
        self.serve_all_waiting();
        self.answer(key, &Message::Sealed)
    }

    fn serve_all_waiting(&mut self) {
        let waiting: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| matches!(client.role, Role::Waiting(_) | Role::Reader { waits: true, .. }))
            .map(|(key, _)| *key)
            .collect();
        for key in waiting {
            if let Err(gone) = self.serve_waiting(key) {
                self.let_go(key, gone);
            }
        }
    }

    fn serve_waiting(&mut self, key: u64) -> Result<(), Gone> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        if let Role::Reader { serial, waits } = &mut client.role {
            *waits = false;
            let serial = *serial;
            return self.hand_over(key, serial);
        }
        let Role::Waiting(wanted) = client.role else { return Ok(()) };
        self.open_reader(key, wanted)
    }

    fn open_reader(&mut self, key: u64, wanted: WantedReader) -> Result<(), Gone> {
        // A reader of a ring that moved has had its place in the new one since that was made.
        if let Some(serial) = self.moved(key, wanted.after) {
            let sealed = |generation: &Generation| matches!(generation.stage, Stage::Written | Stage::Over);
            if !self.generation_of(serial).is_some_and(sealed) {
                if let Some(client) = self.clients.get_mut(&key) {
                    client.role = Role::Reader { serial, waits: true };
                }
                return Ok(());
            }
            return self.hand_over(key, serial);
        }
        self.leave(key);
        let readable = match self.current.stage {
            Stage::Written => self.current.number != wanted.after,
            // What is still there of a ring whose writer is gone.
            Stage::Over => wanted.oldest && !wanted.contract.holds() && self.current.number != wanted.after,
            Stage::Made | Stage::Offered => false,
        };
        if !readable {
            // A reader of the last generation of a ring that does not stay open has seen all there will be.
            let ended = wanted.after != 0 && !self.options.keep_open && self.current.stage == Stage::Over;
            if ended {
                return self.refuse(key, Refusal::Ended, "the ring has ended");
            }
            if !wanted.wait {
                return self.refuse(key, Refusal::Nothing, "nobody writes this ring");
            }
            if let Some(client) = self.clients.get_mut(&key) {
                client.role = Role::Waiting(wanted);
            }
            return Ok(());
        }
        let free = (0..READERS).find(|slot| self.current.readers.values().all(|reader| reader.slot != *slot));
        let Some(slot) = free else {
            return self.refuse(key, Refusal::Full, &format!("the ring has {READERS} readers already"));
        };
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let reader = match KeptReader::make(slot, wanted.contract, client.peer) {
            Ok(reader) => reader,
            Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for a reader: {error}")),
        };
        self.serial = self.serial.wrapping_add(1).max(1);
        client.role = Role::Reader { serial: self.serial, waits: false };
        self.current.readers.insert(self.serial, reader);
        // The writer first: whatever it writes after the reader has its answer is written for that reader too.
        self.tell_writer();
        self.hand_over(key, self.serial)
    }

    /// The number of a reader that had its place kept when its ring moved on from generation `after`.
    fn moved(&mut self, key: u64, after: u32) -> Option<u32> {
        let Role::Reader { serial, .. } = self.clients.get(&key)?.role else { return None };
        // Through with that one, and with all before it.
        for past in &mut self.past {
            if past.number <= after {
                past.readers.remove(&serial);
            }
        }
        self.past.retain(|past| !past.readers.is_empty());
        self.generation_of(serial).filter(|generation| generation.number != after).map(|_| serial)
    }

    /// The oldest generation that this reader has to read yet.
    fn generation_of(&self, serial: u32) -> Option<&Generation> {
        let mut all = self.past.iter().chain([&self.current]);
        all.find(|generation| generation.readers.contains_key(&serial))
    }

    fn hand_over(&mut self, key: u64, serial: u32) -> Result<(), Gone> {
        let Some(generation) = self.generation_of(serial) else { return Ok(()) };
        let Some(reader) = generation.readers.get(&serial) else { return Ok(()) };
        // A reader gets a file descriptor that cannot be mapped for writing even before the seal is looked at.
        let Ok(segment) = generation.memory.segment().read_only_fd() else {
            return self.refuse(key, Refusal::Failed, "the ring cannot be handed over");
        };
        let given = GivenReader {
            geometry: generation.memory.geometry(),
            generation: generation.number,
            slot: reader.slot as u32,
            serial,
        };
        self.answer_with(key, &Message::Reader(given), &[segment.as_fd(), reader.segment.fd()])
    }

    /// The writer wants a ring of another size. Its readers keep their places: they miss nothing.
    fn resize(&mut self, key: u64, geometry: Geometry) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer || self.current.stage != Stage::Written || geometry.kind != self.options.geometry.kind {
            return self.refuse(key, Refusal::Wrong, "only a ring's writer can resize it, and only to the same kind");
        }
        if let Err((refusal, text)) = self.make_room_in_past() {
            return self.refuse(key, refusal, &text);
        }
        let made =
            Generation::make(&RingOptions { geometry, ..self.options }, self.current.number.wrapping_add(1).max(1));
        let mut next = match made {
            Ok(next) => next,
            Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for the ring: {error}")),
        };
        for (serial, reader) in &self.current.readers {
            match KeptReader::make(reader.slot, reader.wanted, reader.peer) {
                Ok(again) => next.readers.insert(*serial, again),
                Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for a reader: {error}")),
            };
        }
        let offer = Message::Writer(geometry, next.number);
        self.answer_with(key, &offer, &[next.memory.segment().fd()])?;
        next.stage = Stage::Offered;
        self.options.geometry = geometry;
        self.succeed(next);
        if let Some(client) = self.clients.get_mut(&key) {
            client.role = Role::Writer { told: Vec::new() };
        }
        Ok(())
    }

    fn map(&self, key: u64, generation: u32) -> Result<(), Gone> {
        let mut all = self.past.iter().chain([&self.current]);
        // Sealed is what a writer has, or had; a generation that is only offered could still be mapped for writing.
        let found = all.find(|one| one.number == generation && matches!(one.stage, Stage::Written | Stage::Over));
        match found.and_then(|one| Some((one, one.memory.segment().read_only_fd().ok()?))) {
            Some((one, segment)) => {
                let mapping = Message::Mapping(one.memory.geometry(), generation);
                self.answer_with(key, &mapping, &[segment.as_fd()])
            }
            None => self.refuse(key, Refusal::Nothing, "the ring of that time is gone"),
        }
    }

    /// A number for another keeper's ring. There is always one: who was not asked for longest loses its own, and a number
    /// comes back only after all others.
    fn register(&mut self, key: u64, generation: u32, path: String) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer {
            return self.refuse(key, Refusal::Denied, "only the ring's writer can name other rings");
        }
        if path.len() > FOREIGN_PATH_BYTES {
            return self.refuse(key, Refusal::Wrong, "no socket has so long a path");
        }
        let known = self.foreign.iter().position(|one| one.generation == generation && one.path == path);
        let foreign = match known.and_then(|index| self.foreign.remove(index)) {
            Some(known) => known,
            None => {
                if self.foreign.len() >= FOREIGN_RINGS {
                    self.foreign.pop_front();
                }
                let mut number = self.last_foreign.wrapping_add(1).max(1);
                while self.foreign.iter().any(|one| one.number == number) {
                    number = number.wrapping_add(1).max(1);
                }
                self.last_foreign = number;
                Foreign { number, generation, path }
            }
        };
        let number = foreign.number;
        self.foreign.push_back(foreign);
        self.answer(key, &Message::Registered(number))
    }

    /// Tells the writer who came and went since it was told last; what does not fit into its socket waits.
    fn tell_writer(&mut self) {
        let current = &mut self.current;
        let mut broken = None;
        for (key, client) in &mut self.clients {
            let Role::Writer { told } = &mut client.role else { continue };
            if current.tell(&client.socket, told).is_err() {
                broken = Some(*key);
            }
        }
        if let Some(key) = broken {
            self.let_go(key, Gone::Broken);
        }
    }

    /// Whoever is at the other end is gone, or is no longer listened to.
    fn let_go(&mut self, key: u64, gone: Gone) {
        self.leave(key);
        let Some(client) = self.clients.remove(&key) else { return };
        if let Gone::Broken = gone {
            let text = "the other side says what cannot be understood, or does not listen".to_owned();
            let _ = message::send(&client.socket, &Message::Refused(Refusal::Wrong, text), &[]);
        }
        if let Role::Writer { .. } = client.role {
            // Offered and never mapped, it could be mapped for writing at any time to come; from here on it cannot.
            if self.current.stage == Stage::Offered {
                let _ = self.current.memory.segment().seal_for_readers();
            }
            self.current.stage = Stage::Over;
            retire(&self.current.map.words);
            self.serve_all_waiting();
        }
    }

    /// What a reader held is free.
    fn leave(&mut self, key: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Role::Reader { serial, .. } = client.role else { return };
        client.role = Role::Guest;
        self.past.iter_mut().for_each(|past| drop(past.readers.remove(&serial)));
        self.past.retain(|past| !past.readers.is_empty());
        if let Some(reader) = self.current.readers.remove(&serial)
            && self
                .clients
                .values()
                .any(|client| matches!(&client.role, Role::Writer { told } if told.contains(&serial)))
        {
            self.current.gone.push(reader.page);
        }
    }

    fn remove(&mut self) {
        retire(&self.current.map.words);
        for client in self.clients.values() {
            if let Role::Waiting(_) = client.role {
                let text = "the ring was removed".to_owned();
                let _ = message::send(&client.socket, &Message::Refused(Refusal::Removed, text), &[]);
            }
        }
        self.removed = true;
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(lock_path(&self.path));
    }

    fn state(&self) -> RingState {
        let words = &self.current.map.words;
        let counts = &words.counts.0;
        let readers = self.current.readers.iter().map(|(serial, reader)| {
            let slot = &words.slots[reader.slot];
            let met = slot.serial.load(Ordering::Acquire) == *serial;
            ReaderState {
                process: reader.peer.process,
                user: reader.peer.user,
                granted: reader.wanted,
                in_force: if met { OnFull::from_code(slot.contract.load(Ordering::Relaxed)) } else { None },
                position: reader.page.position.0.load(Ordering::Relaxed),
                lost: reader.page.wait.0.lost.load(Ordering::Relaxed),
            }
        });
        RingState {
            geometry: self.current.memory.geometry(),
            generation: self.current.number,
            writing: self.current.stage == Stage::Written,
            keep_open: self.options.keep_open,
            head: words.writer.0.head.load(Ordering::Relaxed),
            blocks: counts.blocks.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
            readers: readers.collect(),
        }
    }
}

/// Whom a right reaches, in a sentence.
fn who(reach: Reach) -> &'static str {
    match reach {
        Reach::Process => "the process that made it",
        Reach::User => "its user",
        Reach::Group => "its group",
        Reach::Other => "everybody",
    }
}

impl Generation {
    fn make(options: &RingOptions, number: u32) -> io::Result<Generation> {
        let memory = RingMemory::create("streamline-ring", options.geometry, options.pages, number)?;
        let map = memory.map(Access::Write)?;
        Ok(Generation {
            number,
            memory,
            map,
            stage: Stage::Made,
            hold: options.hold,
            readers: BTreeMap::new(),
            gone: Vec::new(),
        })
    }

    /// Lets the writer know that it should ask.
    fn changed(&self) {
        self.map.words.keeper.0.epoch.fetch_add(1, Ordering::Release);
    }

    fn news_for(&self, told: &[u32]) -> bool {
        self.stage == Stage::Written
            && (told.len() != self.readers.len() || told.iter().any(|serial| !self.readers.contains_key(serial)))
    }

    /// Tells a ring's writer what it does not know yet of its readers.
    fn tell(&mut self, socket: &OwnedFd, told: &mut Vec<u32>) -> io::Result<()> {
        let mut any = false;
        let mut say = |message: &Message, fds: &[std::os::fd::BorrowedFd<'_>]| match message::send(socket, message, fds)
        {
            Ok(()) => {
                any = true;
                Ok(true)
            }
            // What there is no room for waits until there is.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
        if self.stage != Stage::Written {
            return Ok(());
        }
        let mut index = 0;
        while index < told.len() {
            if self.readers.contains_key(&told[index]) {
                index += 1;
            } else if say(&Message::Left(told[index]), &[])? {
                told.swap_remove(index);
            } else {
                break;
            }
        }
        for (serial, reader) in &self.readers {
            if told.contains(serial) {
                continue;
            }
            // The writer only looks.
            let page = reader.segment.read_only_fd()?;
            let hold = if reader.wanted.holds() { self.hold } else { None };
            let joined = JoinedReader { slot: reader.slot as u32, serial: *serial, contract: reader.wanted, hold };
            if !say(&Message::Joined(joined), &[page.as_fd()])? {
                break;
            }
            told.push(*serial);
        }
        if any {
            // Behind what was said: who sees the epoch finds the message. The bells come last, for a writer that is woken
            // and finds no message sleeps on.
            self.changed();
            self.gone.iter().for_each(|page| doorbell::ring(&page.wait.0.bell));
        }
        if told.iter().all(|serial| self.readers.contains_key(serial)) {
            self.gone.clear();
        }
        Ok(())
    }
}

impl KeptReader {
    fn make(slot: usize, wanted: OnFull, peer: Peer) -> io::Result<KeptReader> {
        let segment = Segment::create("streamline-reader", PAGE_BYTES, Pages::Normal)?;
        segment.seal_for_writer()?;
        let mapping = segment.map(0, PAGE_BYTES, Access::Write)?;
        let page = Shared::in_mapping(&mapping, 0).ok_or_else(|| io::Error::other("a page holds a reader's words"))?;
        Ok(KeptReader { slot, segment, page, wanted, peer })
    }
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

/// A lock that says that a keeper of this name lives; the kernel lets go of it when that dies, however it dies.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for _ in 0..LOCK_TRIES {
        let lock = rustix::fs::open(lock_path(path), flags, Mode::from_raw_mode(0o600))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            Err(error) => return Err(error.into()),
        }
        // A keeper that was removed between the two calls took the file's name away: whoever comes next would lock another.
        if rustix::fs::fstat(&lock)?.st_nlink > 0 {
            return Ok(lock);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a ring of this name already"))
}

/// Tries to lock the file that has the name, where others make and remove rings of this name all the time.
const LOCK_TRIES: u32 = 16;

/// Removes what a keeper that was killed left at this path. Fails where one lives.
pub fn clear_dead(path: &Path) -> io::Result<()> {
    let _lock = lock(path)?;
    remove_socket(path)?;
    remove_if_there(&lock_path(path))
}

/// Removes a socket that nobody listens to. Anything else that has its name is somebody's.
fn remove_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let text = format!("`{}` is there, and is no ring", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
        _ => remove_if_there(path),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
