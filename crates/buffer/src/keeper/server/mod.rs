//! The keeper: one thread that answers a ring's clients.
//!
//! A *generation* is one writer's ring. The keeper makes it, hands it to its writer, seals it once the writer has
//! mapped it, and only then shows it to readers. When the writer leaves or dies, the generation is retired; the next
//! writer gets a new one. The keeper never waits for a client, whatever the client sends or fails to read.
//!
//! - This file — connections, rights of each client, answers.
//! - `writing`, `reading` — give clients a place to write or read, and choose the generation.
//! - `generation` — one writer's ring and its readers.
//! - `places` — limits on clients and readers, also of one user.
//! - `foreign` — numbers for rings of other keepers.

mod foreign;
mod generation;
mod places;
mod reading;
mod writing;

pub use foreign::{FOREIGN_PATH_BYTES, FOREIGN_RINGS};

use super::content::Content;
use super::message::{Message, PROTOCOL, ReaderState, Refusal, RingState, WantedReader, WantedWriter};
use super::place;
use super::policy;
use super::policy::{Peer, Policy, Reach};
use crate::control::name::{Claimed, claim, give_up, remove_name};
use crate::control::{self, packets};
use crate::ring::memory::Geometry;
use crate::ring::retire::retire;
use crate::ring::{Hold, OnFull};
use crate::shared::segment::Pages;
use base::atomic::Ordering;
use foreign::ForeignRings;
use generation::{Generation, Stage};
use places::{OF_CLIENTS, Standing};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SocketFlags;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No group has this number (chown(2)).
const NO_GROUP: u32 = u32::MAX;

/// Most generations kept for readers after their writer went on in another size. If a holding reader is further behind,
/// the next change of size is refused. A reader that does not hold goes on in a younger generation.
pub const PAST: usize = 8;

/// Milliseconds for which a keeper that is short of system resources (file descriptors, mostly) leaves alone everything
/// that needs more of them.
const REST_MS: u32 = 50;

/// How long a `while_used` ring stays without a user: a new user may have just been told its name.
const UNUSED: Duration = Duration::from_secs(1);

/// Options of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Size and kind.
    pub geometry: Geometry,
    /// Size of the pages.
    pub pages: Pages,
    /// Rights of users.
    pub policy: Policy,
    /// How long a reader may hold the full ring.
    pub hold: Hold,
    /// Whether readers wait for the next writer when one closes.
    pub keep_open: bool,
    /// Whether the ring is removed after its last user.
    pub while_used: bool,
}

impl RingOptions {
    /// Normal pages, the default policy, no hold limit; readers end with the writer.
    pub fn new(geometry: Geometry) -> RingOptions {
        RingOptions {
            geometry,
            pages: Pages::Normal,
            policy: Policy::default(),
            hold: None,
            keep_open: false,
            while_used: false,
        }
    }
}

struct Client {
    socket: OwnedFd,
    peer: Peer,
    greeted: bool,
    role: Role,
    /// It was sent files with an answer.
    is_given: Cell<bool>,
}

