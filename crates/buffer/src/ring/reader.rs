//! The reading side of a ring: reads blocks in place, verifies afterwards that they were intact, takes them.
//!
//! Every block is verified, whatever the contract: a Wait reader that held the ring for too long is demoted and then
//! overtaken, while it still believes itself safe. The writer's words are read once and checked. A lying writer gets
//! its reader an error, never a crash, an endless loop, or bytes outside the ring.

use super::contract::{OnFull, Signalling};
use super::doorbell::{self, Patience};
use super::layout::{AnyLayout, Layout, RingKind, Seen};
use super::words::{ASLEEP, AWAKE, MOVED, REMOVED, ReaderPage, RingWords, TIMED};
use crate::descriptor::Descriptor;
use crate::shared::futex;
use crate::shared::lifeline::{self, Lifeline};
use crate::shared::payload::{Payload, SharedBytes};
use crate::shared::words::Shared;
use base::atomic::{Ordering, fence, spin_loop};
use std::time::{Duration, Instant};

/// Where a reader begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// At the next block that is written.
    #[default]
    Next,
    /// At the oldest block that is surely still there. Only for readers that do not hold the ring.
    Oldest,
}

/// Why there is no block to read. Module [`words`](super::words) says which words lead to which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// There is none yet.
    Yet,
    /// The writer closed the ring, and the reader has read everything.
    Ended,
    /// The writer went on in another ring, and the reader has read everything.
    Moved,
    /// The writer died, and the reader has read everything that was published.
    Retired,
    /// The ring was removed, and the reader has read everything that was published.
    Removed,
    /// The writer's words contradict each other.
    Damaged,
}

/// The block was overwritten while it was read; it counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken;

/// Counts of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounters {
    /// Blocks taken (in a stream: runs of bytes).
    pub blocks: u64,
    /// Bytes of payload taken.
    pub bytes: u64,
    /// Blocks lost because the writer overtook this reader (in a stream: bytes). Exact after the next block was read.
    pub lost: u64,
    /// Number of sleeps.
    pub waits: u64,
}

/// The reading side of a ring.
pub struct Reader<L: Layout = AnyLayout> {
    words: Shared<RingWords>,
    page: Shared<ReaderPage>,
    payload: Payload,
    layout: L,
    slot: usize,
    serial: u32,
    contract: OnFull,
    from: From,
    /// Cut when the writer is gone, whether or not a keeper is left to say so.
    line: Option<Lifeline>,
    is_cut: bool,
    /// When dropped, tells the keeper or the writer that this reader is gone.
    _leave: Box<dyn Send>,
    started: bool,
    /// Set once to why nothing more will come. Never taken back: a writer that wakes up late is not believed.
    over: Option<Nothing>,
    cursor: u64,
    /// Everything before this unit is taken.
    position: u64,
    /// The part of `position` that the writer was told.
    told: u64,
    /// Where the last block's bytes end, now and when the writer was told, if bytes may run out before units do.
    end_bytes: u64,
    told_bytes: u64,
    /// Units published, as of the last look.
    head: u64,
    /// Steps it made, for a reader of a group.
    steps: u64,
    /// Number of the next block, where blocks are numbered and one was seen.
    number: Option<u32>,
    patience: Patience,
    counters: ReaderCounters,
}

impl<L: Layout> std::fmt::Debug for Reader<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reader { slot, contract, cursor, position, head, counters, .. } = self;
        f.debug_struct("Reader")
            .field("slot", slot)
            .field("contract", contract)
            .field("cursor", cursor)
            .field("position", position)
            .field("head", head)
            .field("counters", counters)
            .finish()
    }
}

pub(crate) struct Parts<L> {
    pub words: Shared<RingWords>,
    pub page: Shared<ReaderPage>,
    pub payload: Payload,
    pub layout: L,
    pub slot: usize,
    pub serial: u32,
    pub contract: OnFull,
    pub from: From,
    /// The writer's line, if it has one.
    pub line: Option<Lifeline>,
    pub leave: Box<dyn Send>,
}

