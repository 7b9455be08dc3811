//! Entries of a queue: values that are a fixed number of 64-bit words.
//!
//! Words are stored and loaded as relaxed atomics. So a slot that is read while a peer in another process writes to it
//! gives wrong numbers, never undefined behaviour. Not a serialisation: both sides are on one machine.

use crate::Descriptor;
use base::atomic::{AtomicU64, Ordering};

/// A value made of words; any words make a value.
///
/// `from_words(to_words(x))` is `x`. The receiver checks values from memory that another process writes.
pub trait Entry: Copy + Send + 'static {
    /// An array of `u64`.
    type Words: Words;

    /// Encodes the value.
    fn to_words(self) -> Self::Words;

    /// Decodes any words.
    fn from_words(words: Self::Words) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl<const COUNT: usize> Sealed for [u64; COUNT] {}
}

/// `[u64; COUNT]`: the contents of a slot. At least one word.
pub trait Words: Copy + sealed::Sealed {
    /// Number of words.
    const COUNT: usize;

    /// Stores into the first cells. Ignores surplus cells, and words without a cell.
    fn store(self, cells: &[AtomicU64]);

    /// Loads from the first cells; a word without a cell is zero.
    fn load(cells: &[AtomicU64]) -> Self;
}

impl<const COUNT: usize> Words for [u64; COUNT] {
    const COUNT: usize = {
        assert!(COUNT > 0, "an entry has a word at least");
        COUNT
    };

    #[inline]
    fn store(self, cells: &[AtomicU64]) {
        for (cell, word) in cells.iter().zip(self) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn load(cells: &[AtomicU64]) -> [u64; COUNT] {
        let mut words = [0; COUNT];
        for (cell, word) in cells.iter().zip(&mut words) {
            *word = cell.load(Ordering::Relaxed);
        }
        words
    }
}

impl Entry for u64 {
    type Words = [u64; 1];

    #[inline]
    fn to_words(self) -> [u64; 1] {
        [self]
    }

    #[inline]
    fn from_words([word]: [u64; 1]) -> u64 {
        word
    }
}

impl<const COUNT: usize> Entry for [u64; COUNT] {
    type Words = [u64; COUNT];

    #[inline]
    fn to_words(self) -> [u64; COUNT] {
        self
    }

    #[inline]
    fn from_words(words: [u64; COUNT]) -> [u64; COUNT] {
        words
    }
}

impl Entry for Descriptor {
    type Words = [u64; 4];

    #[inline]
    fn to_words(self) -> [u64; 4] {
        // SAFETY: 32 bytes of integers in C layout without padding; a test beside `Descriptor` pins the offsets.
        unsafe { std::mem::transmute(self) }
    }

    #[inline]
    fn from_words(words: [u64; 4]) -> Descriptor {
        // SAFETY: the same size, and every bit pattern is a value of every field.
        unsafe { std::mem::transmute(words) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Flags;
    use base::id::{Class, Generation, RingId};

    fn check<T: Entry + PartialEq + std::fmt::Debug>(entry: T) {
        let cells: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
        entry.to_words().store(&cells);
        assert_eq!(T::from_words(T::Words::load(&cells)), entry);
        let untouched = cells.iter().skip(T::Words::COUNT).all(|cell| cell.load(Ordering::Relaxed) == u64::MAX);
        assert!(untouched, "{entry:?} wrote further than its words");
    }

    #[test]
    fn what_goes_in_comes_out() {
        check(0u64);
        check(u64::MAX - 1);
        check([1u64, 2, 3, 4, 5, 6, 7]);
        let mut descriptor =
            Descriptor { pos: 1 << 40, time: 3, len: 4, class: Class(5), ring: RingId(6), ..Descriptor::default() };
        descriptor.generation = Generation(7);
        descriptor.set_wire(1500);
        descriptor.set_flags(Flags::FIRST);
        check(descriptor);
    }
}
