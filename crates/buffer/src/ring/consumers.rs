//! The writer's view of its readers: which ones hold the ring, sleep, or get demoted.
//!
//! Each reader writes its own page, and may be broken or hostile. The writer reads each word once
//! and ignores implausible values: a position that moves backwards or past the head.

use super::contract::{Hold, OnFull};
use super::doorbell;
use super::words::{ASLEEP, AWAKE, READERS, ReaderPage, RingWords, TIMED};
use crate::shared::lifeline::Lifeline;
use crate::shared::words::Shared;
use base::atomic::Ordering;
use std::time::Instant;

/// A reader, as its keeper announces it to the writer.
#[derive(Clone, Debug)]
pub struct NewReader {
    /// Its place among the ring's readers.
    pub slot: usize,
    /// The keeper's number for it. A place is used again, a number is not.
    pub serial: u32,
    /// Its page.
    pub page: Shared<ReaderPage>,
    /// Cut when the reader is gone. A reader without a line is gone only when the keeper says so.
    pub line: Option<Lifeline>,
    /// The contract that was granted to it.
    pub contract: OnFull,
    /// How long it may hold a full ring.
    pub hold: Hold,
}

/// A change among a ring's readers.
#[derive(Clone, Debug)]
pub enum Change {
    /// A reader joined.
    Joined(NewReader),
    /// The reader with this number left, or died.
    Left(u32),
}

/// How a writer learns from its keeper who joined and left. Called when the ring's epoch has changed.
pub trait Membership: Send {
    /// Everything since the last call, in order.
    fn changes(&mut self) -> Vec<Change>;
}

#[derive(Debug)]
struct Consumer {
    reader: NewReader,
    contract: OnFull,
    position: u64,
    /// Since when it has been holding a full ring, and the position that it must reach for a new time limit.
    holding: Option<(Instant, u64)>,
    /// Its group step as last believed.
    stamp: u64,
}

/// A reader that holds the room a block needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A Wait reader, in this place.
    Wait(usize),
    /// A DropNewest reader.
    DropNewest,
}

/// Which readers slept when readers were signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slept {
    /// No reader that had to be woken.
    Nobody,
    /// A reader that would have woken within its latency bound.
    Timed,
    /// A reader that would not have woken by itself.
    Untimed,
}

/// The readers of one ring.
#[derive(Debug, Default)]
pub struct Consumers {
    all: Vec<Consumer>,
    /// The readers' pages, close together because every block reads them.
    pages: Vec<Shared<ReaderPage>>,
    /// Lowest position of the holding readers, as of the last look: everything before it is free.
    held_from: u64,
    holders: usize,
    demoted: u64,
}

impl Consumers {
    /// Number of readers.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The furthest position that any reader says it has reached; `None` without readers.
    pub fn furthest(&self, head: u64) -> Option<u64> {
        // Relaxed: the writer overwrites nothing, and spares nothing, because of it.
        self.pages.iter().map(|page| page.position.0.load(Ordering::Relaxed).min(head)).max()
    }

    /// Readers that were demoted so far.
    pub fn demoted(&self) -> u64 {
        self.demoted
    }

    /// Applies changes. Readers that joined begin at `head`, after `blocks` blocks.
    pub fn apply(&mut self, changes: Vec<Change>, words: &RingWords, head: u64, blocks: u64) {
        for change in changes {
            match change {
                Change::Joined(reader) => self.join(reader, words, head, blocks),
                Change::Left(serial) => self.leave(serial, words),
            }
        }
        self.pages = self.all.iter().map(|consumer| consumer.reader.page.clone()).collect();
        self.holders = self.all.iter().filter(|consumer| consumer.contract.holds()).count();
        self.look_again(head);
        words.counts.0.readers.store(self.all.len() as u32, Ordering::Relaxed);
    }

    fn join(&mut self, reader: NewReader, words: &RingWords, head: u64, blocks: u64) {
        let Some(slot) = words.slots.get(reader.slot).filter(|_| self.all.len() < READERS) else {
            return;
        };
        slot.start.store(head, Ordering::Relaxed);
        slot.number.store(blocks as u32, Ordering::Relaxed);
        slot.contract.store(reader.contract.code(), Ordering::Relaxed);
        // Release: a reader that sees its number in its place sees where it begins.
        slot.serial.store(reader.serial, Ordering::Release);
        doorbell::ring(&slot.bell);
        self.all.push(Consumer { contract: reader.contract, reader, position: head, holding: None, stamp: 0 });
    }

