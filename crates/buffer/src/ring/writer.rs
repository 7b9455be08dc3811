//! The writing side of a ring: one per ring, and only one.
//!
//! Life of a block:
//!
//! 1. Find room. If there is none: wait, drop the block, or demote a reader.
//! 2. Tell readers what will be overwritten.
//! 3. Copy the bytes in and write the header.
//! 4. Publish.
//! 5. Wake sleepers.

use super::active_window::{ActiveWindow, Look, Search};
use super::consumers::{Consumers, Holder, Membership, Slept};
use super::contract::Signalling;
use super::doorbell::{self, Patience};
use super::layout::{AnyLayout, Claim, Layout};
use super::words::{ASLEEP, AWAKE, ENDED, MOVED, REMOVED, RingWords};
use crate::descriptor::{Descriptor, WIRE_MAX};
use crate::shared::futex;
use crate::shared::lifeline;
use crate::shared::payload::Payload;
use crate::shared::words::Shared;
use base::atomic::{Ordering, fence, spin_loop};
use base::id::{Generation, RingId};
use std::time::{Duration, Instant};

/// Why a block was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// A Wait reader holds the ring: try again later, or use a call that waits.
    WouldBlock,
    /// A DropNewest reader holds the ring: the block is dropped for every reader, and counted.
    Dropped,
    /// The ring can never hold a block of this length.
    TooLong,
    /// The block cannot be named: the ring has no descriptors, or the descriptor names this ring itself.
    CannotName,
    /// The ring was removed and has no readers any more.
    Removed,
}

impl std::fmt::Display for NotWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NotWritten::WouldBlock => "the ring is full and a reader that must be waited for is behind",
            NotWritten::Dropped => "the ring is full: the block was dropped",
            NotWritten::TooLong => "the block is longer than the ring",
            NotWritten::Removed => "the ring was removed",
            NotWritten::CannotName => {
                "only a ring of descriptors can name a block, and only one that lies in another ring"
            }
        })
    }
}

impl std::error::Error for NotWritten {}

/// Counts of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounters {
    /// Blocks written (in a stream: calls).
    pub blocks: u64,
    /// Bytes of payload written.
    pub bytes: u64,
    /// Blocks dropped (in a stream: bytes).
    pub dropped: u64,
    /// Readers demoted because they held the ring for too long.
    pub demoted: u64,
    /// Number of sleeps for want of room.
    pub waits: u64,
}

fn blocks_between(signalling: Signalling) -> u32 {
    match signalling {
        Signalling::Every => 1,
        Signalling::Batched(blocks) => blocks.max(1),
        Signalling::Never => u32::MAX,
    }
}

#[inline]
fn ours(about: Descriptor) -> Descriptor {
    Descriptor { ring: RingId(0), generation: Generation(0), ..about }
}

/// The writing side of a ring.
pub struct Writer<L: Layout = AnyLayout> {
    words: Shared<RingWords>,
    payload: Payload,
    layout: L,
    consumers: Consumers,
    membership: Box<dyn Membership>,
    epoch: u32,
    head: u64,
    bytes: u64,
    signalling: Signalling,
    /// Light fences are enough: other processes can run a fence for this one.
    registered: bool,
    /// Blocks since the last signal, and the head at that signal.
    unsignalled: u32,
    signalled_head: u64,
    /// Blocks between two signals now: the number asked for, or more while readers sleep through each batch.
    distance: u32,
    /// If not 0, readers ring when they move even if this writer needs no room: a forwarder waits for that.
    watchers: u32,
    patience: Patience,
    /// Next position at which the mark (a quarter of a ring before it) and the group's position are stored.
    next_mark: u64,
    last_mark: u64,
    window: ActiveWindow,
    search: Search,
    /// Whether the ring was too full for some block since the last look at the active window.
    was_full: bool,
    counters: WriterCounters,
    before: WriterCounters,
}

impl<L: Layout> std::fmt::Debug for Writer<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Writer { head, bytes, counters, .. } = self;
        f.debug_struct("Writer").field("head", head).field("bytes", bytes).field("counters", counters).finish()
    }
}

