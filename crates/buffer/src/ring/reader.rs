//! A reading side of a ring: looks at blocks where they lie, verifies afterwards, takes.
//!
//! Everything is verified, whatever the contract: a Wait reader that held the ring for too long is demoted, and then
//! overtaken, while it believes itself safe. What the writer says is read once and checked; a writer that lies gets its
//! reader an error, never a crash, an endless loop, or bytes outside the ring.

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
    /// At the oldest that is surely still there. Only for readers that hold nothing.
    Oldest,
}

/// Why there is no block to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// Not yet.
    Yet,
    /// The writer closed the ring, and everything was looked at.
    Ended,
    /// The writer went on in another ring, and everything was looked at.
    Moved,
    /// The writer died, and everything it published was looked at.
    Retired,
    /// The ring was removed, and everything published was looked at.
    Removed,
    /// The writer's words make no sense.
    Damaged,
}

/// The block was overwritten while it was looked at; it counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overtaken;

/// What a reader has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounters {
    /// Blocks taken (looks, for a stream).
    pub blocks: u64,
    /// Bytes of payload taken.
    pub bytes: u64,
    /// Blocks lost since the writer overtook this reader (bytes, for a stream). Exact once the next block was looked at.
    pub lost: u64,
    /// Times it slept.
    pub waits: u64,
}

/// A reading side of a ring.
pub struct Reader<L: Layout = AnyLayout> {
    words: Shared<RingWords>,
    page: Shared<ReaderPage>,
    payload: Payload,
    layout: L,
    slot: usize,
    serial: u32,
    contract: OnFull,
    from: From,
    /// Cut when the writer is gone, whether or not there is a keeper to say so.
    line: Option<Lifeline>,
    /// It was found cut.
    is_cut: bool,
    /// Tells the keeper or the writer, when it is dropped, that this reader is gone.
    _leave: Box<dyn Send>,
    started: bool,
    /// Nothing will come any more, as was said once: a writer that wakes late is not believed.
    over: Option<Nothing>,
    /// Next unit to look at.
    cursor: u64,
    /// Everything before is taken.
    position: u64,
    /// What of it the writer was told.
    told: u64,
    /// Where the last block's bytes end, and did when the writer was told, in a ring whose bytes may run out before its
    /// units do.
    end_bytes: u64,
    told_bytes: u64,
    /// Units published, as of the last look.
    head: u64,
    /// Steps it made, where a group is to know of them.
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

/// What a reader is made of; its keeper gives it.
pub(crate) struct Parts<L> {
    pub words: Shared<RingWords>,
    pub page: Shared<ReaderPage>,
    pub payload: Payload,
    pub layout: L,
    pub slot: usize,
    pub serial: u32,
    pub contract: OnFull,
    pub from: From,
    /// The writer's, where there is one.
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

    /// How long to look before sleeping.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// What it has done so far.
    pub fn counters(&self) -> ReaderCounters {
        self.counters
    }

    /// Carries on the counters and the patience of the reader of the ring before this one.
    #[cfg(not(loom))]
    pub(crate) fn go_on_from(&mut self, before: &Reader<L>) {
        self.counters = before.counters;
        self.patience = before.patience;
    }

    /// The contract in force: what was granted, or Overwrite after a demotion.
    pub fn contract(&self) -> OnFull {
        if !self.started {
            return self.contract;
        }
        OnFull::from_code(self.words.slots[self.slot].contract.load(Ordering::Relaxed)).unwrap_or(self.contract)
    }

    /// Does the writer know of this reader, so that it begins no later than here?
    pub fn is_started(&mut self) -> bool {
        self.start();
        self.started
    }

    /// Units taken.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Next unit to be looked at.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The ring's layout.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// The ring's payload, for blocks this reader has looked at.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The bytes of a block of this ring, not copied.
    #[inline]
    pub fn bytes(&self, seen: &Seen) -> SharedBytes<'_> {
        self.payload.at(seen.block.pos, u64::from(seen.block.len))
    }

