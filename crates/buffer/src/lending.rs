//! Lets another thread read the blocks of one [`BlockTable`] through a table of its own. The bytes stay where they are.
//!
//! - [`Lender`] — beside the table that has the blocks: finds memory that the other side does not know yet.
//! - [`Loans`] — travels with the descriptors: handles of maps and of regions of append rings.
//! - [`Borrower`] — beside the other table: adds that memory there, and translates descriptors.
//!
//! Lent memory stays valid for different times:
//!
//! - A map of a file is lent once, until the lender's table drops it; a longer map of a file that has grown is lent
//!   with the first block that needs it. Files read one after the other may use one ring number within a batch, so a
//!   borrower names blocks by ring and generation.
//! - A region of an append ring is lent as long as its handle lives; then the ring reuses its memory (`append_ring`).
//! - A copy of a held block cannot be lent. The lender copies it once more, into a ring of its own.

use crate::block_table::{BlockTable, Interface, Room, SegmentId, ViewId};
use crate::borrowed_ring::Lent;
use crate::descriptor::{Descriptor, end_of};
use crate::mapped_file::MappedFile;
use base::id::{Generation, RingId};
use std::collections::HashMap;
use std::sync::Arc;

/// Handles that travel with a batch of descriptors.
#[derive(Debug, Default)]
pub struct Loans {
    gone: Vec<u64>,
    files: Vec<(u64, Arc<MappedFile>)>,
    regions: Vec<(u64, Lent)>,
    /// Views that the borrower does not know: each with its segment and its interface.
    views: Vec<(ViewId, u64, Arc<Interface>)>,
}

impl Loans {
    /// Drops the handles. By now the borrower has also let go of the blocks in the last region.
    pub fn clear(&mut self) {
        self.gone.clear();
        self.files.clear();
        self.regions.clear();
        self.views.clear();
    }
}

#[derive(Debug)]
struct Known {
    id: SegmentId,
    serial: u64,
    /// The map that was lent; `None` for other segments.
    file: Option<Arc<MappedFile>>,
}

/// A view that the borrower knows.
#[derive(Clone, Copy, Debug)]
struct Shown {
    generation: Generation,
    /// Of its segment.
    serial: u64,
    /// Length of the lent map, in bytes; 0 for other segments.
    mapped: u64,
}

/// The side with the table that has the blocks.
#[derive(Debug, Default)]
pub struct Lender {
    segments: Vec<Known>,
    /// Indexed by the ring of a view.
    views: Vec<Option<Shown>>,
    /// Ring for copies of blocks whose memory cannot be lent.
    own: Option<(SegmentId, ViewId)>,
}

impl Lender {
    /// Begins another set of loans: lists segments dropped since the last one.
    pub fn begin(&mut self, rings: &mut BlockTable, loans: &mut Loans) {
        loans.clear();
        let Lender { segments, views, own } = self;
        segments.retain(|known| {
            let is_still = rings.is_still(known.id, known.serial);
            if !is_still {
                loans.gone.push(known.serial);
                // Its ring comes back under another generation, and after many under the same.
                views.iter_mut().for_each(|view| _ = view.take_if(|shown| shown.serial == known.serial));
            }
            is_still
        });
        if let Some((segment, _)) = own {
            rings.recycle(*segment);
        }
    }

    /// Lends the memory of a block, or copies the block where its memory cannot be lent. `None`: the descriptor names
    /// nothing; the table counts that as it does for a reader.
    #[inline]
    pub fn lend(&mut self, rings: &mut BlockTable, block: &Descriptor, loans: &mut Loans) -> Option<Descriptor> {
        match self.views.get(usize::from(block.ring.0)) {
            Some(&Some(Shown { generation, serial, mapped })) if generation == block.generation => {
                let is_covered = is_within(block, mapped)
                    || loans.regions.last().is_some_and(|(known, lent)| {
                        *known == serial && lent.offset_of(block.pos, block.len).is_some()
                    });
                if is_covered { Some(*block) } else { self.lend_region(rings, block, serial, loans) }
            }
            _ => self.lend_view(rings, block, loans),
        }
    }