impl Client {
    /// A client that does not read its answers is dropped: it has asked for each of them.
    fn answer(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Gone> {
        control::send(&self.socket, message, fds).map_err(|_| Gone::Broken)
    }

    /// Like `answer`, with files. Files on their way stay open and count for everything this user sends, so a client
    /// gets one such answer at a time.
    fn give(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), Gone> {
        if self.is_given.replace(true) && !packets::all_taken(&self.socket).unwrap_or(false) {
            return Err(Gone::Broken);
        }
        self.answer(message, fds)
    }
}

enum Role {
    /// Has not opened the ring yet, or only asks.
    Guest,
    /// Waits for a generation to read.
    Waiting(WantedReader),
    /// Reads under this number. `waits`: it has a place in the next generation and waits for its seal.
    Reader { serial: u32, waits: bool },
    /// Writes; it knows of these readers.
    Writer { told: Vec<u32> },
}

/// The keeper of one ring.
pub struct Keeper {
    path: PathBuf,
    listener: OwnedFd,
    /// Held as long as the keeper lives; a process that can take it may replace the socket.
    _lock: OwnedFd,
    owner: Peer,
    /// Readable once the owner's process has ended: then another process may get its number.
    owner_ends: Option<OwnedFd>,
    options: RingOptions,
    /// The present ring; it knows its own number.
    current: Generation,
    /// The content that its users declared; `None` while no user has declared one.
    content: Option<Content>,
    /// Since when the ring has had no users.
    unused: Option<Instant>,
    /// Rings that their writer left for another size, oldest first, while they still have readers.
    past: Vec<Generation>,
    serial: u32,
    foreign: ForeignRings,
    clients: BTreeMap<u64, Client>,
    last_client: u64,
    removed: bool,
    is_short: bool,
}

enum Gone {
    Closed,
    Broken,
}

impl Keeper {
    /// Makes the ring and its socket. Fails where a keeper of this name lives.
    pub fn create(path: &Path, options: RingOptions) -> io::Result<Keeper> {
        if let Some(folder) = path.parent().filter(|folder| *folder == place::folder()) {
            place::make_folder(folder)?;
        }
        // The mode decides which users may connect; rights are checked for each message.
        let mode = if options.policy.farthest() >= Reach::Group { 0o666 } else { 0o600 };
        let claimed = claim(path, mode, None)?;
        let current = match Generation::make(&options, 1) {
            Ok(current) => current,
            Err(error) => {
                give_up(path, claimed);
                return Err(error);
            }
        };
        let Claimed { listener, lock } = claimed;
        let owner = policy::Peer {
            process: 0,
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        let mut keeper = Keeper {
            path: path.to_owned(),
            listener,
            _lock: lock,
            owner,
            owner_ends: None,
            options,
            current,
            content: None,
            unused: Some(Instant::now()),
            past: Vec::new(),
            serial: 0,
            foreign: ForeignRings::default(),
            clients: BTreeMap::new(),
            last_client: 0,
            removed: false,
            is_short: false,
        };
        keeper.set_owner_process(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()));
        Ok(keeper)
    }

    /// Sets the process that the policy's `process` means, in place of this process's parent; 0: none. It counts for as
    /// long as that process lives.
    pub fn set_owner_process(&mut self, process: i32) {
        let flags = rustix::process::PidfdFlags::empty();
        let process = rustix::process::Pid::from_raw(process.max(0));
        self.owner_ends = process.and_then(|process| rustix::process::pidfd_open(process, flags).ok());
        let known = process.filter(|_| self.owner_ends.is_some());
        self.owner.process = known.map_or(0, |process| process.as_raw_nonzero().get());
    }

    fn owner(&self) -> Peer {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let has_ended = self.owner_ends.as_ref().is_some_and(|ends| {
            let mut polled = [PollFd::new(ends, PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&now)) != Ok(0)
        });
        if has_ended { Peer { process: 0, ..self.owner } } else { self.owner }
    }

