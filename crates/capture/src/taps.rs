//! Who owns the rings of devices: makes them when a first reader comes, gives each reader a bit, has the writer's
//! expressions set anew whenever one comes, goes or asks for something else, and wakes who sleeps.
//!
//! One thread for all devices tends bells and lines, another takes down what it finds given up; the first holds the lock for
//! microseconds, and for as long as the kernel takes to load a program while expressions are set. Readers never wait for it,
//! and nothing a reader sends makes it do more than one message's work at a turn. One ring is in `ring`.

mod ring;

use crate::codec::Farewell;
use crate::handout::{Exchange, Handout};
use crate::right::Right;
use crate::wish::{By, Direction, Mode, PROGRAM_INSTRUCTIONS, Wish};
use crate::writer::{Opened, Trouble, TroubleKind};
use buffer::live::EXPRESSIONS;
use program::cbpf::Instruction;
use program::ir::Program;
use ring::{Reader, Ring};
pub use ring::{ReaderState, RingState};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a ring, where nobody wishes more.
pub const RING_BYTES: u64 = 32 << 20;

/// Bytes of ring for who wishes `wanted` (0: does not matter) and may have `most`; but never less than the smallest ring.
pub fn ring_bytes(wanted: u64, most: u64) -> u64 {
    let wanted = if wanted == 0 { RING_BYTES } else { wanted };
    // Rings have a power of two: the next above what is wished, if that is permitted.
    let most = most.checked_ilog2().map_or(0, |log| 1 << log);
    wanted.min(most).max(buffer::live::memory::RING_BYTES_MIN)
}

/// Readers that one user may have, unless a policy says otherwise. A user whose readers are all on one ring leaves places
/// there to others.
pub const READERS_OF_USER: usize = EXPRESSIONS - EXPRESSIONS / 4;

/// Readers of one ring that are not root's. Users who fill a ring together leave places there to root.
pub const READERS_OF_USERS: usize = EXPRESSIONS - EXPRESSIONS / 8;

const _: () = assert!(READERS_OF_USER < READERS_OF_USERS && READERS_OF_USERS < EXPRESSIONS);

/// How long a ring may take to be taken down, and how often that is looked for.
const TAKING_DOWN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// Which ring: readers with different groups never share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The name it was wished by. Names may go to other devices, indices do not.
    device: String,
    index: u32,
    group: u32,
    mode: Mode,
    by: By,
}

impl Key {
    /// Are these rings of one device, one that copies and one that takes away?
    fn meets(&self, other: &Key) -> bool {
        self.index == other.index && self.mode != other.mode
    }
}

/// Owner of devices' rings.
pub struct Taps {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

struct Shared {
    opener: Box<dyn Opened>,
    state: Mutex<State>,
    /// Makes the thread look at the state anew.
    stir: OwnedFd,
}

#[derive(Default)]
struct State {
    rings: BTreeMap<Key, Ring>,
    /// Rings without readers, to be taken down.
    given_up: Vec<Ring>,
    last_id: u64,
    ended: bool,
    /// Devices, by index, whose packets are taken away, or were until a moment ago.
    consumed: Arc<Mutex<BTreeSet<u32>>>,
}

/// A device's packets are taken away for as long as this is there.
struct Consumed {
    index: u32,
    all: Arc<Mutex<BTreeSet<u32>>>,
}

impl Drop for Consumed {
    fn drop(&mut self) {
        // Nothing panics half way through a change of it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.index);
    }
}

impl Taps {
    /// An owner without rings. `opener` opens devices.
    pub fn new(opener: Box<dyn Opened>) -> Result<Taps, Trouble> {
        let stir = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Trouble::system("no event can be made", &error.into()))?;
        let shared = Arc::new(Shared { opener, state: Mutex::default(), stir });
        // From here on dropping it ends the threads that were started.
        let mut taps = Taps { shared, threads: Vec::new() };
        let (give_up, given_up) = channel::<Vec<Ring>>();
        taps.start("streamline-down", move || given_up.into_iter().for_each(drop))?;
        let tended = Arc::clone(&taps.shared);
        taps.start("streamline-bell", move || tended.tend(&give_up))?;
        Ok(taps)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Trouble> {
        let started = std::thread::Builder::new().name(name.into()).spawn(work);
        self.threads.push(started.map_err(|error| Trouble::system("no thread can be made", &error))?);
        Ok(())
    }