    /// The first `len` bytes of what was seen of a stream. Of a block with edges there is only the whole.
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
            // What is a quarter of a ring from being overwritten is not surely there for long.
            let oldest = head.saturating_sub(self.layout.units() - self.layout.units() / 4);
            self.go_on_at(self.layout.boundary(oldest, head, &self.words).min(head));
            self.head = head;
            self.started = true;
            return true;
        }
        let slot = &self.words.slots[self.slot];
        // Acquire: the start was said before the number.
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
        // Relaxed: nothing was looked at yet of what it lets go of, or it holds nothing any more.
        self.page.position.0.store(unit, Ordering::Relaxed);
    }

    /// The next block, and on to the one after it. The block is neither verified nor taken yet.
    #[inline(always)]
    pub fn next_block(&mut self) -> Result<Seen, Nothing> {
        let seen = self.peek()?;
        self.cursor += seen.units;
        Ok(seen)
    }

    /// The next block: again the same until [`next_block`](Reader::next_block) or [`take`](Reader::take).
    ///
    /// Nearly always the block is known to be there and untouched; then nothing is called, so that what was found stays in
    /// registers. Returned through memory, field by field, it is read back before it is written: some 10 ns, more than all
    /// the rest.
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
        // A writer that overtakes again and again is met by giving up for now, not by looping.
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

    /// Blocks (bytes, of a stream) that are published and not looked at yet. Looks again where it knows of none.
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
            // What is behind the head is not published, whatever lies there.
            if self.cursor == self.head {
                return Err(self.why_nothing());
            }
        }
        Ok(())
    }

    #[cold]
    fn why_nothing(&mut self) -> Nothing {
        // What was taken is told before it is said that there is nothing more: the writer may be waiting for it.
        self.tell();
        // Acquire: the last head was published before the end was said.
        let ended = self.words.writer.0.ended.load(Ordering::Acquire);
        let retired = self.words.keeper.0.retired.load(Ordering::Acquire);
        if ended == 0 && retired == 0 && !self.is_cut {
            return Nothing::Yet;
        }
        // Whom the writer met before the end has a place by now, if it had none when we looked: what is published is its.
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

    /// Was nothing of this block overwritten up to now? To be asked when one is through with its bytes.
    #[inline]
    pub fn intact(&self, seen: &Seen) -> bool {
        // Acquire: nothing that was looked at before is looked at after this.
        fence(Ordering::Acquire);
        // A reader that holds the ring is told that it no longer does before anything of its is overwritten. Its place is
        // written rarely, the writer's words with every block: looking there would take the line from the writer each time.
        if self.contract.holds() && self.is_granted() {
            return true;
        }
        self.layout.intact(seen, &self.words)
    }

    /// Is the contract still what was granted? The writer says what a reader is demoted to, and whose place it was when it
    /// is gone, before it begins to overwrite its blocks, with a fence between (`Writer::begin`).
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

    /// Goes on where there is something again, and counts what was lost.
    #[cold]
    fn overtaken(&mut self) {
        // Acquire: as in `refresh`.
        let head = self.words.writer.0.head.load(Ordering::Acquire).max(self.head);
        let units = self.layout.units();
        let wanted = match self.contract {
            OnFull::Shared => {
                self.words.writer.0.shared.load(Ordering::Relaxed).clamp(head.saturating_sub(units / 2), head)
            }
            // Half a ring gives both sides room; the boundary of a layout without an array is the writer's word.
            _ => head.saturating_sub(units / 2),
        };
        let to = match self.layout.boundary(wanted, head, &self.words).min(head) {
            to if to > self.cursor => to,
            // The writer's words changed in between, or lie. It goes on all the same, for the block at the cursor is gone.
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

    /// Where units do not count blocks, the next block says how many there were before it.
    #[inline]
    fn count_missing(&mut self, seen: &Seen) {
        if let Some(expected) = self.number.filter(|&expected| expected != seen.number) {
            self.counters.lost += u64::from(seen.number.wrapping_sub(expected));
            self.page.wait.0.lost.store(self.counters.lost, Ordering::Relaxed);
        }
        self.number = Some(seen.number);
    }

    /// Everything looked at so far is taken: the writer may overwrite it. Fails where the last block was overwritten while
    /// it was looked at: what was read of it is worth nothing.
    #[inline]
    pub fn take(&mut self, seen: &Seen) -> Result<(), Overtaken> {
        let whole = self.go_past(seen);
        self.pass(seen.position + seen.units);
        whole
    }

    /// Goes on behind this block, which stays held: for who has forwarded it, and [passes](Reader::pass) it when others
    /// are through with it. Fails as [`take`](Reader::take) does.
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

    /// Everything before `unit` is taken; blocks after it that were looked at are not. For who looks ahead, or forwards.
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
            // A store and no more: nobody sleeps for such a reader, and what it has not told is dropped for everybody.
            OnFull::DropNewest => self.tell(),
            // A writer that waits is told when it is worth waking.
            _ if self.is_worth_telling() => self.tell(),
            _ => {}
        }
    }

    /// Was an eighth of the ring taken since the writer was told, of its units or of its bytes?
    #[inline]
    fn is_worth_telling(&self) -> bool {
        self.position - self.told >= (self.layout.units() / 8).max(1)
            // What a hostile writer says of its bytes makes this ring too often or too rarely, and no more.
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
        // Release: what was looked at was looked at before the writer overwrites it.
        self.page.position.0.store(self.position, Ordering::Release);
        if self.contract == OnFull::Wait {
            doorbell::full();
            if self.words.counts.0.wait.load(Ordering::Relaxed) == ASLEEP {
                doorbell::ring(&self.page.wait.0.bell);
            }
        }
    }

    /// Was it said that nothing will come any more, after everything was looked at? Then it is so for ever.
    pub fn is_done(&self) -> bool {
        self.over.is_some()
    }

    /// Looks whether the writer is gone without anybody having said so: its keeper may have died before it. What it has
    /// published is still there. Makes a system call; [`wait`](Reader::wait) does it where nothing happens for long. Says
    /// whether it is found gone by this look.
    pub fn look_after_writer(&mut self) -> bool {
        // What a dead process stored was stored before the kernel cut its line: the head that is looked at next is the last.
        let found = !self.is_cut && self.line.as_ref().is_some_and(Lifeline::is_cut);
        self.is_cut |= found;
        found
    }

    /// The line that is cut when the writer is gone.
    #[cfg(not(loom))]
    pub(crate) fn line(&self) -> Option<&Lifeline> {
        self.line.as_ref()
    }

    /// Was the ring removed, so that there will be no other of it?
    pub fn is_removed(&self) -> bool {
        // Relaxed: nothing that lies in memory is looked at because of it.
        self.words.keeper.0.retired.load(Ordering::Relaxed) & REMOVED != 0
    }

    /// What somebody else needs to sleep in this reader's place.
    pub fn sleeper(&self) -> super::sleeper::Sleeper {
        super::sleeper::Sleeper {
            words: self.words.clone(),
            page: self.page.clone(),
            slot: self.slot,
            serial: self.serial,
            cursor: self.started.then_some(self.cursor),
        }
    }

    /// Waits until there is a block to look at, or none will come; until `deadline` at most.
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

    /// Says whether it was woken by the bell.
    fn sleep(&mut self, timed: bool, left: Option<Duration>) -> bool {
        self.counters.waits += 1;
        // Relaxed, as all that is looked at up to the sleep: the fence orders it behind what was done before the bell was rung,
        // and what is found there is looked at again.
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
        // The words that make a look worthwhile, looked at after it was said that we sleep.
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
