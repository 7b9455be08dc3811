//! The pieces of one fragmented packet, as descriptors; their bytes are held in place. `fragments.rs` decides which
//! packet a fragment belongs to, and when to give up.
//!
//! Pieces never overlap. Where a new piece meets an earlier one, the policy says whose bytes count, and the other is
//! cut; a cut in the middle makes two pieces. The former extent of a cut piece is forgotten, as in the stacks that the
//! policies are named after.

use crate::parts::policy::Policy;
use buffer::{BlockTable, Descriptor};
use std::collections::BTreeMap;
use std::ops::Range;

/// Part of a packet's payload: `end - start` bytes, of which the first `block.len` were captured.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    end: u32,
    block: Descriptor,
}

impl Piece {
    /// The part of the piece in `range`, which lies inside it.
    fn part(&self, range: Range<u32>) -> Piece {
        let block = self.block.part(range.start - self.start, range.end - range.start);
        Piece { start: range.start, end: range.end, block }
    }
}

/// How a new piece relates to earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    /// Some of its bytes were there already.
    pub overlaps: bool,
    /// Some of those bytes differ.
    pub differs: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Start to (end, bytes): an attacker may send thousands of pieces in any order.
    pieces: BTreeMap<u32, (u32, Descriptor)>,
    /// Bytes of the packet that are there, captured or not.
    covered: u32,
    held: u64,
}

impl Pieces {
    pub fn covered(&self) -> u32 {
        self.covered
    }

    pub fn held(&self) -> u64 {
        self.held
    }

    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The end of the last piece.
    pub fn end(&self) -> u32 {
        self.pieces.last_key_value().map_or(0, |(_, (end, _))| *end)
    }

    /// How many earlier pieces the bytes of `range` overlap, and whether some of these bytes differ.
    pub fn meet(&self, range: Range<u32>, block: Descriptor, rings: &BlockTable) -> (usize, bool) {
        let new = Piece { start: range.start, end: range.end, block };
        let met = self.overlapping(&new);
        let differs = met.iter().any(|old| {
            let both = old.start.max(new.start)..old.end.min(new.end);
            differ(&old.part(both.clone()), &new.part(both), rings)
        });
        (met.len(), differs)
    }

    /// Adds the bytes of `range`. If `block` is shorter, the capture has cut the rest.
    pub fn add(&mut self, range: Range<u32>, block: Descriptor, policy: Policy, rings: &mut BlockTable) -> Met {
        let new = Piece { start: range.start, end: range.end, block };
        let mut met = Met::default();
        // Where the new piece's next bytes begin.
        let mut next = new.start;
        for old in self.overlapping(&new) {
            let both = old.start.max(new.start)..old.end.min(new.end);
            met.overlaps = true;
            met.differs |= differ(&old.part(both.clone()), &new.part(both.clone()), rings);
            let wide = |piece: &Piece| (u64::from(piece.start), u64::from(piece.end));
            if policy.takes_later(wide(&old), wide(&new)) {
                self.remove(&old);
                self.keep(&old.part(old.start..both.start), rings);
                self.keep(&old.part(both.end..old.end), rings);
                release(&old, rings);
            } else {
                self.keep(&new.part(next..both.start), rings);
                next = both.end;
            }
        }
        self.keep(&new.part(next..new.end), rings);
        met
    }

    /// Earlier pieces that overlap the new one, in order.
    fn overlapping(&self, new: &Piece) -> Vec<Piece> {
        let piece =
            |(start, (end, block)): (&u32, &(u32, Descriptor))| Piece { start: *start, end: *end, block: *block };
        let before = self.pieces.range(..new.start).next_back().map(piece).filter(|old| old.end > new.start);
        before.into_iter().chain(self.pieces.range(new.start..new.end).map(piece)).collect()
    }

    fn remove(&mut self, old: &Piece) {
        self.pieces.remove(&old.start);
        self.covered -= old.end - old.start;
        self.held -= u64::from(old.block.len);
    }