    /// Lets a reader in, who may see so much. A number stands for the group of that number, which is shown everything.
    pub fn open(&self, wish: &Wish, right: impl Into<Right>) -> Result<Handout, Trouble> {
        self.shared.open(wish, &right.into(), EXPRESSIONS)
    }

    /// The same for a reader that is not root's: it leaves root some places of the ring ([`READERS_OF_USERS`]).
    pub fn open_for_user(&self, wish: &Wish, right: impl Into<Right>) -> Result<Handout, Trouble> {
        self.shared.open(wish, &right.into(), READERS_OF_USERS)
    }

    /// Gives a reader another expression.
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, Trouble> {
        self.shared.exchange(id, program)
    }

    /// Lets readers go; so does closing their lines.
    pub fn close(&self, ids: &[u64]) {
        if !ids.is_empty() {
            self.shared.close(ids, None);
        }
    }

    /// The same, and they hear why.
    pub fn dismiss(&self, ids: &[u64], farewell: Farewell) {
        if !ids.is_empty() {
            self.shared.close(ids, Some(farewell));
        }
    }

    /// Has a device's ring take every packet that may be seen by this right from now on, and stay without readers, until the
    /// device goes or this is taken back: so that who comes later can look back. A ring that is there already is no larger
    /// for it.
    pub fn keep(&self, device: &str, by: By, ring_bytes: u64, right: impl Into<Right>) -> Result<(), Trouble> {
        self.shared.keep(Wish { device: device.into(), by, ring_bytes, ..Wish::default() }, &right.into())
    }

    /// The rings of a device need not stay without readers any more; were there any that had to?
    pub fn forget(&self, device: &str) -> bool {
        self.shared.forget(|key| key.device == device)
    }

    /// Those of these readers that are there no more.
    pub fn gone(&self, ids: &[u64]) -> BTreeSet<u64> {
        let mut gone: BTreeSet<u64> = ids.iter().copied().collect();
        let mut state = self.shared.lock();
        // Some may have gone, and the thread not have come to it.
        let went = state.turn();
        for reader in state.rings.values().flat_map(|ring| &ring.readers) {
            gone.remove(&reader.id);
        }
        self.shared.release(state);
        if went {
            // The thread would find their lines hung up again and again.
            self.shared.stir();
        }
        gone
    }

