//! The table's part of [`lending`](crate::lending): hands out its memory, and takes in the memory of another table.

use super::{BlockTable, Memory, Segment, SegmentId};
use crate::borrowed_ring::{BorrowedRing, Lent};
use crate::descriptor::Descriptor;
use crate::mapped_file::MappedFile;
use std::sync::Arc;

impl BlockTable {
    pub(crate) fn serial_of(&self, block: &Descriptor) -> Option<(SegmentId, u64)> {
        let id = self.view(block)?.segment;
        Some((id, self.segment(id)?.serial))
    }

    pub(crate) fn is_still(&self, id: SegmentId, serial: u64) -> bool {
        self.segment(id).is_some_and(|segment| segment.serial == serial)
    }

    pub(crate) fn shared_file(&self, id: SegmentId) -> Option<&Arc<MappedFile>> {
        match &self.segment(id)?.memory {
            Memory::File(file) => Some(file),
            Memory::Append(_) | Memory::Borrowed(_) | Memory::Held(_) => None,
        }
    }

    /// Lends the memory of a block to another thread. `None` for blocks of files and for copies of held blocks.
    pub(crate) fn lend(&self, block: &Descriptor) -> Option<Lent> {
        match &self.segment(self.view(block)?.segment)?.memory {
            Memory::Append(ring) => {
                ring.lend(block.pos, block.len).map(|(chunk, start, used)| Lent { chunk, start, used })
            }
            Memory::Borrowed(ring) => ring.lend(block.pos, block.len),
            Memory::File(_) | Memory::Held(_) => None,
        }
    }

    /// Adds a file that another table maps as well, or replaces the older map of a `known` segment.
    pub(crate) fn borrow_file(&mut self, known: Option<SegmentId>, file: Arc<MappedFile>) -> SegmentId {
        match known.and_then(|id| Some((id, self.segment_mut(id)?))) {
            Some((id, segment)) => {
                segment.memory = Memory::File(file);
                self.see_file(id);
                id
            }
            None => self.add_segment(Memory::File(file)),
        }
    }

    /// Adds memory that another table lends: to the `known` segment if there is one, else to a new one.
    pub(crate) fn borrow_region(&mut self, known: Option<SegmentId>, lent: Lent) -> SegmentId {
        let id = known.unwrap_or_else(|| self.add_segment(Memory::Borrowed(BorrowedRing::default())));
        if let Some(Segment { memory: Memory::Borrowed(ring), .. }) = self.segment_mut(id) {
            ring.add(lent);
        }
        id
    }
}
