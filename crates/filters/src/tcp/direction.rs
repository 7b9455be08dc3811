//! One direction of a connection: the next byte, the acknowledged bytes, and the output of blocks.
//!
//! Positions are 64 bits and never wrap; their low 32 bits are the sequence number (RFC 9293, 3.4). A sequence number
//! maps to the position nearest to a known one (RFC 1982, 3.2).

use super::piece::Piece;
use super::segment::{SHIFT_MAX, Segment, Stamp};
use base::limits::TCP_WINDOW_BYTES;
use buffer::descriptor::WIRE_MAX;
use filter::prelude::*;
use packet::tcp::is_after;

/// The first position, so large that one can step back from it.
const ORIGIN: u64 = 1 << 32;

/// Bytes that may come with a SYN (RFC 7413), and how far data may precede the presumed first byte.
pub(super) const NEAR: i64 = 1 << 16;

/// The clock of a SYN is at most this many ticks older than that of its last retransmission. A tick is a millisecond
/// or longer (RFC 7323, 5.4), or a microsecond if Linux is set so.
const SYN_TICKS: u32 = 1 << 28;

/// How the start of a direction is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Start {
    #[default]
    Unknown,
    /// The other side acknowledged earlier bytes: `next` is the byte it was waiting for.
    Acknowledged,
    /// From its SYN, or from the first segment with data.
    Known,
}

/// The shift of a side's windows (RFC 7323, 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    /// The shift in its SYN, if that was seen.
    pub said: Option<u8>,
    /// The shift that counts. If it is unknown, windows are taken as large as possible.
    pub bits: u8,
}

impl Default for Shift {
    fn default() -> Shift {
        Shift { said: None, bits: SHIFT_MAX }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    /// Position of the next byte to give.
    pub next: u64,
    /// The other side has every byte before this position.
    pub acked: u64,
    pub first: u64,
    /// Position of its FIN, one past its last byte.
    pub fin: Option<u64>,
    /// Position of the newest urgent byte; 0: there was none. It waits while it is not before `next`.
    pub urgent: u64,
    /// Bytes missing before `next` that no block has reported yet.
    lost: u64,
    /// When the hole at `next` opened, by the clock, ns; valid while something is held.
    pub hole_since: u64,
    /// Number of pieces held.
    pub held: u32,
    /// Number of pieces in doubt.
    pub doubtful: u16,
    /// The latest timestamp that came in order (RFC 7323, 4.3: TS.Recent).
    stamp: u32,
    /// The largest window that its receiver has offered, in bytes.
    pub offered: u32,
    /// The shift of the windows that its sender offers.
    pub shift: Shift,
    pub start: Start,
    /// `stamp` is valid.
    stamped: bool,
    /// A checksum of its sender was right, so a wrong one is not left open for a device to finish.
    pub sums: bool,
    /// Data of it waits for its turn, or did: see `turns.rs`.
    pub waits: bool,
    /// The held data is that of its SYN; whether the other side takes it is not known yet (RFC 7413, 3.1).
    pub syn_data: bool,
    /// Its SYN was seen.
    pub syn: bool,
    /// The other side has acknowledged `first`, so it no longer changes.
    pub confirmed: bool,
    /// A segment of it was seen.
    pub heard: bool,
    /// The other side sends acknowledgements, so it tells what it is missing.
    pub acknowledged: bool,
    /// Its first block was given.
    pub opened: bool,
    /// Its last block was given.
    pub done: bool,
}

impl Direction {
    /// The position of a sequence number: the one nearest to `next`.
    #[inline]
    pub fn position(&self, sequence: u32) -> u64 {
        self.next.wrapping_add_signed(i64::from(sequence.wrapping_sub(self.next as u32) as i32))
    }

    /// Bytes from `next` to a sequence number; negative before it.
    #[inline]
    pub fn ahead(&self, sequence: u32) -> i64 {
        i64::from(sequence.wrapping_sub(self.next as u32) as i32)
    }

    /// Whether a segment's timestamp is older than the last one. Its receiver then drops it (RFC 7323, 5.3). One tick is
    /// tolerated, as in Linux.
    #[inline]
    pub fn is_outdated(&self, stamp: Option<Stamp>) -> bool {
        stamp.is_some_and(|stamp| self.stamped && (stamp.value.wrapping_sub(self.stamp) as i32) < -1)
    }