    fn lend_region(
        &mut self,
        rings: &mut BlockTable,
        block: &Descriptor,
        serial: u64,
        loans: &mut Loans,
    ) -> Option<Descriptor> {
        if loans.regions.iter().any(|(known, lent)| *known == serial && lent.offset_of(block.pos, block.len).is_some())
        {
            return Some(*block);
        }
        if self.lend_growth(rings, serial, loans).is_some_and(|mapped| is_within(block, mapped)) {
            return Some(*block);
        }
        if let Some(lent) = rings.lend(block) {
            loans.regions.push((serial, lent));
            return Some(*block);
        }
        if block.len == 0 {
            // An empty block needs no memory, and its position may be gone.
            return Some(*block);
        }
        end_of(block)?;
        let mut copy = *block;
        let (_, own) = *match &mut self.own {
            Some(own) => own,
            none => {
                let segment = rings.add_append_ring();
                none.insert((segment, rings.add_view(segment, Interface::default())?))
            }
        };
        rings.edit(&mut copy, Room::default(), false, own).ok()?;
        self.lend(rings, &copy, loans)
    }

    /// Lends the longer map of a file that has grown. Gives the length of the lent map, in bytes; `None` for other segments.
    fn lend_growth(&mut self, rings: &BlockTable, serial: u64, loans: &mut Loans) -> Option<u64> {
        let known = self.segments.iter_mut().find(|known| known.serial == serial)?;
        let (lent, file) = (known.file.as_mut()?, rings.shared_file(known.id)?);
        let mapped = file.len() as u64;
        if !Arc::ptr_eq(lent, file) {
            *lent = Arc::clone(file);
            loans.files.push((serial, Arc::clone(file)));
            let of_file = self.views.iter_mut().flatten().filter(|shown| shown.serial == serial);
            of_file.for_each(|shown| shown.mapped = mapped);
        }
        Some(mapped)
    }

    #[cold]
    fn lend_view(&mut self, rings: &mut BlockTable, block: &Descriptor, loans: &mut Loans) -> Option<Descriptor> {
        let Some((id, serial)) = rings.serial_of(block) else {
            rings.no_bytes(block);
            return None;
        };
        let interface = Arc::clone(rings.interface(block)?);
        if !self.segments.iter().any(|known| known.serial == serial) {
            let file = rings.shared_file(id).map(Arc::clone);
            loans.files.extend(file.iter().map(|file| (serial, Arc::clone(file))));
            self.segments.push(Known { id, serial, file });
        }
        let ViewId { ring, generation } = ViewId { ring: block.ring, generation: block.generation };
        loans.views.push((ViewId { ring, generation }, serial, interface));
        let at = usize::from(ring.0);
        if self.views.len() <= at {
            self.views.resize(at + 1, None);
        }
        let mapped = self.lend_growth(rings, serial, loans).unwrap_or(0);
        self.views[at] = Some(Shown { generation, serial, mapped });
        self.lend(rings, block, loans)
    }
}

/// Whether the block ends within the first `mapped` bytes.
fn is_within(block: &Descriptor, mapped: u64) -> bool {
    end_of(block).is_some_and(|end| end <= mapped)
}

/// The side with the table through which blocks are read.
#[derive(Debug, Default)]
pub struct Borrower {
    /// Keyed by the lender's serial number of the segment.
    segments: HashMap<u64, SegmentId>,
    /// Indexed by the lender's ring.
    views: Vec<Option<(Generation, ViewId)>>,
    /// Views of the last loans whose ring another view of the same loans has now: theirs, and ours.
    before: HashMap<(RingId, Generation), ViewId>,
    regions: Vec<SegmentId>,
}

