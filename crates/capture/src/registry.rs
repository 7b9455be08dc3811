//! Owns the rings of devices: makes a ring for its first reader, gives each reader a bit, has the writer's expressions
//! set again whenever a reader comes, goes or changes its expression, and wakes sleeping readers.
//!
//! One thread for all devices serves bells and lines. It leaves slow work to two other threads: one takes rings down,
//! the other has writers stop work that no reader needs any more. The lock is held for microseconds: programs are made,
//! verified and loaded, and devices opened, without it. Readers never wait for the lock. A reader's messages make the
//! thread handle at most one of them a turn.
//!
//! - `ring` — one ring and its readers.
//! - `change` — how its expressions change.
//! - `turn` — which user may change it next.

mod change;
mod ring;
mod turn;

use crate::attachment::{Attachment, Exchange, Granted};
use crate::budget::Budget;
use crate::capture_request::{
    By, CaptureError, CaptureErrorKind, CaptureRequest, Direction, Mode, PROGRAM_INSTRUCTIONS,
};
use crate::line::CloseReason;
use crate::permission::Permission;
use crate::writer::Opened;
use buffer::live::EXPRESSIONS;
use change::Change;
use program::cbpf::Instruction;
use program::ir::Program;
use ring::{New, Reader, Ring};
pub use ring::{ReaderState, RingState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use turn::Turns;

/// Bytes of a ring, unless a reader requests more.
pub const RING_BYTES: u64 = 32 << 20;

/// Bytes of a ring for a reader that requests `wanted` (0: any size) and may have `most`; at least the smallest ring.
pub fn ring_bytes(wanted: u64, most: u64) -> u64 {
    let wanted = if wanted == 0 { RING_BYTES } else { wanted };
    // Rings have a power of two: the next above the request, if the policy permits it.
    let most = most.checked_ilog2().map_or(0, |log| 1 << log);
    wanted.min(most).max(buffer::live::memory::RING_BYTES_MIN)
}

/// Most readers of one user, unless a policy says otherwise: on a single ring they leave places to others.
pub const READERS_OF_USER: usize = EXPRESSIONS - EXPRESSIONS / 4;

/// Most readers of one ring that are not root's. Users who fill a ring together leave places there to root.
pub const READERS_OF_USERS: usize = EXPRESSIONS - EXPRESSIONS / 8;

const _: () = assert!(READERS_OF_USER < READERS_OF_USERS && READERS_OF_USERS < EXPRESSIONS);

/// How long to wait for a ring to be taken down, and how often to look.
const TAKING_DOWN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Pause of the thread that serves bells and lines between two looks. A reader may announce its sleep as often as it
/// likes: at most one packet in this time rings for it, which costs the packet's sender a microsecond.
const REST: Duration = Duration::from_micros(100);

/// The user for which the registry itself acts.
const OWNER: u32 = 0;

/// Identifies a ring: readers with different groups never share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The name in the capture request. A name may pass to another device, an index does not.
    device: String,
    index: u32,
    group: u32,
    mode: Mode,
    by: By,
}

impl Key {
    /// Whether these rings are of one device, one that copies packets and one that takes them away.
    fn meets(&self, other: &Key) -> bool {
        self.index == other.index && self.mode != other.mode
    }
}

/// Owner of devices' rings.
pub struct CaptureRegistry {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

struct Shared {
    opener: Box<dyn Opened>,
    state: Mutex<State>,
    /// Makes the thread look at the state again.
    stir: OwnedFd,
    /// Most instructions that all expressions of a device may cost a packet together; unset: any number.
    instructions: OnceLock<u32>,
}

#[derive(Default)]
struct State {
    rings: BTreeMap<Key, Ring>,
    /// Rings without readers, to be taken down.
    given_up: Vec<Ring>,
    /// Rings that are being changed: they are not given up.
    changing: BTreeSet<Key>,
    /// Users who wait to change a ring.
    turns: BTreeMap<Key, Arc<Turns>>,
    /// Rings whose readers went and whose writers have to be told.
    settling: BTreeSet<Key>,
    last_id: u64,
    ended: bool,
    /// Indices of devices whose packets are taken away, or were until a moment ago.
    consumed: Arc<Mutex<BTreeSet<u32>>>,
}

/// While this value lives, the device's packets are taken away.
struct Consumed {
    index: u32,
    all: Arc<Mutex<BTreeSet<u32>>>,
}

impl Drop for Consumed {
    fn drop(&mut self) {
        // No panic can interrupt a change of the set.
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.index);
    }
}

