//! Up to 64 blocks, with one bit for each that is still alive.
//!
//! A selector clears bits and moves no block. So handing a batch on costs one word, a block keeps its place (its
//! identity for `and`, `or`, `not`), and input order is kept. Not a queue: a batch lives for one walk through the
//! graph.

use base::limits::BATCH_BLOCKS;
use buffer::{BlockTable, Descriptor};

/// How far ahead the first bytes of blocks are prefetched: a little more blocks than a processor has cache misses under
/// way.
const FETCH_AHEAD: usize = 32;

/// Blocks on their way through the filters of one space.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The batch's blocks, and behind them some of the next batch, which are only prefetched.
    all: &'a mut [Descriptor],
    count: usize,
    live: u64,
    /// Sum of the live blocks' `len`. `None`: not known.
    bytes: Option<u64>,
}

/// The bits of `count` blocks, all set.
#[inline]
pub fn full(count: usize) -> u64 {
    debug_assert!(count <= BATCH_BLOCKS);
    if count >= BATCH_BLOCKS { u64::MAX } else { (1 << count) - 1 }
}

impl<'a> Batch<'a> {
    /// A batch of all these blocks, but at most [`BATCH_BLOCKS`]; the rest is not part of it.
    #[inline]
    pub fn new(blocks: &'a mut [Descriptor]) -> Batch<'a> {
        Batch::of_first(blocks.len().min(BATCH_BLOCKS), blocks)
    }

    /// A batch of the first `count` of these blocks. The blocks behind them are those that come next.
    ///
    /// # Panics
    /// When `count` is more than [`BATCH_BLOCKS`] or the number of blocks.
    #[inline]
    pub fn of_first(count: usize, blocks: &'a mut [Descriptor]) -> Batch<'a> {
        assert!(count <= blocks.len() && count <= BATCH_BLOCKS, "a batch of {count} blocks");
        Batch { live: full(count), all: blocks, count, bytes: None }
    }

    /// The bits of the live blocks.
    #[inline]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Number of live blocks.
    #[inline]
    pub fn count(&self) -> u32 {
        self.live.count_ones()
    }

    /// Whether there are no live blocks.
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
        let bytes = if self.live == full(self.count) {
            self.blocks().iter().map(|block| u64::from(block.len)).sum()
        } else {
            self.iter().map(|(_, block)| u64::from(block.len)).sum()
        };
        self.bytes = Some(bytes);
        bytes
    }

    /// The live blocks with their places.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Descriptor)> {
        places(self.live).map(|place| (place, &self.blocks()[place]))
    }

    /// Calls `read` for each live block with its place and its bytes, lowest place first. `read` may set the class.
    ///
    /// Read blocks only by this or [`keep_if_read`](Batch::keep_if_read). Both look up the blocks' view once. They
    /// prefetch the first bytes of blocks further on, and of the next batch's where known.
    #[inline]
    pub fn read<'r>(&mut self, rings: &'r BlockTable, mut read: impl FnMut(usize, &mut Descriptor, &'r [u8])) {
        let mut lookup = rings.lookup(self.all.first());
        let all = &mut *self.all;
        if self.live != full(self.count) {
            for place in places(self.live) {
                // Finding out which later blocks are alive costs more than it saves.
                if let Some(later) = all.get(place + FETCH_AHEAD) {
                    lookup.prefetch(later);
                }
                let bytes = lookup.bytes(&all[place]);
                read(place, &mut all[place], bytes);
            }
            return;
        }
        // All blocks alive is the common case: a straight loop. The first pass covers blocks that have another one to
        // prefetch. The second covers the rest; there each block prefetches itself, which costs next to no time.
        let fetching = self.count.min(all.len().saturating_sub(FETCH_AHEAD));
        for (from, to, ahead) in [(0, fetching, FETCH_AHEAD), (fetching, self.count, 0)] {
            if from == to {
                continue;
            }
            let all = &mut all[..to + ahead];
            for place in from..to {
                lookup.prefetch(&all[place + ahead]);
                let bytes = lookup.bytes(&all[place]);
                read(place, &mut all[place], bytes);
            }
        }
    }

    /// Like [`keep_if`](Batch::keep_if), for a test that reads the blocks' bytes; reads them like
    /// [`read`](Batch::read).
    #[inline]
    pub fn keep_if_read<'r>(
        &mut self,
        rings: &'r BlockTable,
        mut wanted: impl FnMut(&mut Descriptor, &'r [u8]) -> bool,
    ) {
        let mut live = 0;
        self.read(rings, |place, block, bytes| live |= u64::from(wanted(block, bytes)) << place);
        self.keep(live);
    }

