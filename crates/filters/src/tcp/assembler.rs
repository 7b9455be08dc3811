//! Segments in, blocks out: what a segment means for its connection. `order.rs` handles its data, `lifetime.rs`
//! beginnings and ends.
//!
//! Tiers:
//! 1. *calm* — both directions have begun, nothing is held and nothing ends: an acknowledgement is noted, and the next
//!    data is given as a crop of its frame. Nearly every segment.
//! 2. *careful* — SYN, FIN, RST, early or late data, retransmitted data.
//! 3. *begin, end, make room* — once for each connection.
//!
//! A hole is given up in three cases:
//! * the other side has acknowledged the missing bytes and `gap_wait` has passed: the capture lost them, and the
//!   sender will not repeat them;
//! * too much is held;
//! * the connection ends.

use super::conflict::{Conflict, Conflicts, Differs};
use super::connection::{Connection, End, PHASES, Phase, Successor, Syn};
use super::direction::{Start, is_near, last_block};
use super::given::Given;
use super::held::{Held, drop_held};
use super::piece::{Lane, lane, piece_of};
use super::segment::{Checksum, Segment};
use super::settings::{Checksums, Settings};
use super::waiting::Waiting;
use crate::parts::flow_table::{FlowTable, Slot, Way};
use filter::prelude::*;
use packet::Flow;
use std::collections::VecDeque;

/// Puts the streams of all connections in order.
pub struct Assembler {
    pub(super) settings: Settings,
    pub(super) table: FlowTable<Connection, PHASES>,
    pub(super) held: Held,
    /// Data in doubt.
    pub(super) doubtful: Held,
    pub(super) given: Given,
    pub(super) conflicts: Conflicts,
    pub(super) waiting: Waiting,
    /// (time of the check, direction, sequence) of directions with a hole; at most one entry each.
    pub(super) holes: VecDeque<(u64, Lane, u64)>,
    /// By direction: it has an entry in `holes`.
    pub(super) watched: Vec<bool>,
    /// The direction that made room last.
    pub(super) last_relieved: Lane,
}

impl Assembler {
    /// An assembler without connections.
    pub fn new(settings: Settings) -> Assembler {
        Assembler {
            table: FlowTable::default(),
            held: Held::default(),
            doubtful: Held::default(),
            given: Given::new(settings.keep_given),
            conflicts: Conflicts { are_wanted: settings.conflicts, ..Conflicts::default() },
            waiting: Waiting::default(),
            holes: VecDeque::new(),
            watched: Vec::new(),
            last_relieved: 0,
            settings,
        }
    }

    /// The number of the connection of this flow's packets, and their direction.
    pub fn stream_of(&self, flow: &Flow, scope: u64) -> Option<(u32, Way)> {
        let (slot, way) = self.table.find(flow, scope)?;
        Some((self.table.get(slot)?.number, way))
    }

    /// Verifies a segment's checksum, if checksums count; `bytes` are its frame. A checksum that the source marked as
    /// unfinished is not computed.
    #[inline]
    pub fn check(&self, segment: &mut Segment, frame: &Descriptor, bytes: &[u8]) {
        match self.settings.checksums {
            Checksums::No => {}
            Checksums::Auto if frame.has(Flags::CHECKSUM_OPEN) => {}
            word => segment.check(bytes, word == Checksums::Auto),
        }
    }

    /// The conflicts of the last segment; their blocks can be read until the batch ends.
    pub fn take_conflicts(&mut self) -> impl Iterator<Item = Conflict> {
        self.conflicts.found.drain(..)
    }