impl CaptureRegistry {
    /// An owner without rings. `opener` opens devices.
    pub fn new(opener: Box<dyn Opened>) -> Result<CaptureRegistry, CaptureError> {
        let stir = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| CaptureError::system("no event can be made", &error.into()))?;
        let shared = Arc::new(Shared { opener, state: Mutex::default(), stir, instructions: OnceLock::new() });
        // From here on, dropping `registry` ends the threads that were started.
        let mut registry = CaptureRegistry { shared, threads: Vec::new() };
        let (give_up, given_up) = channel::<Vec<Ring>>();
        registry.start("streamline-down", move || given_up.into_iter().for_each(drop))?;
        let (settle, settled) = channel::<Key>();
        let settling = Arc::clone(&registry.shared);
        registry.start("streamline-set", move || settled.into_iter().for_each(|key| settling.settle(&key)))?;
        let tended = Arc::clone(&registry.shared);
        registry.start("streamline-bell", move || tended.tend(&give_up, &settle))?;
        Ok(registry)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), CaptureError> {
        let started = std::thread::Builder::new().name(name.into()).spawn(work);
        self.threads.push(started.map_err(|error| CaptureError::system("no thread can be made", &error))?);
        Ok(())
    }

    /// Limits the cost of all expressions of a device for each packet, in instructions. Only the first call counts.
    pub fn limit(&self, instructions: u32) {
        let _ = self.shared.instructions.set(instructions);
    }

    /// What a user's readers and all readers of the device with this index take of its budget, if it has one.
    pub fn budget(&self, index: u32, user: u32) -> Option<Budget> {
        self.shared.budget(&self.shared.lock(), index, user, None)
    }

    /// Lets in a reader with this permission; a number stands for its group, which may see everything. Takes as long as
    /// opening a device or loading programs: up to seconds.
    pub fn open(&self, asked: &CaptureRequest, permission: impl Into<Permission>) -> Result<Attachment, CaptureError> {
        self.open_for(OWNER, asked, permission)
    }

    /// The same for a user. Users who want to change the same ring take turns, and leave some of its places to root
    /// ([`READERS_OF_USERS`]).
    pub fn open_for(
        &self,
        user: u32,
        asked: &CaptureRequest,
        permission: impl Into<Permission>,
    ) -> Result<Attachment, CaptureError> {
        self.shared.open(user, asked, &permission.into())
    }

    /// Gives a reader another expression. Takes as long as [`open`](Self::open).
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, CaptureError> {
        self.shared.exchange(id, program)
    }

    /// Drops readers, as closing their lines does. The writer stops serving their expressions a moment later.
    pub fn close(&self, ids: &[u64]) {
        if !ids.is_empty() {
            self.shared.close(ids, None);
        }
    }

    /// The same, and tells them why.
    pub fn dismiss(&self, ids: &[u64], close_reason: CloseReason) {
        if !ids.is_empty() {
            self.shared.close(ids, Some(close_reason));
        }
    }

    /// Makes a device's ring take every packet that `permission` shows, and stay without readers, so that later readers
    /// can look back. Ends when the device goes or with [`forget`](Self::forget). An existing ring keeps its size.
    pub fn keep(
        &self,
        device: &str,
        by: By,
        ring_bytes: u64,
        permission: impl Into<Permission>,
    ) -> Result<(), CaptureError> {
        self.shared.keep(
            CaptureRequest { device: device.into(), by, ring_bytes, ..CaptureRequest::default() },
            &permission.into(),
        )
    }

    /// Lets a device's rings go once they have no readers. `true`: one had to stay.
    pub fn forget(&self, device: &str) -> bool {
        self.shared.forget(|key| key.device == device)
    }

    /// The numbers in `ids` whose readers are gone.
    pub fn gone(&self, ids: &[u64]) -> BTreeSet<u64> {
        let mut gone: BTreeSet<u64> = ids.iter().copied().collect();
        // The thread may not have noticed yet that some went.
        self.shared.look();
        for reader in self.shared.lock().rings.values().flat_map(|ring| &ring.readers) {
            gone.remove(&reader.id);
        }
        gone
    }

    /// All rings and their readers, including readers that went while their expressions are still in force.
    pub fn states(&self) -> Vec<RingState> {
        let state = self.shared.lock();
        let taking: Vec<(Key, bool)> = state.rings.iter().map(|(key, ring)| (key.clone(), ring.takes_all())).collect();
        let describe = |(key, ring): (&Key, &Ring)| {
            let mut state = ring.state(key.group);
            if key.mode == Mode::Tap
                && let Some((_, all)) = taking.iter().find(|(other, _)| other.meets(key))
            {
                let what = if *all { "" } else { "a part of " };
                state.device.how.push_str(&format!("; {what}what it receives is taken away by another reader"));
            }
            (state, ring.reads())
        };
        let described: Vec<_> = state.rings.iter().map(describe).collect();
        // Scanning rings takes too long for doing it under the lock.
        drop(state);
        let add_lost = |(mut state, reads): (RingState, Vec<Option<ring::Reads>>)| {
            for (reader, reads) in state.readers.iter_mut().zip(reads) {
                reader.lost = reads.map_or(0, |reads| reads.lost(reader.matched));
            }
            state
        };
        described.into_iter().map(add_lost).collect()
    }
}