impl<L: Layout> Reader<L> {
    pub(crate) fn new(parts: Parts<L>) -> Reader<L> {
        let Parts { words, page, payload, layout, slot, serial, contract, from, line, leave } = parts;
        Reader {
            words,
            page,
            payload,
            layout,
            slot,
            serial,
            contract,
            from,
            line,
            is_cut: false,
            _leave: leave,
            started: false,
            over: None,
            cursor: 0,
            position: 0,
            told: 0,
            end_bytes: 0,
            told_bytes: 0,
            head: 0,
            steps: 0,
            number: None,
            patience: Patience::default(),
            counters: ReaderCounters::default(),
        }
    }

    /// Sets how long to look before sleeping.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// The counts so far.
    pub fn counters(&self) -> ReaderCounters {
        self.counters
    }

    /// Takes over the counters and the patience of the reader of the ring before this one.
    #[cfg(not(loom))]
    pub(crate) fn go_on_from(&mut self, before: &Reader<L>) {
        self.counters = before.counters;
        self.patience = before.patience;
    }

    /// The contract in force: the granted one, or Overwrite after a demotion.
    pub fn contract(&self) -> OnFull {
        if !self.started {
            return self.contract;
        }
        OnFull::from_code(self.words.slots[self.slot].contract.load(Ordering::Relaxed)).unwrap_or(self.contract)
    }

    /// Whether the writer knows of this reader, so that every later block is meant for it.
    pub fn is_started(&mut self) -> bool {
        self.start();
        self.started
    }

