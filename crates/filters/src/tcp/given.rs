//! The latest pieces given, by descriptor, to compare retransmissions with. They stay held up to a limit for all
//! connections. The oldest make room; dispensable pieces go first.

use super::piece::{Kept, Lane, Piece, Pieces, release};
use base::limits::TCP_GIVEN_PIECES;
use buffer::BlockTable;
use filter::Context;
use std::collections::VecDeque;

/// How many indispensable pieces are spared for one new piece; then the oldest goes anyway.
const PUT_OFF: usize = 8;

#[derive(Default)]
pub(super) struct Given {
    pieces: Pieces,
    /// The start of each piece, oldest first; may include pieces of connections that ended.
    order: VecDeque<(Lane, u64)>,
    bytes: u64,
    limit: u64,
}

impl Given {
    /// `limit`: maximum bytes.
    pub fn new(limit: u64) -> Given {
        Given { limit, ..Given::default() }
    }

    /// Whether anything is remembered at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Remembers a piece; returns the bytes it displaced. `is_done_with`: whether a lane is dispensable up to a position.
    pub fn remember(
        &mut self,
        lane: Lane,
        piece: &Piece,
        rings: &mut BlockTable,
        is_done_with: impl Fn(Lane, u64) -> bool,
    ) -> u64 {
        let Some(block) = Some(piece.block).filter(|block| block.len > 0).and_then(|block| rings.hold(&block)) else {
            return 0;
        };
        self.bytes += u64::from(block.len);
        self.order.push_back((lane, piece.start));
        if let Some(before) = self.pieces.0.insert((lane, piece.start), Kept { block, end: piece.end }) {
            self.let_go(&before, rings);
        }
        let (mut driven_out, mut put_off) = (0, 0);
        while self.bytes > self.limit || self.order.len() > TCP_GIVEN_PIECES {
            let Some(oldest) = self.order.pop_front() else { break };
            let end = self.pieces.0.get(&oldest).map_or(0, |kept| kept.end);
            if put_off < PUT_OFF && !is_done_with(oldest.0, end) {
                put_off += 1;
                self.order.push_back(oldest);
            } else if let Some(kept) = self.pieces.0.remove(&oldest) {
                driven_out += u64::from(kept.block.len);
                self.let_go(&kept, rings);
            }
        }
        driven_out
    }

    /// See [`Pieces::compare`].
    pub fn compare(&self, lane: Lane, piece: &Piece, most: usize, see: impl FnMut(&Piece, Piece, Piece)) -> bool {
        self.pieces.compare(lane, piece, most, see)
    }

    /// Whether all bytes of this piece are remembered.
    pub fn covers(&self, lane: Lane, piece: &Piece) -> bool {
        let mut at = piece.start;
        for old in self.pieces.meeting(lane, piece) {
            if old.start > at {
                return false;
            }
            at = at.max(old.start + u64::from(old.block.len));
        }
        at >= piece.end
    }

    /// Forgets the pieces of a lane whose connection ended.
    pub fn forget(&mut self, lane: Lane, rings: &BlockTable) {
        while let Some((&(_, start), _)) = self.pieces.0.range((lane, 0)..=(lane, u64::MAX)).next() {
            if let Some(kept) = self.pieces.0.remove(&(lane, start)) {
                self.let_go(&kept, rings);
            }
        }
    }

    fn let_go(&mut self, kept: &Kept, rings: &BlockTable) {
        self.bytes -= u64::from(kept.block.len);
        release(rings, &kept.block);
    }
}

/// Counts given bytes that can no longer be compared, although their connection goes on.
#[inline]
pub(super) fn count_forgotten(bytes: u64, cx: &mut Context<'_>) {
    if bytes > 0 {
        cx.count("given bytes forgotten", bytes);
    }
}
