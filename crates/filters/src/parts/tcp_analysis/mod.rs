//! The analysis of TCP segments: retransmissions, duplicate acknowledgements, windows and round
//! trips, by the names and rules of Wireshark's "TCP Analysis" (User's Guide, 7.5).
//!
//! - `side` — the state of one direction; `held` — its segments that are not acknowledged yet.
//! - `event` — names of events.
//!
//! One pass: a segment is judged by those before it. The analysis reads headers only.

mod event;
mod held;
mod side;

use base::limits::{TCP_ANALYSED, TCP_ANALYSED_SEGMENTS};
pub(crate) use event::{Event, Events};
use packet::tcp::{Flags, Packet, TcpOption, is_after};
use side::{Scale, Side};

/// A segment that comes in less than this after the one that is ahead of it is out of order, where no round trip is
/// known.
const OUT_OF_ORDER_NS: u64 = 3_000_000;

/// A retransmission that comes in less than this after the second duplicate acknowledgement is a fast one.
const FAST_NS: u64 = 20_000_000;

/// More bytes in flight than this are a mistake.
const IN_FLIGHT_MAX: u32 = 2_000_000_000;

/// The facts of a segment that count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segment {
    /// When it came, ns.
    pub time: u64,
    /// Its number among all frames.
    pub number: u64,
    pub flags: Flags,
    pub sequence: u32,
    pub acknowledgment: u32,
    /// As in the header.
    pub window: u16,
    /// Bytes of payload on the wire.
    pub length: u32,
    /// The option of a SYN.
    pub scale: Option<u8>,
    /// Bytes in its SACK blocks.
    pub sacked: u32,
}

impl Segment {
    pub fn of(packet: &Packet<'_>, time: u64, number: u64) -> Segment {
        let (mut scale, mut sacked) = (None, 0_u32);
        for option in packet.options() {
            match option {
                TcpOption::WindowScale(shift) => scale = Some(shift),
                TcpOption::Sack(blocks) => {
                    sacked = blocks.fold(0, |sum, (left, right)| sum.wrapping_add(right.wrapping_sub(left)));
                }
                _ => {}
            }
        }
        Segment {
            time,
            number,
            flags: packet.flags(),
            sequence: packet.sequence_number(),
            acknowledgment: packet.acknowledgment_number(),
            window: packet.window(),
            length: packet.payload_wire_len(),
            scale,
            sacked,
        }
    }

    fn has(&self, any: u8) -> bool {
        self.flags.0 & any != 0
    }

    /// It takes up sequence numbers.
    fn takes_room(&self) -> bool {
        self.length > 0 || self.has(SYN | FIN)
    }

    /// The sequence number behind it.
    fn next(&self) -> u32 {
        self.sequence.wrapping_add(self.length).wrapping_add(self.has(SYN | FIN).into())
    }
}

const FIN: u8 = Flags::FIN.0;
const SYN: u8 = Flags::SYN.0;
const RST: u8 = Flags::RST.0;
const PSH: u8 = Flags::PSH.0;
const ACK: u8 = Flags::ACK.0;

/// The result for a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub events: Events,
    /// Duplicate acknowledgements in a row, with this one.
    pub duplicate_number: u32,
    /// The frame that this one acknowledges, and how long ago it came, ns.
    pub acknowledges: Option<(u64, u64)>,
    /// Since the oldest segment that was not acknowledged, before this one repeats a segment, ns.
    pub timeout: Option<u64>,
    /// Bytes sent and not acknowledged, with this segment.
    pub in_flight: Option<u32>,
    /// Bytes sent since the last push, with this segment.
    pub pushed: Option<u32>,
    /// Round trip of the handshake, ns.
    pub initial_round_trip: Option<u64>,
    /// Sequence number and acknowledgement from the beginning of their side.
    pub relative: (u32, Option<u32>),
    /// The window in bytes.
    pub window: u32,
}

/// The room of all connections that are analysed together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    connections: usize,
    segments: usize,
    /// Segments that found no room.
    left_out: u64,
}

impl Room {
    /// A connection, or `None` if there are too many. Give it back with [`Room::end`].
    pub fn begin(&mut self) -> Option<Box<Connection>> {
        let is_room = self.connections < TCP_ANALYSED;
        self.connections += usize::from(is_room);
        is_room.then(Box::default)
    }

    pub fn end(&mut self, connection: &Connection) {
        self.connections -= 1;
        self.segments -= connection.sides.iter().map(|side| side.held.len()).sum::<usize>();
    }

    fn has_segments(&self) -> bool {
        self.segments < TCP_ANALYSED_SEGMENTS
    }

    fn hold(&mut self, is_held: bool) {
        self.segments += usize::from(is_held);
        self.left_out += u64::from(!is_held);
    }