    /// Removes readers whose line is cut: the keeper may have died first. Makes a system call for each reader.
    #[cold]
    pub fn look_after(&mut self, words: &RingWords, head: u64) {
        let lines = self.all.iter().filter(|consumer| consumer.reader.line.as_ref().is_some_and(Lifeline::is_cut));
        let left: Vec<Change> = lines.map(|consumer| Change::Left(consumer.reader.serial)).collect();
        if !left.is_empty() {
            self.apply(left, words, head, 0);
        }
    }

    fn leave(&mut self, serial: u32, words: &RingWords) {
        self.all.retain(|consumer| {
            let stays = consumer.reader.serial != serial;
            if !stays {
                let slot = &words.slots[consumer.reader.slot];
                // Its number too: if it lives after all, it must not take the next reader's contract for its own.
                slot.serial.store(0, Ordering::Relaxed);
                slot.contract.store(0, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Whether any reader holds the ring.
    #[inline]
    pub fn any_holds(&self) -> bool {
        self.holders > 0
    }

    /// Whether there are readers, and all of them hold the ring.
    pub fn all_hold(&self) -> bool {
        self.holders > 0 && self.holders == self.all.len()
    }

    /// Everything before this unit is free, as of the last look.
    #[inline]
    pub fn held_from(&self) -> u64 {
        self.held_from
    }

    /// Reads the positions of the holding readers. Gives a reader that is in the way, or `None` if `fits` accepts the
    /// lowest position. A DropNewest reader comes first, because the writer does not wait for it.
    #[cold]
    pub fn look(&mut self, head: u64, fits: impl Fn(u64) -> bool) -> Option<Holder> {
        self.look_again(head);
        if fits(self.held_from) {
            return None;
        }
        let mut waits = None;
        for (place, consumer) in self.all.iter().enumerate() {
            match consumer.contract {
                OnFull::DropNewest if !fits(consumer.position) => return Some(Holder::DropNewest),
                OnFull::Wait if !fits(consumer.position) => waits = waits.or(Some(Holder::Wait(place))),
                _ => {}
            }
        }
        waits
    }

    fn look_again(&mut self, head: u64) {
        self.held_from = head;
        for consumer in &mut self.all {
            if !consumer.contract.holds() {
                continue;
            }
            // Acquire: the reader's last look at these bytes comes before this writer overwrites them.
            let position = consumer.reader.page.position.0.load(Ordering::Acquire);
            if (consumer.position..=head).contains(&position) {
                consumer.position = position;
            }
            self.held_from = self.held_from.min(consumer.position);
        }
    }

    /// Demotes readers that were in the way for longer than their limit; says whether there was one. A demoted reader
    /// becomes an Overwrite reader, and sees that in its place. Its time starts again when it has taken an eighth of
    /// the units it held. A working reader takes more than that. With a smaller step, a reader could keep the ring for
    /// ever by taking one unit just in time, again and again.
    #[cold]
    pub fn demote(&mut self, words: &RingWords, head: u64, fits: impl Fn(u64) -> bool) -> bool {
        let mut any = false;
        let now = Instant::now();
        for consumer in &mut self.all {
            consumer.holding = consumer.holding.filter(|(_, goal)| consumer.position < *goal);
            let (true, Some(limit)) = (consumer.contract.holds() && !fits(consumer.position), consumer.reader.hold)
            else {
                continue;
            };
            let goal = consumer.position + (head - consumer.position).div_ceil(8);
            let (since, _) = *consumer.holding.get_or_insert((now, goal));
            if now.duration_since(since) >= limit {
                consumer.contract = OnFull::Overwrite;
                words.slots[consumer.reader.slot].contract.store(consumer.contract.code(), Ordering::Relaxed);
                self.demoted += 1;
                any = true;
            }
        }
        if any {
            self.holders = self.all.iter().filter(|consumer| consumer.contract.holds()).count();
            self.look_again(head);
        }
        any
    }

    /// The reader in this place, and how much longer it may hold the ring (`None`: without limit).
    pub fn waited_for(&self, place: usize) -> Option<(&NewReader, Option<std::time::Duration>)> {
        let consumer = self.all.get(place)?;
        let left = consumer.reader.hold.map(|limit| match consumer.holding {
            Some((since, _)) => limit.saturating_sub(since.elapsed()),
            None => limit,
        });
        Some((&consumer.reader, left))
    }

    /// Wakes sleeping readers: all if `timed_too`, else those that do not wake by themselves. Says who slept.
    #[inline]
    pub fn signal(&self, words: &RingWords, timed_too: bool) -> Slept {
        // Reads all pages first, without branches: with several readers this is what a block costs the writer.
        let waits = self.pages.iter().fold(0, |waits, page| waits | page.wait.0.wait.load(Ordering::Relaxed));
        match waits {
            AWAKE => Slept::Nobody,
            TIMED if !timed_too => Slept::Nobody,
            _ => self.wake(words, timed_too),
        }
    }

    #[cold]
    fn wake(&self, words: &RingWords, timed_too: bool) -> Slept {
        let mut slept = Slept::Nobody;
        for consumer in &self.all {
            let wait = consumer.reader.page.wait.0.wait.load(Ordering::Relaxed);
            if wait == ASLEEP || (timed_too && wait != AWAKE) {
                doorbell::ring(&words.slots[consumer.reader.slot].bell);
                slept = slept.max(if wait == ASLEEP { Slept::Untimed } else { Slept::Timed });
            }
        }
        slept
    }

    /// The position at which overtaken Shared readers go on: where the group's latest step began. Ignores a reader that
    /// moves backwards, or beyond what is written.
    pub fn shared(&mut self, before: u64, head: u64, units: u64) -> u64 {
        let mut shared = before;
        for consumer in &mut self.all {
            if consumer.contract != OnFull::Shared {
                continue;
            }
            let page = &consumer.reader.page.wait.0;
            // Relaxed, both: where a step began is a hint, believed within limits, and may be a step old.
            let stamp = page.stamp.load(Ordering::Relaxed);
            if stamp <= consumer.stamp {
                continue;
            }
            consumer.stamp = stamp;
            let previous = page.previous.load(Ordering::Relaxed);
            if (consumer.position..=head).contains(&previous) {
                consumer.position = previous;
                shared = shared.max(previous);
            }
        }
        shared.clamp(head.saturating_sub(units), head)
    }

    /// A holding reader that still needs `unit`, and its bell as it was before its position was read.
    pub fn needed_by(&mut self, unit: u64, head: u64) -> Option<super::sleeper::Needed> {
        self.all.iter_mut().filter(|consumer| consumer.contract.holds()).find_map(|consumer| {
            // Acquire: sees what the reader did before it rang, moved or left; it will not ring again for that.
            let bell = consumer.reader.page.wait.0.bell.load(Ordering::Acquire);
            // Relaxed: it only chooses the reader to wait for. Another look decides what may be overwritten.
            let position = consumer.reader.page.position.0.load(Ordering::Relaxed);
            if (consumer.position..=head).contains(&position) {
                consumer.position = position;
            }
            let rings = consumer.contract == OnFull::Wait;
            (consumer.position <= unit).then(|| super::sleeper::Needed {
                page: consumer.reader.page.clone(),
                bell,
                rings,
                has_line: consumer.reader.line.is_some(),
                hold: None,
            })
        })
    }

    /// The bell of the reader in this place, as it is now. Call before reading the reader's position.
    pub fn bell_of(&self, place: usize) -> Option<super::sleeper::Needed> {
        let (reader, hold) = self.waited_for(place)?;
        // Acquire: sees what the reader did before it rang.
        let bell = reader.page.wait.0.bell.load(Ordering::Acquire);
        let (page, has_line) = (reader.page.clone(), reader.line.is_some());
        // A little longer than it may hold the ring, so that the next look finds its time over.
        let hold = hold.map(|hold| hold + std::time::Duration::from_micros(50));
        Some(super::sleeper::Needed { page, bell, rings: true, has_line, hold })
    }

    /// Lowest position of all holding readers now: a forwarder may advance its own reading to it.
    pub fn passed(&mut self, head: u64) -> u64 {
        self.look_again(head);
        self.held_from
    }
}
