//! A binary heap whose entries can be found and removed by slot, in O(log n) and without allocating once it has grown.

/// The position of a slot that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// Entries ordered by key, the least first; a slot is in it at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// For each slot its index in `entries`, or ABSENT.
    positions: Vec<u32>,
    #[cfg(test)]
    pub(crate) comparisons: u64,
}

impl<K: Ord + Copy> Heap<K> {
    /// Makes room for slots below `slots`. Allocates.
    pub(crate) fn grow(&mut self, slots: usize) {
        if slots > self.positions.len() {
            self.positions.resize(slots, ABSENT);
            self.entries.reserve(slots - self.entries.len());
        }
    }

    /// The least entry; `None` if the heap is empty.
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn holds(&self, slot: u32) -> bool {
        self.positions[slot as usize] != ABSENT
    }

    /// Puts a slot in, or changes its key.
    pub(crate) fn set(&mut self, slot: u32, key: K) {
        let mut at = self.positions[slot as usize] as usize;
        if at == ABSENT as usize {
            at = self.entries.len();
            self.entries.push((key, slot));
            self.positions[slot as usize] = at as u32;
        } else {
            self.entries[at].0 = key;
        }
        self.settle(at);
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let at = self.positions[slot as usize];
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        self.entries.swap_remove(at);
        self.positions[slot as usize] = ABSENT;
        if at < self.entries.len() {
            self.positions[self.entries[at].1 as usize] = at as u32;
            self.settle(at);
        }
    }

    fn less(&mut self, left: usize, right: usize) -> bool {
        #[cfg(test)]
        {
            self.comparisons += 1;
        }
        self.entries[left].0 < self.entries[right].0
    }

    fn swap(&mut self, left: usize, right: usize) {
        self.entries.swap(left, right);
        self.positions[self.entries[left].1 as usize] = left as u32;
        self.positions[self.entries[right].1 as usize] = right as u32;
    }

    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.less(at, (at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.entries.len() {
                return;
            }
            let child = if right < self.entries.len() && self.less(right, left) { right } else { left };
            if !self.less(child, at) {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_heap_agrees_with_a_set(steps in prop::collection::vec((0_u32..40, prop::option::of(0_u32..50)), 0..400)) {
            let mut heap = Heap::default();
            heap.grow(40);
            let mut keys = [None; 40];
            for (slot, key) in steps {
                match key {
                    Some(key) => heap.set(slot, (key, slot)),
                    None => heap.remove(slot),
                }
                keys[slot as usize] = key;
                prop_assert_eq!(heap.holds(slot), key.is_some());
                let set: BTreeSet<_> = (0..40).filter_map(|slot| Some((keys[slot as usize]?, slot))).collect();
                prop_assert_eq!(heap.first().map(|(key, _)| key), set.first().copied());
            }
        }
    }
}
