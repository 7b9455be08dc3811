//! Which directions wait for bytes of the other one, and from where on.

use super::piece::Lane;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Waiting {
    /// From which position on a lane waits, and for which position of the other direction.
    pub(super) from: BTreeMap<(Lane, u64), u64>,
    /// Which position of the other direction a lane has waited for in vain.
    pub(super) missed: BTreeMap<Lane, u64>,
}

impl Waiting {
    /// The first position of a lane that waits, and what it waits for.
    pub fn first(&self, lane: Lane) -> Option<(u64, u64)> {
        self.from.range((lane, 0)..=(lane, u64::MAX)).next().map(|(&(_, start), &wanted)| (start, wanted))
    }

    /// Where the data of a lane ends that need not wait.
    pub fn end(&self, lane: Lane) -> u64 {
        self.first(lane).map_or(u64::MAX, |(start, _)| start)
    }

    /// Whether a lane waits for this position of the other direction, which stands at `next`.
    pub fn is_missing(&self, lane: Lane, wanted: u64, next: u64) -> bool {
        wanted > next && self.missed.get(&lane).is_none_or(|missed| wanted > *missed)
    }

    pub fn forget(&mut self, lane: Lane) {
        self.missed.remove(&lane);
        while let Some((start, _)) = self.first(lane) {
            self.from.remove(&(lane, start));
        }
    }
}
