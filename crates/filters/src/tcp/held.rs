//! Early pieces of streams, by descriptor; their bytes are pinned in place.
//!
//! Two ordered maps cover all directions of all connections (a direction is a *lane*). One holds the pieces, which
//! never overlap. The other holds the runs that they form, which neither overlap nor touch. Where a new piece meets
//! earlier ones, the policy says whose bytes count, and the other is cut. The former extent of a cut piece is
//! forgotten.
//!
//! When all lanes together hold too much, the lane that holds most makes room. So a sender of much data out of order
//! pays for it, and a lane that misses one segment keeps its data.
//!
//! Cost: a new piece visits the runs that it meets, and merges them into one. So an arrival takes amortized O(log n),
//! in whatever order data comes. A policy other than `first` visits all pieces that a new piece meets; each shares at
//! least one byte with it.

use super::piece::{Kept, Lane, Piece, Pieces, release};
use crate::parts::policy::Policy;
use base::limits::{TCP_HELD_BLOCKS, TCP_HELD_BYTES};
use buffer::BlockTable;
use filter::Context;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Held {
    pieces: Pieces,
    /// (lane, start) to end.
    runs: BTreeMap<(Lane, u64), u64>,
    bytes: u64,
    /// The load of each lane that holds something: its bytes, and [`PIECE_LOAD`] for each piece.
    loads: BTreeMap<Lane, u64>,
    /// These lanes by the binary logarithm of their load, so that a piece rarely moves its lane.
    by_load: BTreeSet<(u32, Lane)>,
    /// A buffer for the pieces that a new one meets.
    met: Vec<Piece>,
}

/// The load of a piece besides its bytes, so that both limits are shared fairly.
const PIECE_LOAD: u64 = TCP_HELD_BYTES / TCP_HELD_BLOCKS as u64;

