//! Copies of held blocks whose own memory could not be pinned. Each copy has its own memory, freed after its release.
//!
//! Not a ring: it keeps only what is held, in whatever order blocks are released. Read through
//! [`BlockTable`](crate::BlockTable). Blocks held where they lie are in [`append_ring`](crate::append_ring).
//!
//! Holding again and releasing take `&self`, because they only count. Memory is freed through `&mut self` alone, so
//! that no slice handed out is alive then.

use std::cell::{Cell, RefCell};

/// The list is cleaned up once it has this many freed blocks and they make up half of it.
const GONE_BLOCKS: usize = 64;

#[derive(Debug)]
struct Held {
    start: u64,
    /// `None` once the memory was freed.
    bytes: Option<Box<[u8]>>,
    holds: Cell<u32>,
    listed: Cell<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct HeldBlocks {
    /// Sorted by position, because positions only go up.
    blocks: Vec<Held>,
    gone: usize,
    /// Where the next copy starts. A hole separates two copies, so that no descriptor can span them.
    next: u64,
    /// Starts of blocks whose last hold was released since memory was freed last.
    released: RefCell<Vec<u64>>,
    memory_bytes: usize,
}

impl HeldBlocks {
    pub(crate) fn insert(&mut self, bytes: Box<[u8]>) -> u64 {
        let start = self.next;
        // 2^64 positions outlast any input: a century at 5 gigabytes a second.
        self.next = start.saturating_add(bytes.len() as u64).saturating_add(1);
        self.memory_bytes += bytes.len();
        self.blocks.push(Held { start, bytes: Some(bytes), holds: Cell::new(1), listed: Cell::new(false) });
        start
    }

    /// The copy that holds all `len` bytes from `pos`, and those bytes.
    fn find(&self, pos: u64, len: u32) -> Option<(&Held, &[u8])> {
        let after = self.blocks.partition_point(|held| held.start <= pos);
        let held = self.blocks.get(after.checked_sub(1)?)?;
        let from = usize::try_from(pos - held.start).ok()?;
        let bytes = held.bytes.as_deref()?.get(from..)?.get(..len as usize)?;
        Some((held, bytes))
    }

    pub(crate) fn bytes(&self, pos: u64, len: u32) -> Option<&[u8]> {
        self.find(pos, len).map(|(_, bytes)| bytes)
    }

    pub(crate) fn hold(&self, pos: u64, len: u32) -> bool {
        let Some((held, _)) = self.find(pos, len) else { return false };
        held.holds.set(held.holds.get() + 1);
        true
    }

    /// Releases one hold. The bytes stay until the next [`recycle`](HeldBlocks::recycle).
    pub(crate) fn release(&self, pos: u64, len: u32) {
        let Some((held, _)) = self.find(pos, len) else { return };
        held.holds.set(held.holds.get().saturating_sub(1));
        if held.holds.get() == 0 && !held.listed.replace(true) {
            self.released.borrow_mut().push(held.start);
        }
    }

    /// Frees the memory of every copy that is not held. The caller promises the same as for
    /// [`AppendRing::recycle`](crate::AppendRing::recycle).
    pub(crate) fn recycle(&mut self) {
        for start in self.released.get_mut().drain(..) {
            let Ok(index) = self.blocks.binary_search_by_key(&start, |held| held.start) else { continue };
            let held = &mut self.blocks[index];
            held.listed.set(false);
            if held.holds.get() == 0
                && let Some(bytes) = held.bytes.take()
            {
                self.memory_bytes -= bytes.len();
                self.gone += 1;
            }
        }
        // Only when at least half of the list goes: so each block costs at most two steps here.
        if self.gone >= GONE_BLOCKS && self.gone * 2 >= self.blocks.len() {
            self.blocks.retain(|held| held.bytes.is_some());
            self.blocks.shrink_to(self.blocks.len() * 2);
            self.gone = 0;
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.blocks.capacity() * size_of::<Held>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::BLOCK_BYTES;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn parts_are_found_and_nothing_spans_two_blocks() {
        let mut held = HeldBlocks::default();
        let a = held.insert((*b"hello").into());
        let b = held.insert((*b"").into());
        let c = held.insert((*b"world").into());
        let rows = [
            (a, 5, Some(&b"hello"[..])),
            (a + 1, 3, Some(b"ell")),
            (a + 5, 0, Some(b"")),
            (a, 6, None),
            (a + 5, 1, None),
            (b, 0, Some(b"")),
            (b, 1, None),
            (c + 4, 1, Some(b"d")),
            (c + 4, u32::MAX, None),
            (u64::MAX, 1, None),
        ];
        for (pos, len, expected) in rows {
            assert_eq!(held.bytes(pos, len), expected, "{pos} {len}");
        }
    }

    #[test]
    fn a_part_that_is_held_keeps_the_block_and_bytes_stay_until_memory_is_freed() {
        let mut held = HeldBlocks::default();
        let pos = held.insert((*b"hello").into());
        held.release(pos, 5);
        assert!(held.hold(pos + 1, 2));
        held.recycle();
        assert_eq!(held.bytes(pos, 5), Some(&b"hello"[..]));
        held.release(pos + 1, 2);
        assert_eq!(held.bytes(pos, 5), Some(&b"hello"[..]), "not freed yet");
        held.recycle();
        assert_eq!((held.bytes(pos, 5), held.hold(pos, 5)), (None, false));
        assert!(held.insert((*b"x").into()) > pos, "positions never come back");
    }

    #[test]
    fn the_longest_block_is_kept_whole() {
        let mut held = HeldBlocks::default();
        let pos = held.insert(vec![3; BLOCK_BYTES].into());
        assert_eq!(held.bytes(pos + BLOCK_BYTES as u64 - 1, 1), Some(&[3][..]));
        held.release(pos, BLOCK_BYTES as u32);
        held.recycle();
        assert!(held.memory_bytes() < 1000);
    }

    proptest! {
        /// Compares with a map of the held blocks: memory is what the holds explain, in any order of release.
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u8..6, 0usize..500), 1..300)) {
            let mut held = HeldBlocks::default();
            let mut model: BTreeMap<u64, (u32, u8)> = BTreeMap::new();
            for (step, size) in steps {
                match step {
                    0..=2 => {
                        let value = size as u8;
                        let pos = held.insert(vec![value; size].into());
                        prop_assert!(model.insert(pos, (size as u32, value)).is_none());
                    }
                    3 | 4 => {
                        let Some((&pos, &(len, _))) = model.iter().nth(size % model.len().max(1)) else { continue };
                        held.release(pos, len);
                        model.remove(&pos);
                    }
                    _ => {
                        held.recycle();
                        let bytes: usize = model.values().map(|(len, _)| *len as usize).sum();
                        prop_assert_eq!(held.memory_bytes, bytes);
                        prop_assert!(held.blocks.len() <= 2 * model.len() + GONE_BLOCKS);
                    for (&pos, &(len, value)) in &model {
                        let bytes = held.bytes(pos, len).expect("held");
                        prop_assert!(bytes.len() == len as usize && bytes.iter().all(|&byte| byte == value));
                    }
                    }
                }
            }
        }
    }
}
