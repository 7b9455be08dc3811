//! What one filter of a running plan counted. The numbers add up, always:
//!
//! `blocks_in = blocks_passed + blocks_rejected + blocks_taken + dropped by reason`
//!
//! for every filter, and what leaves a filter is `blocks_passed` for one that hands on what it got and `blocks_made` for
//! one that makes new blocks.

use crate::context::Marks;

/// The event of a sink: files that it has written.
pub const FILES: &str = "files";

/// The event of a sink: bytes in those files.
pub const FILE_BYTES: &str = "bytes in files";

/// Counters of one filter in one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks handed to the filter.
    pub blocks_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Blocks handed on as they came (or cropped, or with another class).
    pub blocks_passed: u64,
    /// Their bytes.
    pub bytes_passed: u64,
    /// Blocks that a selector did not want: no loss.
    pub blocks_rejected: u64,
    /// Blocks that ended here as they should: turned into others, written, counted.
    pub blocks_taken: u64,
    /// New blocks.
    pub blocks_made: u64,
    /// Their bytes.
    pub bytes_made: u64,
    /// Blocks that ended here as they should not, by reason.
    pub drops: Tally,
    /// The filter has finished, and drops later blocks for this reason; `None`: it rejects them.
    pub loses: Option<&'static str>,
    /// Of the rejected blocks, those that the filter could not read, by reason: of a link type it does not know, say.
    pub unread: Tally,
    /// Other things worth a number, by name: they are not part of the sum.
    pub events: Tally,
}

impl Counters {
    /// Says that the block at this place of the batch was rejected; see [`Context::reject`](crate::Context::reject).
    #[inline]
    pub fn reject(&mut self, marks: &mut Marks, place: usize) {
        self.blocks_rejected += 1;
        marks.rejected |= 1 << place;
    }

    /// Counts blocks that came after the filter had finished, or whose way down had; see [`Counters::loses`].
    pub fn come_late(&mut self, blocks: u64, loses: Option<&'static str>) {
        match loses {
            Some(reason) => self.drops.add(reason, blocks),
            None => self.blocks_rejected += blocks,
        }
    }

    /// With what another copy of the filter counted.
    pub fn add(&mut self, other: &Counters) {
        let Counters { blocks_in, bytes_in, blocks_passed, bytes_passed, blocks_rejected, blocks_taken, .. } = other;
        self.blocks_in += blocks_in;
        self.bytes_in += bytes_in;
        self.blocks_passed += blocks_passed;
        self.bytes_passed += bytes_passed;
        self.blocks_rejected += blocks_rejected;
        self.blocks_taken += blocks_taken;
        self.blocks_made += other.blocks_made;
        self.bytes_made += other.bytes_made;
        self.drops.add_all(&other.drops);
        self.loses = self.loses.or(other.loses);
        self.unread.add_all(&other.unread);
        self.events.add_all(&other.events);
    }

    /// Does everything that came in have an end?
    pub fn adds_up(&self) -> bool {
        self.blocks_in == self.blocks_passed + self.blocks_rejected + self.blocks_taken + self.drops.total()
    }

    /// Blocks that left.
    pub fn blocks_out(&self) -> u64 {
        self.blocks_passed + self.blocks_made
    }

    /// Bytes that left.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_passed + self.bytes_made
    }
}

/// Numbers by name. Names are few and static, so a list found by pointer beats a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    /// Adds `count` under `name`. Allocates the first time a name is met.
    #[inline]
    pub fn add(&mut self, name: &'static str, count: u64) {
        match self.0.iter_mut().find(|(known, _)| std::ptr::eq(*known, name)) {
            Some((_, number)) => *number += count,
            None => self.add_slowly(name, count),
        }
    }

    #[cold]
    fn add_slowly(&mut self, name: &'static str, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, number)) => *number += count,
            None => self.0.insert(self.0.partition_point(|(known, _)| *known < name), (name, count)),
        }
    }

    /// Adds each number of another tally.
    pub fn add_all(&mut self, other: &Tally) {
        other.0.iter().for_each(|(name, count)| self.add(name, *count));
    }

    /// Sum of all numbers.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, number)| number).sum()
    }

    /// The number under this name.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number)
    }

    /// All names that were counted, sorted: in the same order however many copies of a filter counted them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied().filter(|(_, number)| *number > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_together_count_in_the_order_of_one() {
        let counted = |names: &[&'static str]| {
            let mut tally = Tally::default();
            names.iter().for_each(|name| tally.add(name, 1));
            tally
        };
        let one = counted(&["late", "early", "late", "alone"]);
        let mut several = counted(&["late"]);
        several.add_all(&counted(&["early", "alone"]));
        several.add_all(&counted(&["late"]));
        assert_eq!(several, one);
        assert_eq!(one.iter().collect::<Vec<_>>(), [("alone", 1), ("early", 1), ("late", 2)]);
    }
}
