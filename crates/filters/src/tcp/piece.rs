//! Parts of streams, by descriptor, and the overlap of two of them. `held.rs` decides which one counts.

use super::segment::Segment;
use crate::parts::flow_table::Slot;
use buffer::{BlockTable, Descriptor, Flags};
use std::collections::BTreeMap;

/// One direction of one connection.
pub(super) type Lane = u32;

/// A part of a stream: `end - start` bytes, of which the first `block.len` were captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Position of its first byte in the stream.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// Its bytes, without flags; but see [`Piece::aside`].
    pub block: Descriptor,
}

impl Piece {
    /// A range of sequence numbers without bytes, which is not a gap. `block` is the source of that knowledge.
    pub fn aside(start: u64, end: u64, block: Descriptor) -> Piece {
        let mut block = block.part(0, 0);
        block.set_flags(Flags::META);
        Piece { start, end, block }
    }

    #[inline]
    pub fn is_aside(&self) -> bool {
        self.block.has(Flags::META)
    }

    /// Whether it holds the byte at this position.
    #[inline]
    pub fn has(&self, position: u64) -> bool {
        (self.start..self.end).contains(&position)
    }

    /// The part between these positions, which lie inside the piece.
    #[inline]
    pub fn between(&self, start: u64, end: u64) -> Piece {
        debug_assert!(self.start <= start && start <= end && end <= self.end);
        // A piece is no longer than a frame.
        let (offset, len) = ((start - self.start) as u32, (end - start) as u32);
        let mut block = self.block.part(offset, len);
        block.set_flags(self.block.flags());
        Piece { start, end, block }
    }
}

/// A piece without its start, which is its key.
pub(super) struct Kept {
    pub block: Descriptor,
    pub end: u64,
}

/// Pieces of all lanes by lane and start; those of one lane do not overlap.
#[derive(Default)]
pub(super) struct Pieces(pub BTreeMap<(Lane, u64), Kept>);

impl Pieces {
    /// The pieces of a lane that overlap this one, in order.
    pub fn meeting(&self, lane: Lane, piece: &Piece) -> impl Iterator<Item = Piece> {
        let before = self.0.range((lane, 0)..(lane, piece.start)).next_back();
        let before = before.filter(|(_, kept)| kept.end > piece.start);
        let met = before.into_iter().chain(self.0.range((lane, piece.start)..(lane, piece.end)));
        met.map(|(&(_, start), &Kept { block, end })| Piece { start, end, block })
    }

    /// Calls `see` for the first `most` pieces of a lane that overlap this one, with the common part of both. `false`:
    /// more pieces overlap.
    pub fn compare(&self, lane: Lane, piece: &Piece, most: usize, mut see: impl FnMut(&Piece, Piece, Piece)) -> bool {
        let mut meeting = self.meeting(lane, piece);
        for old in meeting.by_ref().take(most) {
            let (from, to) = (old.start.max(piece.start), old.end.min(piece.end));
            see(&old, old.between(from, to), piece.between(from, to));
        }
        meeting.next().is_none()
    }
}

/// How many bytes of two pieces of one range differ, as far as both were captured.
pub(super) fn differing(one: &Piece, other: &Piece, rings: &BlockTable) -> u64 {
    let (one, other) = (rings.bytes(&one.block), rings.bytes(&other.block));
    let common = one.len().min(other.len());
    let (one, other) = (&one[..common], &other[..common]);
    if one == other { 0 } else { one.iter().zip(other).filter(|(one, other)| one != other).count() as u64 }
}

pub(super) fn release(rings: &BlockTable, block: &Descriptor) {
    if block.len > 0 {
        rings.release(block);
    }
}

/// A direction of a connection in the table.
pub(super) fn lane(slot: Slot, side: usize) -> Lane {
    slot.0 * 2 + side as u32
}

/// The connection and side of a lane.
pub(super) fn slot_and_side(lane: Lane) -> (Slot, usize) {
    (Slot(lane / 2), (lane % 2) as usize)
}

/// The payload of a segment in its frame, at position `start`.
#[inline]
pub(super) fn piece_of(segment: &Segment, frame: &Descriptor, start: u64) -> Piece {
    Piece { start, end: start + u64::from(segment.span), block: frame.part(segment.offset, segment.len) }
}
