//! Up to 64 blocks, and one bit each for which of them are still alive.
//!
//! A selector clears bits; nothing moves. So passing a batch on costs one word, a block keeps its place (which is its
//! identity for `and`, `or`, `not`), and input order is kept. Not a queue: a batch lives for one walk through the graph.

use base::limits::BATCH_BLOCKS;
use buffer::Descriptor;

/// Blocks on their way through the filters of one space.
#[derive(Debug)]
pub struct Batch<'a> {
    blocks: &'a mut [Descriptor],
    live: u64,
    /// Sum of the live blocks' `len`, where it is known.
    bytes: Option<u64>,
}

/// The bits of `count` blocks.
#[inline]
pub fn full(count: usize) -> u64 {
    debug_assert!(count <= BATCH_BLOCKS);
    if count >= BATCH_BLOCKS { u64::MAX } else { (1 << count) - 1 }
}

impl<'a> Batch<'a> {
    /// A batch of all these blocks, [`BATCH_BLOCKS`] at most: further ones are not part of it.
    #[inline]
    pub fn new(blocks: &'a mut [Descriptor]) -> Batch<'a> {
        let count = blocks.len().min(BATCH_BLOCKS);
        Batch { live: full(count), blocks: &mut blocks[..count], bytes: None }
    }

    /// A batch of those blocks whose bit is set in `live`.
    #[inline]
    pub fn with_live(blocks: &'a mut [Descriptor], live: u64) -> Batch<'a> {
        let mut batch = Batch::new(blocks);
        batch.live &= live;
        batch
    }

    /// Which blocks are alive.
    #[inline]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// How many blocks are alive.
    #[inline]
    pub fn count(&self) -> u32 {
        self.live.count_ones()
    }

    /// Is none alive?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes present in the live blocks.
    #[inline]
    pub fn bytes(&mut self) -> u64 {
        if let Some(bytes) = self.bytes {
            return bytes;
        }
        let bytes = if self.live == full(self.blocks.len()) {
            self.blocks.iter().map(|block| u64::from(block.len)).sum()
        } else {
            self.iter().map(|(_, block)| u64::from(block.len)).sum()
        };
        self.bytes = Some(bytes);
        bytes
    }

    /// The live blocks with their places.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Descriptor)> {
        places(self.live).map(|place| (place, &self.blocks[place]))
    }

    /// Calls `change` for every live block, which may rewrite the descriptor (crop it, set its class).
    #[inline]
    pub fn for_each_mut(&mut self, mut change: impl FnMut(&mut Descriptor)) {
        self.bytes = None;
        for place in places(self.live) {
            change(&mut self.blocks[place]);
        }
    }

    /// Keeps the live blocks for which `wanted` holds; it may also set the class. The others are rejected, which is
    /// what selectors do and no loss: the engine counts them as such.
    #[inline]
    pub fn keep_if(&mut self, mut wanted: impl FnMut(&mut Descriptor) -> bool) {
        let mut live = 0;
        for place in places(self.live) {
            live |= u64::from(wanted(&mut self.blocks[place])) << place;
        }
        self.keep(live);
    }

    /// Keeps the live blocks whose bit is set in `wanted`.
    #[inline]
    pub fn keep(&mut self, wanted: u64) {
        if self.live & wanted != self.live {
            self.live &= wanted;
            self.bytes = None;
        }
    }

    /// The block at this place.
    #[inline]
    pub fn block(&self, place: usize) -> &Descriptor {
        &self.blocks[place]
    }

    /// The block at this place, for rewriting.
    #[inline]
    pub fn block_mut(&mut self, place: usize) -> &mut Descriptor {
        self.bytes = None;
        &mut self.blocks[place]
    }

    /// All places, live or not, for whoever walks the graph.
    #[inline]
    pub fn blocks_mut(&mut self) -> &mut [Descriptor] {
        self.bytes = None;
        self.blocks
    }

    /// All places, live or not.
    #[inline]
    pub fn blocks(&self) -> &[Descriptor] {
        self.blocks
    }

    /// The same blocks with another set alive, for a while.
    #[inline]
    pub fn narrowed(&mut self, live: u64) -> Batch<'_> {
        Batch { live: self.live & live, bytes: None, blocks: self.blocks }
    }
}

/// The places of the bits set in `live`, lowest first.
#[inline]
pub fn places(live: u64) -> impl Iterator<Item = usize> {
    let mut left = live;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let place = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(count: u32) -> Vec<Descriptor> {
        (0..count).map(|n| buffer::ViewId::default().block(u64::from(n), n)).collect()
    }

    #[test]
    fn holds_64_blocks_and_not_one_more() {
        for (count, expected) in [(0, 0), (1, 1), (63, 63), (64, 64), (70, 64)] {
            assert_eq!(Batch::new(&mut blocks(count)).count(), expected);
        }
    }

    #[test]
    fn rejecting_keeps_places_and_order() {
        let mut blocks = blocks(10);
        let mut batch = Batch::new(&mut blocks);
        assert_eq!(batch.bytes(), 45);
        batch.keep_if(|block| block.len % 2 == 1);
        assert_eq!(
            batch.iter().map(|(place, block)| (place, block.len)).collect::<Vec<_>>(),
            [(1, 1), (3, 3), (5, 5), (7, 7), (9, 9)]
        );
        assert_eq!(batch.bytes(), 25);
        batch.keep(0b1000);
        assert_eq!((batch.live(), batch.bytes()), (0b1000, 3));
        batch.for_each_mut(|block| *block = block.crop_front(2));
        assert_eq!(batch.bytes(), 1);
    }
}