    /// Units taken.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Next unit to read.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The ring's layout.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// The ring's payload, for blocks this reader has read.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The bytes of a block of this ring, not copied.
    #[inline]
    pub fn bytes(&self, seen: &Seen) -> SharedBytes<'_> {
        self.payload.at(seen.block.pos, u64::from(seen.block.len))
    }

    /// The first `len` bytes of a run of a stream. In other kinds a block is not cut: gives the whole block.
    #[inline]
    #[must_use]
    pub fn first(&self, seen: Seen, len: u32) -> Seen {
        if self.layout.kind() != RingKind::C || len >= seen.block.len {
            return seen;
        }
        let mut block = Descriptor { len, ..seen.block };
        block.set_wire(len);
        Seen { units: u64::from(len), block, ..seen }
    }

    #[inline]
    fn start(&mut self) -> bool {
        self.started || self.start_anew()
    }

    #[cold]
    fn start_anew(&mut self) -> bool {
        if self.from == From::Oldest && !self.contract.holds() {
            let head = self.words.writer.0.head.load(Ordering::Acquire);
            // A block may be gone soon if less than a quarter of a ring is written before it is overwritten.
            let oldest = head.saturating_sub(self.layout.units() - self.layout.units() / 4);
            self.go_on_at(self.layout.boundary(oldest, head, &self.words).min(head));
            self.head = head;
            self.started = true;
            return true;
        }
        let slot = &self.words.slots[self.slot];
        // Acquire: the start was stored before the number.
        if slot.serial.load(Ordering::Acquire) != self.serial {
            return false;
        }
        let start = slot.start.load(Ordering::Relaxed);
        self.number = Some(slot.number.load(Ordering::Relaxed));
        self.go_on_at(start);
        self.head = start;
        self.started = true;
        true
    }

    fn go_on_at(&mut self, unit: u64) {
        self.cursor = unit;
        self.position = unit;
        self.told = unit;
        // Relaxed: the reader gives up only units that it has not read, or it no longer holds the ring.
        self.page.position.0.store(unit, Ordering::Relaxed);
    }

    /// Gives the next block and moves the cursor past it. The block is neither verified nor taken yet.
    #[inline(always)]
    pub fn next_block(&mut self) -> Result<Seen, Nothing> {
        let seen = self.peek()?;
        self.cursor += seen.units;
        Ok(seen)
    }

    /// Gives the next block without moving: the same one until [`next_block`](Reader::next_block) or
    /// [`take`](Reader::take).
    ///
    /// Nearly always the block is known to be there and intact. Then this calls no other function, so that the result
    /// stays in registers. A result returned through memory field by field stalls the reads that follow: some 10 ns,
    /// more than all the rest.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Seen, Nothing> {
        if self.started
            && self.cursor != self.head
            && let Ok(seen) = self.layout.look(self.cursor, self.head, &self.payload)
            && self.intact(&seen)
        {
            if self.layout.numbered() {
                self.count_missing(&seen);
            }
            return Ok(seen);
        }
        self.peek_anew()
    }

    #[cold]
    #[inline(never)]
    fn peek_anew(&mut self) -> Result<Seen, Nothing> {
        // A writer that overtakes again and again makes the reader give up for now, not loop.
        for _ in 0..4 {
            if self.cursor == self.head || !self.started {
                self.refresh()?;
            }
            match self.layout.look(self.cursor, self.head, &self.payload) {
                Ok(seen) if self.intact(&seen) => {
                    if self.layout.numbered() {
                        self.count_missing(&seen);
                    }
                    return Ok(seen);
                }
                Ok(_) => self.overtaken(),
                Err(_) if self.was_overtaken() => self.overtaken(),
                Err(_) => return Err(Nothing::Damaged),
            }
        }
        Err(Nothing::Yet)
    }

    /// Makes sure that there are published blocks (in a stream: bytes) to read; looks at the head again if needed.
    #[inline]
    fn refresh(&mut self) -> Result<(), Nothing> {
        if let Some(over) = self.over {
            return Err(over);
        }
        if !self.start() {
            return Err(self.why_nothing());
        }
        // Acquire: the bytes and headers before the head.
        let head = self.words.writer.0.head.load(Ordering::Acquire);
        if head == self.cursor {
            return Err(self.why_nothing());
        }
        if head < self.cursor {
            return Err(Nothing::Damaged);
        }
        self.head = head;
        if head - self.cursor > self.layout.units() {
            self.overtaken();
            // What lies behind the head is not published, whatever it looks like.
            if self.cursor == self.head {
                return Err(self.why_nothing());
            }
        }
        Ok(())
    }

    #[cold]
    fn why_nothing(&mut self) -> Nothing {
        // Tells the writer what was taken before saying that there is nothing more: the writer may be waiting for it.
        self.tell();
        // Acquire: the last head was published before the end was said.
        let ended = self.words.writer.0.ended.load(Ordering::Acquire);
        let retired = self.words.keeper.0.retired.load(Ordering::Acquire);
        if ended == 0 && retired == 0 && !self.is_cut {
            return Nothing::Yet;
        }
        // A reader that the writer met before the end has a place by now: everything published is meant for it.
        if self.start() && self.words.writer.0.head.load(Ordering::Relaxed) != self.cursor {
            return Nothing::Yet;
        }
        let why = match ended {
            0 if retired == REMOVED => Nothing::Removed,
            0 => Nothing::Retired,
            MOVED => Nothing::Moved,
            _ => Nothing::Ended,
        };
        self.over = Some(why);
        why
    }

    /// Whether no part of this block is overwritten so far. Ask after using its bytes.
    #[inline]
    pub fn intact(&self, seen: &Seen) -> bool {
        // Acquire: keeps every earlier read before the checks below.
        fence(Ordering::Acquire);
        // A holding reader is told that it no longer holds the ring before any of its blocks is overwritten. Its place
        // is written rarely; reading the writer's words, written with every block, would take the writer's cache line.
        if self.contract.holds() && self.is_granted() {
            return true;
        }
        self.layout.intact(seen, &self.words)
    }

    /// Whether the granted contract is still in force. Before the writer overwrites a reader's blocks it stores the demotion,
    /// or clears the place of a reader that left, and runs a fence (`Writer::begin`).
    #[inline]
    fn is_granted(&self) -> bool {
        let slot = &self.words.slots[self.slot];
        slot.serial.load(Ordering::Relaxed) == self.serial
            && slot.contract.load(Ordering::Relaxed) == self.contract.code()
    }

    fn was_overtaken(&self) -> bool {
        let at = Seen { position: self.cursor, units: 1, block: Default::default(), elsewhere: true, number: 0 };
        !self.intact(&at)
    }

    /// Goes on where blocks are intact again, and counts the lost ones.
    #[cold]
    fn overtaken(&mut self) {
        // Acquire: as in `refresh`.
        let head = self.words.writer.0.head.load(Ordering::Acquire).max(self.head);
        let units = self.layout.units();
        let wanted = match self.contract {
            OnFull::Shared => {
                self.words.writer.0.shared.load(Ordering::Relaxed).clamp(head.saturating_sub(units / 2), head)
            }
            // Half a ring gives both sides room. For a layout without an array, only the writer can name the boundary.
            _ => head.saturating_sub(units / 2),
        };
        let to = match self.layout.boundary(wanted, head, &self.words).min(head) {
            to if to > self.cursor => to,
            // The writer's words changed in between, or lie. Go on anyway, because the block at the cursor is gone.
            _ if self.layout.numbered() => head,
            _ => self.cursor.saturating_add(1).min(head.max(self.cursor)),
        };
        if !self.layout.numbered() {
            self.counters.lost += to.saturating_sub(self.cursor);
        }
        self.page.wait.0.lost.store(self.counters.lost, Ordering::Relaxed);
        self.head = head;
        self.go_on_at(to);
    }

    /// Where units do not count blocks, the next block's number shows how many were lost.
    #[inline]
    fn count_missing(&mut self, seen: &Seen) {
        if let Some(expected) = self.number.filter(|&expected| expected != seen.number) {
            self.counters.lost += u64::from(seen.number.wrapping_sub(expected));
            self.page.wait.0.lost.store(self.counters.lost, Ordering::Relaxed);
        }
        self.number = Some(seen.number);
    }

    /// Takes everything read so far: the writer may overwrite it. Fails where this last block was overwritten while it
    /// was read: then what was read of it is worthless.
    #[inline]
    pub fn take(&mut self, seen: &Seen) -> Result<(), Overtaken> {
        let whole = self.go_past(seen);
        self.pass(seen.position + seen.units);
        whole
    }

    /// Goes on after this block and keeps holding it. For a reader that has forwarded the block and will
    /// [pass](Reader::pass) it when all readers elsewhere are done with it. Fails as [`take`](Reader::take) does.
    #[inline]
    pub fn go_past(&mut self, seen: &Seen) -> Result<(), Overtaken> {
        let whole = self.intact(seen);
        let end = seen.position + seen.units;
        self.cursor = self.cursor.max(end);
        if self.layout.kind() == RingKind::D && !seen.elsewhere {
            self.end_bytes = seen.block.pos.wrapping_add(u64::from(seen.block.len));
        }
        if whole {
            self.counters.blocks += 1;
            self.counters.bytes += u64::from(seen.block.len);
            self.number = Some(seen.number.wrapping_add(1));
        } else if !self.layout.numbered() {
            self.counters.lost += seen.units;
        }
        if whole { Ok(()) } else { Err(Overtaken) }
    }

    /// Takes everything before `unit`, but not later blocks that were read. For a reader that looks ahead, or forwards.
    #[inline]
    pub fn pass(&mut self, unit: u64) {
        let unit = unit.min(self.cursor);
        if unit <= self.position {
            return;
        }
        let previous = std::mem::replace(&mut self.position, unit);
        if self.contract == OnFull::Shared {
            let wait = &self.page.wait.0;
            wait.previous.store(previous, Ordering::Relaxed);
            self.steps += 1;
            wait.stamp.store(self.steps, Ordering::Relaxed);
        }
        match self.contract {
            // Tells at each step, which is only a store: no writer sleeps for it, but its untold blocks cost all
            // readers.
            OnFull::DropNewest => self.tell(),
            // Other readers tell when enough has come together to be worth waking a writer.
            _ if self.is_worth_telling() => self.tell(),
            _ => {}
        }
    }

    /// Whether an eighth of the ring, in units or in bytes, was taken since the writer was told.
    #[inline]
    fn is_worth_telling(&self) -> bool {
        self.position - self.told >= (self.layout.units() / 8).max(1)
            // If a hostile writer lies about its bytes, this only tells too often or too rarely.
            || self.layout.window().is_some_and(|(_, bytes)| self.end_bytes.wrapping_sub(self.told_bytes) >= bytes / 8)
    }

    /// Tells the writer what was taken, and wakes it if it waits for that.
    #[inline]
    pub fn tell(&mut self) {
        if self.told == self.position {
            return;
        }
        self.told = self.position;
        self.told_bytes = self.end_bytes;
        // Release: this reader's reads come before the writer overwrites the bytes.
        self.page.position.0.store(self.position, Ordering::Release);
        if self.contract == OnFull::Wait {
            doorbell::full();
            if self.words.counts.0.wait.load(Ordering::Relaxed) == ASLEEP {
                doorbell::ring(&self.page.wait.0.bell);
            }
        }
    }

    /// Whether a call has returned the end of the ring, after the last block. Then it stays so for ever.
    pub fn is_done(&self) -> bool {
        self.over.is_some()
    }

    /// Checks whether the writer is gone although nothing says so (its keeper may have died first); true if this call
    /// found it. Its published blocks remain. Makes a system call; [`wait`](Reader::wait) does so after a long silence.
    pub fn look_after_writer(&mut self) -> bool {
        // A dead process's stores come before the kernel cuts its line: the head read next is the last one.
        let found = !self.is_cut && self.line.as_ref().is_some_and(Lifeline::is_cut);
        self.is_cut |= found;
        found
    }

    #[cfg(not(loom))]
    pub(crate) fn line(&self) -> Option<&Lifeline> {
        self.line.as_ref()
    }

    /// Whether the ring was removed for good.
    pub fn is_removed(&self) -> bool {
        // Relaxed: no other memory is read because of it.
        self.words.keeper.0.retired.load(Ordering::Relaxed) & REMOVED != 0
    }

    /// What another thread needs to sleep in this reader's place.
    pub fn sleeper(&self) -> super::sleeper::Sleeper {
        super::sleeper::Sleeper {
            words: self.words.clone(),
            page: self.page.clone(),
            slot: self.slot,
            serial: self.serial,
            cursor: self.started.then_some(self.cursor),
        }
    }

    /// Waits until there is a block to read or none will come, at most until `deadline`.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Nothing> {
        let mut spins = self.patience.spins;
        while spins > 0 {
            match self.peek() {
                Err(Nothing::Yet) => {}
                other => return other.map(drop),
            }
            spins -= 1;
            spin_loop();
        }
        let mut timed = self.words.writer.0.signalling.load(Ordering::Relaxed) != Signalling::Every.code();
        loop {
            match self.peek() {
                Err(Nothing::Yet) => {}
                other => return other.map(drop),
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Nothing::Yet);
            }
            let rung = self.sleep(timed, left);
            if !rung && !timed {
                self.look_after_writer();
            }
            // One period without a block: from here on it sleeps until it is woken.
            timed = false;
        }
    }

    fn sleep(&mut self, timed: bool, left: Option<Duration>) -> bool {
        self.counters.waits += 1;
        // Relaxed, like every read up to the sleep: the fence orders it behind what was done before the bell rang.
        // Whatever it finds is read again later.
        let bell = self.words.slots[self.slot].bell.load(Ordering::Relaxed);
        let wait = &self.page.wait.0.wait;
        let batched = self.words.writer.0.signalling.load(Ordering::Relaxed) != Signalling::Every.code();
        let mut is_met = true;
        if timed {
            wait.store(TIMED, Ordering::Relaxed);
            doorbell::full();
        } else {
            wait.store(ASLEEP, Ordering::Relaxed);
            if batched {
                is_met = doorbell::heavy();
            } else {
                doorbell::full();
            }
        }
        // The last look: the words that give a reason to stay awake, read after the wait word was stored.
        let words = &self.words;
        let awake = if self.started {
            words.writer.0.head.load(Ordering::Relaxed) != self.cursor
        } else {
            words.slots[self.slot].serial.load(Ordering::Relaxed) == self.serial
        } || words.writer.0.ended.load(Ordering::Relaxed) != 0
            || words.keeper.0.retired.load(Ordering::Relaxed) != 0;
        if !awake {
            let longest = match (timed, is_met, &self.line) {
                (true, ..) => Some(self.patience.latency),
                (false, false, _) => Some(doorbell::LOOK),
                (false, true, Some(_)) => Some(lifeline::LOOK),
                (false, true, None) => None,
            };
            let timeout = match (left, longest) {
                (Some(left), Some(longest)) => Some(left.min(longest)),
                (one, other) => one.or(other),
            };
            futex::wait(&words.slots[self.slot].bell, bell, timeout);
        }
        wait.store(AWAKE, Ordering::Relaxed);
        awake || self.words.slots[self.slot].bell.load(Ordering::Relaxed) != bell
    }
}
