//! Pieces of streams that came before their turn, by descriptor; the bytes stay where they are, pinned.
//!
//! Two ordered maps over all directions of all connections (a direction is a *lane* here): the pieces, which never
//! overlap, and the runs they make, which neither overlap nor touch. The first copy of a byte wins: of a newcomer only
//! what no run covers is kept, in as many pieces as that makes.
//!
//! Where all lanes together hold too much, the one to make room is found by what each holds: whoever sends a lot out of
//! order pays for it, and who is missing one segment among many who are keeps it.
//!
//! Cost: a newcomer looks at the runs it meets and at nothing else, and every run but one that it meets is gone
//! afterwards. So whatever is sent, in whatever order, an arrival costs O(log n) in the long run.

use base::limits::{TCP_HELD_BLOCKS, TCP_HELD_BYTES};
use buffer::{BlockTable, Descriptor};
use std::collections::{BTreeMap, BTreeSet};

/// One direction of one connection.
pub(super) type Lane = u32;

/// A part of a stream: `end - start` bytes, of which the first `block.len` were captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Position of its first byte in the stream.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// Its bytes, without flags.
    pub block: Descriptor,
}

impl Piece {
    /// The part of it between these positions, which lie in it.
    #[inline]
    pub fn between(&self, start: u64, end: u64) -> Piece {
        debug_assert!(self.start <= start && start <= end && end <= self.end);
        // A piece is no longer than a frame.
        let (offset, len) = ((start - self.start) as u32, (end - start) as u32);
        Piece { start, end, block: self.block.part(offset, len) }
    }
}

struct Kept {
    block: Descriptor,
    end: u64,
}

/// All that is held.
#[derive(Default)]
pub(super) struct Held {
    pieces: BTreeMap<(Lane, u64), Kept>,
    /// End by lane and start.
    runs: BTreeMap<(Lane, u64), u64>,
    bytes: u64,
    /// What each lane holds that holds something: its bytes, and [`PIECE_LOAD`] for each piece.
    loads: BTreeMap<Lane, u64>,
    /// The same lanes by the binary logarithm of their load, so that hardly a piece moves its lane.
    by_load: BTreeSet<(u32, Lane)>,
}

/// What a piece counts for besides its bytes, so that both limits are shared out.
const PIECE_LOAD: u64 = TCP_HELD_BYTES / TCP_HELD_BLOCKS as u64;

impl Held {
    /// Pieces held.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps those parts of a piece that are not held yet; gives how many parts these were.
    pub fn keep(&mut self, lane: Lane, piece: &Piece, rings: &mut BlockTable) -> u32 {
        let mut kept = 0;
        // The run that what is new becomes a part of.
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
            kept += self.pin(lane, piece, from, start, rings);
            self.runs.remove(&(lane, start));
            run_end = run_end.max(end);
            from = end;
        }
        kept += self.pin(lane, piece, from, piece.end, rings);
        self.runs.insert((lane, run_start), run_end);
        kept
    }

    /// Keeps the part of a piece between these positions, if there is one.
    fn pin(&mut self, lane: Lane, piece: &Piece, start: u64, end: u64, rings: &mut BlockTable) -> u32 {
        if start >= end {
            return 0;
        }
        let part = piece.between(start, end);
        // What cannot be held is kept as missing bytes, so that the positions add up.
        let block = if part.block.len == 0 { None } else { rings.hold(&part.block) };
        let block = block.unwrap_or(part.block.part(0, 0));
        self.bytes += u64::from(block.len);
        self.change_load(lane, |load| load + PIECE_LOAD + u64::from(block.len));
        self.pieces.insert((lane, start), Kept { block, end });
        1
    }

    /// Where the first run of a lane begins.
    #[inline]
    pub fn first(&self, lane: Lane) -> Option<u64> {
        self.runs.range((lane, 0)..=(lane, u64::MAX)).next().map(|(&(_, start), _)| start)
    }

    /// Takes out the pieces of a lane's first run, in order, each released as it is given; gives how many there were.
    pub fn take_first(&mut self, lane: Lane, rings: &BlockTable, mut give: impl FnMut(Piece)) -> u32 {
        let Some((&(_, first), &run_end)) = self.runs.range((lane, 0)..=(lane, u64::MAX)).next() else { return 0 };
        self.runs.remove(&(lane, first));
        let (mut taken, mut load) = (0, 0);
        for ((_, start), Kept { block, end }) in self.pieces.extract_if((lane, first)..(lane, run_end), |_, _| true) {
            release(rings, &block);
            self.bytes -= u64::from(block.len);
            load += PIECE_LOAD + u64::from(block.len);
            taken += 1;
            give(Piece { start, end, block });
        }
        self.change_load(lane, |before| before - load);
        taken
    }

    /// Lets go of the piece of a lane that is farthest ahead; says whether there was one.
    pub fn drop_last(&mut self, lane: Lane, rings: &BlockTable) -> bool {
        let Some((&(_, start), _)) = self.pieces.range((lane, 0)..=(lane, u64::MAX)).next_back() else { return false };
        if let Some(kept) = self.pieces.remove(&(lane, start)) {
            release(rings, &kept.block);
            self.bytes -= u64::from(kept.block.len);
            self.change_load(lane, |load| load - PIECE_LOAD - u64::from(kept.block.len));
        }
        // It was the end of the last run, or all of it.
        if self.runs.remove(&(lane, start)).is_none()
            && let Some((_, run_end)) = self.runs.range_mut((lane, 0)..=(lane, start)).next_back()
        {
            *run_end = start;
        }
        true
    }

    /// Of the lanes that hold most, to the next power of two: the first one after this, or else the first, so that they
    /// take turns.
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

fn release(rings: &BlockTable, block: &Descriptor) {
    if block.len > 0 {
        rings.release(block);
    }
}