impl Borrower {
    /// Adds the loans to the table; `None` where the table has no view left. All blocks of the loans before were named.
    pub fn take(&mut self, rings: &mut BlockTable, loans: &mut Loans) -> Option<()> {
        self.before.clear();
        for serial in loans.gone.drain(..) {
            if let Some(segment) = self.segments.remove(&serial) {
                rings.retire(segment);
                rings.recycle(segment);
            }
        }
        for (serial, file) in loans.files.drain(..) {
            let id = rings.borrow_file(self.segments.get(&serial).copied(), file);
            self.segments.insert(serial, id);
        }
        for (serial, lent) in loans.regions.drain(..) {
            let id = rings.borrow_region(self.segments.get(&serial).copied(), lent);
            self.segments.insert(serial, id);
            self.regions.push(id);
        }
        for (theirs, serial, interface) in loans.views.drain(..) {
            let id = *self.segments.entry(serial).or_insert_with(|| rings.add_append_ring());
            let ours = rings.add_view(id, Interface::clone(&interface))?;
            let at = usize::from(theirs.ring.0);
            if self.views.len() <= at {
                self.views.resize(at + 1, None);
            }
            if let Some((generation, ours)) = self.views[at].replace((theirs.generation, ours)) {
                self.before.insert((theirs.ring, generation), ours);
            }
        }
        Some(())
    }

    /// Translates a descriptor of the lender for this table. A block of an unknown view comes out empty; the table
    /// counts that as it does for a reader.
    #[inline]
    pub fn name(&self, rings: &BlockTable, mut block: Descriptor) -> Descriptor {
        match self.views.get(usize::from(block.ring.0)) {
            Some(&Some((generation, ours))) if generation == block.generation => {
                (block.ring, block.generation) = (ours.ring, ours.generation);
                block
            }
            _ => self.name_before(rings, block),
        }
    }

    #[cold]
    fn name_before(&self, rings: &BlockTable, block: Descriptor) -> Descriptor {
        if let Some(&ViewId { ring, generation }) = self.before.get(&(block.ring, block.generation)) {
            return Descriptor { ring, generation, ..block };
        }
        rings.no_bytes(&block);
        Descriptor { pos: 0, len: 0, ring: RingId::default(), generation: Generation::default(), ..block }
    }

    /// Gives back regions in which nothing is held. Call when no batch that could name their blocks is under way.
    pub fn give_back(&mut self, rings: &mut BlockTable) {
        self.regions.sort_unstable_by_key(|id| id.index());
        self.regions.dedup();
        self.regions.drain(..).for_each(|id| rings.recycle(id));
    }

    /// Ends the borrowing: the table drops each lent segment as soon as nothing in it is held.
    pub fn leave(&mut self, rings: &mut BlockTable) {
        for (_, segment) in self.segments.drain() {
            rings.retire(segment);
            rings.recycle(segment);
        }
        self.views.clear();
        self.before.clear();
        self.regions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::{APPEND_REGION_BYTES, PINNED_REGIONS};
    use std::io::Write;

    /// Passes one block to another table: gives its descriptor there.
    fn pass(
        from: &mut BlockTable,
        lender: &mut Lender,
        to: &mut BlockTable,
        borrower: &mut Borrower,
        block: Descriptor,
    ) -> Descriptor {
        let mut loans = Loans::default();
        lender.begin(from, &mut loans);
        let block = lender.lend(from, &block, &mut loans).expect("it can be lent");
        borrower.take(to, &mut loans).expect("there are views");
        borrower.name(to, block)
    }

    #[test]
    fn a_borrower_that_leaves_keeps_what_is_held_and_no_more() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let segment = near.add_append_ring();
        let view = near.add_view(segment, Interface::default()).unwrap();
        // More rounds than a table has views.
        for turn in 0..=u32::from(u16::MAX) {
            let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
            let block = near.append_copy(view, &[b"held", &turn.to_le_bytes()]).unwrap();
            let block = pass(&mut near, &mut lender, &mut far, &mut borrower, block);
            let held = far.hold(&block).unwrap();
            borrower.leave(&mut far);
            assert_eq!(far.bytes(&held)[..4], *b"held");
            far.release(&held);
            far.recycle_held();
            assert_eq!(far.bytes(&held), b"");
            near.recycle(segment);
        }
    }