impl<L: Layout> Writer<L> {
    /// The writer of a fresh ring. The maker of the ring must see to it that there is only one.
    pub(crate) fn new(
        words: Shared<RingWords>,
        payload: Payload,
        layout: L,
        signalling: Signalling,
        membership: Box<dyn Membership>,
    ) -> Writer<L> {
        words.writer.0.signalling.store(signalling.code(), Ordering::Relaxed);
        Writer {
            words,
            payload,
            layout,
            consumers: Consumers::default(),
            membership,
            epoch: 0,
            head: 0,
            bytes: 0,
            signalling,
            registered: blocks_between(signalling) > 1 && doorbell::register(),
            unsignalled: 0,
            signalled_head: 0,
            distance: blocks_between(signalling),
            watchers: 0,
            patience: Patience::default(),
            next_mark: 0,
            last_mark: 0,
            window: ActiveWindow::Whole,
            search: Search::default(),
            was_full: false,
            counters: WriterCounters::default(),
            before: WriterCounters::default(),
        }
    }

    /// Sets how long to look for room before sleeping.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Units written so far.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The counts so far.
    pub fn counters(&self) -> WriterCounters {
        let (now, before) = (self.counters, self.before);
        WriterCounters {
            blocks: before.blocks + now.blocks,
            bytes: before.bytes + now.bytes,
            dropped: before.dropped + now.dropped,
            demoted: before.demoted + self.consumers.demoted(),
            waits: before.waits + now.waits,
        }
    }

    /// The ring's layout.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// Sets how much of the payload is in use. False where the ring has no descriptors, which always uses all of it.
    pub fn set_window(&mut self, window: ActiveWindow) -> bool {
        let Some((_, all)) = self.layout.window() else { return window == ActiveWindow::Whole };
        self.window = window;
        self.search = Search::default();
        self.next_mark = self.head;
        self.use_window(if let ActiveWindow::Bytes(bytes) = window { bytes } else { all });
        true
    }

    fn use_window(&mut self, bytes: u64) {
        self.layout.cut_window(bytes);
        let said = self.layout.window().map_or(0, |(window, all)| if window < all { window } else { 0 });
        self.words.counts.0.window.store(said, Ordering::Relaxed);
    }

    /// Looks whether a smaller or larger active window is better.
    fn look_at_window(&mut self, least: u64) {
        let Some((window, all)) = self.layout.window() else { return };
        let was_full = std::mem::take(&mut self.was_full);
        let look = Look { window, all, bytes: self.bytes, was_full, waits_for_all: self.consumers.all_hold() };
        let better = self.search.look(least, look);
        if better != window {
            self.use_window(better);
        }
    }

    /// Finds readers that are gone although nothing says so: the keeper may have died before them. Makes a system call
    /// for each reader; a wait for room does so when nothing happens for long.
    pub fn look_after_readers(&mut self) {
        self.consumers.look_after(&self.words, self.head);
    }

    /// Number of readers it knows now.
    pub fn readers(&mut self) -> usize {
        let _ = self.meet();
        self.consumers.count()
    }

    /// Units that the furthest reader says it has taken; `None` without readers. For a caller that skips blocks that
    /// all readers are too far behind to read. It does not affect this writer.
    pub fn furthest(&mut self) -> Option<u64> {
        let _ = self.meet();
        self.consumers.furthest(self.head)
    }

    /// Lowest unit that a holding reader still needs; `head` without such readers.
    pub fn passed(&mut self) -> u64 {
        let _ = self.meet();
        self.consumers.passed(self.head)
    }

    /// Writes a block of these bytes if there is room. Uses only class, time, wire length and flags of `about`.
    #[inline(always)]
    pub fn try_write(&mut self, about: Descriptor, bytes: &[u8]) -> Result<(), NotWritten> {
        // A descriptor cannot hold a longer length, however large the ring is.
        let len = u32::try_from(bytes.len()).map_err(|_| NotWritten::TooLong)?;
        let claim = self.room_for(u64::from(len))?;
        self.begin(&claim);
        self.payload.copy_in(claim.pos, bytes);
        let block = Descriptor { pos: claim.pos, len, ..ours(about) };
        self.finish(&claim, &block);
        Ok(())
    }

