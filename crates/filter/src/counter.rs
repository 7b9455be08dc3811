//! Counters of one filter of a running plan. They always add up:
//!
//! `blocks_in = blocks_passed + blocks_rejected + blocks_taken + dropped by reason`
//!
//! A filter hands on `blocks_passed` of the blocks it got, or `blocks_made` if it makes new ones.

use crate::marks::Marks;
use base::limits::LEFT_OUT;

/// A sink's event: files written.
pub const FILES: &str = "files";

/// A sink's event: bytes in those files.
pub const FILE_BYTES: &str = "bytes in files";

/// Counters of one filter in one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks handed to the filter.
    pub blocks_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Blocks handed on unchanged, cropped, or with another class.
    pub blocks_passed: u64,
    /// Their bytes.
    pub bytes_passed: u64,
    /// Blocks that a selector did not want, which is no loss.
    pub blocks_rejected: u64,
    /// Blocks that ended here as they should: turned into others, written, counted.
    pub blocks_taken: u64,
    /// New blocks.
    pub blocks_made: u64,
    /// Their bytes.
    pub bytes_made: u64,
    /// Blocks that should not have ended here, by reason.
    pub drops: Tally,
    /// After the filter has finished it drops later blocks for this reason. `None`: it rejects them.
    pub loses: Option<&'static str>,
    /// Of the rejected blocks, those that the filter could not read, by reason, such as an unknown link type.
    pub unread: Tally,
    /// Other numbers, by name; not part of the sum.
    pub events: Tally,
    /// What a source could not read, or not to its end.
    pub left_out: LeftOut,
}

/// Inputs that could not be read, or not to their end: a line for each of the first [`LEFT_OUT`], and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// What and why.
    pub lines: Vec<String>,
    /// All of them.
    pub count: u64,
}

impl LeftOut {
    /// Adds one.
    pub fn add(&mut self, line: &str) {
        self.count += 1;
        if self.lines.len() < LEFT_OUT {
            self.lines.push(line.into());
        }
    }

    fn add_all(&mut self, other: &LeftOut) {
        other.lines.iter().for_each(|line| self.add(line));
        self.count += other.count - other.lines.len() as u64;
    }
}

impl Counters {
    /// Counts and marks the block at this place of the batch as rejected; see
    /// [`Context::reject`](crate::Context::reject).
    #[inline]
    pub fn reject(&mut self, marks: &mut Marks, place: usize) {
        self.blocks_rejected += 1;
        marks.rejected |= 1 << place;
    }

    /// Counts blocks that came after this filter, or all filters behind it, had finished; see [`Counters::loses`].
    pub fn come_late(&mut self, blocks: u64, loses: Option<&'static str>) {
        match loses {
            Some(reason) => self.drops.add(reason, blocks),
            None => self.blocks_rejected += blocks,
        }
    }

    /// Adds the counters of another copy of the filter.
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
        self.left_out.add_all(&other.left_out);
    }

    /// Whether the sum holds.
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

/// Numbers by name. There are few, static names, so a list searched by pointer is faster than a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    /// Adds `count` under `name`. Allocates when the name is new.
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

    /// All numbers above 0, sorted by name, so that the order does not depend on the number of copies of a filter.
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