    /// Rings there are.
    pub fn states(&self) -> Vec<RingState> {
        let mut state = self.shared.lock();
        let taking: Vec<(Key, bool)> = state.rings.iter().map(|(key, ring)| (key.clone(), ring.takes_all())).collect();
        let describe = |(key, ring): (&Key, &mut Ring)| {
            let mut state = ring.state(key.group);
            if key.mode == Mode::Tap
                && let Some((_, all)) = taking.iter().find(|(other, _)| other.meets(key))
            {
                let what = if *all { "" } else { "a part of " };
                state.device.how.push_str(&format!("; {what}what it receives is taken away by another reader"));
            }
            (state, ring.reads())
        };
        let described: Vec<_> = state.rings.iter_mut().map(describe).collect();
        // Looking through rings is nothing to be done under the lock.
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

impl Drop for Taps {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.stir();
        for thread in self.threads.drain(..) {
            // It has no way to panic that would not have to be told; rings go with the state either way.
            let _ = thread.join();
        }
    }
}

/// Can what is wished be taken away from the host?
fn may_be_consumed(wish: &Wish) -> Result<(), Trouble> {
    let wrong = |text: &str| Err(Trouble::new(TroubleKind::Wish, format!("`{}`: {text}", wish.device)));
    match wish {
        Wish { by: By::Kernel | By::PacketSocket, .. } => {
            wrong("packets are taken away by AF_XDP sockets and in no other way")
        }
        Wish { direction: Direction::Out, .. } => wrong("what the host sends cannot be taken away"),
        Wish { keep: true, .. } => wrong("packets that are taken away are not kept for others"),
        _ => Ok(()),
    }
}

/// A wish's program, checked.
fn lower(program: &[Instruction]) -> Result<Option<Arc<Program>>, Trouble> {
    if program.is_empty() {
        return Ok(None);
    }
    if program.len() > PROGRAM_INSTRUCTIONS {
        let text = format!("the expression takes {} instructions; at most {PROGRAM_INSTRUCTIONS}", program.len());
        return Err(Trouble::new(TroubleKind::Wish, text));
    }
    let lowered = program::from_cbpf(program);
    Ok(Some(Arc::new(lowered.map_err(|error| Trouble::new(TroubleKind::Wish, error.to_string()))?)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panicked under it left a state that is as good as before its step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stir(&self) {
        // Full means that the thread will look anyway.
        let _ = rustix::io::write(&self.stir, &1u64.to_ne_bytes());
    }

    /// Waits, without the lock, until the next bit of a ring may be given away: only where all others are in use, or were a
    /// moment ago.
    fn await_bit(&self, ring: impl Fn(&State) -> Option<&Ring>) {
        let rest = {
            let state = self.lock();
            ring(&state).and_then(|ring| ring.next_bit().map(|bit| ring.rest_of(bit)))
        };
        std::thread::sleep(rest.unwrap_or_default());
    }

    fn key(&self, wish: &Wish, group: u32) -> Result<Key, Trouble> {
        let index = self.opener.index(&wish.device)?;
        let Wish { mode, by, .. } = wish;
        Ok(Key { device: wish.device.clone(), index, group, mode: *mode, by: *by })
    }

    fn keep(&self, wish: Wish, right: &Right) -> Result<(), Trouble> {
        let key = self.key(&wish, right.group)?;
        // A device that has another name now has a ring by that one from now on.
        self.forget(|other| (other.index, other.group) == (key.index, key.group) && other.device != key.device);
        self.await_bit(|state| state.rings.get(&key));
        let mut state = self.lock();
        let made = !state.rings.contains_key(&key);
        let kept = state.ring(&key, self.opener.as_ref(), &wish, right).and_then(Ring::keep);
        if kept.is_err() && made {
            let unused = state.rings.remove(&key);
            state.given_up.extend(unused);
        }
        self.release(state);
        self.stir();
        kept
    }

    fn forget(&self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let mut state = self.lock();
        let kept = state.rings.iter_mut().filter(|(key, ring)| ring.standing.is_some() && is_meant(key));
        let forgotten = kept.map(|(_, ring)| ring.forget()).count() > 0;
        // Those without readers go, as if their last had gone now.
        state.dismiss(|_| false);
        self.release(state);
        self.stir();
        forgotten
    }

    /// `places` is how many the ring may have with this one.
    fn open(&self, wish: &Wish, right: &Right, places: usize) -> Result<Handout, Trouble> {
        let program = lower(&wish.program)?;
        if wish.mode == Mode::Consume {
            may_be_consumed(wish)?;
        }
        let key = self.key(wish, right.group)?;
        let (mut guard, consumed) = loop {
            let consumed = if wish.mode == Mode::Consume { self.await_consumable(&key)? } else { None };
            self.await_bit(|state| state.rings.get(&key));
            let guard = self.lock();
            // Those to be joined may have gone meanwhile: then the device is to be taken anew.
            if wish.mode == Mode::Tap || consumed.is_some() || guard.rings.contains_key(&key) {
                break (guard, consumed);
            }
        };
        let state = &mut *guard;
        if state.rings.get(&key).is_some_and(|ring| ring.place_within(places).is_err()) {
            // Some may have gone, and the thread not have come to it.
            state.turn();
        }
        let made = !state.rings.contains_key(&key);
        state.last_id += 1;
        let id = state.last_id;
        let of_others = state.note(&key);
        let ring = match state.ring(&key, self.opener.as_ref(), wish, right) {
            Ok(ring) => ring,
            Err(trouble) => {
                // What was found gone is no more to be looked at.
                self.release(guard);
                self.stir();
                return Err(trouble);
            }
        };
        let mut notes: Vec<String> = ring.shown.iter().map(|shown| shown.note(&key.device)).collect();
        notes.extend(Some(of_others).filter(|note| !note.is_empty()));
        let holds = ring.writer.geometry().ring_bytes;
        if wish.keep && holds < wish.ring_bytes {
            let why = if made { "can hold" } else { "was there already, and holds" };
            let kibibytes = holds >> 10;
            notes.push(format!("the ring of `{}` {why} {kibibytes} KiB: no more than that is kept", key.device));
        }
        if consumed.is_some() {
            ring._consumed = consumed;
        }
        let stood = ring.standing.is_some();
        let kept = if wish.keep { ring.keep() } else { Ok(()) };
        let admitted = kept.and_then(|()| ring.place_within(places)).and_then(|()| ring.admit(id, wish, program));
        if admitted.is_err() && !stood {
            ring.forget();
        }
        let (grace, memory) = (ring.writer.grace(), ring.memory.clone());
        if admitted.is_err() && made {
            state.given_up.extend(state.rings.remove(&key));
        }
        self.release(guard);
        self.stir();
        let mut handout = Handout { note: notes.join("; "), ..admitted? };
        if handout.decided > handout.first {
            // Who looks back decides itself on everything the earlier expressions decided on.
            grace();
            handout.decided = memory.next();
        }
        Ok(handout)
    }

    /// Takes a device for a ring that is to have its packets alone; none where that ring is there, and can be joined. Where
    /// somebody who had them is being taken down, waits for that.
    fn await_consumable(&self, key: &Key) -> Result<Option<Consumed>, Trouble> {
        let end = Instant::now() + TAKING_DOWN;
        loop {
            let mut state = self.lock();
            // Some may have gone, and the thread not have come to it.
            if state.turn() {
                self.stir();
            }
            let is_joined = state.rings.contains_key(key);
            let is_consumed = state.rings.keys().any(|other| other.mode == Mode::Consume && other.index == key.index);
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
                return Err(Trouble::new(TroubleKind::Full, text));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, Trouble> {
        let program = lower(program)?;
        let is_read = |ring: &Ring| ring.readers.iter().any(|reader| reader.id == id);
        self.await_bit(|state| state.rings.values().find(|ring| is_read(ring)));
        let mut state = self.lock();
        let ring = state.rings.values_mut().find(|ring| is_read(ring));
        let ring = ring.ok_or_else(|| Trouble::new(TroubleKind::Wish, "there is no such reader"))?;
        let exchange = ring.exchange(id, program)?;
        let (grace, memory) = (ring.writer.grace(), ring.memory.clone());
        drop(state);
        grace();
        Ok(Exchange { first: memory.next(), ..exchange })
    }

    fn close(&self, ids: &[u64], farewell: Option<Farewell>) {
        let mut state = self.lock();
        if let Some(farewell) = farewell {
            let readers = state.rings.values().flat_map(|ring| &ring.readers);
            readers.filter(|reader| ids.contains(&reader.id)).for_each(|reader| reader.bid(farewell));
        }
        state.dismiss(|reader| ids.contains(&reader.id));
        self.release(state);
        self.stir();
    }

    /// Gives the lock back, and then takes rings down that were given up: that takes time, a tenth of a second where a
    /// thread has to end.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let given_up = std::mem::take(&mut state.given_up);
        drop(state);
        drop(given_up);
    }

    /// The thread: sleeps until a bell rings, a reader says something or goes, or something changed.
    /// What it finds given up it gives to somebody else: nobody is woken meanwhile.
    fn tend(&self, give_up: &Sender<Vec<Ring>>) {
        loop {
            let mut state = self.lock();
            if state.ended {
                return;
            }
            // The lock is not held while sleeping. No new file descriptors: there may be none left.
            let mut sleepers: Vec<Arc<OwnedFd>> = Vec::new();
            for ring in state.rings.values() {
                sleepers.extend(ring.bells.iter().map(Arc::clone));
                sleepers.extend(ring.readers.iter().map(|reader| Arc::clone(&reader.line)));
            }
            drop(state);
            loop {
                let mut fds = vec![PollFd::new(&self.stir, PollFlags::IN)];
                fds.extend(sleepers.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
                // Interrupted or out of memory for a moment: look, and sleep again.
                let _ = rustix::event::poll(&mut fds, None);
                let stirred = !fds[0].revents().is_empty();
                drop(fds);
                if stirred {
                    let _ = rustix::io::read(&self.stir, &mut [0u8; 8]);
                }
                state = self.lock();
                let gone = state.turn();
                let ended = state.ended;
                let given_up = std::mem::take(&mut state.given_up);
                drop(state);
                if !given_up.is_empty() {
                    // It listens for as long as this thread is there; else they are taken down here.
                    let _ = give_up.send(given_up);
                }
                if stirred || gone || ended {
                    break;
                }
            }
        }
    }
}

impl State {
    /// A device's ring; made, if there is none.
    fn ring(&mut self, key: &Key, opener: &dyn Opened, wish: &Wish, right: &Right) -> Result<&mut Ring, Trouble> {
        match self.rings.entry(key.clone()) {
            Entry::Occupied(ring) => {
                assert!(ring.get().right == *right, "two rights of one group differ");
                Ok(ring.into_mut())
            }
            Entry::Vacant(place) => {
                let mut ring = Ring::open(opener, wish)?;
                let shown = match ring.device.index == key.index {
                    true => right.shown(&ring.device),
                    false => {
                        let text = format!("`{}` was another device a moment ago", wish.device);
                        Err(Trouble::new(TroubleKind::System, text))
                    }
                };
                match shown {
                    Ok(shown) => {
                        // Before it has any expression: nothing is in it yet.
                        (ring.right, ring.shown) = (right.clone(), shown);
                        Ok(place.insert(ring))
                    }
                    Err(trouble) => {
                        self.given_up.push(ring);
                        Err(trouble)
                    }
                }
            }
        }
    }

    /// What a reader of this ring should know of other rings of its device.
    fn note(&self, key: &Key) -> String {
        let met = || self.rings.iter().filter(|(other, _)| other.meets(key)).map(|(_, ring)| ring);
        let readers: usize = met().map(|ring| ring.readers.len()).sum();
        let device = &key.device;
        match key.mode {
            Mode::Tap if met().any(Ring::takes_all) => {
                format!("what `{device}` receives is taken away by another reader: it does not come here")
            }
            Mode::Tap if met().count() > 0 => {
                format!("a part of what `{device}` receives is taken away by another reader: that does not come here")
            }
            Mode::Consume if readers > 0 => {
                let see = if readers == 1 { "1 other reader of" } else { &format!("{readers} other readers of") };
                let verb = if readers == 1 { "sees" } else { "see" };
                format!("{see} `{device}` {verb} nothing any more of what is taken away here")
            }
            _ => String::new(),
        }
    }

    /// One look at every bell and every line; were there readers that went?
    fn turn(&mut self) -> bool {
        let mut gone = Vec::new();
        for ring in self.rings.values_mut() {
            let rung = ring.writer.rung();
            for reader in &mut ring.readers {
                // Who was found awake when it said that it sleeps has its bit armed all the same.
                if reader.asleep && rung & 1 << reader.expression.bit != 0 {
                    reader.wake();
                }
            }
            ring.hear(&mut gone);
        }
        let before = self.given_up.len();
        for (_, ring) in self.rings.extract_if(.., |_, ring| ring.writer.gone()) {
            ring.readers.iter().for_each(|reader| reader.bid(Farewell::DeviceGone));
            // Closing their lines is what ends them.
            self.given_up.push(ring);
        }
        if !gone.is_empty() {
            self.dismiss(|reader| gone.contains(&reader.id));
        }
        !gone.is_empty() || self.given_up.len() > before
    }

    fn dismiss(&mut self, is_gone: impl Fn(&Reader) -> bool) {
        let now = Instant::now();
        let given_up = self.rings.extract_if(.., |_, ring| {
            let before = ring.readers.len();
            let Ring { readers, freed, .. } = ring;
            readers.retain(|reader| {
                let gone = is_gone(reader);
                if gone {
                    freed[usize::from(reader.expression.bit)] = Some(now);
                }
                !gone
            });
            if ring.readers.is_empty() && ring.standing.is_none() {
                return true;
            }
            if ring.readers.len() < before {
                // Fewer expressions are never refused for their own sake; should the system fail, bits are set that nobody
                // looks at, until the next change.
                let _ = ring.writer.set(&ring.expressions());
                // Nor is giving up what nobody wants any more; and a device that hears too much loses nothing.
                let _ = ring.set_promiscuous();
            }
            false
        });
        self.given_up.extend(given_up.map(|(_, ring)| ring));
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
