//! Temporal slip: two sides that touch the same cache line take it from each other with every entry. So a side that has
//! caught up lets the other one get some lines ahead.
//!
//! The distance follows from positions, never from time. Its goal is learnt: it doubles after a wait that paid, and
//! halves after one that did not. A wait is bounded:
//!
//! - It ends when the other side does not move for [`IDLE_LOOKS`] (15 pauses, a fraction of a microsecond).
//! - It never takes more than [`LOOKS`] (127 pauses).
//! - It is tried more rarely the less it pays. Of entries that come singly, every sixty-fourth is late by the shorter
//!   time.
//!
//! This module does not sleep; doorbells are elsewhere.

use base::atomic::spin_loop;

/// Most looks in one wait, after 1, 2, 4 ... pauses, because each look takes a line from the other side.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 7 };

/// After this number of looks in a row without news, the other side counts as idle.
const IDLE_LOOKS: u32 = if cfg!(loom) { 1 } else { 4 };

/// Lowest and highest goal: how many lines the other side should be ahead.
const LINES: [u64; 2] = [2, 16];

const CACHE_LINE_WORDS: u64 = 8;

/// After waits that did not pay, up to two to this power opportunities are left out.
const RAREST: u32 = 6;

pub(super) struct Slip {
    /// In entries, between `least` and `most`.
    goal: u64,
    least: u64,
    most: u64,
    failures: u32,
    skip: u32,
}

impl Slip {
    /// For slots of `slot_words` words. The goal is at most an eighth of `capacity`, so it may be 0 in a small queue.
    pub(super) fn new(slot_words: usize, capacity: u64) -> Slip {
        let [least, most] =
            LINES.map(|lines| (lines * CACHE_LINE_WORDS / slot_words.max(1) as u64).max(2).min(capacity / 8));
        Slip { goal: least, least, most, failures: 0, skip: 0 }
    }

    #[inline]
    pub(super) fn goal(&self) -> u64 {
        self.goal
    }

    /// Waits a little for more entries if the `ready` ones are few; returns how many are ready then, as `look` says.
    #[inline]
    pub(super) fn wait(&mut self, ready: u64, look: impl FnMut() -> u64) -> u64 {
        if ready == 0 || ready >= self.goal {
            return ready;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return ready;
        }
        self.wait_for_more(ready, look)
    }

    fn wait_for_more(&mut self, mut ready: u64, mut look: impl FnMut() -> u64) -> u64 {
        let mut idle = 0;
        for round in 0..LOOKS {
            (0..1 << round).for_each(|_| spin_loop());
            let now = look();
            idle = if now > ready { 0 } else { idle + 1 };
            ready = ready.max(now);
            if ready >= self.goal {
                self.failures = 0;
                self.goal = (self.goal * 2).min(self.most);
                return ready;
            }
            if idle >= IDLE_LOOKS {
                break;
            }
        }
        if self.goal > self.least {
            self.goal = (self.goal / 2).max(self.least);
        } else {
            self.failures = (self.failures + 1).min(RAREST);
            self.skip = 1 << self.failures;
        }
        ready
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn goals() {
        let rows = [(1, 1024, [16, 128]), (2, 1024, [8, 64]), (5, 1024, [3, 25]), (8, 64, [2, 8]), (1, 64, [8, 8])];
        for (slot_words, capacity, expected) in rows {
            let slip = Slip::new(slot_words, capacity);
            assert_eq!([slip.least, slip.most], expected, "{slot_words} words, {capacity} slots");
        }
        for capacity in [1, 2, 4] {
            assert_eq!(Slip::new(1, capacity).goal(), 0, "nothing to wait for in {capacity} slots");
        }
    }

    #[test]
    fn waits_for_a_side_that_moves_and_further_the_next_time() {
        let mut slip = Slip::new(1, 1024);
        for goal in [16, 32, 64, 128, 128] {
            let mut ready = 1;
            let found = slip.wait(1, || {
                ready += goal / 4;
                ready
            });
            assert!((goal..2 * goal).contains(&found), "{found} of {goal}");
        }
    }

    #[test]
    fn takes_what_there_is_of_an_idle_side_and_asks_ever_more_rarely() {
        let mut slip = Slip::new(1, 1024);
        let mut looks = 0;
        for _ in 0..6400 {
            let found = slip.wait(3, || {
                looks += 1;
                3
            });
            assert_eq!(found, 3);
        }
        assert!(looks > IDLE_LOOKS && looks < 110 * IDLE_LOOKS, "{looks} looks");
    }

    #[test]
    fn a_side_that_crawls_is_not_waited_for_long() {
        let mut slip = Slip::new(1, 1024);
        slip.goal = slip.most;
        let mut ready = 1;
        slip.wait(1, || {
            ready += 1;
            ready
        });
        assert_eq!(ready, u64::from(LOOKS) + 1);
        assert_eq!(slip.goal(), slip.most / 2);
    }

    #[test]
    fn nothing_is_not_waited_for() {
        let mut slip = Slip::new(1, 1024);
        assert_eq!(slip.wait(0, || panic!("looked again")), 0);
    }
}
