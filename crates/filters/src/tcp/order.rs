//! Data of one direction, from any order into the right one: what is next is given, what is early is held, what is missing
//! is waited for or given up on.

use super::assembler::Assembler;
use super::connection::Successor;
use super::direction::is_near;
use super::held::{Held, Lane, Piece};
use super::segment::Segment;
use crate::parts::flow_table::Slot;
use filter::prelude::*;

/// A direction of a connection in the table.
pub(super) fn lane(slot: Slot, side: usize) -> Lane {
    slot.0 * 2 + side as u32
}

/// What a lane is a direction of.
pub(super) fn slot_and_side(lane: Lane) -> (Slot, usize) {
    (Slot(lane / 2), (lane % 2) as usize)
}

/// The payload of a segment in its frame, at this position.
#[inline]
pub(super) fn piece_of(segment: &Segment, frame: &Descriptor, start: u64) -> Piece {
    Piece { start, end: start + u64::from(segment.span), block: frame.part(segment.offset, segment.len) }
}

impl Assembler {
    /// Takes the payload of a segment. An error is why it was dropped.
    pub(super) fn data(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let class = Class::of_stream(connection.number, side as u8);
        let sequence = segment.data_sequence();
        if connection.is_of_successor(side, sequence) {
            return Err("after a doubtful syn");
        }
        let own = &mut connection.directions[side];
        own.begin_midstream(sequence);
        if !is_near(own.ahead(sequence)) {
            connection.suspect(Successor { side, next: sequence.wrapping_add(segment.span), syn: false });
            return Err("out of window");
        }
        let mut piece = piece_of(segment, frame, own.position(sequence));
        if piece.end <= own.next {
            cx.count("repeated bytes", u64::from(segment.span));
            return Ok(());
        }
        if piece.start < own.next {
            cx.count("repeated bytes", own.next - piece.start);
            piece = piece.between(own.next, piece.end);
        }
        if let Some(fin) = own.fin
            && piece.end > fin
        {
            if own.sure_end().is_some() {
                cx.count("bytes after the end", piece.end - fin.max(piece.start));
                if piece.start >= fin {
                    return Ok(());
                }
                piece = piece.between(piece.start, fin);
            } else {
                // Its sender goes on, so the FIN was forged.
                cx.count("fins ignored", 1);
                own.fin = None;
            }
        }
        connection.reset = false;
        if piece.start > own.next {
            self.hold(slot, side, &piece, cx);
            return Ok(());
        }
        if own.held == 0 {
            own.give(&piece, class, cx.out);
            return Ok(());
        }
        self.fill(slot, side, &piece, cx);
        Ok(())
    }

    /// Gives a piece that is next, and what is held and follows.
    fn fill(&mut self, slot: Slot, side: usize, piece: &Piece, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let class = Class::of_stream(connection.number, side as u8);
        let own = &mut connection.directions[side];
        while own.next <= piece.end {
            let run = self.held.first(lane(slot, side)).filter(|start| *start <= piece.end);
            let until = run.unwrap_or(piece.end);
            if own.next < until {
                own.give(&piece.between(own.next, until), class, cx.out);
            }
            if run.is_none() {
                break;
            }
            let (rings, out) = (&*cx.rings, &mut *cx.out);
            let taken = self.held.take_first(lane(slot, side), rings, |held| own.give(&held, class, out));
            own.held -= taken;
        }
        if own.held > 0 {
            own.hole_since = cx.now;
            self.watch(lane(slot, side), cx.now, cx.order.sequence);
        }
    }

    /// Keeps a piece until what is missing before it comes.
    fn hold(&mut self, slot: Slot, side: usize, piece: &Piece, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        let kept = self.held.keep(lane(slot, side), piece, cx.rings);
        if kept == 0 {
            cx.count("repeated bytes", piece.end - piece.start);
            return;
        }
        cx.count("segments out of order", 1);
        let opens_hole = own.held == 0;
        own.held += kept;
        if opens_hole {
            own.hole_since = cx.now;
            self.watch(lane(slot, side), cx.now, cx.order.sequence);
        }
        let per_direction = self.settings.held_per_direction;
        while self.table.get(slot).is_some_and(|it| it.directions[side].held as usize > per_direction) {
            self.relieve(slot, side, cx);
        }
        while self.held.pieces() > self.settings.held || self.held.bytes() > self.settings.memory {
            let Some(lane) = self.held.heavy_lane_after(self.last_relieved) else { break };
            self.last_relieved = lane;
            let (slot, side) = slot_and_side(lane);
            self.relieve(slot, side, cx);
        }
    }

    /// Makes room in a direction that holds something. Where the other side is waiting for the missing bytes as well,
    /// they will be sent again, and it is what lies farthest ahead that goes: else whoever can forge segments could make
    /// us skip what the other side gets.
    fn relieve(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(hole_end) = self.held.first(lane(slot, side)) else { return };
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if own.acknowledged && own.acked < hole_end {
            if self.held.drop_last(lane(slot, side), cx.rings) {
                own.held -= 1;
                cx.count("held segments dropped to make room", 1);
            }
        } else {
            cx.count("gaps to make room", 1);
            self.give_up(slot, side, cx);
        }
    }

    /// Gives up on the bytes missing before what is held, up to the next hole.
    pub(super) fn give_up(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(hole_end) = self.held.first(lane(slot, side)) else { return };
        let Some(connection) = self.table.get_mut(slot) else { return };
        let class = Class::of_stream(connection.number, side as u8);
        let own = &mut connection.directions[side];
        cx.count("gaps", 1);
        cx.count("gap bytes", hole_end.saturating_sub(own.next));
        own.skip_to(hole_end);
        let (rings, out) = (&*cx.rings, &mut *cx.out);
        let taken = self.held.take_first(lane(slot, side), rings, |held| own.give(&held, class, out));
        own.held -= taken;
        if own.held > 0 {
            own.hole_since = cx.now;
            self.watch(lane(slot, side), cx.now, cx.order.sequence);
        }
    }

    /// Sees to it that a hole that opened now is looked at when it is time to give up.
    pub(super) fn watch(&mut self, lane: Lane, time: u64, sequence: u64) {
        let index = lane as usize;
        if self.watched.len() <= index {
            self.watched.resize((index + 1).next_power_of_two(), false);
        }
        if !self.watched[index] {
            self.watched[index] = true;
            self.holes.push_back((time.saturating_add(self.settings.gap_wait), lane, sequence));
        }
    }

    /// Gives up on every hole of a direction that the other side has acknowledged.
    pub(super) fn give_up_acknowledged(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        while let Some(hole_end) = self.held.first(lane(slot, side))
            && self.table.get(slot).is_some_and(|connection| connection.directions[side].acked >= hole_end)
        {
            self.give_up(slot, side, cx);
        }
    }
}

/// Lets go of what is held of a direction behind its end.
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
