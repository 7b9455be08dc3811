//! How much of a ring's payload is in use: a writer that goes round in a part of it that fits into the cache is faster than
//! one that goes through all of it, as long as its readers keep up.
//!
//! [`ActiveWindow::Auto`] finds that part by itself, as the papers of Streamline have it: halve it until the ring is full, double it
//! once, and try again after a while. It is looked at where the writer stops anyhow, every quarter of a ring.
//!
//! Less room is a loss for readers that the writer does not wait for. So while there is one, all is in use.

/// How much of a ring of descriptors is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveWindow {
    /// All of it.
    #[default]
    Whole,
    /// So many bytes, rounded up to a power of two.
    Bytes(u64),
    /// As little as will do, but so many bytes at least.
    Auto {
        /// The least.
        least: u64,
    },
}

impl ActiveWindow {
    /// [`ActiveWindow::Auto`] down to what is surely in a processor's own cache.
    pub const AUTO: ActiveWindow = ActiveWindow::Auto { least: 64 << 10 };
}

/// Looks between one search and the next: some hundred times around the ring.
const SETTLED: u32 = 1000;

/// The search for a active window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Looks until it is begun anew; 0 while it goes on.
    settled: u32,
    /// Where the payload stood when the active window was last changed.
    changed_at: u64,
}

/// What the ring is like when the active window is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Bytes in use now.
    pub window: u64,
    /// Bytes there are.
    pub all: u64,
    /// Bytes written so far, and skipped.
    pub bytes: u64,
    /// Was the ring full for somebody since the last look?
    pub was_full: bool,
    /// Does the writer wait for everybody who reads?
    pub waits_for_all: bool,
}

impl Search {
    /// How many bytes to use from now on.
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
            // What fills the ring now and then is a reader that is slow now and then: it gets room when the search is over.
            let over = self.settled == 0;
            return if over && was_full { (window * 2).min(all) } else { window };
        }
        // Whether a active window is too small shows once the writer has come round in it.
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