    /// Writes a block of these bytes; waits for room if it must, at most until `deadline`.
    #[inline(always)]
    pub fn write(&mut self, about: Descriptor, bytes: &[u8], deadline: Option<Instant>) -> Result<(), NotWritten> {
        loop {
            match self.try_write(about, bytes) {
                Err(NotWritten::WouldBlock) => self.wait_for_all(bytes.len() as u64, deadline)?,
                done => return done,
            }
        }
    }

    /// Writes a descriptor of a block in another ring: 32 bytes, whatever its length. Writes nothing if this is not a
    /// ring of descriptors, or if the block names this ring (0).
    #[inline]
    pub fn try_forward(&mut self, block: &Descriptor) -> Result<(), NotWritten> {
        self.can_name(block)?;
        let claim = self.room_for(0)?;
        self.begin(&claim);
        self.finish(&claim, block);
        Ok(())
    }

    #[inline]
    fn can_name(&self, block: &Descriptor) -> Result<(), NotWritten> {
        let can = self.layout.kind() == super::layout::RingKind::D && block.ring != RingId(0);
        if can { Ok(()) } else { Err(NotWritten::CannotName) }
    }

    /// Forwards many blocks and publishes them together; says how many were written before the ring was full. If one of
    /// them cannot be named, the call writes no block.
    pub fn forward_batch(&mut self, blocks: &[Descriptor]) -> Result<usize, NotWritten> {
        blocks.iter().try_for_each(|block| self.can_name(block))?;
        let mut written = 0;
        for block in blocks {
            match self.room_for(0) {
                Ok(claim) => {
                    self.begin(&claim);
                    self.place(&claim, block);
                    written += 1;
                }
                Err(full) if written == 0 => return Err(full),
                Err(_) => break,
            }
        }
        self.publish(written as u32);
        Ok(written)
    }