impl Drop for CaptureRegistry {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.stir();
        for thread in self.threads.drain(..) {
            // A panic of the thread needs no report here; dropping the state drops the rings in any case.
            let _ = thread.join();
        }
    }
}

fn may_be_consumed(asked: &CaptureRequest) -> Result<(), CaptureError> {
    let wrong = |text: &str| Err(CaptureError::new(CaptureErrorKind::Request, format!("`{}`: {text}", asked.device)));
    match asked {
        CaptureRequest { by: By::Kernel | By::PacketSocket, .. } => {
            wrong("packets are taken away by AF_XDP sockets and in no other way")
        }
        CaptureRequest { direction: Direction::Out, .. } => wrong("packets that the host sends cannot be taken away"),
        CaptureRequest { keep: true, .. } => wrong("packets that are taken away are not kept for others"),
        _ => Ok(()),
    }
}

fn lower(program: &[Instruction]) -> Result<Option<Arc<Program>>, CaptureError> {
    if program.is_empty() {
        return Ok(None);
    }
    if program.len() > PROGRAM_INSTRUCTIONS {
        let text = format!("the expression takes {} instructions; at most {PROGRAM_INSTRUCTIONS}", program.len());
        return Err(CaptureError::new(CaptureErrorKind::Request, text));
    }
    let lowered = program::from_cbpf(program);
    Ok(Some(Arc::new(lowered.map_err(|error| CaptureError::new(CaptureErrorKind::Request, error.to_string()))?)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves a state as valid as before its step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stir(&self) {
        // A full eventfd means that the thread will look anyway.
        let _ = rustix::io::write(&self.stir, &1u64.to_ne_bytes());
    }

    /// Looks once at bells and lines, in place of the thread that serves them.
    fn look(&self) {
        let mut state = self.lock();
        let went = state.turn(|_| true);
        self.release(state);
        if went {
            // Without this the thread would find their lines hung up again and again.
            self.stir();
        }
    }

    /// The budget of a device for a user, not counting what the reader `but` takes.
    fn budget(&self, state: &State, index: u32, user: u32, but: Option<u64>) -> Option<Budget> {
        let mut budget = Budget::new(*self.instructions.get()?, user);
        let rings = state.rings.iter().filter(|(key, _)| key.index == index);
        let readers = rings.flat_map(|(_, ring)| &ring.readers).filter(|reader| but != Some(reader.id));
        for reader in readers {
            // Readers from before there was a budget may cost any number.
            budget.all.taken = budget.all.taken.saturating_add(reader.cost);
            let mine = if reader.user == user { reader.cost } else { 0 };
            budget.user.taken = budget.user.taken.saturating_add(mine);
        }
        Some(budget)
    }

    /// Whether a device's budget has room for this user's expression, which may replace that of the reader `but`.
    fn afford(&self, state: &State, key: &Key, (user, but): (u32, Option<u64>), cost: u32) -> Result<(), CaptureError> {
        let Some(mut budget) = self.budget(state, key.index, user, but) else { return Ok(()) };
        budget.take(&key.device, cost).map_err(|error| match key.mode {
            Mode::Tap => error,
            // If the kernel cannot filter for it, a reader would take every packet away.
            Mode::Consume => {
                let text = format!("the kernel cannot choose what is taken away from the host: {}", error.text);
                CaptureError::new(CaptureErrorKind::System, text)
            }
        })
    }

    fn key(&self, asked: &CaptureRequest, group: u32) -> Result<Key, CaptureError> {
        let index = self.opener.index(&asked.device)?;
        let CaptureRequest { mode, by, .. } = asked;
        Ok(Key { device: asked.device.clone(), index, group, mode: *mode, by: *by })
    }

    fn keep(&self, asked: CaptureRequest, permission: &Permission) -> Result<(), CaptureError> {
        let key = self.key(&asked, permission.group)?;
        // If the device had another name before, its ring by that name is forgotten.
        self.forget(|other| (other.index, other.group) == (key.index, key.group) && other.device != key.device);
        let change = self.change(&key, OWNER);
        change.make(&asked, permission, None).and_then(|_| change.keep())
    }

    fn forget(&self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let state = self.lock();
        let kept = state.rings.iter().filter(|(key, ring)| ring.standing.is_some() && is_meant(key));
        let kept: Vec<Key> = kept.map(|(key, _)| key.clone()).collect();
        drop(state);
        kept.iter().filter(|key| self.change(key, OWNER).forget()).count() > 0
    }

    fn open(&self, user: u32, asked: &CaptureRequest, permission: &Permission) -> Result<Attachment, CaptureError> {
        let program = lower(&asked.program)?;
        if asked.mode == Mode::Consume {
            may_be_consumed(asked)?;
        }
        let key = self.key(asked, permission.group)?;
        let cost = self.opener.cost(program.as_deref(), asked.sample);
        // Before anything is opened for it; checked again when its turn has come.
        self.afford(&self.lock(), &key, (user, None), cost)?;
        let change = self.change(&key, user);
        let opened = self.open_in(&change, &key, New { id: self.next_id(), user, asked, program, cost }, permission);
        // Without a reader the ring is dropped here.
        let past = change.end();
        let mut attachment = opened?;
        let granted = &mut attachment.granted;
        if granted.decided > granted.first {
            // A reader with `last=` filters again what earlier programs matched.
            granted.decided = past?.await_end();
        }
        Ok(attachment)
    }

    fn open_in(
        &self,
        change: &Change<'_>,
        key: &Key,
        new: New<'_>,
        permission: &Permission,
    ) -> Result<Attachment, CaptureError> {
        let asked = new.asked;
        let consumed = if asked.mode == Mode::Consume { self.await_consumable(key)? } else { None };
        let made = change.make(asked, permission, consumed)?;
        let of_others = self.lock().note(key);
        let described = |ring: &mut Ring| {
            let writer = &ring.written.writer;
            let note = ring.shown.as_ref().map(|shown| shown.note(&key.device));
            (note, writer.geometry().ring_bytes, ring.standing.is_some())
        };
        let (shown, holds, stood) = change.ring(described)?;
        let mut notes: Vec<String> = shown.into_iter().collect();
        notes.extend(Some(of_others).filter(|note| !note.is_empty()));
        if asked.keep && holds < asked.ring_bytes {
            let why = if made { "can hold" } else { "was there already, and holds" };
            let kibibytes = holds >> 10;
            notes.push(format!("the ring of `{}` {why} {kibibytes} KiB: no more than that is kept", key.device));
        }
        let kept = if asked.keep { change.keep() } else { Ok(()) };
        let admitted = kept.and_then(|()| change.admit(new)).inspect_err(|_| {
            if !stood {
                change.forget();
            }
        });
        let Attachment { granted, fds } = admitted?;
        Ok(Attachment { granted: Granted { note: notes.join("; "), ..granted }, fds })
    }

    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.last_id += 1;
        state.last_id
    }

    /// Takes a device for a ring that will have its packets alone. `None`: that ring exists and can be joined. Waits
    /// while an earlier such ring is being taken down.
    fn await_consumable(&self, key: &Key) -> Result<Option<Consumed>, CaptureError> {
        let end = Instant::now() + TAKING_DOWN;
        loop {
            let mut state = self.lock();
            // The thread may not have noticed yet that some went.
            if state.turn(|_| true) {
                self.stir();
            }
            let is_joined = state.rings.contains_key(key);
            // A ring that is about to be given up does not count: the loop waits for its end too.
            let takes = |(other, ring): (&Key, &Ring)| {
                other.mode == Mode::Consume && other.index == key.index && !ring.is_unused()
            };
            let is_consumed = state.rings.iter().any(takes);
            let all = Arc::clone(&state.consumed);
            self.release(state);
            if is_joined {
                return Ok(None);
            }
            let is_free = !is_consumed && all.lock().unwrap_or_else(PoisonError::into_inner).insert(key.index);
            if is_free {
                return Ok(Some(Consumed { index: key.index, all }));
            }
            if is_consumed || Instant::now() >= end {
                let text = format!(
                    "packets of `{}` are taken away by another reader already, and can be by such only as may see each \
                     other's; `mode=tap` copies what the host sees",
                    key.device
                );
                return Err(CaptureError::new(CaptureErrorKind::Full, text));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, CaptureError> {
        let program = lower(program)?;
        let no_reader = || CaptureError::new(CaptureErrorKind::Request, "there is no such reader");
        let (key, user, sample) = self.lock().whose(id).ok_or_else(no_reader)?;
        let cost = self.opener.cost(program.as_deref(), sample);
        // As for a new reader.
        self.afford(&self.lock(), &key, (user, Some(id)), cost)?;
        let change = self.change(&key, user);
        let exchanged = change.exchange(id, program, cost);
        let past = change.end();
        let exchange = exchanged?;
        Ok(Exchange { first: past?.await_end(), ..exchange })
    }

    fn close(&self, ids: &[u64], close_reason: Option<CloseReason>) {
        let mut state = self.lock();
        if let Some(close_reason) = close_reason {
            let readers = state.rings.values().flat_map(|ring| &ring.readers);
            readers.filter(|reader| ids.contains(&reader.id)).for_each(|reader| reader.bid(close_reason));
        }
        state.dismiss(|reader| ids.contains(&reader.id));
        self.release(state);
        self.stir();
    }

    /// Makes a ring's writer stop work that no reader needs any more.
    fn settle(&self, key: &Key) {
        self.lock().settling.remove(key);
        self.change(key, OWNER).settle();
    }

    /// Unlocks the state, then takes down rings that were given up: a tenth of a second if a thread has to end.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let given_up = std::mem::take(&mut state.given_up);
        drop(state);
        drop(given_up);
    }

    /// The thread: sleeps until a bell rings, a reader sends a message or goes, or the state changed. It leaves slow
    /// work to other threads, because it wakes no reader meanwhile.
    fn tend(&self, give_up: &Sender<Vec<Ring>>, settle: &Sender<Key>) {
        let mut looked = Instant::now();
        loop {
            let mut state = self.lock();
            if state.ended {
                return;
            }
            // The lock is not held while sleeping. This makes no new file descriptors: there may be none left.
            let mut sleepers: Vec<Arc<OwnedFd>> = Vec::new();
            for ring in state.rings.values() {
                sleepers.extend(ring.bells.iter().map(Arc::clone));
                sleepers.extend(ring.readers.iter().map(|reader| Arc::clone(&reader.line)));
            }
            drop(state);
            loop {
                let mut fds = vec![PollFd::new(&self.stir, PollFlags::IN)];
                fds.extend(sleepers.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
                // Interrupted, or short of memory for a moment: look, and sleep again.
                let _ = rustix::event::poll(&mut fds, None);
                let stirred = !fds[0].revents().is_empty();
                let ready = fds.iter().skip(1).zip(&sleepers).filter(|(fd, _)| !fd.revents().is_empty());
                let ready: BTreeSet<RawFd> = ready.map(|(_, sleeper)| sleeper.as_raw_fd()).collect();
                drop(fds);
                if stirred {
                    let _ = rustix::io::read(&self.stir, &mut [0u8; 8]);
                }
                std::thread::sleep(REST.saturating_sub(looked.elapsed()));
                looked = Instant::now();
                state = self.lock();
                let gone = state.turn(|fd| ready.contains(&fd.as_raw_fd()));
                let ended = state.ended;
                let given_up = std::mem::take(&mut state.given_up);
                let stale = state.take_stale();
                drop(state);
                if !given_up.is_empty() {
                    // The other thread receives as long as this one lives; otherwise the rings are taken down here.
                    let _ = give_up.send(given_up);
                }
                for key in stale {
                    // As above; a ring that is not settled here is settled with its next change.
                    let _ = settle.send(key);
                }
                if stirred || gone || ended {
                    break;
                }
            }
        }
    }
}

impl State {
    /// The ring of a reader, its user, and its sampling: it takes one in this number of packets.
    fn whose(&self, id: u64) -> Option<(Key, u32, u32)> {
        self.rings.iter().find_map(|(key, ring)| {
            let reader = ring.readers.iter().find(|reader| reader.id == id)?;
            Some((key.clone(), reader.user, reader.expression.sample))
        })
    }

    /// Rings whose writers do work that no reader needs, and that were not handed to the settling thread yet.
    fn take_stale(&mut self) -> Vec<Key> {
        let State { rings, changing, settling, .. } = self;
        // A change in progress puts in force what is wanted then; a ring that is stale afterwards is found again.
        let stale = rings.iter().filter(|(key, ring)| ring.is_stale() && !ring.is_stuck && !changing.contains(key));
        let stale: Vec<Key> = stale.map(|(key, _)| key.clone()).filter(|key| !settling.contains(key)).collect();
        settling.extend(stale.iter().cloned());
        stale
    }

    /// A note for a reader of this ring about other rings of its device.
    fn note(&self, key: &Key) -> String {
        let met = || self.rings.iter().filter(|(other, _)| other.meets(key)).map(|(_, ring)| ring);
        let readers: usize = met().map(|ring| ring.known().count()).sum();
        let device = &key.device;
        match key.mode {
            Mode::Tap if met().any(Ring::takes_all) => {
                format!("what `{device}` receives is taken away by another reader: it does not come here")
            }
            Mode::Tap if met().count() > 0 => {
                format!(
                    "another reader takes away a part of the packets that `{device}` receives: they do not come here"
                )
            }
            Mode::Consume if readers > 0 => {
                let see = if readers == 1 { "1 other reader of" } else { &format!("{readers} other readers of") };
                let verb = if readers == 1 { "sees" } else { "see" };
                format!("{see} `{device}` {verb} nothing any more of what is taken away here")
            }
            _ => String::new(),
        }
    }

    /// Looks once at every bell and line that may have news. `true`: a reader or ring went.
    fn turn(&mut self, may_say: impl Fn(&OwnedFd) -> bool) -> bool {
        let mut gone = Vec::new();
        let rings = |ring: &Ring| ring.bells.iter().any(|bell| may_say(bell));
        for ring in self.rings.values_mut() {
            let rung = if rings(ring) { ring.written.writer.rung() } else { 0 };
            for reader in &mut ring.readers {
                // A reader that was awake after all when it announced its sleep also has its bit armed.
                if reader.asleep && rung & 1 << reader.expression.bit != 0 {
                    reader.wake();
                }
            }
            ring.hear(&may_say, &mut gone);
        }
        let before = self.given_up.len();
        for (_, ring) in self.rings.extract_if(.., |_, ring| rings(ring) && ring.written.writer.gone()) {
            ring.readers.iter().for_each(|reader| reader.bid(CloseReason::DeviceGone));
            // Closing the readers' lines ends them.
            self.given_up.push(ring);
        }
        if !gone.is_empty() {
            self.dismiss(|reader| gone.contains(&reader.id));
        }
        !gone.is_empty() || self.given_up.len() > before
    }

    /// Drops readers, and gives up rings that are not needed any more. The writers of the other rings have to be told.
    fn dismiss(&mut self, is_gone: impl Fn(&Reader) -> bool) {
        let State { rings, changing, given_up, .. } = self;
        rings.values_mut().for_each(|ring| ring.dismiss(&is_gone));
        let unused = rings.extract_if(.., |key, ring| ring.is_unused() && !changing.contains(key));
        given_up.extend(unused.map(|(_, ring)| ring));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_as_large_as_was_wished_and_no_larger_than_is_permitted() {
        let least = buffer::live::memory::RING_BYTES_MIN;
        for (wanted, most, bytes) in [
            (0, u64::MAX, RING_BYTES),
            (0, 1 << 20, 1 << 20),
            (5 << 20, u64::MAX, 5 << 20),
            (48 << 20, 48 << 20, 32 << 20),
            (u64::MAX, 64 << 20, 64 << 20),
            (1 << 20, 0, least),
            (1, 1, least),
        ] {
            assert_eq!(ring_bytes(wanted, most), bytes, "{wanted} of {most}");
            let ring = buffer::live::Geometry::new(bytes, 1).ring_bytes;
            assert!(ring <= most.max(least), "{ring} bytes, where {most} are permitted");
        }
    }
}
