//! The memory of a queue: words on the heap or in a shared map. The queues give the words a meaning.

use base::atomic::AtomicU64;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Distance in words between words of different writers: two cache lines, because processors fetch lines in pairs. The
/// model checker has no lines, and is faster with fewer words.
pub const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 16 };

/// Most slots of one queue.
pub const CAPACITY_MAX: usize = 1 << 24;

/// Memory that both sides of a queue see, zero before the first of them looks.
///
/// Each side of a queue has its own value, so shared ownership must keep the words alive: an `Arc`, or a map of the
/// same file. For speed, words should begin at a multiple of 128 bytes.
///
/// # Safety
///
/// `words` gives the same words each time until `self` is dropped, also after `self` was moved. In this process they
/// are accessed as atomics only. Other processes may do as they like with them.
pub unsafe trait Memory: Send {
    /// The words.
    fn words(&self) -> &[AtomicU64];
}

/// Memory of this process.
#[derive(Clone)]
pub struct Heap {
    words: Arc<[AtomicU64]>,
    /// Index of the first word that begins a line.
    start: usize,
}

impl Heap {
    pub(super) fn new(count: usize) -> Heap {
        let words: Arc<[AtomicU64]> = (0..count + LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let start = words.as_ptr().align_offset(LINE_WORDS * size_of::<u64>()).min(LINE_WORDS);
        Heap { words, start }
    }
}

// SAFETY: the words are behind an `Arc` that this value keeps, and only this method gives access to them.
unsafe impl Memory for Heap {
    fn words(&self) -> &[AtomicU64] {
        &self.words[self.start..]
    }
}

/// The memory does not fit the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The capacity is 0, not a power of two, or more than [`CAPACITY_MAX`].
    Capacity(usize),
    /// There are fewer words than the queue needs.
    Words {
        /// Words that the memory has.
        found: usize,
        /// Words that the queue needs.
        needed: usize,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Capacity(capacity) => {
                write!(out, "a queue holds a power of two of entries, {CAPACITY_MAX} at most, not {capacity}")
            }
            Misfit::Words { found, needed } => write!(out, "the queue takes {needed} words, there are {found}"),
        }
    }
}

impl std::error::Error for Misfit {}

pub(super) fn check_capacity(capacity: usize) -> Result<(), Misfit> {
    if capacity.is_power_of_two() && capacity <= CAPACITY_MAX { Ok(()) } else { Err(Misfit::Capacity(capacity)) }
}

/// A memory with its words looked up once, so that an access costs no call.
pub(super) struct Region<M> {
    words: NonNull<[AtomicU64]>,
    _memory: M,
}

// SAFETY: the words are atomics, which any thread may use, and the memory that keeps them may be sent.
unsafe impl<M: Send> Send for Region<M> {}

impl<M: Memory> Region<M> {
    pub(super) fn new(memory: M, needed: usize) -> Result<Region<M>, Misfit> {
        let words = NonNull::from(memory.words());
        if words.len() < needed {
            return Err(Misfit::Words { found: words.len(), needed });
        }
        Ok(Region { words, _memory: memory })
    }
}

impl<M> Region<M> {
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `Memory` promises that the words stay in place as long as the memory is kept, and `_memory` keeps it.
        unsafe { self.words.as_ref() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_on_the_heap_begin_a_line() {
        for count in [0, 1, 16, 1000] {
            let heap = Heap::new(count);
            assert!(heap.words().len() >= count);
            assert_eq!(heap.words().as_ptr().addr() % 128, 0);
        }
    }

    #[test]
    fn capacities() {
        for capacity in [1, 2, 64, CAPACITY_MAX] {
            assert_eq!(check_capacity(capacity), Ok(()));
        }
        for capacity in [0, 3, CAPACITY_MAX + 1, CAPACITY_MAX * 2, usize::MAX] {
            assert_eq!(check_capacity(capacity), Err(Misfit::Capacity(capacity)));
        }
    }

    #[test]
    fn too_few_words_are_refused() {
        let found = Heap::new(0).words().len();
        let misfit = Region::new(Heap::new(0), found + 1).err();
        assert_eq!(misfit, Some(Misfit::Words { found, needed: found + 1 }));
    }
}
