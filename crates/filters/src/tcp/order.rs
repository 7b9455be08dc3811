//! Puts the data of one direction in order: gives data that is next, holds early data, and waits for missing data or
//! gives it up.

use super::assembler::Assembler;
use super::connection::Successor;
use super::direction::is_near;
use super::given::count_forgotten;
use super::piece::{Lane, Piece, lane, piece_of, slot_and_side};
use super::segment::Segment;
use super::settings::Settings;
use crate::parts::flow_table::Slot;
use crate::parts::policy::Policy;
use base::limits::TCP_COMPARED_PIECES;
use filter::prelude::*;
use std::net::IpAddr;

/// The most pieces that a segment is compared with. Without doubts all of them, or bytes behind the last would pass
/// unseen; each has a byte in common with the segment.
fn most_compared(settings: &Settings) -> usize {
    if settings.doubts { TCP_COMPARED_PIECES } else { usize::MAX }
}

impl Assembler {
    /// Takes the payload of a segment. The error is why it was dropped.
    pub(super) fn data(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let sequence = segment.data_sequence();
        if connection.is_of_successor(side, sequence) {
            return Err("after a doubtful syn");
        }
        let (own, other) = connection.sides(side);
        own.begin_midstream(sequence);
        if !is_near(own.ahead(sequence)) {
            connection.suspect(Successor { side, next: sequence.wrapping_add(segment.span), syn: false });
            return Err("out of window");
        }
        let mut piece = piece_of(segment, frame, own.position(sequence));
        if self.settings.check && other.heard && piece.start > own.next && own.has_no_room_for(piece.end) {
            return self.doubt(slot, side, segment, frame, "beyond the window", cx);
        }
        self.point(slot, side, segment, &piece, cx)?;
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        if own.syn_data && !segment.flags.syn() {
            self.go_on_from_syn_data(slot, side, &piece, cx);
        }
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        let next = own.next;
        if piece.start < next {
            let again = piece.between(piece.start, next.min(piece.end));
            cx.count("repeated bytes", again.end - again.start);
            // A keep-alive probe may have any byte (RFC 9293, 3.8.4). Without doubts, its place must be acknowledged.
            let is_probe = segment.span == 1 && piece.end == next && (self.settings.doubts || own.acked >= next);
            if self.given.is_on() && !is_probe {
                self.compare_given(slot, side, &again, cx);
                self.refuse_forgotten(slot, side, &again)?;
            }
            if piece.end <= next {
                return Ok(());
            }
            piece = piece.between(next, piece.end);
        }
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
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
                // The sender goes on, so the FIN was forged.
                cx.count("fins ignored", 1);
                own.fin = None;
            }
        }
        connection.reset = false;
        let waits = self.waits(slot, side, segment, piece.start, cx);
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        let target = segment.flow.target;
        if segment.flags.syn() && piece.start == own.first && own.acked <= own.first {
            own.syn_data = true;
            self.keep(slot, side, &piece, target, cx);
        } else {
            self.place(slot, side, &piece, waits, target, cx)?;
        }
        Ok(())
    }

    /// Gives a piece that is next, and held data that follows; holds any other piece. The error is why it was dropped.
    fn place(
        &mut self,
        slot: Slot,
        side: usize,
        piece: &Piece,
        waits: bool,
        target: IpAddr,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        if waits || piece.start > own.next {
            return self.hold(slot, side, piece, target, cx);
        }
        if own.held == 0 || !self.held.meets(lane(slot, side), piece) {
            connection.give(side, piece, cx.out);
            self.remember(slot, side, piece, cx);
        } else {
            self.keep(slot, side, piece, target, cx);
        }
        self.fill(slot, side, cx);
        Ok(())
    }

    /// Gives held data that is next.
    pub(super) fn fill(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if own.held == 0 {
            return;
        }
        let next = own.next;
        if self.is_next(lane(slot, side), next) {
            self.give_first(slot, side, cx);
        }
        self.watch_hole(slot, side, cx);
    }

    /// Gives the first held run, which is next.
    fn give_first(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let (lane, remembers) = (lane(slot, side), self.given.is_on());
        let mut given = Vec::new();
        let (out, until) = (&mut *cx.out, self.waiting.end(lane));
        let taken = self.held.take_first(lane, until, cx.rings, |held| {
            connection.give(side, &held, out);
            if remembers {
                given.push(held);
            }
        });
        connection.directions[side].held -= taken;
        for piece in given {
            self.remember(slot, side, &piece, cx);
        }
    }

    /// Remembers a given piece, where given pieces are compared.
    #[inline]
    pub(super) fn remember(&mut self, slot: Slot, side: usize, piece: &Piece, cx: &mut Context<'_>) {
        if self.given.is_on() {
            self.remember_given(lane(slot, side), piece, cx);
        }
    }

    fn remember_given(&mut self, lane: Lane, piece: &Piece, cx: &mut Context<'_>) {
        let Assembler { given, table, settings, .. } = self;
        let is_done_with = |lane: Lane, end: u64| {
            let (slot, side) = slot_and_side(lane);
            settings.doubts || table.get(slot).is_none_or(|connection| connection.directions[side].acked >= end)
        };
        let gone = given.remember(lane, piece, cx.rings, is_done_with);
        count_forgotten(gone, cx);
    }

    /// Schedules the check of a direction's hole.
    fn watch_hole(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if own.held > 0 {
            own.hole_since = cx.now;
            self.watch(lane(slot, side), cx.now, cx.order.sequence);
        }
    }

    /// Holds a piece until the missing bytes before it come. The error is why it was dropped.
    fn hold(
        &mut self,
        slot: Slot,
        side: usize,
        piece: &Piece,
        target: IpAddr,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get(slot) else { return Ok(()) };
        let held = connection.directions[side].held;
        // Without doubts, held data has passed already; without it the piece that fills the hole could not be judged.
        if !self.settings.doubts && !self.has_room_for(lane(slot, side), held, piece) {
            return Err("no room ahead of a hole");
        }
        let opens_hole = held == 0;
        if !self.keep(slot, side, piece, target, cx) {
            cx.count("repeated bytes", piece.end - piece.start);
            return Ok(());
        }
        if self.held.first(lane(slot, side)) != self.table.get(slot).map(|it| it.directions[side].next) {
            cx.count("segments out of order", 1);
        }
        if opens_hole {
            self.watch_hole(slot, side, cx);
        }
        if !self.settings.doubts {
            return Ok(());
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
        Ok(())
    }

    /// Whether a piece can be held in a lane that holds `held_there` pieces already. It becomes a piece in each hole that it
    /// fills.
    fn has_room_for(&self, lane: Lane, held_there: u32, piece: &Piece) -> bool {
        let Settings { held_per_direction, held, memory, .. } = self.settings;
        let parts = self.held.parts(lane, piece);
        held_there as usize + parts <= held_per_direction
            && self.held.pieces() + parts <= held
            && self.held.bytes() + u64::from(piece.block.len) <= memory
    }

    /// Holds a piece, with the policy of its target; returns whether any of its bytes are new.
    fn keep(&mut self, slot: Slot, side: usize, piece: &Piece, target: IpAddr, cx: &mut Context<'_>) -> bool {
        let lane = lane(slot, side);
        let policy = if self.held.meets(lane, piece) {
            let policy = self.settings.policies.of(target);
            self.compare_held(slot, side, piece, policy, cx);
            policy
        } else {
            Policy::First
        };
        let (new, more) = self.held.keep(lane, piece, policy, cx.rings);
        if let Some(connection) = self.table.get_mut(slot) {
            let own = &mut connection.directions[side];
            own.held = own.held.saturating_add_signed(more as i32);
        }
        new > 0
    }

    /// Whether a piece contradicts held data. Notes conflicts.
    fn compare_held(&mut self, slot: Slot, side: usize, piece: &Piece, policy: Policy, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get(slot) else { return };
        let (class, first) = (Class::of_stream(connection.number, side as u8), connection.directions[side].first);
        let (conflicts, rings) = (&mut self.conflicts, &*cx.rings);
        let most = most_compared(&self.settings);
        let are_all = self.held.compare(lane(slot, side), piece, most, |whole, old, new| {
            let is_later = policy.takes_later_in_stream((whole.start, whole.end), (piece.start, piece.end));
            let (taken, other) = if is_later { (&new, &old) } else { (&old, &new) };
            conflicts.differs.held |= conflicts.see(class, new.start.saturating_sub(first), taken, other, rings);
        });
        if !are_all {
            cx.count("segments not compared with all", 1);
        }
    }

    /// Whether a piece contradicts given data. Notes conflicts.
    fn compare_given(&mut self, slot: Slot, side: usize, piece: &Piece, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get(slot) else { return };
        let (class, first) = (Class::of_stream(connection.number, side as u8), connection.directions[side].first);
        let (conflicts, rings) = (&mut self.conflicts, &*cx.rings);
        let most = most_compared(&self.settings);
        let are_all = self.given.compare(lane(slot, side), piece, most, |_, old, new| {
            conflicts.differs.given |= conflicts.see(class, new.start.saturating_sub(first), &old, &new, rings);
        });
        if !are_all {
            cx.count("segments not compared with all", 1);
        }
    }

    /// Refuses a retransmission of bytes that are neither acknowledged nor remembered: the receiver might take it
    /// instead of the original. Only without doubts.
    fn refuse_forgotten(&self, slot: Slot, side: usize, piece: &Piece) -> Result<(), &'static str> {
        let Some(connection) = self.table.get(slot).filter(|_| !self.settings.doubts) else { return Ok(()) };
        let from = piece.start.max(connection.directions[side].acked);
        let is_known = from >= piece.end || self.given.covers(lane(slot, side), &piece.between(from, piece.end));
        if is_known { Ok(()) } else { Err("sent again when it was forgotten") }
    }

    /// Makes room in a direction that holds something. If the receiver also waits for the missing bytes, they will be
    /// sent again, and the piece farthest ahead is dropped. Giving up such a hole would let forged segments make this
    /// side skip bytes that the receiver gets.
    fn relieve(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(hole_end) = self.held.first(lane(slot, side)) else { return };
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if own.syn_data {
            return self.settle_syn_data(slot, side, true, cx);
        }
        if own.acknowledged && own.acked < hole_end && own.next < hole_end {
            if self.held.drop_last(lane(slot, side), cx.rings) {
                own.held -= 1;
                cx.count("held segments dropped to make room", 1);
            }
        } else {
            cx.count("gaps to make room", 1);
            self.give_up(slot, side, cx);
        }
    }

    /// Gives up the bytes missing before held data, up to the next hole, or those that its turn waits for.
    pub(super) fn give_up(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let Some(hole_end) = self.held.first(lane(slot, side)) else { return };
        if self.table.get(slot).is_some_and(|it| it.directions[side].next < hole_end) {
            self.pass_over(slot, side, hole_end, cx);
            self.give_first(slot, side, cx);
            self.watch_hole(slot, side, cx);
            self.take_turns(slot, cx);
        } else {
            self.skip_turn(slot, side, cx);
        }
    }

    /// Schedules a check of a new hole for when it may be given up.
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

    /// Gives up every hole of a direction that the other side has acknowledged, and turns that waited for long enough.
    pub(super) fn give_up_acknowledged(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        while let Some(hole_end) = self.held.first(lane(slot, side))
            && self.table.get(slot).map(|connection| &connection.directions[side]).is_some_and(|own| {
                let waited = cx.now.saturating_sub(own.hole_since) >= self.settings.gap_wait;
                let is_due = if hole_end == own.next { waited } else { own.acked >= hole_end };
                is_due && !own.syn_data
            })
        {
            self.give_up(slot, side, cx);
        }
    }
}