    /// Serves until a client with the right to do so removes the ring.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.removed {
            self.turn(self.patience_ms(), None)?;
        }
        Ok(())
    }

    /// How long to wait for something to do: without limit, except for a `while_used` ring without users.
    fn patience_ms(&self) -> Option<u32> {
        (self.options.while_used && self.unused.is_some()).then_some(UNUSED.as_millis() as u32 / 4)
    }

    /// Checks whether the ring has users. Without any it forgets its content; if `while_used`, it is soon removed.
    fn look_for_users(&mut self) {
        if self.clients.values().any(|client| !matches!(client.role, Role::Guest)) {
            self.unused = None;
            return;
        }
        self.content = None;
        let unused = *self.unused.get_or_insert_with(Instant::now);
        if self.options.while_used && !self.removed && unused.elapsed() >= UNUSED {
            self.remove();
        }
    }

    /// Serves until `asked` becomes readable too; then removes the ring.
    pub fn run_until(&mut self, asked: BorrowedFd<'_>) -> io::Result<()> {
        while !self.removed {
            if self.turn(self.patience_ms(), Some(asked))? {
                self.remove();
            }
        }
        Ok(())
    }

    /// Waits for something to do, and does it. For callers with their own loop: at most for `timeout_ms` milliseconds,
    /// and until `also` is readable; says whether it is.
    pub fn turn(&mut self, timeout_ms: Option<u32>, also: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        // Work that failed for want of resources is ready again at once: retrying without a rest would take a
        // processor.
        let rests = std::mem::take(&mut self.is_short);
        let timeout_ms = if rests { Some(timeout_ms.map_or(REST_MS, |ms| ms.min(REST_MS))) } else { timeout_ms };
        let (listens, also, ready) = {
            let mut polled = vec![PollFd::new(&self.listener, if rests { PollFlags::empty() } else { PollFlags::IN })];
            for client in self.clients.values() {
                let wants_out = match &client.role {
                    Role::Writer { told } => !rests && self.current.news_for(told),
                    _ => false,
                };
                let flags = if wants_out { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                polled.push(PollFd::new(&client.socket, flags));
            }
            polled.extend(also.map(|also| PollFd::from_borrowed_fd(also, PollFlags::IN)));
            let timeout = timeout_ms.map(|ms| rustix::event::Timespec {
                tv_sec: i64::from(ms / 1000),
                tv_nsec: i64::from(ms % 1000) * 1_000_000,
            });
            match rustix::event::poll(&mut polled, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => return Ok(false),
                result => result?,
            };
            let mut flags = polled.iter().map(|polled| !polled.revents().is_empty());
            let listens = flags.next().unwrap_or(false);
            let ready: Vec<u64> = self
                .clients
                .keys()
                .copied()
                .zip(flags.by_ref())
                .filter_map(|(key, ready)| ready.then_some(key))
                .collect();
            (listens, flags.next().unwrap_or(false), ready)
        };
        for key in ready {
            if let Err(gone) = self.hear(key) {
                self.let_go(key, gone);
            }
        }
        if listens {
            self.accept();
        }
        self.tell_writer();
        self.look_for_users();
        Ok(also)
    }

    fn accept(&mut self) {
        let (socket, peer) = match control::accept(&self.listener, SocketFlags::NONBLOCK) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.is_short |= packets::is_short(&error);
                return;
            }
        };
        // Any of the peer's groups may make it a member of the owner's group.
        let group = if peer.groups.contains(&self.owner.group) { self.owner.group } else { NO_GROUP };
        let peer = Peer { process: peer.process, user: peer.user, group };
        let held = self.clients.values().map(|client| (self.standing(client.peer), client.peer.user));
        if let Err(text) = OF_CLIENTS.admit(held, self.standing(peer), peer.user) {
            return control::send_last(&socket, &Message::Refused(Refusal::Full, text));
        }
        self.last_client += 1;
        self.clients.insert(
            self.last_client,
            Client { socket, peer, greeted: false, role: Role::Guest, is_given: Cell::new(false) },
        );
    }

    fn standing(&self, peer: Peer) -> Standing {
        let policy = self.options.policy;
        if Reach::User.covers(self.owner, peer) {
            Standing::Own
        } else if policy.farthest().covers(self.owner, peer) {
            Standing::Guest
        } else {
            Standing::Stranger
        }
    }

    fn hear(&mut self, key: u64) -> Result<(), Gone> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let message = match control::receive(&client.socket) {
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
        let owner = self.owner();
        let may = |reach: Reach| reach.covers(owner, peer);
        let policy = self.options.policy;
        match message {
            Message::OpenWriter(_) | Message::Resize(_) | Message::Register(..) | Message::Remove
                if !may(policy.write) =>
            {
                self.refuse(key, Refusal::Denied, &format!("only {} may write this ring", who(policy.write, owner)))
            }
            Message::OpenReader(_) | Message::AskState | Message::Map(_) | Message::Where(_) if !may(policy.read) => {
                self.refuse(key, Refusal::Denied, &format!("only {} may read this ring", who(policy.read, owner)))
            }
            Message::OpenReader(wanted) if wanted.contract.holds() && !may(policy.hold) => {
                let text = format!(
                    "only {} may hold this ring: read it with `on-full=overwrite` or `on-full=shared`",
                    who(policy.hold, owner)
                );
                self.refuse(key, Refusal::Denied, &text)
            }
            Message::OpenWriter(wanted) => self.open_writer(key, wanted),
            Message::Mapped => self.mapped(key),
            Message::Resize(geometry) => self.resize(key, geometry),
            Message::OpenReader(wanted) => self.open_reader(key, wanted),
            Message::AskState => {
                let state = Message::State(self.state());
                self.answer(key, &state)
            }
            Message::Map(generation) => self.map(key, generation),
            Message::Register(generation, path) => self.register(key, generation, path),
            Message::Where(ring) => match self.foreign.find(ring) {
                Some(foreign) => self.answer(key, &Message::Elsewhere(foreign.generation, foreign.path.clone())),
                None => self.refuse(key, Refusal::Nothing, "no block of this ring can lie there"),
            },
            Message::Remove => {
                // A client that has the answer may make another ring of this name.
                self.remove();
                self.answer(key, &Message::Done)
            }
            _ => Err(Gone::Broken),
        }
    }

    fn answer(&self, key: u64, message: &Message) -> Result<(), Gone> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        client.answer(message, &[])
    }

    fn refuse(&self, key: u64, refusal: Refusal, text: &str) -> Result<(), Gone> {
        self.answer(key, &Message::Refused(refusal, text.to_owned()))
    }

    fn map(&self, key: u64, generation: u32) -> Result<(), Gone> {
        let mut all = self.past.iter().chain([&self.current]);
        // These stages are sealed. A generation that is only offered could still be mapped for writing.
        let found = all.find(|one| one.number == generation && matches!(one.stage, Stage::Written | Stage::Over));
        match found.and_then(|one| Some((one, one.memory.segment().read_only_fd().ok()?))) {
            Some((one, segment)) => {
                let mapping = Message::Mapping(one.memory.geometry(), generation);
                self.clients.get(&key).map_or(Ok(()), |client| client.give(&mapping, &[segment.as_fd()]))
            }
            None => self.refuse(key, Refusal::Nothing, "the ring of that time is gone"),
        }
    }

    /// Drops a client that is gone or broke the protocol.
    fn let_go(&mut self, key: u64, gone: Gone) {
        self.leave(key);
        let Some(client) = self.clients.remove(&key) else { return };
        if let Gone::Broken = gone {
            let text = "the other side says what cannot be understood, or does not listen".to_owned();
            let _ = control::send(&client.socket, &Message::Refused(Refusal::Wrong, text), &[]);
        }
        if let Role::Writer { .. } = client.role {
            // A process could map an offered segment for writing at any later time; the seal prevents that.
            if self.current.stage == Stage::Offered {
                let _ = self.current.memory.segment().seal_for_readers();
            }
            self.current.stage = Stage::Over;
            // Also the rings that this writer was leaving for another size without having ended them yet.
            self.past.iter().chain([&self.current]).for_each(|generation| retire(&generation.words));
            self.serve_all_waiting();
        }
    }

    /// Removes the ring for good, as a client can ask for; do not use the keeper afterwards.
    pub fn remove(&mut self) {
        self.past.iter().chain([&self.current]).for_each(Generation::remove);
        for client in self.clients.values() {
            if let Role::Waiting(_) | Role::Reader { waits: true, .. } = client.role {
                let text = "the ring was removed".to_owned();
                let _ = control::send(&client.socket, &Message::Refused(Refusal::Removed, text), &[]);
            }
        }
        self.removed = true;
        remove_name(&self.path);
    }

    /// The state of the ring.
    pub fn state(&self) -> RingState {
        let words = &self.current.words;
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
            written: WantedWriter { content: self.content, ..self.current.written },
            head: words.writer.0.head.load(Ordering::Relaxed),
            blocks: counts.blocks.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
            window: counts.window.load(Ordering::Relaxed),
            readers: readers.collect(),
        }
    }
}

impl Keeper {
    fn agree(&mut self, content: Option<Content>) -> Result<(), String> {
        match (self.content, content) {
            (Some(known), Some(wanted)) if known != wanted => {
                Err(format!("the ring carries `{}`, not `{}`: its first user said so", known.name(), wanted.name()))
            }
            _ => {
                self.content = self.content.or(content);
                Ok(())
            }
        }
    }
}

/// The users that a right reaches, in words.
fn who(reach: Reach, owner: Peer) -> Cow<'static, str> {
    match reach {
        Reach::Process if owner.process == 0 => "the process that made it, which has ended,".into(),
        Reach::Process => format!("the process that made it ({}, also after exec)", owner.process).into(),
        Reach::User => "its user".into(),
        Reach::Group => "its group".into(),
        Reach::Other => "everybody".into(),
    }
}