    /// Notes a segment's timestamp, unless the segment comes early (RFC 7323, 4.3).
    #[inline]
    pub fn stamp(&mut self, segment: &Segment) {
        if let Some(stamp) = segment.stamp
            && self.ahead(segment.sequence) <= 0
            && !(self.stamped && is_after(self.stamp, stamp.value))
        {
            (self.stamp, self.stamped) = (stamp.value, true);
        }
    }

    /// Takes the timestamp of its SYN.
    pub fn stamp_anew(&mut self, stamp: Option<Stamp>) {
        (self.stamp, self.stamped) = stamp.map_or((0, false), |stamp| (stamp.value, true));
    }

    /// Forgets checksums and timestamps: its receiver took data that these would refuse, so the capture is incomplete.
    pub fn trust_anew(&mut self) {
        (self.sums, self.stamped) = (false, false);
    }

    /// Whether an answer to this direction's SYN can echo this timestamp.
    pub fn can_be_echoed(&self, stamp: Option<Stamp>) -> bool {
        let Some(stamp) = stamp.filter(|stamp| self.stamped && stamp.echo != 0) else { return true };
        self.stamp.wrapping_sub(stamp.echo) <= SYN_TICKS
    }

    /// Notes the window that the receiver offers in a segment with this `shift` (not a SYN).
    #[inline]
    pub fn offer(&mut self, segment: &Segment, shift: Shift) {
        self.offered = self.offered.max(u32::from(segment.window) << shift.bits);
    }

    /// One past the last sequence number seen, except for held data.
    pub fn end(&self) -> u64 {
        self.next.max(self.fin.map_or(0, |fin| fin + 1))
    }

    /// Whether nothing is held, no urgent byte awaited and no FIN seen.
    pub fn is_quiet(&self) -> bool {
        self.fin.is_none() && self.held == 0 && self.doubtful == 0 && self.urgent < self.next.max(1)
    }

    /// Whether it has given or held anything.
    pub fn has_data(&self) -> bool {
        self.opened || self.held > 0 || self.lost > 0
    }

    /// Its end, once the other side has acknowledged the FIN: then it was not forged.
    #[inline]
    pub fn sure_end(&self) -> Option<u64> {
        self.fin.filter(|fin| self.acked > *fin)
    }

    /// Begins at its SYN.
    pub fn begin_at(&mut self, sequence: u32) {
        self.next = ORIGIN | u64::from(sequence);
        (self.first, self.acked, self.start, self.fin) = (self.next, self.next, Start::Known, None);
    }

    /// Begins at its first data or FIN, or where the other side is waiting.
    pub fn begin_midstream(&mut self, sequence: u32) {
        match self.start {
            Start::Known => return,
            Start::Unknown => self.begin_at(sequence),
            Start::Acknowledged => {
                let (position, ahead) = (self.position(sequence), self.ahead(sequence));
                if !is_near(ahead) {
                    self.begin_at(sequence);
                } else if ahead <= 0 {
                    self.next = position;
                } else if self.acked >= position {
                    // The other side has the earlier bytes, so they will not come again.
                    self.lost = ahead as u64;
                    self.next = position;
                }
            }
        }
        (self.first, self.start) = (self.next, Start::Known);
    }

    /// The other side has every byte before `sequence`. `with_syn`: its SYN answers the SYN with this number.
    #[inline]
    pub fn acknowledge(&mut self, sequence: u32, with_syn: bool) {
        self.acknowledged = true;
        match self.start {
            Start::Unknown => {
                self.next = ORIGIN | u64::from(sequence);
                (self.acked, self.start) = (self.next, Start::Acknowledged);
            }
            Start::Known if !self.confirmed && !self.has_data() => {
                // Of several SYNs the other side decides which one counts.
                let ahead = self.ahead(sequence);
                if !(0..=NEAR).contains(&ahead) {
                    self.begin_at(sequence);
                }
                self.confirmed = ahead == 0 || !with_syn;
                self.acked = self.acked.max(self.position(sequence));
            }
            Start::Acknowledged | Start::Known => {
                if is_near(self.ahead(sequence)) {
                    self.acked = self.acked.max(self.position(sequence));
                }
            }
        }
    }

