//! Sleeping in a reader's place, on its bell and on others at once (futex_waitv(2), Linux 5.16).
//!
//! Not a reader: it moves nothing. While a sleeper sleeps, its reader must not, because they share one wait word.

use super::doorbell;
use super::words::{ASLEEP, AWAKE, ReaderPage, RingWords};
use crate::shared::futex::wait_any;
use crate::shared::lifeline;
use crate::shared::words::Shared;
use base::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a thread needs to sleep in a reader's place.
#[derive(Clone, Debug)]
pub struct Sleeper {
    pub(super) words: Shared<RingWords>,
    pub(super) page: Shared<ReaderPage>,
    pub(super) slot: usize,
    pub(super) serial: u32,
    /// The unit to read next; `None` where the writer has not met the reader yet.
    pub(super) cursor: Option<u64>,
}

impl Sleeper {
    /// Sleeps until there is a block at the cursor, until one of `others` no longer has the value beside it, or until
    /// `deadline`. May wake early: look again.
    pub fn sleep(&self, others: &[(&AtomicU32, u32)], deadline: Option<Instant>) {
        let bell = &self.words.slots[self.slot].bell;
        // Relaxed, as in `Reader::sleep`: the fence orders it, and the result is looked at again.
        let seen = bell.load(Ordering::Relaxed);
        let wait = &self.page.wait.0.wait;
        wait.store(ASLEEP, Ordering::Relaxed);
        // A heavy fence pairs with the writer's fences, be they light or full.
        let is_met = doorbell::heavy();
        if !self.is_due() {
            let soon = if is_met { None } else { Instant::now().checked_add(doorbell::LOOK) };
            let deadline = [deadline, soon].into_iter().flatten().min();
            let mut words = vec![(bell, seen)];
            words.extend_from_slice(others);
            wait_any(&words, deadline);
        }
        wait.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether there is a block to read, or the end.
    pub fn is_due(&self) -> bool {
        let there = match self.cursor {
            Some(cursor) => self.words.writer.0.head.load(Ordering::Relaxed) != cursor,
            None => self.words.slots[self.slot].serial.load(Ordering::Relaxed) == self.serial,
        };
        there
            || self.words.writer.0.ended.load(Ordering::Relaxed) != 0
            || self.words.keeper.0.retired.load(Ordering::Relaxed) != 0
    }
}

/// A reader that still needs a unit, and the bell that it rings when it moves, with the value from before the look.
#[derive(Clone, Debug)]
pub struct Needed {
    pub(super) page: Shared<ReaderPage>,
    pub(super) bell: u32,
    /// False for DropNewest readers, which do not ring.
    pub(super) rings: bool,
    /// The reader has a line: it may be gone although nothing says so.
    pub(super) has_line: bool,
    pub(super) hold: Option<Duration>,
}

impl Needed {
    /// The word to sleep on, and its value while nothing changes.
    pub fn word(&self) -> (&AtomicU32, u32) {
        (&self.page.wait.0.bell, self.bell)
    }

    /// When to look again even if the bell did not ring.
    pub fn deadline(&self) -> Option<Instant> {
        let longest = if self.rings { self.has_line.then_some(lifeline::LOOK) } else { Some(doorbell::LOOK) };
        [longest, self.hold].into_iter().flatten().min().and_then(|longest| Instant::now().checked_add(longest))
    }

    /// Sleeps until the reader has moved. May wake early: look again.
    pub fn sleep(&self) {
        wait_any(&[self.word()], self.deadline());
    }
}
