//! How much of a ring's payload is in use. A writer that goes round in a part that fits into the cache is faster than
//! one that goes through the whole payload, as long as its readers keep up.
//!
//! [`ActiveWindow::Auto`] finds that part by itself, as in the papers of Streamline: halve it until the ring is full,
//! double it once, and try again after a while. The writer looks when it stops anyhow, every quarter of a ring.
//!
//! | state | at a look | next state | window |
//! |---|---|---|---|
//! | any | some reader is not waited for, or there is none | searching | whole payload |
//! | searching | the ring was full | settled for `SETTLED` looks | doubled |
//! | searching | less than two laps since the last change | searching | same |
//! | searching | otherwise | searching | halved, down to `least` |
//! | settled | looks remain | settled | same, even if the ring was full |
//! | settled | last look, the ring was full | searching | doubled |
//! | settled | last look, the ring was not full | searching | same |
//!
//! The window is never small while some reader is not waited for: such a reader would lose more with less room.

/// How much of the payload of a ring of descriptors is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveWindow {
    /// All of it.
    #[default]
    Whole,
    /// This number of bytes, rounded up to a power of two.
    Bytes(u64),
    /// As few bytes as are enough, but at least `least`.
    Auto {
        /// Lower bound in bytes.
        least: u64,
    },
}

impl ActiveWindow {
    /// [`ActiveWindow::Auto`] down to a size that surely fits into a processor's own cache.
    pub const AUTO: ActiveWindow = ActiveWindow::Auto { least: 64 << 10 };
}

/// Looks between one search and the next: some hundred times around the ring.
const SETTLED: u32 = 1000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Looks until the next search; 0 during a search.
    settled: u32,
    /// Payload position at which the active window last changed.
    changed_at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Bytes in use now.
    pub window: u64,
    /// Bytes of the whole payload.
    pub all: u64,
    /// Bytes written and skipped so far.
    pub bytes: u64,
    /// Whether the ring was too full for some block since the last look.
    pub was_full: bool,
    /// Whether there are readers, and the writer waits for all of them.
    pub waits_for_all: bool,
}

impl Search {
    /// The number of bytes to use from now on.
    pub fn look(&mut self, least: u64, look: Look) -> u64 {
        let Look { window, all, bytes, was_full, waits_for_all } = look;
        if !waits_for_all {
            *self = Search { settled: 0, changed_at: bytes };
            return all;
        }
        if was_full && self.settled == 0 {
            *self = Search { settled: SETTLED, changed_at: bytes };
            return (window * 2).min(all);
        }
        if self.settled > 0 {
            self.settled -= 1;
            // A reader that is slow now and then may fill the ring: the window grows only when the pause is over.
            let over = self.settled == 0;
            return if over && was_full { (window * 2).min(all) } else { window };
        }
        // A window that is too small shows only after the writer has gone round in it.
        if bytes - self.changed_at < 2 * window {
            return window;
        }
        self.changed_at = bytes;
        (window / 2).max(least.min(all).next_power_of_two()).min(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_until_it_is_full_doubles_once_and_tries_again() {
        let mut search = Search::default();
        let mut look = Look { window: 1 << 20, all: 1 << 20, bytes: 0, was_full: false, waits_for_all: true };
        let step = |search: &mut Search, look: &mut Look, was_full| {
            look.bytes += 4 << 20;
            look.window = search.look(1 << 12, Look { was_full, ..*look });
            look.window
        };
        assert_eq!(step(&mut search, &mut look, false), 1 << 19);
        assert_eq!(step(&mut search, &mut look, false), 1 << 18);
        assert_eq!(step(&mut search, &mut look, true), 1 << 19);
        for _ in 1..SETTLED {
            assert_eq!(step(&mut search, &mut look, false), 1 << 19);
        }
        assert_eq!(step(&mut search, &mut look, false), 1 << 19, "the last before the next search");
        for window in [18, 17, 16, 15, 14, 13, 12, 12, 12] {
            assert_eq!(step(&mut search, &mut look, false), 1 << window);
        }
        look.waits_for_all = false;
        assert_eq!(step(&mut search, &mut look, false), 1 << 20);
        look.waits_for_all = true;
        for _ in 0..3 * SETTLED {
            assert_eq!(step(&mut search, &mut look, true), 1 << 20, "a reader that is always slow has all of it");
        }
    }

    #[test]
    fn a_window_that_nobody_went_round_in_says_nothing() {
        let mut search = Search::default();
        let look = Look { window: 1 << 20, all: 1 << 20, bytes: 1 << 20, was_full: false, waits_for_all: true };
        assert_eq!(search.look(1, look), 1 << 20);
        assert_eq!(search.look(1, Look { bytes: 2 << 20, ..look }), 1 << 19);
    }
}
