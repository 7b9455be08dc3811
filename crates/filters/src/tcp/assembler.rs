//! Segments in, blocks out: the rules by which connections begin, go on and end.
//!
//! Tiers:
//! 1. *calm* — both directions have begun, nothing is held and nothing ends: an acknowledgement is noted, data that is
//!    next is given as a crop of its frame. Nearly every segment.
//! 2. *careful* — SYN, FIN, RST, data that came before or after its turn, a second copy of data.
//! 3. *begin, end, make room* — once for each connection.
//!
//! Holes are given up on when the other side has acknowledged the missing bytes and `gap_wait` has passed (then the
//! capture lost them, and nobody will send them again), when too much is held, and when the connection ends.

use super::connection::{Connection, PHASES, Phase, Syn};
use super::direction::{Start, is_near};
use super::held::{Held, Lane, Piece};
use super::segment::Segment;
use crate::parts::flow_table::{FlowTable, Slot, Way};
use base::limits::{
    TCP_CLOSING_IDLE_NS, TCP_CONNECTIONS, TCP_HELD_BLOCKS, TCP_HELD_BLOCKS_PER_DIRECTION, TCP_LINGER_NS,
    TCP_OPENING_IDLE_NS, TCP_REMEMBERED,
};
use filter::prelude::*;
use std::collections::VecDeque;

/// What the request says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Silence after which a connection is over, ns.
    pub idle: u64,
    /// Time after which acknowledged missing bytes are given up on, ns.
    pub gap_wait: u64,
    /// Bytes held at most.
    pub memory: u64,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides said so, or it was reset.
    Over,
    /// Nothing came for too long.
    Idle,
    /// It makes room for another.
    Evicted,
    /// Another connection between the same ports begins.
    Replaced,
    /// The run is over.
    Finished,
}

/// All connections.
pub(super) struct Assembler {
    settings: Settings,
    table: FlowTable<Connection, PHASES>,
    held: Held,
    /// Directions with a hole, by the time at which it is to be looked at; one entry for each direction at most.
    holes: VecDeque<(u64, Lane)>,
    /// By direction: it has an entry in `holes`.
    watched: Vec<bool>,
    /// The direction that made room last.
    last_relieved: Lane,
}

fn lane(slot: Slot, side: usize) -> Lane {
    slot.0 * 2 + side as u32
}

fn slot_and_side(lane: Lane) -> (Slot, usize) {
    (Slot(lane / 2), (lane % 2) as usize)
}

impl Assembler {
    pub fn new(settings: Settings) -> Assembler {
        Assembler {
            settings,
            table: FlowTable::new(),
            held: Held::default(),
            holes: VecDeque::new(),
            watched: Vec::new(),
            last_relieved: 0,
        }
    }

