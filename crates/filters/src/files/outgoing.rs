//! One file under way: the blocks that wait, the bytes written, and the bytes missing. `disk.rs` does the writing.

use super::title::Title;
use base::id::{Generation, RingId};
use base::limits::{FILE_GAPS, FILE_PENDING_BLOCKS, FILE_PENDING_BYTES};
use buffer::BlockTable;
use filter::prelude::*;
use sha2::Sha256;

/// Place of bytes that wait to be written: half a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pos: u64,
    len: u32,
    ring: RingId,
    generation: Generation,
}

impl Piece {
    pub(super) fn new(block: &Descriptor) -> Piece {
        Piece { pos: block.pos, len: block.len, ring: block.ring, generation: block.generation }
    }

    pub(super) fn descriptor(&self) -> Descriptor {
        let Piece { pos, len, ring, generation } = *self;
        Descriptor { pos, len, ring, generation, ..Descriptor::default() }
    }
}

#[derive(Debug)]
pub(super) struct Outgoing {
    title: Title,
    /// Empty until the file exists.
    pub(super) name: String,
    /// Differs from all other files of the run, and stands in most names. 0: the file has no bytes yet.
    pub(super) number: u64,
    pub(super) exists: bool,
    /// Waits for the next round of writing.
    pub(super) ready: bool,
    /// Held blocks.
    pub(super) pending: Vec<Piece>,
    pub(super) pending_bytes: u64,
    /// Bytes in the file.
    pub(super) written: u64,
    /// Hash of the written bytes.
    pub(super) hash: Option<Box<Sha256>>,
    gaps: Vec<(u64, u64)>,
    /// Media type by the first bytes, for the side-cars of a store.
    pub(super) magic: Option<&'static str>,
    truncated: bool,
    /// The limit of the request truncated the file.
    pub(super) limited: bool,
    /// Writing failed. Further bytes are not written.
    pub(super) broken: bool,
}

impl Outgoing {
    pub(super) fn new(title: Title) -> Outgoing {
        Outgoing {
            title,
            name: String::new(),
            number: 0,
            exists: false,
            ready: false,
            pending: Vec::new(),
            pending_bytes: 0,
            written: 0,
            hash: None,
            gaps: Vec::new(),
            magic: None,
            truncated: false,
            limited: false,
            broken: false,
        }
    }

    pub(super) fn title(&self) -> &Title {
        &self.title
    }

    pub(super) fn title_mut(&mut self) -> &mut Title {
        &mut self.title
    }

    /// Bytes that are or will be in the file.
    pub(super) fn size(&self) -> u64 {
        self.written + self.pending_bytes
    }

    /// Marks the file as truncated: its end was not seen.
    pub(super) fn truncate(&mut self) {
        self.truncated = true;
    }

    /// Notes a block's flags and its gap. Its bytes are about to follow those in the file.
    pub(super) fn note(&mut self, block: &Descriptor) {
        self.truncated |= block.has(Flags::TRUNCATED);
        self.limited |= block.has(Flags::LIMITED);
        let missing = u64::from(block.gap());
        if missing == 0 {
            return;
        }
        let (offset, room) = (self.size(), self.gaps.len() < FILE_GAPS);
        match self.gaps.last_mut() {
            // A long gap comes as several blocks.
            Some((at, bytes)) if *at == offset => *bytes += missing,
            _ if room => self.gaps.push((offset, missing)),
            _ => {}
        }
    }

    /// Whether the file holds enough for a system call.
    pub(super) fn holds_enough(&self) -> bool {
        self.pending.len() >= FILE_PENDING_BLOCKS || self.pending_bytes >= FILE_PENDING_BYTES
    }

    /// Drops held bytes beyond the first `left`: a limit cuts the file there. Returns how many blocks and bytes it dropped.
    pub(super) fn crop(&mut self, left: u64, rings: &BlockTable) -> (usize, u64) {
        let before = (self.pending.len(), self.pending_bytes);
        while self.pending_bytes > left
            && let Some(last) = self.pending.last_mut()
        {
            let over = self.pending_bytes - left;
            if u64::from(last.len) > over {
                last.len -= over as u32;
                self.pending_bytes = left;
            } else {
                self.pending_bytes -= u64::from(last.len);
                rings.release(&last.descriptor());
                self.pending.pop();
            }
        }
        (self.truncated, self.limited) = (true, true);
        (before.0 - self.pending.len(), before.1 - self.pending_bytes)
    }

    /// Ends the holds of the blocks that wait. Returns their empty list, for another file.
    pub(super) fn release(&mut self, rings: &BlockTable) -> Vec<Piece> {
        for piece in &self.pending {
            rings.release(&piece.descriptor());
        }
        self.pending_bytes = 0;
        self.pending.clear();
        std::mem::take(&mut self.pending)
    }

    /// The index's word for how whole the file is.
    pub(super) fn state(&self) -> &'static str {
        match (self.truncated || self.broken, self.gaps.is_empty()) {
            (true, _) => "truncated",
            (false, false) => "gap",
            (false, true) => "complete",
        }
    }

    /// Missing bytes: offset in the file, and how many.
    pub(super) fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_where_they_were_closed_up() {
        let mut file = Outgoing::new(Title::default());
        for (len, gap, expected) in
            [(10, 0, &[][..]), (5, 100, &[(10, 100)]), (0, 7, &[(10, 100), (15, 7)]), (1, 8, &[(10, 100), (15, 15)])]
        {
            let mut block = Descriptor { len, ..Descriptor::default() };
            block.set_wire(len + gap);
            block.set_flags(if gap > 0 { Flags::GAP_BEFORE } else { Flags::NONE });
            file.note(&block);
            file.pending_bytes += u64::from(len);
            assert_eq!(file.gaps(), expected);
        }
        assert_eq!(file.state(), "gap");
        file.truncate();
        assert_eq!(file.state(), "truncated");
    }

    #[test]
    fn the_list_of_gaps_is_bounded() {
        let mut file = Outgoing::new(Title::default());
        let mut block = Descriptor { len: 1, ..Descriptor::default() };
        block.set_wire(2);
        block.set_flags(Flags::GAP_BEFORE);
        for _ in 0..2 * FILE_GAPS {
            file.note(&block);
            file.pending_bytes += 1;
        }
        assert_eq!((file.gaps().len(), file.gaps().last()), (FILE_GAPS, Some(&(FILE_GAPS as u64 - 1, 1))));
    }
}
