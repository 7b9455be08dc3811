//! Weighted fair queueing by start times. Each flow has a virtual time, which advances by the wire time of its frames
//! divided by its weight. The flow furthest behind sends. A returning flow starts level with the others. So do users, for
//! which `users` has a queue of its own.

use crate::heap::Heap;

/// The parts of a nanosecond in which virtual time is counted.
const PARTS: u128 = 1 << 20;

/// The slot of one flow, or user, in virtual time; kept while it is idle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    time: u128,
    /// The part of the last division that `time` does not hold; less than the weight.
    remainder: u128,
}

/// Flows that share the time that is left over.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairQueue {
    pub(crate) heap: Heap<(u128, u32)>,
    /// The virtual time of the flow that was chosen last.
    time: u128,
}

impl FairQueue {
    /// Adds a flow at a slot of the heap.
    pub(crate) fn enter(&mut self, slot: u32, flow: u32, tag: &mut Tag) {
        if !self.heap.holds(slot) {
            tag.time = tag.time.max(self.time);
            self.heap.set(slot, (tag.time, flow));
        }
    }

    pub(crate) fn leave(&mut self, slot: u32) {
        self.heap.remove(slot);
    }

    /// The flow that is furthest behind; `None` without flows.
    pub(crate) fn choose(&mut self) -> Option<u32> {
        let ((time, flow), _) = self.heap.first()?;
        self.time = self.time.max(time);
        Some(flow)
    }

    /// Charges `wire_ns` to a flow, which may have left meanwhile.
    pub(crate) fn charge(&mut self, slot: u32, flow: u32, tag: &mut Tag, wire_ns: u64, weight: u32) {
        let weight = u128::from(weight.max(1));
        let work = u128::from(wire_ns) * PARTS + tag.remainder;
        tag.time = tag.time.saturating_add(work / weight);
        tag.remainder = work % weight;
        if self.heap.holds(slot) {
            self.heap.set(slot, (tag.time, flow));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_weights() {
        let weights = [1, 3, 7];
        let (mut queue, mut tags, mut got) = (FairQueue::default(), [Tag::default(); 3], [0_u64; 3]);
        queue.heap.grow(3);
        for slot in 0..3 {
            queue.enter(slot, slot, &mut tags[slot as usize]);
        }
        for frame in 0..110_000 {
            let slot = queue.choose().unwrap();
            let wire_ns = 1000 + frame % 3;
            got[slot as usize] += wire_ns;
            queue.charge(slot, slot, &mut tags[slot as usize], wire_ns, weights[slot as usize]);
        }
        let each = got.iter().sum::<u64>() / 11;
        for (got, weight) in got.iter().zip(weights) {
            assert!(got.abs_diff(each * u64::from(weight)) < 3 * 1002, "{got} {weight}");
        }
    }

    #[test]
    fn an_absent_flow_saves_nothing_up() {
        let (mut queue, mut tags) = (FairQueue::default(), [Tag::default(); 2]);
        queue.heap.grow(2);
        queue.enter(0, 0, &mut tags[0]);
        for _ in 0..1000 {
            assert_eq!(queue.choose(), Some(0));
            queue.charge(0, 0, &mut tags[0], 1000, 1);
        }
        queue.enter(1, 1, &mut tags[1]);
        let mut got = [0; 2];
        for _ in 0..10 {
            let slot = queue.choose().unwrap();
            got[slot as usize] += 1;
            queue.charge(slot, slot, &mut tags[slot as usize], 1000, 1);
        }
        assert_eq!(got, [5, 5]);
    }
}