    /// Keeps the live blocks for which `wanted` holds; it may also set the class. The filter rejects the rest, which is
    /// no loss, and the engine counts them as rejected.
    #[inline]
    pub fn keep_if(&mut self, mut wanted: impl FnMut(&mut Descriptor) -> bool) {
        let mut live = 0;
        for place in places(self.live) {
            live |= u64::from(wanted(&mut self.all[place])) << place;
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
        &self.blocks()[place]
    }

    /// The block at this place, for rewriting.
    #[inline]
    pub fn block_mut(&mut self, place: usize) -> &mut Descriptor {
        &mut self.blocks_mut()[place]
    }

    /// All places, live or not, for code that walks the graph.
    #[inline]
    pub fn blocks_mut(&mut self) -> &mut [Descriptor] {
        self.bytes = None;
        &mut self.all[..self.count]
    }

    /// All places, live or not.
    #[inline]
    pub fn blocks(&self) -> &[Descriptor] {
        &self.all[..self.count]
    }

    /// A view of the same blocks with another set of them alive.
    #[inline]
    pub fn narrowed(&mut self, live: u64) -> Batch<'_> {
        let bytes = self.bytes.filter(|_| self.live & live == self.live);
        Batch { live: self.live & live, bytes, count: self.count, all: self.all }
    }

    /// A copy of the batch, with the descriptors copied to `spare`.
    #[inline]
    pub fn copied_to<'b>(&self, spare: &'b mut [Descriptor; BATCH_BLOCKS]) -> Batch<'b> {
        let all = &mut spare[..self.count];
        all.copy_from_slice(self.blocks());
        Batch { live: self.live, bytes: self.bytes, count: self.count, all }
    }
}

/// The places of the bits that are set in `live`, lowest first.
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
        let block = batch.block_mut(3);
        *block = block.crop_front(2);
        assert_eq!(batch.bytes(), 1);
    }

    #[test]
    fn reading_gives_every_live_block_its_bytes_whatever_lies_behind_the_batch() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, buffer::Interface::default()).unwrap();
        let mut blocks: Vec<_> = (0..100u8).map(|byte| rings.append_copy(view, &[&[byte, 1]]).unwrap()).collect();
        // This block is in no view: prefetching must not look into it.
        blocks.push(Descriptor { pos: u64::MAX, ring: base::id::RingId(9), ..Descriptor::default() });
        for (count, live) in [(64, u64::MAX), (64, 0x8000_0000_0000_0101), (40, u64::MAX), (1, 1), (0, 0), (64, 0)] {
            for behind in [0, 1, 31, 32, 37] {
                let mut blocks: Vec<_> = blocks[..count].iter().chain(&blocks[101 - behind..]).copied().collect();
                let mut batch = Batch::of_first(count, &mut blocks);
                batch.keep(live);
                let (mut seen, live) = (Vec::new(), batch.live());
                batch.read(&rings, |place, block, bytes| {
                    seen.push((place, bytes.to_vec()));
                    block.class.0 = 7;
                });
                let expected: Vec<_> = places(live).map(|place| (place, vec![place as u8, 1])).collect();
                assert_eq!(seen, expected, "{count} {live:x} {behind}");
                batch.keep_if_read(&rings, |block, bytes| block.class.0 == 7 && bytes[0] % 2 == 1);
                assert_eq!(batch.live(), live & 0xaaaa_aaaa_aaaa_aaaa);
                assert!(blocks[count..].iter().all(|block| block.class.0 == 0), "what comes next is not touched");
            }
        }
        assert_eq!(rings.traffic().faults, 0);
    }

    #[test]
    fn parts_and_copies_know_their_bytes() {
        let mut blocks = blocks(10);
        let mut batch = Batch::of_first(4, &mut blocks);
        assert_eq!((batch.count(), batch.bytes()), (4, 6));
        assert_eq!((batch.narrowed(u64::MAX).bytes(), batch.narrowed(0b1010).bytes()), (6, 4));
        let mut spare = [Descriptor::default(); BATCH_BLOCKS];
        let mut copy = batch.copied_to(&mut spare);
        (0..4).for_each(|place| copy.block_mut(place).len = 9);
        assert_eq!((copy.bytes(), copy.blocks().len(), batch.bytes()), (36, 4, 6));
    }
}