    /// Holds a piece unless it is empty. If its bytes cannot be held, it counts as cut by the capture.
    fn keep(&mut self, piece: &Piece, rings: &mut BlockTable) {
        if piece.start >= piece.end {
            return;
        }
        let held = if piece.block.len == 0 { None } else { rings.hold(&piece.block) };
        let block = held.unwrap_or(piece.block.part(0, 0));
        self.covered += piece.end - piece.start;
        self.held += u64::from(block.len);
        self.pieces.insert(piece.start, (piece.end, block));
    }

    /// If bytes are missing only at the end: how many were captured.
    pub fn captured(&self) -> Option<u32> {
        let mut pieces = self.pieces.iter();
        let (start, (_, last)) = pieces.next_back()?;
        pieces.all(|(start, (end, block))| block.len == end - start).then(|| start + last.len)
    }

    /// Copies the bytes of all pieces to their places in `out`.
    pub fn copy_to(&self, out: &mut [u8], rings: &BlockTable) {
        for (start, (_, block)) in &self.pieces {
            let bytes = rings.bytes(block);
            if let Some(space) = out.get_mut(*start as usize..).and_then(|out| out.get_mut(..bytes.len())) {
                space.copy_from_slice(bytes);
            }
        }
    }

    pub fn release(&mut self, rings: &BlockTable) {
        for (start, (end, block)) in std::mem::take(&mut self.pieces) {
            release(&Piece { start, end, block }, rings);
        }
        (self.covered, self.held) = (0, 0);
    }
}

/// Whether two pieces of one range differ in the bytes that were captured of both.
fn differ(one: &Piece, other: &Piece, rings: &BlockTable) -> bool {
    let (one, other) = (rings.bytes(&one.block), rings.bytes(&other.block));
    let common = one.len().min(other.len());
    one[..common] != other[..common]
}