    /// Gives the next piece, without an urgent byte that waits.
    pub fn give_around_urgent(&mut self, piece: &Piece, class: Class, out: &mut Vec<Descriptor>) {
        let at = self.urgent;
        if !piece.has(at) {
            return self.give(piece, class, out);
        }
        let aside = Piece::aside(at, at + 1, piece.block);
        for part in [piece.between(piece.start, at), aside, piece.between(at + 1, piece.end)] {
            self.give(&part, class, out);
        }
    }

    /// Gives the next piece, where no urgent byte waits.
    #[inline(always)]
    pub fn give(&mut self, piece: &Piece, class: Class, out: &mut Vec<Descriptor>) {
        debug_assert_eq!(piece.start, self.next);
        if piece.block.len > 0 {
            self.emit(piece.block, Flags::NONE, class, out);
        } else if piece.is_aside() {
            self.next = piece.end;
            return;
        }
        self.lost += piece.end - piece.start - u64::from(piece.block.len);
        self.next = piece.end;
    }

    /// Gives up the missing bytes before `position`.
    pub fn skip_to(&mut self, position: u64) {
        let missing = position.saturating_sub(self.next);
        self.lost += missing;
        self.next += missing;
    }

    /// Gives the last block, which is empty.
    pub fn finish(&mut self, block: Descriptor, class: Class, out: &mut Vec<Descriptor>) {
        if !self.done {
            let end = if self.fin.is_some() { Flags::LAST } else { Flags::LAST.with(Flags::TRUNCATED) };
            self.emit(block, end, class, out);
            self.done = true;
        }
    }

    /// Gives a block, and reports the bytes missing before it.
    #[inline]
    fn emit(&mut self, mut block: Descriptor, mut flags: Flags, class: Class, out: &mut Vec<Descriptor>) {
        block.class = class;
        if self.lost > 0 {
            self.emit_gap(block.part(0, 0), block.len, out);
            flags = flags.with(if self.lost > 0 { Flags::GAP_BEFORE } else { Flags::NONE });
        }
        if !self.opened {
            self.opened = true;
            flags = flags.with(Flags::FIRST);
        }
        block.set_wire(block.len.saturating_add(self.lost as u32));
        block.set_flags(flags);
        self.lost = 0;
        out.push(block);
    }

    /// Tells of missing bytes before the other direction goes on, with an empty block like `like`.
    #[inline(always)]
    pub fn tell_lost(&mut self, like: &Descriptor, class: Class, out: &mut Vec<Descriptor>) {
        if self.lost > 0 {
            self.tell_lost_now(like.part(0, 0), class, out);
        }
    }

    #[cold]
    fn tell_lost_now(&mut self, empty: Descriptor, class: Class, out: &mut Vec<Descriptor>) {
        self.emit(empty, Flags::NONE, class, out);
    }

    /// Gives empty blocks until a block of `len` bytes can report the remaining missing bytes.
    #[cold]
    fn emit_gap(&mut self, mut empty: Descriptor, len: u32, out: &mut Vec<Descriptor>) {
        while self.lost > u64::from(WIRE_MAX.saturating_sub(len)) {
            let missing = self.lost.min(u64::from(WIRE_MAX));
            empty.set_wire(missing as u32);
            empty.set_flags(if self.opened { Flags::GAP_BEFORE } else { Flags::GAP_BEFORE.with(Flags::FIRST) });
            self.opened = true;
            self.lost -= missing;
            out.push(empty);
        }
    }
}

/// Whether a sequence number at this distance from the next one can belong to the same connection.
#[inline]
pub(super) fn is_near(ahead: i64) -> bool {
    ahead.unsigned_abs() <= u64::from(TCP_WINDOW_BYTES)
}

/// An empty block that marks the end of a direction.
pub(super) fn last_block(cx: &Context<'_>, time: u64) -> Descriptor {
    Descriptor { time, ..cx.own.block(0, 0) }
}
