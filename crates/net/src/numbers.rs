//! Numbers for flows and listeners, for people: no two of a daemon's interfaces have the same, though each interface counts in a process
//! of its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers in a row. The next process counts from the next multiple on.
const BLOCK: u64 = 1_000_000;

/// Blocks between two of one process. More processes than that have no daemon.
const STRIDE: u64 = 1 << 24;

/// The numbers of one process.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    block: u64,
    taken: AtomicU64,
}

impl Numbers {
    /// Those of the process that has this block.
    pub(crate) fn of(block: u64) -> Numbers {
        Numbers { block, taken: AtomicU64::new(0) }
    }

    /// A number that no flow, listener or trace had before.
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