fn release(piece: &Piece, rings: &BlockTable) {
    if piece.block.len > 0 {
        rings.release(&piece.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::policy::ALL;
    use buffer::{Interface, ViewId};
    use proptest::prelude::*;

    struct Bed {
        rings: BlockTable,
        segment: buffer::SegmentId,
        view: ViewId,
        pieces: Pieces,
    }

    fn bed() -> Bed {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        Bed { rings, segment, view, pieces: Pieces::default() }
    }

    impl Bed {
        fn add(&mut self, start: u32, bytes: &[u8], policy: Policy) -> Met {
            let block = self.rings.append_copy(self.view, &[bytes]).unwrap();
            self.pieces.add(start..start + bytes.len() as u32, block, policy, &mut self.rings)
        }

        /// All bytes, with dots for holes.
        fn text(&self) -> String {
            let mut out = vec![b'.'; self.pieces.end() as usize];
            self.pieces.copy_to(&mut out, &self.rings);
            String::from_utf8(out).unwrap()
        }
    }

    /// Novak's pieces, from Suricata's tests: (letter, count, start).
    const NOVAK: [(u8, usize, u32); 17] = [
        (b'A', 24, 0),
        (b'B', 16, 32),
        (b'C', 24, 48),
        (b'D', 8, 80),
        (b'E', 16, 104),
        (b'F', 24, 120),
        (b'G', 16, 144),
        (b'H', 16, 160),
        (b'I', 8, 176),
        (b'J', 32, 8),
        (b'K', 24, 48),
        (b'L', 24, 72),
        (b'M', 24, 96),
        (b'N', 8, 128),
        (b'O', 8, 152),
        (b'P', 8, 160),
        (b'Q', 16, 176),
    ];

    #[test]
    fn overlaps_are_resolved_letter_by_letter_as_each_system_does() {
        let rows = [
            (Policy::First, "AAAJBBCCCLDLMEEFFFGGHHIQ"),
            (Policy::Windows, "AAAJBBCCCLLLMEEFFFGGHHIQ"),
            (Policy::Solaris, "AAAJBBCCCLLLMMMFFFGGHHIQ"),
            (Policy::Bsd, "AAAJJBCCCLLLMMMFFFGGHHIQ"),
            (Policy::Linux, "AAAJJBKKKLLLMMMFFFGGPHQQ"),
            (Policy::OldLinux, "AAAJJBKKKLLLMMMFFFGGPHQQ"),
            (Policy::Vista, "AAAJBBCCCLLLMEEFFFGGHHIQ"),
            (Policy::Last, "AJJJJBKKKLLLMMMFNFGOPHQQ"),
        ];
        for (policy, expected) in rows {
            let mut bed = bed();
            NOVAK.iter().for_each(|(letter, count, at)| _ = bed.add(*at, &vec![*letter; *count], policy));
            let text = bed.text();
            let units: String = text.as_bytes().chunks(8).map(|unit| char::from(unit[0])).collect();
            assert_eq!((units.as_str(), text.len()), (expected, 192), "{policy:?}");
            assert!(text.as_bytes().chunks(8).all(|unit| unit.iter().all(|byte| *byte == unit[0])));
            assert_eq!((bed.pieces.covered(), bed.pieces.held()), (192, 192));
        }
    }

    #[test]
    fn what_was_met_is_told() {
        let mut bed = bed();
        let rows = [
            (0, "abcd", (false, false)),
            (8, "ijkl", (false, false)),
            (0, "abcd", (true, false)),
            (2, "cdef", (true, false)),
            (4, "xx", (true, true)),
            (6, "gh", (false, false)),
        ];
        for (at, bytes, (overlaps, differs)) in rows {
            assert_eq!(bed.add(at, bytes.as_bytes(), Policy::First), Met { overlaps, differs }, "{at} {bytes}");
        }
        assert_eq!((bed.text().as_str(), bed.pieces.captured()), ("abcdefghijkl", Some(12)));
    }

    #[test]
    fn a_cut_is_no_harm_at_the_end_alone() {
        let mut bed = bed();
        let block = bed.rings.append_copy(bed.view, &[b"ef"]).unwrap();
        bed.pieces.add(4..8, block, Policy::First, &mut bed.rings);
        bed.add(0, b"abcd", Policy::First);
        assert_eq!((bed.pieces.captured(), bed.pieces.covered()), (Some(6), 8));
        bed.add(8, b"ij", Policy::First);
        assert_eq!(bed.pieces.captured(), None);
    }

    /// A model of the rule, byte by byte: each byte remembers its current piece. `None` for a hole.
    fn by_byte(steps: &[(u32, u32)], policy: Policy) -> Vec<Option<usize>> {
        let mut owners: Vec<Option<usize>> = Vec::new();
        for (number, (start, len)) in steps.iter().enumerate() {
            let (start, end) = (*start as usize, (*start + *len) as usize);
            owners.resize(owners.len().max(end), None);
            let before = owners.clone();
            let mut at = start;
            while at < end {
                let Some(owner) = before[at] else {
                    owners[at] = Some(number);
                    at += 1;
                    continue;
                };
                // A run with one owner is a piece.
                let from = (0..=at).rev().take_while(|place| before[*place] == Some(owner)).last().unwrap();
                let to = (at..before.len()).take_while(|place| before[*place] == Some(owner)).last().unwrap() + 1;
                let takes = policy.takes_later((from as u64, to as u64), (start as u64, end as u64));
                if takes {
                    owners[at..to.min(end)].fill(Some(number));
                }
                at = to.min(end);
            }
        }
        owners
    }

    proptest! {
        #[test]
        fn any_pieces_are_as_the_rule_says_byte_by_byte(
            steps in proptest::collection::vec((0u32..40, 1u32..12), 1..12),
            policy in proptest::sample::select(ALL.to_vec()),
        ) {
            let mut bed = bed();
            for (number, (start, len)) in steps.iter().enumerate() {
                bed.add(*start, &vec![b'a' + number as u8; *len as usize], policy);
            }
            let owners = by_byte(&steps, policy);
            let expected: String = owners.iter().map(|owner| owner.map_or('.', |owner| char::from(b'a' + owner as u8))).collect();
            prop_assert_eq!(bed.text(), expected);
            let count = owners.iter().flatten().count() as u32;
            prop_assert_eq!((bed.pieces.covered(), bed.pieces.held()), (count, u64::from(count)));
            // Every hold is released.
            bed.pieces.release(&bed.rings);
            prop_assert_eq!((bed.pieces.count(), bed.pieces.covered(), bed.pieces.held()), (0, 0, 0));
            bed.rings.retire(bed.segment);
            bed.rings.recycle(bed.segment);
            prop_assert!(bed.rings.interface(&bed.view.block(0, 0)).is_none(), "something is still held");
        }
    }
}
