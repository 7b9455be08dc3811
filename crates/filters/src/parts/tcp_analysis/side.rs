//! The state of one direction of a connection.

use super::held::{Held, Sent};
use super::{Events, Room, SYN, Segment};
use packet::tcp::is_after;

/// How the windows of a side are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scale {
    /// No SYN was seen.
    #[default]
    Unknown,
    /// Not at all.
    Without,
    By(u8),
}

/// One direction.
#[derive(Debug)]
pub(super) struct Side {
    /// Where its sequence numbers begin.
    pub base: Option<u32>,
    pub scale: Scale,
    /// Behind the highest byte that came, and when that came.
    pub next: Option<u32>,
    pub next_time: u64,
    /// Behind the bytes that came without a gap: acknowledgements go no further.
    pub seen: Option<u32>,
    /// An acknowledgement of more than came was told, and no more came since.
    pub is_lost_told: bool,
    /// Of the latest segment: window as in the header, acknowledgement, time, SYN and events.
    pub window: Option<u16>,
    pub acknowledgment: Option<u32>,
    pub time: u64,
    was_syn: bool,
    pub events: Events,
    /// Bytes in the latest SACK blocks.
    pub sacked: u32,
    /// Duplicate acknowledgements in a row.
    pub duplicates: u32,
    pub held: Held,
    /// Bytes in flight are known: no segment was lost since the other side acknowledged.
    pub is_counted: bool,
    /// Bytes since the last push, and whether the latest segment with bytes was one.
    pub pushed: u32,
    pub was_push: bool,
}

impl Default for Side {
    fn default() -> Side {
        Side {
            base: None,
            scale: Scale::Unknown,
            next: None,
            next_time: 0,
            seen: None,
            is_lost_told: false,
            window: None,
            acknowledgment: None,
            time: 0,
            was_syn: false,
            events: Events::default(),
            sacked: 0,
            duplicates: 0,
            held: Held::default(),
            is_counted: true,
            pushed: 0,
            was_push: false,
        }
    }
}

impl Side {
    /// The window of a segment, in bytes.
    pub fn window_bytes(&self, segment: &Segment) -> u32 {
        let shift = match self.scale {
            Scale::By(shift) if segment.flags.0 & SYN == 0 => shift,
            _ => 0,
        };
        u32::from(segment.window) << shift
    }

    /// The sequence number at which the other side has to stop. `None`: not known.
    pub fn edge(&self) -> Option<u32> {
        let shift = match self.scale {
            Scale::Unknown => return None,
            Scale::By(shift) if !self.was_syn => shift,
            _ => 0,
        };
        Some(self.acknowledgment?.wrapping_add(u32::from(self.window?) << shift))
    }

    /// Notes the bytes of a segment.
    pub fn advance(&mut self, segment: &Segment, is_probe: bool, room: &mut Room) {
        let next = segment.next();
        if segment.takes_room() {
            let sent = Sent { begin: segment.sequence, end: next, time: segment.time, number: segment.number };
            let is_held = room.has_segments() && self.held.push(sent);
            room.hold(is_held);
        }
        if is_probe {
            return;
        }
        if self.next.is_none_or(|known| is_after(next, known)) {
            (self.next, self.next_time) = (Some(next), segment.time);
        }
        if self.seen.is_none_or(|seen| seen == segment.sequence) && self.seen != self.next {
            (self.seen, self.is_lost_told) = (self.next, false);
        }
    }

    /// The other side took the byte of a probe.
    pub fn probe_was_taken(&mut self) {
        self.next = self.next.map(|next| next.wrapping_add(1));
        self.seen = self.next;
    }

    /// Remembers the rest of a segment.
    pub fn remember(&mut self, segment: &Segment, events: Events) {
        self.window = Some(segment.window);
        self.acknowledgment = segment.flags.ack().then_some(segment.acknowledgment);
        self.time = segment.time;
        self.was_syn = segment.flags.syn();
        self.sacked = segment.sacked;
        self.events = events;
    }

    /// Removes segments that a segment of the other side acknowledges. Returns the number of the frame that it answers, and how
    /// long ago that came.
    pub fn acknowledged(&mut self, segment: &Segment, room: &mut Room) -> Option<(u64, u64)> {
        let before = self.held.len();
        let found = self.held.acknowledge(segment.acknowledgment);
        let gone = before - self.held.len();
        room.segments -= gone;
        found.map(|sent| (sent.number, segment.time.saturating_sub(sent.time)))
    }
}