    /// Segments that found no room since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    sides: [Side; 2],
    /// When the latest SYN came.
    syn: Option<u64>,
    /// Round trip of the handshake, ns.
    round_trip: Option<u64>,
}

impl Connection {
    /// Whether a segment of this side begins another connection with the same addresses and ports.
    pub fn is_another(&self, way: usize, segment: &Segment) -> bool {
        segment.flags.0 & (SYN | ACK) == SYN && self.sides[way].base.is_some_and(|base| base != segment.sequence)
    }

    /// Adds a segment that side `way` (0 or 1) sends.
    pub fn add(&mut self, way: usize, segment: &Segment, room: &mut Room) -> Verdict {
        let [first, second] = &mut self.sides;
        let (here, there) = if way == 0 { (first, second) } else { (second, first) };
        let mut verdict = Verdict::default();
        begin_sides(here, there, segment, &mut verdict.events);
        handshake(&mut self.syn, &mut self.round_trip, here, there, segment);
        let is_probe = windows_and_acknowledgments(here, there, segment, &mut verdict);
        lost_acknowledgment(there, segment, &mut verdict.events);
        if segment.takes_room() {
            repeats(here, there, segment, self.round_trip, &mut verdict);
        }
        here.advance(segment, is_probe, room);
        here.remember(segment, verdict.events);
        if segment.flags.ack() {
            verdict.acknowledges = there.acknowledged(segment, room);
            there.is_counted = true;
        }
        if segment.length > 0 && here.is_counted {
            (verdict.in_flight, verdict.pushed) = in_flight(here, there, segment);
        }
        let behind = |side: &Side, number: u32| side.base.map_or(number, |base| number.wrapping_sub(base));
        let acknowledgment = segment.flags.ack().then(|| behind(there, segment.acknowledgment));
        verdict.relative = (behind(here, segment.sequence), acknowledgment);
        verdict.window = here.window_bytes(segment);
        verdict.initial_round_trip = self.round_trip;
        verdict
    }
}

/// Notes where sequence numbers begin, and the scales of windows.
fn begin_sides(here: &mut Side, there: &mut Side, segment: &Segment, events: &mut Events) {
    let is_syn = segment.has(SYN);
    match here.base {
        // Without a SYN, the number before the first one is as good as any.
        None => here.base = Some(segment.sequence.wrapping_sub(u32::from(!is_syn))),
        Some(base) if is_syn && base != segment.sequence => {
            if segment.flags.ack() {
                events.add(Event::ReusedPorts);
            }
            here.base = Some(segment.sequence);
        }
        Some(_) => {}
    }
    if there.base.is_none() && segment.flags.ack() {
        there.base = Some(segment.acknowledgment.wrapping_sub(1));
    }
    if is_syn {
        here.scale = match (segment.scale, here.scale) {
            (Some(shift), _) => Scale::By(shift.min(14)),
            (None, Scale::Unknown) => Scale::Without,
            // A repeated SYN may leave the option out.
            (None, known) => known,
        };
        // Windows are scaled only if both sides say so (RFC 7323, 2.2).
        if segment.flags.ack() && [here.scale, there.scale].contains(&Scale::Without) {
            (here.scale, there.scale) = (Scale::Without, Scale::Without);
        }
    }
}

/// Measures the round trip of the handshake: from a SYN to the ACK of its answer, or to the reset that refuses it.
fn handshake(syn: &mut Option<u64>, round_trip: &mut Option<u64>, here: &Side, there: &Side, segment: &Segment) {
    if segment.flags.0 & (SYN | ACK) == SYN {
        *syn = Some(segment.time);
    }
    let is_first = |side: &Side, number: u32| side.base.is_some_and(|base| number.wrapping_sub(base) == 1);
    if let (Some(syn), None) = (*syn, *round_trip)
        && segment.flags.0 & (SYN | ACK) == ACK
        && is_first(here, segment.sequence)
        && is_first(there, segment.acknowledgment)
    {
        *round_trip = Some(segment.time.saturating_sub(syn));
    }
}

