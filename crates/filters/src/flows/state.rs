//! The state of a flow, and how a packet changes it.

use super::analysed::{Analysed, Inside};
use super::community::Icmp;
use packet::encapsulation::Vlans;
use packet::tcp::{self, Flags, is_after};
use packet::tunnel::stack::Tunnels;

/// A side of a flow. The client began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// The facts that count of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub flags: Flags,
    pub sequence: u32,
    /// Bytes of payload on the wire.
    pub payload: u32,
}

impl Segment {
    pub fn of(packet: &tcp::Packet<'_>) -> Segment {
        let (flags, sequence, payload) = (packet.flags(), packet.sequence_number(), packet.payload_wire_len());
        Segment { flags, sequence, payload }
    }
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Bytes of IP packets.
    pub ip_bytes: u64,
    pub payload: u64,
    /// Bytes of TCP payload that came again.
    pub repeated: u64,
    /// All TCP flags, combined.
    pub flags: u8,
    /// Sequence number behind the last TCP byte. `None`: no segment came.
    next: Option<u32>,
    /// Sequence number of the SYN.
    begin: Option<u32>,
    /// Skipped bytes that may still come.
    gaps: Gaps,
    /// Skipped bytes that no longer fit into `gaps`.
    lost: u64,
}

/// A few ranges of bytes that may still come. Older ranges are given up.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    ranges: [(u32, u32); 3],
    count: u8,
}

impl Gaps {
    fn bytes(&self) -> u64 {
        self.ranges[..self.count.into()].iter().map(|(start, end)| u64::from(end.wrapping_sub(*start))).sum()
    }

    /// Adds a range. Returns the bytes of a range that was given up for it.
    fn push(&mut self, start: u32, end: u32) -> u64 {
        let mut lost = 0;
        if usize::from(self.count) == self.ranges.len() {
            let (start, end) = self.ranges[0];
            lost = u64::from(end.wrapping_sub(start));
            self.ranges.rotate_left(1);
            self.count -= 1;
        }
        self.ranges[usize::from(self.count)] = (start, end);
        self.count += 1;
        lost
    }

    /// Removes a range that came. Returns whether any of it was missing, and bytes given up.
    fn fill(&mut self, start: u32, end: u32) -> (bool, u64) {
        let (before, mut found, mut lost) = (*self, false, 0);
        *self = Gaps::default();
        for (gap_start, gap_end) in before.ranges[..before.count.into()].iter().copied() {
            if !is_after(end, gap_start) || !is_after(gap_end, start) {
                lost += self.push(gap_start, gap_end);
                continue;
            }
            found = true;
            if is_after(start, gap_start) {
                lost += self.push(gap_start, start);
            }
            if is_after(gap_end, end) {
                lost += self.push(end, gap_end);
            }
        }
        (found, lost)
    }
}

impl Sent {
    /// Bytes of TCP that never came.
    pub fn missed(&self) -> u64 {
        self.lost + self.gaps.bytes()
    }
}

#[derive(Debug)]
pub(super) struct State {
    /// Times of the first and the last packet.
    pub start: u64,
    pub last: u64,
    /// Time of the first TCP segment with which `tcp` may begin a stream. 0: there was none.
    begun: u64,
    /// When the last packet came, by the engine's clock.
    pub seen: u64,
    pub client: Sent,
    pub server: Sent,
    history: [u8; HISTORY],
    history_len: u8,
    pub icmp: Option<Icmp>,
    pub vlans: Vlans,
    pub tunnels: Option<Box<Tunnels>>,
    /// `None`: no filter reads it, or there are too many.
    pub analysed: Option<Box<Analysed>>,
    pub inside: Inside,
}

/// Longest history: each letter once for each side, and `^`.
const HISTORY: usize = 17;

const FIN: u8 = Flags::FIN.0;
const SYN: u8 = Flags::SYN.0;
const RST: u8 = Flags::RST.0;
const ACK: u8 = Flags::ACK.0;

impl State {
    /// The state of a flow whose first packet came at `start`. `is_answer`: the server sent it.
    pub fn new(start: u64, is_answer: bool, icmp: Option<Icmp>, vlans: Vlans, tunnels: Option<Tunnels>) -> State {
        let mut state = State {
            start,
            last: start,
            begun: 0,
            seen: 0,
            client: Sent::default(),
            server: Sent::default(),
            history: [0; HISTORY],
            history_len: 0,
            icmp,
            vlans,
            tunnels: tunnels.map(Box::new),
            analysed: None,
            inside: Inside::default(),
        };
        if is_answer {
            state.letter(b'^');
        }
        state
    }

