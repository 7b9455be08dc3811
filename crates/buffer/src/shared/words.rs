//! Pages of words that several processes read and one (or two) write: atomics only.
//!
//! A peer may store anything at any time. So each word is loaded once, checked, and used from the local copy. No value
//! may make the code here or above crash, loop or read out of bounds.

use super::segment::Mapping;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A page layout that may lie in shared memory.
///
/// # Safety
///
/// The type is `repr(C)`, made of atomics (and padding) only, and all bytes zero is a value of it.
pub unsafe trait Words: Send + Sync + 'static {}

/// A page of words, and the owner of its memory.
pub struct Shared<T> {
    words: NonNull<T>,
    _owner: Arc<dyn Send + Sync>,
}

// SAFETY: only `&T` is ever lent, and `Words` asks for `T: Send + Sync`.
unsafe impl<T: Words> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for Shared<T> {}

impl<T: Words> Shared<T> {
    /// The words at `offset` of a map; `None` where they do not fit or are not aligned.
    pub fn in_mapping(mapping: &Arc<Mapping>, offset: usize) -> Option<Shared<T>> {
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= mapping.bytes());
        let words = mapping.first().as_ptr().wrapping_add(offset).cast::<T>();
        (fits && words.is_aligned()).then(|| Shared {
            words: NonNull::new(words).expect("inside a map"),
            _owner: Arc::<Mapping>::clone(mapping),
        })
    }

    /// Words in this process's own memory: for rings between threads, and for models.
    pub fn private(words: T) -> Shared<T> {
        let owner = Arc::new(words);
        Shared { words: NonNull::from(&*owner), _owner: owner }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { words: self.words, _owner: Arc::clone(&self._owner) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it lies in memory that `_owner` keeps, and is aligned (checked when made). As `Words` it consists of
        // atomics, so other processes may store to it at any time.
        unsafe { self.words.as_ref() }
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared").field(&self.words).finish()
    }
}

/// An array of words in shared memory, by absolute index; its length is a power of two.
pub struct SharedArray<T> {
    first: NonNull<T>,
    mask: u64,
    _owner: Arc<dyn Send + Sync>,
}

// SAFETY: as for `Shared`.
unsafe impl<T: Words> Send for SharedArray<T> {}
// SAFETY: as for `Shared`.
unsafe impl<T: Words> Sync for SharedArray<T> {}

impl<T: Words> SharedArray<T> {
    /// The `count` (a power of two) elements at `offset` of a map; `None` where they do not fit.
    pub fn in_mapping(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Option<SharedArray<T>> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let fits = count.is_power_of_two() && offset.checked_add(bytes).is_some_and(|end| end <= mapping.bytes());
        let first = mapping.first().as_ptr().wrapping_add(offset).cast::<T>();
        (fits && first.is_aligned()).then(|| SharedArray {
            first: NonNull::new(first).expect("inside a map"),
            mask: count as u64 - 1,
            _owner: Arc::<Mapping>::clone(mapping),
        })
    }

    /// An array in this process's own memory: for rings between threads, and for models.
    ///
    /// # Panics
    ///
    /// Where the number of elements is not a power of two.
    pub fn private(elements: Vec<T>) -> SharedArray<T> {
        assert!(elements.len().is_power_of_two(), "indices wrap by masking");
        let owner: Arc<Vec<T>> = Arc::new(elements);
        SharedArray { first: NonNull::from(&owner[0]), mask: owner.len() as u64 - 1, _owner: owner }
    }

    /// Number of elements.
    #[inline]
    pub fn count(&self) -> u64 {
        self.mask + 1
    }

    /// The element at `index` modulo the length.
    #[inline]
    pub fn at(&self, index: u64) -> &T {
        // SAFETY: the masked index is below the length, and `_owner` keeps all elements; as for `Shared`.
        unsafe { self.first.add((index & self.mask) as usize).as_ref() }
    }
}

impl<T> Clone for SharedArray<T> {
    fn clone(&self) -> Self {
        SharedArray { first: self.first, mask: self.mask, _owner: Arc::clone(&self._owner) }
    }
}

impl<T> std::fmt::Debug for SharedArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedArray").field("first", &self.first).field("mask", &self.mask).finish_non_exhaustive()
    }
}