    #[test]
    fn what_is_lent_is_not_used_again_before_it_came_back() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
        let segment = near.add_append_ring();
        let view = near.add_view(segment, Interface { link_type: Some(1), ..Interface::default() }).unwrap();
        let mut expected = Vec::new();
        for value in 0..6u8 {
            let block = near.append_copy(view, &[&vec![value; APPEND_REGION_BYTES - 10]]).unwrap();
            let block = pass(&mut near, &mut lender, &mut far, &mut borrower, block);
            assert_eq!(far.link_type(&block), Some(1));
            expected.push((value, far.hold(&block).unwrap()));
            near.recycle(segment);
            borrower.give_back(&mut far);
        }
        for (value, block) in &expected {
            assert_eq!(far.bytes(block), vec![*value; APPEND_REGION_BYTES - 10]);
            far.release(block);
        }
        borrower.segments.values().for_each(|id| far.recycle(*id));
        assert!(expected.iter().all(|(_, block)| far.bytes(block).is_empty()), "given back");
        let before = near.memory_bytes();
        for _ in 0..6 {
            near.append_copy(view, &[&vec![7; APPEND_REGION_BYTES - 10]]).unwrap();
        }
        assert!(near.memory_bytes() <= before + 2 * APPEND_REGION_BYTES, "used again");
    }

    #[test]
    fn an_edit_copies_what_another_thread_reads() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
        let segment = near.add_append_ring();
        let view = near.add_view(segment, Interface::default()).unwrap();
        let mut block = near.append_copy(view, &[b"hello"]).unwrap();
        let theirs = pass(&mut near, &mut lender, &mut far, &mut borrower, block);
        assert!(near.reissue(segment).is_none());
        near.edit(&mut block, Room::default(), true, view).unwrap()[0] = b'J';
        assert_eq!((near.bytes(&block), far.bytes(&theirs)), (&b"Jello"[..], &b"hello"[..]));
        let mut mine = theirs;
        let own = far.add_append_ring();
        let own = far.add_view(own, Interface::default()).unwrap();
        far.edit(&mut mine, Room::default(), true, own).unwrap()[0] = b'c';
        assert_eq!((far.bytes(&mine), far.bytes(&theirs)), (&b"cello"[..], &b"hello"[..]));
    }

    #[test]
    fn a_file_is_lent_once_grows_and_goes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
        let segment = near.add_file(MappedFile::new(file.try_clone().unwrap()).unwrap());
        let view = near.add_view(segment, Interface::default()).unwrap();
        let first = pass(&mut near, &mut lender, &mut far, &mut borrower, view.block(0, 3));
        assert_eq!(far.bytes(&first), b"abc");
        file.write_all(b"def").unwrap();
        assert_eq!(near.grow_file(segment).unwrap(), 6);
        let second = pass(&mut near, &mut lender, &mut far, &mut borrower, view.block(3, 3));
        assert_eq!((far.bytes(&first), far.bytes(&second)), (&b"abc"[..], &b"def"[..]));
        near.retire(segment);
        near.recycle(segment);
        lender.begin(&mut near, &mut Loans::default());
        let mut loans = Loans { gone: borrower.segments.keys().copied().collect(), ..Loans::default() };
        borrower.take(&mut far, &mut loans).unwrap();
        assert_eq!(far.bytes(&first), b"");
    }

    #[test]
    fn files_opened_one_after_the_other_within_one_batch_keep_their_bytes() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower, mut loans) = (Lender::default(), Borrower::default(), Loans::default());
        for batch in 0..3u8 {
            lender.begin(&mut near, &mut loans);
            let lent: Vec<Descriptor> = (0..4u8)
                .map(|number| {
                    let mut file = tempfile::tempfile().unwrap();
                    file.write_all(&[batch, number, b'x']).unwrap();
                    let segment = near.add_file(MappedFile::new(file).unwrap());
                    let view = near.add_view(segment, Interface::default()).unwrap();
                    let block = lender.lend(&mut near, &view.block(0, 2), &mut loans).unwrap();
                    near.retire(segment);
                    near.recycle(segment);
                    assert_eq!(near.bytes(&block), b"", "the lender's table has dropped it");
                    block
                })
                .collect();
            assert!(lent.iter().all(|block| block.ring == lent[0].ring), "one number for all");
            borrower.take(&mut far, &mut loans).unwrap();
            for (number, block) in (0..).zip(&lent) {
                assert_eq!(far.bytes(&borrower.name(&far, *block)), [batch, number]);
            }
            borrower.give_back(&mut far);
        }
        assert!(borrower.segments.len() <= 4, "what has come back is dropped");
        assert_eq!(far.traffic().faults, 0);
    }

    #[test]
    fn rings_used_once_after_the_other_within_one_batch_keep_their_bytes() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower, mut loans) = (Lender::default(), Borrower::default(), Loans::default());
        lender.begin(&mut near, &mut loans);
        let mut lend = |value: u8| {
            let segment = near.add_append_ring();
            let view = near.add_view(segment, Interface::default()).unwrap();
            let block = near.append_copy(view, &[&[value; 9]]).unwrap();
            let block = lender.lend(&mut near, &block, &mut loans).unwrap();
            near.retire(segment);
            near.recycle(segment);
            (value, block)
        };
        let lent = [lend(1), lend(2), lend(3)];
        borrower.take(&mut far, &mut loans).unwrap();
        for (value, block) in lent {
            assert_eq!(far.bytes(&borrower.name(&far, block)), [value; 9]);
        }
    }

    #[test]
    fn a_file_that_grows_while_a_batch_fills_is_lent_to_its_new_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower, mut loans) = (Lender::default(), Borrower::default(), Loans::default());
        let segment = near.add_file(MappedFile::new(file.try_clone().unwrap()).unwrap());
        let views = [(); 2].map(|()| near.add_view(segment, Interface::default()).unwrap());
        lender.begin(&mut near, &mut loans);
        let mut lent = vec![lender.lend(&mut near, &views[0].block(0, 3), &mut loans).unwrap()];
        file.write_all(b"def").unwrap();
        near.grow_file(segment).unwrap();
        lent.extend(views.map(|view| lender.lend(&mut near, &view.block(3, 3), &mut loans).unwrap()));
        borrower.take(&mut far, &mut loans).unwrap();
        let bytes: Vec<&[u8]> = lent.iter().map(|block| far.bytes(&borrower.name(&far, *block))).collect();
        assert_eq!(bytes, [b"abc", b"def", b"def"]);
        assert_eq!(lender.lend(&mut near, &views[0].block(5, 2), &mut loans), None, "past the end");
        assert_eq!(near.traffic().faults, 1);
    }

    #[test]
    fn a_number_that_has_come_round_is_not_taken_for_the_old_one() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
        for turn in 0..=u32::from(u16::MAX) + 1 {
            let segment = near.add_append_ring();
            let view = near.add_view(segment, Interface::default()).unwrap();
            if turn % (1 << 16) == 0 {
                let block = near.append_copy(view, &[&turn.to_le_bytes()]).unwrap();
                let block = pass(&mut near, &mut lender, &mut far, &mut borrower, block);
                assert_eq!(far.bytes(&block), turn.to_le_bytes());
            }
            near.retire(segment);
            near.recycle(segment);
        }
    }

    #[test]
    fn a_block_that_names_nothing_is_counted_on_the_side_that_finds_out() {
        let (mut near, far) = (BlockTable::new(), BlockTable::new());
        let unknown = ViewId { ring: RingId(7), generation: Generation(0) }.block(0, 5);
        assert_eq!(Lender::default().lend(&mut near, &unknown, &mut Loans::default()), None);
        assert_eq!(Borrower::default().name(&far, unknown).len, 0);
        assert_eq!((near.traffic().faults, far.traffic().faults), (1, 1));
    }

    #[test]
    fn a_held_copy_is_copied_for_the_other_side() {
        let (mut near, mut far) = (BlockTable::new(), BlockTable::new());
        let (mut lender, mut borrower) = (Lender::default(), Borrower::default());
        let segment = near.add_append_ring();
        let view = near.add_view(segment, Interface::default()).unwrap();
        let mut held = Vec::new();
        for value in 0..PINNED_REGIONS as u8 + 3 {
            let block = near.append_copy(view, &[&vec![value; APPEND_REGION_BYTES - 1]]).unwrap().part(0, 100);
            held.push((value, near.hold(&block).unwrap()));
            near.recycle(segment);
        }
        assert!(near.traffic().hold_copies > 0);
        for (value, block) in held {
            let theirs = pass(&mut near, &mut lender, &mut far, &mut borrower, block);
            assert_eq!(far.bytes(&theirs), [value; 100]);
        }
    }
}
