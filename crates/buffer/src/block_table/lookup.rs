//! Looks up many blocks one after the other.
//!
//! A [`Lookup`] remembers the last block's view. The next block nearly always lies in it, and then a few compares do.
//!
//! Not a cache of bytes, and it checks as much as [`BlockTable::bytes`]: the view, its generation, and that the block
//! lies inside. It borrows the table, so that what it remembers cannot change meanwhile.
//!
//! Tiers: [`Lookup::bytes`] has the compares of the common case. It calls [`BlockTable::bytes`] for everything else
//! (another view, an append ring, a descriptor that names nothing).

use super::BlockTable;
use crate::descriptor::Descriptor;
use crate::shared::hints;

/// Looks up one block after the other. [`BlockTable::lookup`] makes it at little cost: make one for each batch.
#[derive(Clone, Debug)]
pub struct Lookup<'a> {
    rings: &'a BlockTable,
    known: Known,
}

/// The map of the remembered view. It is replaced whole, so that a loop keeps it in registers.
#[derive(Clone, Copy, Debug)]
struct Known {
    view: u32,
    /// First byte and length of the map; `len` is 0 where no view is remembered.
    base: *const u8,
    len: u64,
}

impl<'a> Lookup<'a> {
    #[inline]
    pub(crate) fn new(rings: &'a BlockTable, first: Option<&Descriptor>) -> Lookup<'a> {
        // A map of no bytes: no block lies in it.
        let none = Known { view: 0, base: std::ptr::null(), len: 0 };
        Lookup { rings, known: first.and_then(|block| known(rings, block)).unwrap_or(none) }
    }

    /// The bytes of a block, as [`BlockTable::bytes`] gives them.
    #[inline]
    pub fn bytes(&mut self, block: &Descriptor) -> &'a [u8] {
        let Known { view, base, len } = self.known;
        if view == view_word(block) && block.pos < len && u64::from(block.len) <= len - block.pos {
            // SAFETY: `len` is above 0, so that `known` took both from a live view of a mapped file whose map is at
            // `base` and that long; the map goes and changes only through `&mut BlockTable`, and `rings` is borrowed
            // for `'a`. The range was checked just now. Bytes that another process changes: see `MappedFile::bytes`.
            return unsafe { std::slice::from_raw_parts(base.add(block.pos as usize), block.len as usize) };
        }
        let (known, bytes) = turn(self.rings, block);
        self.known = known.unwrap_or(self.known);
        bytes
    }

    /// Asks the processor to fetch the first bytes of a block that will be read soon. It assumes that the block lies in
    /// the remembered view and checks nothing: a wrong guess costs time only.
    #[inline]
    pub fn prefetch(&self, block: &Descriptor) {
        hints::will_read(self.known.base.wrapping_add(block.pos as usize));
    }
}

/// The map of a block's view; `None` unless the view is live and of a mapped file that is not empty.
#[inline]
fn known(rings: &BlockTable, block: &Descriptor) -> Option<Known> {
    rings.map_of(block).map(|(base, len)| Known { view: view_word(block), base, len })
}

/// The slow path, for a block outside the remembered view: its bytes, and its view if that can be remembered.
#[inline(never)]
fn turn<'a>(rings: &'a BlockTable, block: &Descriptor) -> (Option<Known>, &'a [u8]) {
    (known(rings, block), rings.bytes(block))
}

/// Ring and generation in one word: two compares with a jump between them would slow the loop down much.
#[inline]
fn view_word(block: &Descriptor) -> u32 {
    u32::from(block.ring.0) | u32::from(block.generation.0) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::block_table::tests::file;

    #[test]
    fn sees_what_the_table_sees_in_any_order() {
        let mut rings = BlockTable::new();
        let view_of = |segment, rings: &mut BlockTable| rings.add_view(segment, Interface::default()).unwrap();
        let (first, second) = (rings.add_file(file(b"0123456789")), rings.add_file(file(b"abc")));
        let (first, second) = (view_of(first, &mut rings), view_of(second, &mut rings));
        let ring = rings.add_append_ring();
        let appended = view_of(ring, &mut rings);
        rings.append_copy(appended, &[b"appended"]).unwrap();
        let gone = rings.add_file(file(b"gone"));
        let old = view_of(gone, &mut rings);
        rings.retire(gone);
        rings.recycle(gone);
        let again = rings.add_file(file(b"again"));
        let again = view_of(again, &mut rings);
        assert_eq!(old.ring, again.ring);

        let places = [(0, 3), (2, 1), (3, 1), (9, 1), (10, 0), (10, 1), (0, 0), (u64::MAX, 1), (1, u32::MAX)];
        let views = [first, second, appended, old, again];
        let blocks: Vec<_> =
            views.iter().flat_map(|view| places.iter().map(|(pos, len)| view.block(*pos, *len))).collect();
        for before in &blocks {
            let mut lookup = rings.lookup(Some(before));
            for block in &blocks {
                lookup.prefetch(block);
                for block in [block, before] {
                    let faults = rings.traffic().faults;
                    let expected = rings.bytes(block);
                    let counted = rings.traffic().faults - faults;
                    assert_eq!(lookup.bytes(block), expected, "{block:?} after {before:?}");
                    assert_eq!(rings.traffic().faults - faults, 2 * counted, "{block:?} after {before:?}");
                }
            }
        }
        assert_eq!(rings.lookup(None).bytes(&second.block(1, 2)), b"bc");
    }
}
