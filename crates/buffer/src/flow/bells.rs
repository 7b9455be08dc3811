//! One doorbell for all channels of an application, in each direction: a pipe, a word that says who sleeps, and a bit for each
//! channel with news.
//!
//! A pipe, not an eventfd: each side has an end of its own. Both sides of an eventfd share one file description, so that an
//! application could take `O_NONBLOCK` from it, and the driver would block in it.
//!
//! Both sides write the page. It holds hints only: what lies in a channel decides, so that a side that writes nonsense here
//! keeps news from itself and wakes the other in vain, which costs the other a system call a ring at most.
//!
//! Pairing: the ringer sets the bit, then looks at `asleep`; the sleeper sets `asleep`, then looks at the bits. Between the two
//! steps of each is a fence, so that one of them sees the other. The ringer's bit is a Release: who takes it (Acquire) sees what
//! the ringer wrote into the channel before.
//!
//! Under the model checker a word stands for the pipe (`bells/model.rs`).

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod pipe;

#[cfg(loom)]
use model::Wire;
#[cfg(not(loom))]
pub use pipe::Handles;
#[cfg(not(loom))]
use pipe::Wire;

use crate::shared::words::{Shared, Words};
use base::atomic::{AtomicU64, Ordering, fence};

/// Channels of one application at most; a model has few.
pub const CHANNELS: usize = if cfg!(loom) { 64 } else { 1024 };

const WORDS: usize = CHANNELS / 64;

/// One direction.
#[derive(Debug)]
#[repr(C, align(128))]
struct Direction {
    /// Not 0: the side that is rung sleeps, or is about to.
    asleep: AtomicU64,
    _asleep: [AtomicU64; 15],
    /// Channels with news.
    news: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct BellWords {
    /// The application rings the driver.
    driver: Direction,
    /// The driver rings the application.
    application: Direction,
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for BellWords {}

/// One side's doorbells: its own, which the other side rings, and the other's.
#[derive(Debug)]
pub struct Bells {
    words: Shared<BellWords>,
    is_driver: bool,
    /// What wakes this side, and by what this side wakes the other.
    wire: Wire,
}

impl Bells {
    fn sides(&self) -> (&Direction, &Direction) {
        match self.is_driver {
            true => (&self.words.driver, &self.words.application),
            false => (&self.words.application, &self.words.driver),
        }
    }

    /// Says to the other side that this channel has news, and wakes it where it sleeps. A channel number past the last is none.
    pub fn ring(&self, channel: usize) {
        let (_, theirs) = self.sides();
        let Some(word) = theirs.news.get(channel / 64) else { return };
        word.fetch_or(1 << (channel % 64), Ordering::Release);
        fence(Ordering::SeqCst);
        if theirs.asleep.load(Ordering::Relaxed) != 0 {
            self.wire.pull();
        }
    }

    /// Calls `look` for each channel with news, and forgets them. News that come meanwhile are kept.
    pub fn news(&self, mut look: impl FnMut(usize)) {
        let (mine, _) = self.sides();
        for (at, word) in mine.news.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                look(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Says that this side is about to sleep on [`fd`](Self::fd). `false`: there are news, do not sleep.
    pub fn fall_asleep(&self) -> bool {
        let (mine, _) = self.sides();
        mine.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let quiet = mine.news.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        if !quiet {
            mine.asleep.store(0, Ordering::Relaxed);
        }
        quiet
    }

    /// Says that this side is awake, and forgets what woke it.
    pub fn awake(&self) {
        let (mine, _) = self.sides();
        mine.asleep.store(0, Ordering::Relaxed);
        self.wire.clear();
    }
}
