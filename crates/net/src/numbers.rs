//! Numbers of flows and listeners, for users: unique among a daemon's interfaces, though each process counts alone.

use std::sync::atomic::{AtomicU64, Ordering};

/// The length of a block of numbers. Each process counts in blocks of its own.
const BLOCK: u64 = 1_000_000;

/// Blocks between two blocks of one process. No daemon has more processes than that.
const STRIDE: u64 = 1 << 24;

/// The numbers of one process.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    block: u64,
    taken: AtomicU64,
}

impl Numbers {
    /// The numbers of the process with this block.
    pub(crate) fn of(block: u64) -> Numbers {
        Numbers { block, taken: AtomicU64::new(0) }
    }

    /// A number that no flow, listener or trace has had.
    pub(crate) fn take(&self) -> u64 {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        (self.block + taken / BLOCK * STRIDE) * BLOCK + taken % BLOCK + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_count_from_one_and_never_meet() {
        let [first, second] = [0, 1].map(Numbers::of);
        assert_eq!([(); 2].map(|()| first.take()), [1, 2]);
        assert_eq!(second.take(), 1_000_001);
        let full = Numbers { block: 0, taken: AtomicU64::new(BLOCK - 1) };
        assert_eq!([(); 2].map(|()| full.take()), [1_000_000, STRIDE * BLOCK + 1]);
    }
}