    /// Takes a segment in `frame`; returns whether its bytes contradict earlier ones. The error is why it was dropped.
    #[inline(always)]
    pub fn segment(
        &mut self,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<Differs, &'static str> {
        let Some((slot, way)) = self.table.find(&segment.flow, segment.scope) else {
            return self.begin(segment, frame, 0, cx);
        };
        let side = usize::from(way == Way::Back);
        self.table.touch(slot);
        let Some(connection) = self.table.get_mut(slot) else { return Ok(Differs::default()) };
        if connection.calm[side] && segment.is_plain() {
            let class = Class::of_stream(connection.number, side as u8);
            let (own, other) = connection.sides(side);
            let ahead = other.ahead(segment.acknowledgment);
            let is_next = segment.span == 0 || segment.sequence == own.next as u32 && (ahead <= 0 || !other.heard);
            if is_next && !own.is_outdated(segment.stamp) {
                if is_near(ahead) {
                    other.acked = other.acked.max(other.position(segment.acknowledgment));
                }
                if self.settings.check {
                    other.offer(segment, own.shift);
                    own.stamp(segment);
                }
                let piece = piece_of(segment, frame, own.next);
                if segment.span > 0 {
                    other.tell_lost(&piece.block, Class::of_stream(class.connection(), 1 - class.direction()), cx.out);
                    own.give(&piece, class, cx.out);
                }
                (connection.last_seen, connection.last_time) = (cx.now, frame.time);
                connection.touched = cx.order.sequence;
                if segment.span > 0 {
                    self.remember(slot, side, &piece, cx);
                }
                return Ok(Differs::default());
            }
        }
        self.careful(slot, side, segment, frame, cx)
    }

    /// Takes any segment of a connection in the table.
    #[inline(never)]
    pub(super) fn careful(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<Differs, &'static str> {
        self.conflicts.begin();
        let Some(connection) = self.table.get_mut(slot) else { return Ok(Differs::default()) };
        if connection.phase == Phase::Ended {
            return self.after_end(slot, side, segment, frame, cx);
        }
        if let Some(reason) = connection.refusal(side, segment, cx.now, &self.settings) {
            return self.doubt(slot, side, segment, frame, reason, cx).map(|()| Differs::default());
        }
        (connection.last_seen, connection.last_time) = (cx.now, frame.time);
        connection.touched = cx.order.sequence;
        let (own, other) = connection.sides(side);
        own.heard = true;
        own.sums |= segment.checksum == Checksum::Right;
        let both_heard = other.heard;
        if segment.flags.rst() {
            self.reset(slot, side, segment, cx);
            self.settle(slot, cx);
            return Ok(Differs::default());
        }
        if segment.flags.syn() {
            let judged = connection.judge(side, segment);
            // A server ignores most SYNs on an existing connection. Without doubts, the server's answer decides.
            let is_believed = self.settings.doubts || connection.is_confirmed_by(side, segment);
            match if judged == Syn::Another && !is_believed { Syn::Doubtful } else { judged } {
                Syn::Again => {}
                Syn::Begins => connection.begin_by(side, segment),
                Syn::Late => {
                    let own = &mut connection.directions[side];
                    own.syn = true;
                    if !own.has_data() {
                        own.begin_at(segment.data_sequence());
                    }
                    connection.shift_by(side, segment.shift);
                }
                Syn::Another => return self.replace(slot, segment, frame, cx),
                Syn::Doubtful => {
                    cx.count("doubtful syns", 1);
                    if segment.is_first_syn() {
                        connection.suspect(Successor { side, next: segment.data_sequence(), syn: true });
                    }
                    return Ok(Differs::default());
                }
            }
        } else if connection.is_confirmed_by(side, segment) {
            return self.replace(slot, segment, frame, cx);
        }
        if both_heard
            && let Some(facts) = cx.streams.get_mut(Class::of_stream(connection.number, 0))
            && facts.state == StreamState::Opening
        {
            facts.state = StreamState::Established;
        }
        let (own, other) = connection.sides(side);
        if self.settings.check {
            own.stamp(segment);
            if !segment.flags.syn() {
                other.offer(segment, own.shift);
            }
        }
        if segment.flags.ack() {
            other.acknowledge(segment.acknowledgment, segment.flags.syn());
            if other.syn_data {
                self.answer_syn_data(slot, 1 - side, segment.acknowledgment, cx);
            }
        }
        let outcome = match segment.span {
            0 => self.point_without_data(slot, side, segment, frame, cx),
            _ => self.data(slot, side, segment, frame, cx),
        };
        if segment.flags.fin() && outcome.is_ok() {
            self.fin(slot, side, segment, cx);
        }
        self.settle(slot, cx);
        if self.conflicts.bytes > 0 {
            cx.count("conflicting bytes", self.conflicts.bytes);
        }
        outcome.map(|()| self.conflicts.differs)
    }