    /// Begins a block of `len` bytes in place. [`Filling::copy_in`] fills it, [`Filling::publish`] publishes it, and
    /// dropping it leaves no trace.
    #[inline]
    pub fn fill(&mut self, len: u32) -> Result<Filling<'_, L>, NotWritten> {
        let claim = self.room_for(u64::from(len))?;
        self.begin(&claim);
        Ok(Filling { writer: self, claim, len })
    }

    /// Writes as many of these bytes as there is room for: for streams.
    pub fn try_write_some(&mut self, bytes: &[u8]) -> Result<usize, NotWritten> {
        let mut len = bytes.len().min(self.layout.units() as usize).min(u32::MAX as usize);
        if len == 0 {
            return Ok(0);
        }
        loop {
            match self.room_for(len as u64) {
                Ok(claim) => {
                    self.begin(&claim);
                    self.payload.copy_in(claim.pos, &bytes[..len]);
                    self.finish(&claim, &Descriptor { pos: claim.pos, len: len as u32, ..Descriptor::default() });
                    return Ok(len);
                }
                Err(NotWritten::WouldBlock) => {
                    // The room that the slowest reader leaves.
                    let free = self.layout.units() - (self.head - self.consumers.held_from());
                    let part = len.min(usize::try_from(free).unwrap_or(usize::MAX));
                    if part == 0 || part == len {
                        return Err(NotWritten::WouldBlock);
                    }
                    len = part;
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// Publishes the `blocks` blocks [placed](Filling::place) so far: signals readers once for all of them.
    #[inline]
    pub fn publish_placed(&mut self, blocks: u32) {
        self.publish(blocks);
    }

    /// Notes which readers joined and left: mostly one look at a word that rarely changes. Fails if the ring was
    /// removed.
    #[inline]
    fn meet(&mut self) -> Result<(), NotWritten> {
        // Acquire: sees what the keeper did before it changed the epoch.
        // ordering: in models a lock orders the changes fetched then; the keeper's socket is unknown to C11.
        let epoch = self.words.keeper.0.epoch.load(Ordering::Acquire);
        if epoch != self.epoch { self.meet_anew(epoch) } else { Ok(()) }
    }

    /// Notes which readers joined and left, even if the epoch says that nothing changed.
    pub fn meet_now(&mut self) {
        // ordering: as in `meet`.
        let epoch = self.words.keeper.0.epoch.load(Ordering::Acquire);
        // The next write says that the ring was removed.
        let _ = self.meet_anew(epoch);
    }

    #[cold]
    fn meet_anew(&mut self, epoch: u32) -> Result<(), NotWritten> {
        let changes = self.membership.changes();
        self.consumers.apply(changes, &self.words, self.head, self.counters.blocks);
        // Relaxed: the word was stored before the epoch changed, and no other memory is read because of it.
        if self.words.keeper.0.retired.load(Ordering::Relaxed) & REMOVED != 0 {
            // Leaves the old epoch: so each further write comes here again, and no other code has to check for removal.
            return Err(NotWritten::Removed);
        }
        self.epoch = epoch;
        Ok(())
    }

    #[inline]
    fn room_for(&mut self, len: u64) -> Result<Claim, NotWritten> {
        self.meet()?;
        let claim = self.layout.claim(self.head, self.bytes, len).map_err(|_| NotWritten::TooLong)?;
        if self.consumers.any_holds() && !self.layout.fits(&claim, self.consumers.held_from(), self.head) {
            self.make_room(&claim)?;
        }
        Ok(claim)
    }

    #[cold]
    fn make_room(&mut self, claim: &Claim) -> Result<(), NotWritten> {
        let (layout, head) = (&self.layout, self.head);
        let fits = |holder| layout.fits(claim, holder, head);
        let mut holder = self.consumers.look(head, fits);
        if holder.is_some() && self.consumers.demote(&self.words, head, fits) {
            holder = self.consumers.look(head, fits);
        }
        self.was_full |= holder.is_some();
        match holder {
            None => Ok(()),
            Some(Holder::Wait(_)) => Err(NotWritten::WouldBlock),
            Some(Holder::DropNewest) => {
                self.counters.dropped += match layout.kind() {
                    super::layout::RingKind::C => claim.head_after - head,
                    _ => 1,
                };
                self.words.counts.0.dropped.store(self.counters.dropped, Ordering::Relaxed);
                Err(NotWritten::Dropped)
            }
        }
    }

    #[inline]
    fn begin(&mut self, claim: &Claim) {
        self.layout.begin(claim, &self.words);
        // Release: a reader that sees one of the bytes written from here on also sees, behind its fence, the claim.
        fence(Ordering::Release);
    }

    #[inline]
    fn place(&mut self, claim: &Claim, block: &Descriptor) {
        self.layout.finish(claim, self.head, block, &self.payload);
        self.head = claim.head_after;
        self.bytes = claim.bytes_after;
        self.counters.blocks += 1;
        self.counters.bytes += u64::from(block.len);
    }

    #[inline]
    fn finish(&mut self, claim: &Claim, block: &Descriptor) {
        self.place(claim, block);
        self.publish(1);
    }

    #[inline]
    fn publish(&mut self, blocks: u32) {
        if self.head >= self.next_mark {
            self.mark();
        }
        // Release: a reader that sees the new head sees the bytes and headers before it.
        self.words.writer.0.head.store(self.head, Ordering::Release);
        if self.registered {
            doorbell::light();
        } else {
            doorbell::full();
        }
        self.unsignalled = self.unsignalled.saturating_add(blocks);
        let due = self.unsignalled >= self.distance;
        let slept = self.consumers.signal(&self.words, due);
        if due {
            self.pace(slept);
        }
    }

    /// Chooses the distance to the next signal. A reader that each signal finds asleep keeps up, and waking it costs
    /// more than the blocks that wait for it. So the distance doubles, up to a quarter of the ring. The reader's timed
    /// sleep, not the distance, bounds how late a block may be noticed.
    #[inline]
    fn pace(&mut self, slept: Slept) {
        self.unsignalled = 0;
        let units = self.head - std::mem::replace(&mut self.signalled_head, self.head);
        let asked = blocks_between(self.signalling);
        if asked <= 1 {
            return;
        }
        match slept {
            Slept::Nobody => {}
            Slept::Timed if units <= self.layout.units() / 8 => self.distance = self.distance.saturating_mul(2),
            Slept::Timed if units <= self.layout.units() / 4 => {}
            Slept::Timed | Slept::Untimed => self.distance = asked.max(self.distance / 2),
        }
    }

    /// Every quarter of a ring: stores where a block began a quarter before, for readers that must find one, and where
    /// the group of Shared readers is.
    #[cold]
    fn mark(&mut self) {
        self.say_counts();
        let units = self.layout.units();
        // Relaxed: readers use the mark only where the head they have seen is beyond it (`Inline::boundary`).
        self.words.writer.0.mark.store(self.last_mark, Ordering::Relaxed);
        self.last_mark = self.head;
        self.next_mark = self.head.saturating_add((units / 4).max(1));
        self.share();
        if let ActiveWindow::Auto { least } = self.window {
            self.look_at_window(least);
            // Look again when the writer has gone round in the window, if blocks keep their average length.
            let (window, _) = self.layout.window().unwrap_or_default();
            let long = (self.bytes / self.head.max(1)).max(1);
            self.next_mark = self.next_mark.min(self.head.saturating_add((2 * window / long).max(1)));
        }
    }

    fn share(&mut self) {
        let words = &self.words.writer.0;
        let before = words.shared.load(Ordering::Relaxed);
        let shared = self.consumers.shared(before, self.head, self.layout.units());
        words.shared.store(shared, Ordering::Relaxed);
    }

    /// Wakes every reader that sleeps. Call before pausing, and before waiting for anything else.
    pub fn flush(&mut self) {
        let _ = self.meet();
        // ordering: behind a light fence it makes readers visible that sleep for their latency bound. Models have
        // neither light fences nor such a bound: without it only time is lost.
        doorbell::full();
        self.consumers.signal(&self.words, true);
        self.unsignalled = 0;
        self.say_counts();
    }

    fn say_counts(&self) {
        let counts = &self.words.counts.0;
        counts.blocks.store(self.counters.blocks, Ordering::Relaxed);
        counts.bytes.store(self.counters.bytes, Ordering::Relaxed);
    }

    /// Waits until a block of `len` bytes (in a stream: one byte) may have room, at most until `deadline`.
    #[cold]
    pub fn wait_for_room(&mut self, len: u64, deadline: Option<Instant>) -> Result<(), NotWritten> {
        let len = if self.layout.kind() == super::layout::RingKind::C { len.min(1) } else { len };
        self.wait_for_all(len, deadline)
    }

    /// The same, but in a stream too it waits for room for all `len` bytes.
    #[cold]
    fn wait_for_all(&mut self, len: u64, deadline: Option<Instant>) -> Result<(), NotWritten> {
        self.flush();
        let mut spins = self.patience.spins;
        loop {
            match self.room_for(len) {
                Err(NotWritten::WouldBlock) => {}
                // The write itself drops the block, and counts it.
                Ok(_) | Err(NotWritten::Dropped) => return Ok(()),
                Err(never) => return Err(never),
            }
            if spins > 0 {
                spins -= 1;
                spin_loop();
                continue;
            }
            let left = match deadline {
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(NotWritten::WouldBlock);
                    }
                    Some(left)
                }
                None => None,
            };
            self.sleep_for_room(len, left)?;
        }
    }

    fn sleep_for_room(&mut self, len: u64, left: Option<Duration>) -> Result<(), NotWritten> {
        let claim = self.layout.claim(self.head, self.bytes, len).map_err(|_| NotWritten::TooLong)?;
        let (layout, head) = (&self.layout, self.head);
        let Some(Holder::Wait(place)) = self.consumers.look(head, |holder| layout.fits(&claim, holder, head)) else {
            return Ok(());
        };
        let Some((reader, hold)) = self.consumers.waited_for(place) else { return Ok(()) };
        let (page, watched) = (reader.page.clone(), reader.line.is_some());
        // Relaxed, like every read up to the sleep: the fence orders it behind what the reader did before it rang.
        let bell = page.wait.0.bell.load(Ordering::Relaxed);
        self.words.counts.0.wait.store(ASLEEP, Ordering::Relaxed);
        doorbell::full();
        let still = self.consumers.look(head, |holder| layout.fits(&claim, holder, head)) == Some(Holder::Wait(place));
        if still && self.words.keeper.0.epoch.load(Ordering::Relaxed) == self.epoch {
            self.counters.waits += 1;
            // A little longer than it may hold the ring, so that the next look finds its time over.
            let hold = hold.map(|hold| hold + Duration::from_micros(50));
            let timeout = [left, hold, watched.then_some(lifeline::LOOK)].into_iter().flatten().min();
            futex::wait(&page.wait.0.bell, bell, timeout);
            if watched && page.wait.0.bell.load(Ordering::Relaxed) == bell {
                self.look_after_readers();
            }
        }
        self.words.counts.0.wait.store(if self.watchers > 0 { ASLEEP } else { AWAKE }, Ordering::Relaxed);
        Ok(())
    }

    /// Makes Wait readers ring when they have moved, also while this writer does not wait for room, until
    /// [`unwatch`](Writer::unwatch) was called as often.
    pub fn watch(&mut self) {
        self.watchers += 1;
        if self.watchers == 1 {
            self.words.counts.0.wait.store(ASLEEP, Ordering::Relaxed);
            doorbell::full();
        }
    }

    /// See [`watch`](Writer::watch).
    pub fn unwatch(&mut self) {
        self.watchers -= 1;
        if self.watchers == 0 {
            self.words.counts.0.wait.store(AWAKE, Ordering::Relaxed);
        }
    }

    /// A holding reader that still needs `unit`; `None` where all have passed it.
    pub fn needed_by(&mut self, unit: u64) -> Option<super::sleeper::Needed> {
        loop {
            let is_removed = self.meet().is_err();
            let needed = self.consumers.needed_by(unit, self.head)?;
            // A reader that leaves changes the epoch before it rings for the last time. If it did both after `meet`,
            // this bell will not ring again, so the epoch must still be the one met. Each turn meets a reader that
            // joined or left. The exception is a removed ring, whose epoch `meet` does not take over.
            // Relaxed: the look at the bell was Acquire, its ringing Release.
            if is_removed || self.words.keeper.0.epoch.load(Ordering::Relaxed) == self.epoch {
                return Some(needed);
            }
        }
    }

    /// Whether the ring was removed, so that it has no readers any more.
    pub fn is_removed(&mut self) -> bool {
        self.meet() == Err(NotWritten::Removed)
    }

    /// The reader that a block of `len` bytes must wait for; `None` where a write would not wait. Call between
    /// [`watch`](Writer::watch) and [`unwatch`](Writer::unwatch), so that readers ring.
    pub fn room_needs(&mut self, len: u64) -> Result<Option<super::sleeper::Needed>, NotWritten> {
        self.meet()?;
        let claim = self.layout.claim(self.head, self.bytes, len).map_err(|_| NotWritten::TooLong)?;
        let (layout, head) = (&self.layout, self.head);
        let fits = |holder| layout.fits(&claim, holder, head);
        loop {
            let Some(Holder::Wait(place)) = self.consumers.look(head, fits) else { return Ok(None) };
            if self.consumers.demote(&self.words, head, fits) {
                continue;
            }
            let needed = self.consumers.bell_of(place);
            if self.consumers.look(head, fits) == Some(Holder::Wait(place)) {
                return Ok(needed);
            }
        }
    }

    /// The same for a caller about to sleep on that reader's bell alone; counts the sleep. `None` also: look again.
    pub fn sleep_needs(&mut self, len: u64) -> Option<super::sleeper::Needed> {
        let needed = self.room_needs(len).ok()?;
        // As in `needed_by`: a reader that leaves changes the epoch before it rings for the last time.
        let is_known = self.words.keeper.0.epoch.load(Ordering::Relaxed) == self.epoch;
        let needed = needed.filter(|_| is_known);
        self.counters.waits += u64::from(needed.is_some());
        needed
    }

    /// The word that changes when a reader joins or leaves, and its value as of the last look.
    pub fn membership_word(&self) -> (Shared<RingWords>, u32) {
        (self.words.clone(), self.epoch)
    }

    /// Takes over counters, patience, active window setting and watchers from the writer of the ring before.
    pub fn go_on_from(&mut self, before: &Writer<L>) {
        self.before = before.counters();
        self.patience = before.patience;
        // This ring has another size, so the search starts again.
        self.set_window(before.window);
        self.watchers = before.watchers;
        if self.watchers > 0 {
            self.words.counts.0.wait.store(ASLEEP, Ordering::Relaxed);
            doorbell::full();
        }
    }

    /// Ends the ring: readers take the rest and are done.
    pub fn close(mut self) {
        self.end(ENDED);
    }

    /// Ends the ring as [`close`](Writer::close) does, but keeps the list of its readers. Write no more afterwards.
    #[cfg(not(loom))]
    pub(crate) fn finish_writing(&mut self) {
        self.end(ENDED);
    }

    /// Ends the ring in favour of another: readers take the rest and ask the keeper for the other one.
    pub fn close_moved(mut self) {
        self.end(MOVED);
    }

    fn end(&mut self, how: u32) {
        if self.words.writer.0.ended.load(Ordering::Relaxed) == 0 {
            self.say_counts();
            // Release: a reader that sees the end sees the last head.
            self.words.writer.0.ended.store(how, Ordering::Release);
            // Rings every bell, whatever the wait words say. A changed bell keeps a reader that is about to sleep
            // awake, and a reader that sees the change sees the end. This also wakes readers that were not met yet.
            self.words.slots.iter().for_each(|slot| doorbell::ring(&slot.bell));
        }
    }
}

impl<L: Layout> Drop for Writer<L> {
    fn drop(&mut self) {
        self.end(ENDED);
    }
}

/// A block that is being filled. Readers see it when it is published.
pub struct Filling<'a, L: Layout> {
    writer: &'a mut Writer<L>,
    claim: Claim,
    len: u32,
}

