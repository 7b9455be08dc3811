//! One doorbell for all channels of an application, in each direction: a pipe, a word that says that the side sleeps,
//! and a bit for each channel with news.
//!
//! A pipe, not an eventfd: each side has its own end. Both sides of an eventfd share one file description, so that an
//! application could clear `O_NONBLOCK`, and the driver would block.
//!
//! Both sides write the page. It holds hints only; the channels decide. A side that writes nonsense here misses news
//! itself and wakes the other side in vain, which costs that side at most one system call per ring.
//!
//! Pairing: the ringer sets the bit, then reads `asleep`. The sleeper sets `asleep`, then reads the bits. Each side
//! runs a fence in between, so that at least one sees the other's store. The ringer's bit is a Release: a side that
//! takes the bit (Acquire) sees what the ringer wrote into the channel before.
//!
//! Moves of `asleep`, which only its own side stores:
//!
//! | from | to | when |
//! |---|---|---|
//! | 0 | 1 | the side is about to sleep |
//! | 1 | 0 | the bits show news after all, or the side woke up |
//!
//! A side must not sleep between its store of 1 and its look at the bits: a ringer that read 0 does not write to the
//! pipe.
//!
//! Under the model checker a word replaces the pipe (`bells/model.rs`).

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

/// Most channels of one application; a model has few.
pub const CHANNELS: usize = if cfg!(loom) { 64 } else { 1024 };

const WORDS: usize = CHANNELS / 64;

#[derive(Debug)]
#[repr(C, align(128))]
struct Direction {
    /// Not 0: the side that is rung sleeps, or is about to.
    asleep: AtomicU64,
    _asleep: [AtomicU64; 15],
    /// Channels with news, a bit each.
    news: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct BellWords {
    driver: Direction,
    application: Direction,
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for BellWords {}

/// One side's doorbells: its own, which the other side rings, and the other side's.
#[derive(Debug)]
pub struct Bells {
    words: Shared<BellWords>,
    is_driver: bool,
    /// The ends of the pipes: the one that wakes this side, and the one that wakes the other.
    wire: Wire,
}

impl Bells {
    fn sides(&self) -> (&Direction, &Direction) {
        match self.is_driver {
            true => (&self.words.driver, &self.words.application),
            false => (&self.words.application, &self.words.driver),
        }
    }

    /// Tells the other side that this channel has news, and wakes it if it sleeps. Ignores a channel out of range.
    pub fn ring(&self, channel: usize) {
        let (_, theirs) = self.sides();
        let Some(word) = theirs.news.get(channel / 64) else { return };
        word.fetch_or(1 << (channel % 64), Ordering::Release);
        fence(Ordering::SeqCst);
        if theirs.asleep.load(Ordering::Relaxed) != 0 {
            self.wire.pull();
        }
    }

    /// Calls `look` for each channel with news, and clears them. News that come meanwhile are kept.
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

    /// Announces that this side is about to sleep on [`fd`](Self::fd). `false`: there are news, do not sleep.
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

    /// Announces that this side is awake, and empties its pipe.
    pub fn awake(&self) {
        let (mine, _) = self.sides();
        mine.asleep.store(0, Ordering::Relaxed);
        self.wire.clear();
    }
}
