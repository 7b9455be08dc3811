//! An append ring of another thread's table, as far as its regions were lent.

use crate::append_ring::Chunk;
use base::limits::PINNED_REGIONS;
use std::collections::VecDeque;
use std::sync::Arc;

/// A lent region of an append ring: the positions that were published before this handle was made.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    pub(crate) chunk: Arc<Chunk>,
    pub(crate) start: u64,
    pub(crate) used: usize,
}

impl Lent {
    pub(crate) fn offset_of(&self, pos: u64, len: u32) -> Option<usize> {
        let offset = usize::try_from(pos.checked_sub(self.start)?).ok()?;
        (offset <= self.used && len as usize <= self.used - offset).then_some(offset)
    }

    fn bytes(&self, pos: u64, len: u32) -> Option<&[u8]> {
        let offset = self.offset_of(pos, len)?;
        // SAFETY: `used` bytes were published when the ring made this handle.
        Some(unsafe { self.chunk.bytes(offset, len as usize) })
    }
}

/// Regions of one append ring that were lent.
#[derive(Debug, Default)]
pub(crate) struct BorrowedRing {
    /// In order of position, each with the number of held descriptors in it.
    regions: VecDeque<(Lent, std::cell::Cell<u32>)>,
}

impl BorrowedRing {
    fn add_sorted(&mut self, lent: Lent) {
        let after = self.regions.partition_point(|(known, _)| known.start <= lent.start);
        match after.checked_sub(1).and_then(|index| self.regions.get_mut(index)) {
            Some((known, _)) if known.start == lent.start && Arc::ptr_eq(&known.chunk, &lent.chunk) => {
                known.used = known.used.max(lent.used);
            }
            _ => self.regions.insert(after, (lent, std::cell::Cell::new(0))),
        }
    }

    pub(crate) fn add(&mut self, lent: Lent) {
        self.add_sorted(lent);
    }

    fn find(&self, pos: u64, len: u32) -> Option<&(Lent, std::cell::Cell<u32>)> {
        let after = self.regions.partition_point(|(known, _)| known.start <= pos);
        self.regions.get(after.checked_sub(1)?).filter(|(lent, _)| lent.offset_of(pos, len).is_some())
    }

    pub(crate) fn bytes(&self, pos: u64, len: u32) -> Option<&[u8]> {
        self.find(pos, len)?.0.bytes(pos, len)
    }

    /// Lends the region on to a third table.
    pub(crate) fn lend(&self, pos: u64, len: u32) -> Option<Lent> {
        self.find(pos, len).map(|(lent, _)| lent.clone())
    }

    /// As [`AppendRing::hold`](crate::AppendRing::hold).
    pub(crate) fn hold(&self, pos: u64, len: u32) -> bool {
        let Some((_, holds)) = self.find(pos, len) else { return false };
        if holds.get() == 0 && self.regions.len() > PINNED_REGIONS {
            return false;
        }
        holds.set(holds.get() + 1);
        true
    }

    pub(crate) fn release(&self, pos: u64, len: u32) {
        if let Some((_, holds)) = self.find(pos, len) {
            holds.set(holds.get().saturating_sub(1));
        }
    }

    pub(crate) fn recycle(&mut self) -> bool {
        self.regions.retain(|(_, holds)| holds.get() > 0);
        !self.regions.is_empty()
    }
}