impl<'a, L: Layout> Filling<'a, L> {
    /// Copies these bytes to `offset` within the block, as far as they fit.
    #[inline]
    pub fn copy_in(&self, offset: u32, bytes: &[u8]) {
        let room = self.len.saturating_sub(offset) as usize;
        self.writer.payload.copy_in(self.claim.pos + u64::from(offset), &bytes[..bytes.len().min(room)]);
    }

    /// The block's memory, for filling it in place. At first it holds bytes of an older block.
    ///
    /// # Safety
    ///
    /// No other slice of these bytes exists in this process
    /// ([`SharedBytes::as_slice`](crate::shared::payload::SharedBytes)). Overtaken readers may copy the bytes
    /// meanwhile: they find out, and throw the copy away.
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `claim` is room for `len` bytes, which is at most the ring's size; the caller promises that there is
        // no other slice.
        unsafe { self.writer.payload.slice_mut(self.claim.pos, self.len) }
    }

    /// Publishes the first `len` bytes of the block (at most its length), with what `about` says of them.
    #[inline]
    pub fn publish(self, about: Descriptor, len: u32) {
        let writer = self.place(about, len);
        writer.publish(1);
    }

    /// The same without publishing: [`Writer::publish_placed`], or the next block that is published, does that.
    #[inline]
    pub fn place(self, about: Descriptor, len: u32) -> &'a mut Writer<L> {
        let len = len.min(self.len);
        let wire = if about.wire() == 0 { len.min(WIRE_MAX) } else { about.wire() };
        let mut block = Descriptor { pos: self.claim.pos, len, ..ours(about) };
        block.set_wire(wire);
        let claim = self.writer.layout.shorten(&self.claim, u64::from(len));
        self.writer.place(&claim, &block);
        self.writer
    }
}