/// Finds events of windows and acknowledgements, and a gap before the segment. Returns whether the segment probes a zero
/// window.
fn windows_and_acknowledgments(here: &mut Side, there: &mut Side, segment: &Segment, verdict: &mut Verdict) -> bool {
    let Segment { sequence, acknowledgment, window, length, .. } = *segment;
    let events = &mut verdict.events;
    let is_plain = !segment.has(SYN | FIN | RST);
    let is_next = here.next == Some(sequence);
    let same_window = here.window == Some(window);
    let same_acknowledgment = segment.flags.ack() && here.acknowledgment == Some(acknowledgment);
    let is_probe = length == 1 && is_next && there.window == Some(0);
    'judged: {
        if is_probe {
            events.add(Event::ZeroWindowProbe);
            break 'judged;
        }
        if window == 0 && is_plain {
            events.add(Event::ZeroWindow);
        }
        if here.next.is_some_and(|next| is_after(sequence, next)) && !segment.has(RST) {
            events.add(Event::LostSegment);
            here.is_counted = false;
        }
        if length <= 1 && here.next.is_some_and(|next| sequence == next.wrapping_sub(1)) && is_plain {
            events.add(Event::KeepAlive);
        }
        if length == 0 && window != 0 && !same_window && is_next && same_acknowledgment && is_plain {
            events.add(Event::WindowUpdate);
        }
        if length > 0 && is_plain && there.edge() == Some(sequence.wrapping_add(length)) {
            events.add(Event::WindowFull);
        }
        if !(length == 0 && is_next && is_plain && same_window) {
            break 'judged;
        }
        if window != 0 && same_acknowledgment && there.events.has(Event::KeepAlive) {
            events.add(Event::KeepAliveAck);
            break 'judged;
        }
        let took_probe = here.acknowledgment.map(|last| last.wrapping_add(1)) == Some(acknowledgment);
        if window == 0 && (same_acknowledgment || took_probe) && there.events.has(Event::ZeroWindowProbe) {
            events.add(Event::ZeroWindowProbeAck);
            if took_probe {
                there.probe_was_taken();
            }
            break 'judged;
        }
        if window != 0 && same_acknowledgment {
            here.duplicates = here.duplicates.saturating_add(1);
            events.add(Event::DuplicateAck);
            verdict.duplicate_number = here.duplicates;
        }
    }
    if !same_acknowledgment {
        here.duplicates = 0;
    }
    is_probe
}

/// Finds an acknowledgement of bytes that were never seen. One beyond the last byte is told once, until
/// more bytes come.
fn lost_acknowledgment(there: &mut Side, segment: &Segment, events: &mut Events) {
    if let Some(seen) = there.seen
        && segment.flags.ack()
        && is_after(segment.acknowledgment, seen)
    {
        if there.events.has(Event::ZeroWindowProbe) {
            // The window opens, and the byte of the probe was taken.
            there.probe_was_taken();
            if !is_after(segment.acknowledgment, there.seen.unwrap_or(seen)) {
                return;
            }
        }
        if there.seen != there.next {
            (there.seen, there.is_lost_told) = (there.next, false);
        } else if std::mem::replace(&mut there.is_lost_told, true) {
            return;
        }
        events.add(Event::AckLostSegment);
    }
}

/// Finds the sort of repetition.
fn repeats(here: &Side, there: &Side, segment: &Segment, round_trip: Option<u64>, verdict: &mut Verdict) {
    let Segment { sequence, length, time, .. } = *segment;
    if verdict.events.has(Event::KeepAlive) {
        return;
    }
    let Some(next) = here.next else { return };
    // A segment that begins one byte earlier and has more may follow a probe.
    let is_behind = is_after(next, sequence) && !(length > 1 && next.wrapping_sub(1) == sequence);
    let end = sequence.wrapping_add(length);
    if length > 0 && there.acknowledgment.is_some_and(|acknowledged| !is_after(end, acknowledged)) {
        verdict.events.add(Event::SpuriousRetransmission);
        verdict.events.add(Event::Retransmission);
        return;
    }
    if !is_behind {
        return;
    }
    // A time that goes back is far from the other.
    let since = |then: u64| time.wrapping_sub(then);
    if there.duplicates >= 2 && there.acknowledgment == Some(sequence) && since(there.time) < FAST_NS {
        verdict.events.add(Event::FastRetransmission);
        verdict.events.add(Event::Retransmission);
        return;
    }
    let is_late = since(here.next_time) < round_trip.filter(|ns| *ns > 0).unwrap_or(OUT_OF_ORDER_NS);
    // What is acknowledged came before.
    let is_acknowledged = there.acknowledgment.is_some_and(|acknowledged| !is_after(segment.next(), acknowledged));
    if is_late && !is_acknowledged && !here.held.has(sequence, end) {
        verdict.events.add(Event::OutOfOrder);
        return;
    }
    verdict.events.add(Event::Retransmission);
    verdict.timeout = Some(time.saturating_sub(here.held.oldest().unwrap_or(here.next_time)));
}

/// Bytes that are in flight, and bytes since the last push.
fn in_flight(here: &mut Side, there: &Side, segment: &Segment) -> (Option<u32>, Option<u32>) {
    let Some(range) = here.held.range(here.base.unwrap_or(0)) else { return (None, None) };
    let bytes = range.wrapping_sub(there.sacked);
    let is_virtual = u32::from(segment.has(SYN | FIN));
    here.pushed = if here.was_push { segment.length } else { here.pushed.saturating_add(segment.length) };
    here.was_push = segment.has(PSH);
    match (1..IN_FLIGHT_MAX).contains(&bytes) {
        true => (Some(bytes - is_virtual), Some(here.pushed)),
        false => (None, None),
    }
}

#[cfg(test)]
mod tests;
