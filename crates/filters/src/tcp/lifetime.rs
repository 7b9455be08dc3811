//! The beginning and end of connections. A connection begins with or without a SYN. It ends by FIN, RST, silence,
//! another connection between the same ports, a full table, or the end of the run.

use super::assembler::Assembler;
use super::conflict::Differs;
use super::connection::{Connection, End, Phase};
use super::direction::{Start, is_near, last_block};
use super::held::drop_held;
use super::piece::{Lane, lane, slot_and_side};
use super::segment::Segment;
use crate::parts::client;
use crate::parts::flow_table::Slot;
use crate::parts::origin::facts_of;
use base::limits::{TCP_CLOSING_IDLE_NS, TCP_LINGER_NS, TCP_OPENING_IDLE_NS};
use filter::prelude::*;
use packet::flow::Flow;
use packet::tcp::Flags as TcpFlags;

impl Assembler {
    /// Handles a segment of no known connection: a SYN or data begins one.
    #[inline(never)]
    pub(super) fn begin(
        &mut self,
        segment: &Segment,
        frame: &Descriptor,
        reuse: u32,
        cx: &mut Context<'_>,
    ) -> Result<Differs, &'static str> {
        if self.settings.checksums.refuse(segment.checksum, false) {
            return Err("wrong checksum");
        }
        let is_data = segment.span > 0 && (segment.flags.ack() || !self.settings.check);
        let begins = (segment.flags.syn() || is_data) && !segment.flags.rst();
        if !begins {
            cx.count("segments of no connection", 1);
            return Ok(Differs::default());
        }
        let syn = segment.flags.syn();
        let flow = segment.client(frame, cx);
        let phase = if syn { Phase::Opening } else { Phase::Open };
        let slot = self.open(flow, segment, phase, frame, reuse, cx)?;
        let side = usize::from(segment.flow != flow);
        self.careful(slot, side, segment, frame, cx)
    }

    fn open(
        &mut self,
        flow: Flow,
        segment: &Segment,
        phase: Phase,
        frame: &Descriptor,
        reuse: u32,
        cx: &mut Context<'_>,
    ) -> Result<Slot, &'static str> {
        if self.table.count() >= self.settings.connections {
            self.make_room(cx);
        }
        let state = if phase == Phase::Opening { StreamState::Opening } else { StreamState::Midstream };
        let (vlans, tunnels) = facts_of(cx.rings, frame, segment.vlans);
        let facts = StreamFacts { flow, start: frame.time, reuse, vlans, tunnels, state };
        let number = cx.streams.open(facts).ok_or("no stream number free")?;
        cx.count("connections", 1);
        if reuse > 0 {
            cx.count("connections on reused ports", 1);
        }
        Ok(self.table.insert(flow, segment.scope, phase as usize, Connection::new(number, reuse, phase)))
    }

    /// Removes the most dispensable connection from the table.
    #[cold]
    fn make_room(&mut self, cx: &mut Context<'_>) {
        for phase in [Phase::Ended, Phase::Opening, Phase::Closing, Phase::Open] {
            if let Some(slot) = self.table.oldest(phase as usize) {
                if phase != Phase::Ended {
                    self.end(slot, End::Evicted, cx);
                }
                self.table.remove(slot);
                return;
            }
        }
    }

    /// Ends a connection because `segment` begins another between the same ports.
    pub(super) fn replace(
        &mut self,
        slot: Slot,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<Differs, &'static str> {
        self.end(slot, End::Replaced, cx);
        let (Some(flow), Some(old)) = (self.table.flow(slot).copied(), self.table.remove(slot)) else {
            return Ok(Differs::default());
        };
        let reuse = old.reuse.saturating_add(1);
        // The segment that confirms a successor is not the one that began it.
        let Some(successor) = old.successor.filter(|_| !segment.is_first_syn()) else {
            return self.begin(segment, frame, reuse, cx);
        };
        let sender = if successor.side == 0 { flow } else { flow.reversed() };
        let flow = client::of_client(sender, if successor.syn { TcpFlags::SYN } else { TcpFlags::ACK }, || &[]);
        let phase = if successor.syn { Phase::Opening } else { Phase::Open };
        let slot = self.open(flow, segment, phase, frame, reuse, cx)?;
        if let Some(connection) = self.table.get_mut(slot) {
            let own = &mut connection.directions[usize::from(sender != flow)];
            own.begin_at(successor.next);
            (own.syn, own.heard) = (successor.syn, true);
        }
        let side = usize::from(segment.flow != flow);
        self.careful(slot, side, segment, frame, cx)
    }

    /// Handles a segment between the ports of an ended connection: it is late, or begins the next one.
    pub(super) fn after_end(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<Differs, &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(Differs::default()) };
        let own = &connection.directions[side];
        let begins = (segment.flags.syn() || segment.span > 0) && !segment.flags.rst();
        let lingers = cx.now.saturating_sub(connection.last_seen) <= TCP_LINGER_NS;
        let late = if segment.flags.syn() {
            segment.flags.ack() && own.syn && segment.data_sequence() == own.first as u32
        } else {
            let ahead = own.ahead(segment.sequence);
            own.start == Start::Known && ahead < 0 && is_near(ahead)
        };
        if !begins || (late && lingers) {
            cx.count("segments after the end", 1);
            return Ok(Differs::default());
        }
        let reuse = connection.reuse.saturating_add(1);
        self.table.remove(slot);
        self.begin(segment, frame, reuse, cx)
    }

    /// Ends a connection: gives what is held, and the last block of both directions.
    pub(super) fn end(&mut self, slot: Slot, why: End, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get(slot) else { return };
        let (time, number) = (connection.last_time, connection.number);
        if connection.phase == Phase::Ended {
            return;
        }
        let over = connection.is_over();
        let state = match (connection.reset, over) {
            (true, _) => StreamState::Reset,
            (false, true) => StreamState::Closed,
            (false, false) => StreamState::Cut,
        };
        match why {
            End::Idle if !over => cx.count("connections idle", 1),
            End::Evicted => cx.count("connections evicted", 1),
            End::Replaced if !over => cx.count("connections replaced", 1),
            End::Finished if !over => cx.count("connections unfinished", 1),
            _ => {}
        }
        if let Some(facts) = cx.streams.get_mut(Class::of_stream(number, 0)) {
            facts.state = state;
        }
        (0..2).for_each(|side| self.settle_syn_data(slot, side, true, cx));
        while let Some(side) = self.next_given_up(slot) {
            self.give_up(slot, side, cx);
        }
        for side in 0..2 {
            self.waiting.forget(lane(slot, side));
            let dropped = drop_held(&mut self.held, lane(slot, side), cx);
            self.given.forget(lane(slot, side), cx.rings);
            if let Some(connection) = self.table.get_mut(slot) {
                connection.directions[side].held -= dropped;
            }
        }
        for side in 0..2 {
            let Some(connection) = self.table.get(slot) else { return };
            let own = &connection.directions[side];
            // Bytes that the other side has acknowledged are missing. A FIN that was not seen takes one number, too.
            let end = own.fin.unwrap_or(if own.acked == own.next + 1 { 0 } else { own.acked });
            let end = if own.acknowledged { end } else { end.max(self.doubtful.end(lane(slot, side))) };
            if end > own.next && !own.done {
                self.pass_over(slot, side, end, cx);
            }
            self.drop_doubts(slot, side, true, cx);
            let Some(connection) = self.table.get_mut(slot) else { return };
            let own = &mut connection.directions[side];
            own.finish(last_block(cx, time), Class::of_stream(number, side as u8), cx.out);
            if own.fin == Some(own.next) {
                own.next += 1;
            }
        }
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.phase = Phase::Ended;
        connection.calm = [false; 2];
        cx.streams.close(number);
        self.table.move_to(slot, Phase::Ended as usize);
        if self.table.list_len(Phase::Ended as usize) > self.settings.remembered
            && let Some(oldest) = self.table.oldest(Phase::Ended as usize)
        {
            self.table.remove(oldest);
        }
    }

    /// The side whose first held data has to be given next at the end: first one that misses bytes, because the other
    /// may wait for these.
    fn next_given_up(&self, slot: Slot) -> Option<usize> {
        let connection = self.table.get(slot)?;
        let waiting = |side: usize| {
            let (own, first) = (&connection.directions[side], self.held.first(lane(slot, side))?);
            // If the end is certain, bytes behind it are not part of the stream.
            (first < own.sure_end().unwrap_or(u64::MAX)).then_some((first == own.next, side))
        };
        (0..2).filter_map(waiting).min().map(|(_, side)| side)
    }

    /// Gives up holes and ends connections that are due, until `enough` blocks were given; returns whether more
    /// follow.
    pub fn expire(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        while let Some(&(due, lane, touched)) = self.holes.front()
            && due <= cx.now
        {
            if has_enough(enough, cx) {
                return Status::More;
            }
            cx.order.ends = end_key(0, touched);
            self.holes.pop_front();
            self.watched[lane as usize] = false;
            self.look_at_hole(lane, cx);
        }
        for (rank, (phase, idle)) in (1..).zip(self.idle_times()) {
            while let Some(slot) = self.table.oldest(phase as usize)
                && self.is_silent(slot, idle, cx.now)
            {
                if has_enough(enough, cx) {
                    return Status::More;
                }
                cx.order.ends = end_key(rank, self.touched(slot));
                self.end(slot, End::Idle, cx);
            }
        }
        Status::Done
    }

    fn look_at_hole(&mut self, lane: Lane, cx: &mut Context<'_>) {
        let (slot, side) = slot_and_side(lane);
        let Some(connection) = self.table.get(slot) else { return };
        let own = connection.directions[side];
        // An ended connection must not revive: its stream number may belong to another by now.
        if connection.phase == Phase::Ended || own.held == 0 {
            return;
        }
        if cx.now.saturating_sub(own.hole_since) < self.settings.gap_wait {
            // The hole to check is closed; this is a later one.
            self.watch(lane, own.hole_since, cx.order.sequence);
            return;
        }
        self.give_up_acknowledged(slot, side, cx);
        self.settle(slot, cx);
    }

    fn idle_times(&self) -> [(Phase, u64); 3] {
        [
            (Phase::Closing, TCP_CLOSING_IDLE_NS.min(self.settings.idle)),
            (Phase::Opening, TCP_OPENING_IDLE_NS.min(self.settings.idle)),
            (Phase::Open, self.settings.idle),
        ]
    }

    fn touched(&self, slot: Slot) -> u64 {
        self.table.get(slot).map_or(0, |connection| connection.touched)
    }

    fn is_silent(&self, slot: Slot, idle: u64, now: u64) -> bool {
        self.table.get(slot).is_some_and(|connection| now.saturating_sub(connection.last_seen) > idle)
    }

    /// When [`expire`](Assembler::expire) is due next.
    pub fn next_due(&self) -> u64 {
        let mut due = self.holes.front().map_or(u64::MAX, |(due, ..)| *due);
        for (phase, idle) in self.idle_times() {
            if let Some(connection) = self.table.oldest(phase as usize).and_then(|slot| self.table.get(slot)) {
                due = due.min(connection.last_seen.saturating_add(idle).saturating_add(1));
            }
        }
        due
    }

    /// Ends all connections until `enough` blocks were given; returns whether more follow.
    pub fn finish(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        for (rank, phase) in (0..).zip([Phase::Closing, Phase::Open, Phase::Opening]) {
            while let Some(slot) = self.table.oldest(phase as usize) {
                if has_enough(enough, cx) {
                    return Status::More;
                }
                cx.order.ends = end_key(rank, self.touched(slot));
                self.end(slot, End::Finished, cx);
            }
        }
        Status::Done
    }
}

/// Whether enough blocks were given for this call. With partitions, one connection's blocks are enough.
fn has_enough(enough: usize, cx: &Context<'_>) -> bool {
    cx.out.len() >= enough || (cx.order.is_partition && !cx.out.is_empty())
}

/// The order of a connection's end among those of all partitions: by the reason first, then as in the lists.
fn end_key(rank: u64, touched: u64) -> u64 {
    rank << 60 | touched
}