    /// Takes a segment, which lies in `frame`. An error is why it was dropped.
    #[inline]
    pub fn segment(&mut self, segment: &Segment, frame: &Descriptor, cx: &mut Context<'_>) -> Result<(), &'static str> {
        let Some((slot, way)) = self.table.find(&segment.flow) else {
            return self.begin(segment, frame, 0, cx);
        };
        let side = usize::from(way == Way::Back);
        self.table.touch(slot);
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        if connection.calm[side] && segment.is_plain() {
            let class = Class::of_stream(connection.number, side as u8);
            let (own, other) = connection.sides(side);
            if segment.span == 0 || segment.sequence == own.next as u32 {
                if is_near(other.ahead(segment.acknowledgment)) {
                    other.acked = other.acked.max(other.position(segment.acknowledgment));
                }
                if segment.span > 0 {
                    own.give(&piece_of(segment, frame, own.next), class, cx.out);
                }
                (connection.last_seen, connection.last_time) = (cx.now, frame.time);
                return Ok(());
            }
        }
        self.careful(slot, side, segment, frame, cx)
    }

    fn careful(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        if connection.phase == Phase::Ended {
            return self.after_end(slot, side, segment, frame, cx);
        }
        (connection.last_seen, connection.last_time) = (cx.now, frame.time);
        let (own, other) = connection.sides(side);
        own.heard = true;
        let both_heard = other.heard;
        if segment.flags.rst() {
            self.reset(slot, side, segment, cx);
            self.settle(slot, cx);
            return Ok(());
        }
        if segment.flags.syn() {
            match connection.judge(side, segment) {
                Syn::Again => {}
                Syn::Begins => {
                    let own = &mut connection.directions[side];
                    own.begin_at(segment.data_sequence());
                    own.syn = true;
                    connection.reset = false;
                }
                Syn::Late => {
                    let own = &mut connection.directions[side];
                    own.syn = true;
                    if !own.has_data() {
                        own.begin_at(segment.data_sequence());
                    }
                }
                Syn::Another => return self.replace(slot, segment, frame, cx),
                Syn::Doubtful => {
                    cx.count("doubtful syns", 1);
                    if segment.is_first_syn() {
                        connection.successor = Some((side, segment.data_sequence()));
                        connection.calm = [false; 2];
                    }
                    return Ok(());
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
        if segment.flags.ack() {
            let (_, other) = connection.sides(side);
            other.acknowledge(segment.acknowledgment, segment.flags.syn());
        }
        let outcome = if segment.span > 0 { self.data(slot, side, segment, frame, cx) } else { Ok(()) };
        if segment.flags.fin() && outcome.is_ok() {
            self.fin(slot, side, segment, cx);
        }
        self.settle(slot, cx);
        outcome
    }

    // --- data -------------------------------------------------------------------------------------------------------

    fn data(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let class = Class::of_stream(connection.number, side as u8);
        let own = &mut connection.directions[side];
        let sequence = segment.data_sequence();
        own.begin_midstream(sequence);
        if !is_near(own.ahead(sequence)) {
            return Err("out of window");
        }
        let mut piece = piece_of(segment, frame, own.position(sequence));
        if own.done || piece.end <= own.next {
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
            self.watch(lane(slot, side), cx.now);
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
            self.watch(lane(slot, side), cx.now);
        }
        while self
            .table
            .get(slot)
            .is_some_and(|connection| connection.directions[side].held as usize > TCP_HELD_BLOCKS_PER_DIRECTION)
        {
            self.relieve(slot, side, cx);
        }
        while self.held.pieces() > TCP_HELD_BLOCKS || self.held.bytes() > self.settings.memory {
            let Some(lane) = self.held.lane_after(self.last_relieved) else { break };
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
    fn give_up(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
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
            self.watch(lane(slot, side), cx.now);
        }
    }

    /// Sees to it that a hole that opened now is looked at when it is time to give up.
    fn watch(&mut self, lane: Lane, time: u64) {
        let index = lane as usize;
        if self.watched.len() <= index {
            self.watched.resize((index + 1).next_power_of_two(), false);
        }
        if !self.watched[index] {
            self.watched[index] = true;
            self.holes.push_back((time.saturating_add(self.settings.gap_wait), lane));
        }
    }

    // --- begin and end ----------------------------------------------------------------------------------------------

    /// A segment of no connection that is known: SYN and data begin one.
    fn begin(
        &mut self,
        segment: &Segment,
        frame: &Descriptor,
        reuse: u32,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let begins = (segment.flags.syn() || segment.span > 0) && !segment.flags.rst();
        if !begins {
            cx.count("segments of no connection", 1);
            return Ok(());
        }
        let syn = segment.flags.syn();
        // Who answers a SYN is the server.
        let flow = if syn && segment.flags.ack() { segment.flow.reversed() } else { segment.flow };
        let phase = if syn { Phase::Opening } else { Phase::Open };
        let slot = self.open(flow, segment.vlan, phase, frame.time, reuse, cx)?;
        let side = usize::from(syn && segment.flags.ack());
        self.careful(slot, side, segment, frame, cx)
    }

    fn open(
        &mut self,
        flow: packet::flow::Flow,
        vlan: Option<u16>,
        phase: Phase,
        time: u64,
        reuse: u32,
        cx: &mut Context<'_>,
    ) -> Result<Slot, &'static str> {
        if self.table.len() >= TCP_CONNECTIONS {
            self.make_room(cx);
        }
        let state = if phase == Phase::Opening { StreamState::Opening } else { StreamState::Midstream };
        let facts = StreamFacts { flow, start: time, reuse, vlan, state };
        let number = cx.streams.open(facts).ok_or("no stream number free")?;
        cx.count("connections", 1);
        if reuse > 0 {
            cx.count("connections on reused ports", 1);
        }
        Ok(self.table.insert(flow, phase as usize, Connection::new(number, reuse, phase)))
    }

    /// Takes the connection that is missed least out of the table.
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

    /// Ends a connection because another begins between the same ports, with this segment.
    fn replace(
        &mut self,
        slot: Slot,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        self.end(slot, End::Replaced, cx);
        let (Some(flow), Some(old)) = (self.table.flow(slot).copied(), self.table.remove(slot)) else { return Ok(()) };
        let reuse = old.reuse.saturating_add(1);
        // What the SYN said is not in the segment that confirms it.
        match old.successor.filter(|_| !segment.is_first_syn()) {
            None => self.begin(segment, frame, reuse, cx),
            Some((side, first)) => {
                let flow = if side == 0 { flow } else { flow.reversed() };
                let slot = self.open(flow, segment.vlan, Phase::Opening, frame.time, reuse, cx)?;
                if let Some(connection) = self.table.get_mut(slot) {
                    let client = &mut connection.directions[0];
                    client.begin_at(first);
                    (client.syn, client.heard) = (true, true);
                }
                let from = usize::from(segment.flow != flow);
                self.careful(slot, from, segment, frame, cx)
            }
        }
    }

    /// A segment between the ports of a connection that is over: late, or of the next one.
    fn after_end(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
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
            return Ok(());
        }
        let reuse = connection.reuse.saturating_add(1);
        self.table.remove(slot);
        self.begin(segment, frame, reuse, cx)
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
        let own = &connection.directions[side];
        // Payload of a reset is text for people, not part of the stream (RFC 9293, 3.5.3).
        if own.start == Start::Known && !is_near(own.ahead(segment.sequence)) {
            cx.count("resets ignored", 1);
            return;
        }
        connection.reset = true;
    }

    /// After anything changed: gives up on holes whose time has come, gives last blocks, moves the connection to the
    /// list it belongs to now.
    fn settle(&mut self, slot: Slot, cx: &mut Context<'_>) {
        for side in 0..2 {
            let Some(connection) = self.table.get(slot) else { return };
            let own = &connection.directions[side];
            let waited = cx.now.saturating_sub(own.hole_since) >= self.settings.gap_wait;
            if own.held > 0 && waited {
                self.give_up_acknowledged(slot, side, cx);
            }
        }
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
        } else if connection.phase == Phase::Opening && !data {
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

    /// Gives up on every hole of a direction that the other side has acknowledged.
    fn give_up_acknowledged(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        while let Some(hole_end) = self.held.first(lane(slot, side))
            && self.table.get(slot).is_some_and(|connection| connection.directions[side].acked >= hole_end)
        {
            self.give_up(slot, side, cx);
        }
    }

    /// Ends a connection: what is held goes out, both directions get their last block.
    fn end(&mut self, slot: Slot, why: End, cx: &mut Context<'_>) {
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
        for side in 0..2 {
            // Where the end is known for sure, what lies behind it is not of this stream.
            let end = self.table.get(slot).and_then(|connection| connection.directions[side].sure_end());
            while self.held.first(lane(slot, side)).is_some_and(|start| start < end.unwrap_or(u64::MAX)) {
                self.give_up(slot, side, cx);
            }
            drop_held(&mut self.held, lane(slot, side), cx);
        }
        let Some(connection) = self.table.get_mut(slot) else { return };
        for (side, direction) in connection.directions.iter_mut().enumerate() {
            // What the other side has and we have not is missing; a FIN that was not seen takes one number, too.
            let end = direction.fin.unwrap_or(if direction.acked == direction.next + 1 { 0 } else { direction.acked });
            if end > direction.next && !direction.done {
                cx.count("gaps", 1);
                cx.count("gap bytes", end - direction.next);
                direction.skip_to(end);
            }
            let block = last_block(cx, time);
            direction.finish(block, Class::of_stream(number, side as u8), cx.out);
            if direction.fin == Some(direction.next) {
                direction.next += 1;
            }
        }
        connection.phase = Phase::Ended;
        connection.calm = [false; 2];
        cx.streams.close(number);
        self.table.move_to(slot, Phase::Ended as usize);
        if self.table.list_len(Phase::Ended as usize) > TCP_REMEMBERED
            && let Some(oldest) = self.table.oldest(Phase::Ended as usize)
        {
            self.table.remove(oldest);
        }
    }

    // --- time -------------------------------------------------------------------------------------------------------

    /// Gives up on holes and ends connections whose time has come; says whether there may be more, once `enough` blocks
    /// were given.
    pub fn expire(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        while let Some(&(due, lane)) = self.holes.front()
            && due <= cx.now
        {
            if cx.out.len() >= enough {
                return Status::More;
            }
            self.holes.pop_front();
            self.watched[lane as usize] = false;
            self.look_at_hole(lane, cx);
        }
        for (phase, idle) in self.idle_times() {
            while let Some(slot) = self.table.oldest(phase as usize)
                && self.is_silent(slot, idle, cx.now)
            {
                if cx.out.len() >= enough {
                    return Status::More;
                }
                self.end(slot, End::Idle, cx);
            }
        }
        Status::Done
    }

    fn look_at_hole(&mut self, lane: Lane, cx: &mut Context<'_>) {
        let (slot, side) = slot_and_side(lane);
        let Some(own) = self.table.get(slot).map(|connection| connection.directions[side]) else { return };
        if own.held == 0 {
            return;
        }
        if cx.now.saturating_sub(own.hole_since) < self.settings.gap_wait {
            // Another hole than the one that was to be looked at.
            self.watch(lane, own.hole_since);
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

    fn is_silent(&self, slot: Slot, idle: u64, now: u64) -> bool {
        self.table.get(slot).is_some_and(|connection| now.saturating_sub(connection.last_seen) > idle)
    }

    /// When [`expire`](Assembler::expire) has something to do next.
    pub fn next_due(&self) -> u64 {
        let mut due = self.holes.front().map_or(u64::MAX, |(due, _)| *due);
        for (phase, idle) in self.idle_times() {
            if let Some(connection) = self.table.oldest(phase as usize).and_then(|slot| self.table.get(slot)) {
                due = due.min(connection.last_seen.saturating_add(idle).saturating_add(1));
            }
        }
        due
    }

    /// Ends all connections, until `enough` blocks were given; says whether there are more.
    pub fn finish(&mut self, enough: usize, cx: &mut Context<'_>) -> Status {
        for phase in [Phase::Closing, Phase::Open, Phase::Opening] {
            while let Some(slot) = self.table.oldest(phase as usize) {
                if cx.out.len() >= enough {
                    return Status::More;
                }
                self.end(slot, End::Finished, cx);
            }
        }
        Status::Done
    }
}

/// The payload of a segment in its frame, at this position.
#[inline]
fn piece_of(segment: &Segment, frame: &Descriptor, start: u64) -> Piece {
    Piece { start, end: start + u64::from(segment.span), block: frame.part(segment.offset, segment.len) }
}

/// Lets go of what is held of a direction behind its end.
fn drop_held(held: &mut Held, lane: Lane, cx: &mut Context<'_>) -> u32 {
    let mut dropped = 0;
    while held.drop_last(lane, cx.rings) {
        dropped += 1;
    }
    if dropped > 0 {
        cx.count("segments after the end", u64::from(dropped));
    }
    dropped
}

/// An empty block to say that a direction is over.
fn last_block(cx: &Context<'_>, time: u64) -> Descriptor {
    Descriptor { time, ..cx.own.block(0, 0) }
}