    fn fin(&mut self, slot: Slot, side: usize, segment: &Segment, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        let sequence = segment.data_sequence().wrapping_add(segment.span);
        own.begin_midstream(sequence);
        let (position, ahead) = (own.position(sequence), own.ahead(sequence));
        if own.sure_end().is_some() || own.fin == Some(position) {
            return;
        }
        if ahead < 0 || !is_near(ahead) {
            cx.count("fins ignored", 1);
            return;
        }
        own.fin = Some(position);
    }

    fn reset(&mut self, slot: Slot, side: usize, segment: &Segment, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let end = [0, 1].map(|side| connection.directions[side].end().max(self.held.end(lane(slot, side))));
        let own = &connection.directions[side];
        // Payload of a reset is text for people, not part of the stream (RFC 9293, 3.5.3).
        let is_known = own.start == Start::Known;
        let is_far = is_known && !is_near(own.ahead(segment.sequence));
        // A receiver challenges a reset elsewhere in its window (RFC 5961, 3.2).
        let is_challenged = !self.settings.doubts && is_known && own.ahead(segment.sequence) != 0;
        if is_far || is_challenged || (self.settings.check && !connection.takes_reset(side, segment, end)) {
            cx.count("resets ignored", 1);
            return;
        }
        connection.reset = true;
        let (_, other) = connection.sides(side);
        let position = other.position(segment.acknowledgment);
        // A reset acknowledges what its sender had, which may be the data in doubt.
        if segment.flags.ack() && position <= self.doubtful.end(lane(slot, 1 - side)) {
            other.acked = other.acked.max(position);
        }
    }

    /// Completes any change: gives up holes that are due, gives last blocks, moves the connection to the right list.
    pub(super) fn settle(&mut self, slot: Slot, cx: &mut Context<'_>) {
        for side in 0..2 {
            let Some(connection) = self.table.get(slot).filter(|it| it.phase != Phase::Ended) else { return };
            let own = &connection.directions[side];
            let waited = cx.now.saturating_sub(own.hole_since) >= self.settings.gap_wait;
            let has_doubts = own.doubtful > 0;
            if own.held > 0 && waited {
                self.give_up_acknowledged(slot, side, cx);
            }
            if has_doubts {
                self.resolve_doubts(slot, side, cx);
            }
        }
        self.take_turns(slot, cx);
        let Some(connection) = self.table.get_mut(slot) else { return };
        let mut finished = 0;
        for (side, direction) in connection.directions.iter_mut().enumerate() {
            let Some(fin) = direction.sure_end() else { continue };
            finished += 1;
            if direction.next == fin && !direction.done {
                let block = last_block(cx, connection.last_time);
                direction.finish(block, Class::of_stream(connection.number, side as u8), cx.out);
                direction.held -= drop_held(&mut self.held, lane(slot, side), cx);
            }
        }
        if finished == 2 {
            return self.end(slot, End::Over, cx);
        }
        let [client, server] = &connection.directions;
        let fins = [client, server].map(|direction| direction.fin.is_some());
        let one_sided = (fins[0] && !server.heard) || (fins[1] && !client.heard);
        let data = client.has_data() || server.has_data();
        let phase = if connection.is_over() || one_sided {
            Phase::Closing
        } else if connection.phase == Phase::Opening && !data && !server.confirmed {
            Phase::Opening
        } else {
            Phase::Open
        };
        let moves = std::mem::replace(&mut connection.phase, phase) != phase;
        connection.calm_down();
        if moves {
            self.table.move_to(slot, phase as usize);
        }
    }
}