    fn side(&mut self, side: Side) -> &mut Sent {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub fn history(&self) -> &[u8] {
        &self.history[..self.history_len.into()]
    }

    fn letter(&mut self, letter: u8) {
        if !self.history().contains(&letter) && usize::from(self.history_len) < HISTORY {
            self.history[usize::from(self.history_len)] = letter;
            self.history_len += 1;
        }
    }

    pub fn count(&mut self, side: Side, bytes: u32, ip_bytes: u32, payload: u32) {
        let sent = self.side(side);
        sent.packets += 1;
        sent.bytes += u64::from(bytes);
        sent.ip_bytes += u64::from(ip_bytes);
        sent.payload += u64::from(payload);
    }

    /// Adds a letter to the history: upper case for the client, lower case for the server.
    fn note(&mut self, side: Side, letter: u8) {
        self.letter(if side == Side::Client { letter } else { letter.to_ascii_lowercase() });
    }

    /// Records a packet of a protocol other than TCP.
    pub fn datagram(&mut self, side: Side, payload: u32) {
        if payload > 0 {
            self.note(side, b'D');
        }
    }

    /// Records a TCP segment.
    pub fn tcp(&mut self, side: Side, segment: Segment) {
        let Segment { flags: Flags(flags), sequence, payload } = segment;
        if self.begun == 0 && flags & RST == 0 && (flags & (SYN | FIN) != 0 || payload > 0) {
            self.begun = self.last;
        }
        let sent = self.side(side);
        sent.flags |= flags;
        if flags & SYN != 0 {
            sent.begin.get_or_insert(sequence);
        }
        // A reset tells nothing about bytes.
        let (again, gap) = if flags & RST != 0 { (false, false) } else { sent.bytes_came(sequence, flags, payload) };
        if flags & SYN != 0 {
            self.note(side, if flags & ACK != 0 { b'H' } else { b'S' });
        }
        if payload > 0 {
            self.note(side, b'D');
        } else if flags & (SYN | FIN | RST | ACK) == ACK {
            self.note(side, b'A');
        }
        let happened = [(again, b'T'), (gap, b'G'), (flags & FIN != 0, b'F'), (flags & RST != 0, b'R')];
        for (_, letter) in happened.into_iter().filter(|(happened, _)| *happened) {
            self.note(side, letter);
        }
    }

    /// The time that gives the stream its number, so that the records of the stream have the same number.
    pub fn begun(&self) -> u64 {
        if self.begun == 0 { self.start } else { self.begun }
    }

    /// Whether TCP has ended.
    pub fn is_closed(&self) -> bool {
        let (client, server) = (self.client.flags, self.server.flags);
        (client | server) & RST != 0 || client & server & FIN != 0
    }

    /// Whether the server of TCP has answered.
    pub fn is_established(&self) -> bool {
        (self.client.flags & self.server.flags) & ACK != 0
            || (self.client.flags & ACK != 0 && self.server.flags & SYN != 0)
    }

    /// Whether a SYN with this sequence number begins another connection.
    pub fn is_other_beginning(&self, side: Side, sequence: u32) -> bool {
        let sent = if side == Side::Client { &self.client } else { &self.server };
        sent.begin != Some(sequence)
    }
}

impl Sent {
    /// Records TCP bytes. Returns whether some had come before, and whether some before them are missing.
    fn bytes_came(&mut self, sequence: u32, flags: u8, payload: u32) -> (bool, bool) {
        let marks = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let end = sequence.wrapping_add(payload).wrapping_add(marks);
        let Some(next) = self.next else {
            self.next = Some(end);
            return (false, false);
        };
        if is_after(sequence, next) {
            self.lost += self.gaps.push(next, sequence);
            self.next = Some(end);
            return (false, true);
        }
        let is_new = is_after(end, next);
        if is_new {
            self.next = Some(end);
        }
        if payload == 0 || sequence == next {
            return (false, false);
        }
        let before = self.gaps.bytes();
        let (filled, lost) = self.gaps.fill(sequence, end);
        self.lost += lost;
        let known = if is_new { next.wrapping_sub(sequence) } else { payload };
        let missing = before.saturating_sub(self.gaps.bytes() + lost);
        self.repeated += u64::from(known.min(payload)).saturating_sub(missing);
        (!filled, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A side that has sent segments of (sequence number, bytes).
    fn sent(segments: &[(u32, u32)]) -> Sent {
        let mut sent = Sent::default();
        for (sequence, payload) in segments {
            sent.bytes_came(*sequence, ACK, *payload);
        }
        sent
    }

    fn missed(segments: &[(u32, u32)]) -> u64 {
        sent(segments).missed()
    }

    #[test]
    fn what_came_again() {
        let check =
            |segments: &[(u32, u32)], repeated: u64| assert_eq!(sent(segments).repeated, repeated, "{segments:?}");
        check(&[(100, 10), (110, 10)], 0);
        check(&[(100, 10), (100, 10), (105, 10)], 15);
        // Into a gap, and beside it.
        check(&[(100, 10), (130, 10), (110, 20)], 0);
        check(&[(100, 10), (130, 10), (105, 40)], 15);
        check(&[(100, 10), (130, 10), (110, 5), (110, 20)], 5);
        check(&[(u32::MAX - 4, 10), (u32::MAX - 4, 10)], 10);
    }

    #[test]
    fn what_is_missing_may_still_come() {
        assert_eq!(missed(&[(100, 10), (110, 10)]), 0);
        assert_eq!(missed(&[(100, 10), (130, 10)]), 20);
        assert_eq!(missed(&[(100, 10), (130, 10), (110, 5)]), 15);
        assert_eq!(missed(&[(100, 10), (130, 10), (115, 5)]), 15);
        assert_eq!(missed(&[(100, 10), (130, 10), (105, 40)]), 0);
        assert_eq!(missed(&[(100, 10), (130, 10), (120, 5), (110, 10), (125, 5)]), 0);
        // Across the wrap of sequence numbers.
        assert_eq!(missed(&[(u32::MAX - 9, 5), (5, 5)]), 10);
        assert_eq!(missed(&[(u32::MAX - 9, 5), (5, 5), (u32::MAX - 4, 10)]), 0);
    }

    #[test]
    fn more_gaps_than_are_kept_are_missing_for_good() {
        let segments: Vec<_> = (0..6).map(|number| (number * 20, 10)).collect();
        assert_eq!(missed(&segments), 50);
        // The last three gaps are kept, the first two are not.
        let late: Vec<_> = (0..5).map(|number| (number * 20 + 10, 10)).collect();
        assert_eq!(missed(&[segments, late].concat()), 20);
    }
}