impl Held {
    /// Number of pieces held.
    pub fn pieces(&self) -> usize {
        self.pieces.0.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a lane holds any byte of this piece.
    pub fn meets(&self, lane: Lane, piece: &Piece) -> bool {
        let run = self.runs.range((lane, 0)..(lane, piece.end)).next_back();
        run.is_some_and(|(_, end)| *end > piece.start)
    }

    /// How many pieces a new one becomes at most: one before each run that begins behind its first byte, and one
    /// at its end.
    pub fn parts(&self, lane: Lane, piece: &Piece) -> usize {
        let begin_inside = self.runs.range((lane, piece.start)..(lane, piece.end));
        1 + begin_inside.filter(|((_, start), _)| *start > piece.start).count()
    }

    /// See [`Pieces::compare`].
    pub fn compare(&self, lane: Lane, piece: &Piece, most: usize, see: impl FnMut(&Piece, Piece, Piece)) -> bool {
        self.pieces.compare(lane, piece, most, see)
    }

    /// Keeps the parts of a piece that the policy prefers to held bytes. Returns the number of new bytes, and the
    /// change in the number of pieces (may be negative).
    pub fn keep(&mut self, lane: Lane, piece: &Piece, policy: Policy, rings: &mut BlockTable) -> (u64, i64) {
        let before = self.pieces.0.len() as i64;
        let is_laid = policy != Policy::First && self.meets(lane, piece);
        if is_laid {
            self.overlay(lane, piece, policy, rings);
        }
        let mut new = 0;
        let mut fill = |held: &mut Held, from: u64, to: u64| {
            new += to.saturating_sub(from);
            if !is_laid {
                held.pin(lane, piece, from, to, rings);
            }
        };
        // The run that the new bytes become part of.
        let (mut run_start, mut run_end) = (piece.start, piece.end);
        let mut from = piece.start;
        if let Some((&(_, start), &end)) = self.runs.range((lane, 0)..=(lane, piece.start)).next_back()
            && end >= piece.start
        {
            (run_start, run_end) = (start, run_end.max(end));
            from = end;
        }
        while from <= piece.end
            && let Some((&(_, start), &end)) = self.runs.range((lane, from)..=(lane, piece.end)).next()
        {
            fill(self, from, start);
            self.runs.remove(&(lane, start));
            run_end = run_end.max(end);
            from = end;
        }
        fill(self, from, piece.end);
        self.runs.insert((lane, run_start), run_end);
        (new, self.pieces.0.len() as i64 - before)
    }

    /// Lays a piece over the held pieces that the policy ranks below it, and into the gaps between them.
    fn overlay(&mut self, lane: Lane, piece: &Piece, policy: Policy, rings: &mut BlockTable) {
        let mut met = std::mem::take(&mut self.met);
        met.extend(self.pieces.meeting(lane, piece));
        // Where the new piece's next bytes begin.
        let mut next = piece.start;
        for old in met.drain(..) {
            if policy.takes_later_in_stream((old.start, old.end), (piece.start, piece.end)) {
                self.forget(lane, old.start);
                self.pin(lane, &old, old.start, piece.start, rings);
                self.pin(lane, &old, piece.end, old.end, rings);
                release(rings, &old.block);
            } else {
                self.pin(lane, piece, next, old.start, rings);
                next = old.end;
            }
        }
        self.pin(lane, piece, next, piece.end, rings);
        self.met = met;
    }

    /// Keeps the part of a piece between these positions, unless it is empty.
    fn pin(&mut self, lane: Lane, piece: &Piece, start: u64, end: u64, rings: &mut BlockTable) {
        if start >= end {
            return;
        }
        let part = piece.between(start, end);
        // If it cannot be held, it is kept as missing bytes, so that the positions add up.
        let block = if part.block.len == 0 { Some(part.block) } else { rings.hold(&part.block) };
        let block = block.unwrap_or(part.block.part(0, 0));
        self.bytes += u64::from(block.len);
        self.change_load(lane, |load| load + PIECE_LOAD + u64::from(block.len));
        self.pieces.0.insert((lane, start), Kept { block, end });
    }

    /// Removes a piece from the maps without releasing its block.
    fn forget(&mut self, lane: Lane, start: u64) -> Option<Kept> {
        let kept = self.pieces.0.remove(&(lane, start))?;
        self.bytes -= u64::from(kept.block.len);
        self.change_load(lane, |load| load - PIECE_LOAD - u64::from(kept.block.len));
        Some(kept)
    }

    /// The start of a lane's first run.
    #[inline]
    pub fn first(&self, lane: Lane) -> Option<u64> {
        self.runs.range((lane, 0)..=(lane, u64::MAX)).next().map(|(&(_, start), _)| start)
    }

    /// The end of a lane's first run; 0 if it has none.
    pub fn first_end(&self, lane: Lane) -> u64 {
        self.runs.range((lane, 0)..=(lane, u64::MAX)).next().map_or(0, |(_, end)| *end)
    }

    /// The end of a lane's last run; 0 if it has none.
    pub fn end(&self, lane: Lane) -> u64 {
        self.runs.range((lane, 0)..=(lane, u64::MAX)).next_back().map_or(0, |(_, end)| *end)
    }

    /// Removes the pieces of a lane's first run that end at or before `until`. `give` gets each in order before its
    /// release. Returns their number.
    pub fn take_first(&mut self, lane: Lane, until: u64, rings: &BlockTable, mut give: impl FnMut(Piece)) -> u32 {
        let Some((&(_, first), &run_end)) = self.runs.range((lane, 0)..=(lane, u64::MAX)).next() else { return 0 };
        let (mut taken, mut load, mut rest) = (0, 0, first);
        let range = (lane, first)..(lane, run_end.min(until).max(first));
        for ((_, start), Kept { block, end }) in self.pieces.0.extract_if(range, |_, kept| kept.end <= until) {
            release(rings, &block);
            self.bytes -= u64::from(block.len);
            load += PIECE_LOAD + u64::from(block.len);
            (taken, rest) = (taken + 1, end);
            give(Piece { start, end, block });
        }
        if taken > 0 {
            self.runs.remove(&(lane, first));
            if rest < run_end {
                self.runs.insert((lane, rest), run_end);
            }
            self.change_load(lane, |before| before - load);
        }
        taken
    }

    /// Drops the last piece of a lane; `false` if there is none.
    pub fn drop_last(&mut self, lane: Lane, rings: &BlockTable) -> bool {
        let Some((&(_, start), _)) = self.pieces.0.range((lane, 0)..=(lane, u64::MAX)).next_back() else {
            return false;
        };
        if let Some(kept) = self.forget(lane, start) {
            release(rings, &kept.block);
        }
        // It was the end of the last run, or all of it.
        if self.runs.remove(&(lane, start)).is_none()
            && let Some((_, run_end)) = self.runs.range_mut((lane, 0)..=(lane, start)).next_back()
        {
            *run_end = start;
        }
        true
    }

    /// A lane with the largest load, to the next power of two: the next one after `lane`, so that they take turns.
    pub fn heavy_lane_after(&self, lane: Lane) -> Option<Lane> {
        let &(class, _) = self.by_load.last()?;
        let after = self.by_load.range((class, lane.saturating_add(1))..=(class, Lane::MAX)).next();
        after.or_else(|| self.by_load.range((class, 0)..).next()).map(|&(_, lane)| lane)
    }

    fn change_load(&mut self, lane: Lane, change: impl FnOnce(u64) -> u64) {
        let before = self.loads.get(&lane).copied().unwrap_or(0);
        let after = change(before);
        if after == 0 {
            self.loads.remove(&lane);
        } else {
            self.loads.insert(lane, after);
        }
        let (old, new) = (before.checked_ilog2(), after.checked_ilog2());
        if old == new {
            return;
        }
        if let Some(class) = old {
            self.by_load.remove(&(class, lane));
        }
        if let Some(class) = new {
            self.by_load.insert((class, lane));
        }
    }
}

/// Drops everything held of a lane.
pub(super) fn drop_held(held: &mut Held, lane: Lane, cx: &mut Context<'_>) -> u32 {
    let mut dropped = 0;
    while held.drop_last(lane, cx.rings) {
        dropped += 1;
    }
    if dropped > 0 {
        cx.count("segments after the end", u64::from(dropped));
    }
    dropped
}
