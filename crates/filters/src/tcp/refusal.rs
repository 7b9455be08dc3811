//! Segments that their receiver would drop: wrong checksums, old timestamps, data without ACK, unfit resets. A reader
//! that wants the receiver's stream leaves them out, too.

use super::connection::Connection;
use super::direction::{Direction, Start, is_near};
use super::segment::Segment;
use super::settings::Settings;
use base::limits::{TCP_STAMP_AGE_NS, TCP_WINDOW_LEAST_BYTES};

impl Connection {
    /// Why the receiver would drop a segment of this side.
    pub fn refusal(&self, side: usize, segment: &Segment, now: u64, settings: &Settings) -> Option<&'static str> {
        let (own, other) = (&self.directions[side], &self.directions[1 - side]);
        if settings.checksums.refuse(segment.checksum, own.sums) {
            return Some("wrong checksum");
        }
        if !settings.check {
            return None;
        }
        let flags = segment.flags;
        if segment.span > 0 && !flags.ack() && !flags.syn() && !flags.rst() {
            return Some("data without ack");
        }
        let aged = now.saturating_sub(self.last_seen) > TCP_STAMP_AGE_NS;
        if !flags.syn() && own.is_outdated(segment.stamp) && !aged {
            return Some("old timestamp");
        }
        // The sender of a SYN knows which timestamps an answer can echo (RFC 7323, 3.2).
        if flags.ack() && own.start != Start::Known && !own.has_data() && !other.can_be_echoed(segment.stamp) {
            return Some("timestamp never sent");
        }
        None
    }

    /// Whether the other side would take a reset of this side (RFC 5961, 3.2). `end`: one past each side's last byte seen.
    pub fn takes_reset(&self, side: usize, segment: &Segment, end: [u64; 2]) -> bool {
        let (own, other) = (&self.directions[side], &self.directions[1 - side]);
        if own.start == Start::Unknown {
            // The answer to a SYN acknowledges it (RFC 9293, 3.10.7.3).
            let position = other.position(segment.acknowledgment);
            let answers = other.first <= position && position <= end[1 - side];
            return other.start != Start::Known || (segment.flags.ack() && answers);
        }
        let position = own.position(segment.sequence);
        is_near(own.ahead(segment.sequence))
            && position <= end[side].max(own.acked)
            && (position >= own.acked || !own.acknowledged)
    }
}

impl Direction {
    /// Whether a segment ends so far ahead that its receiver has no room for it.
    pub fn has_no_room_for(&self, end: u64) -> bool {
        end > self.next.max(self.acked) + u64::from(self.offered.max(TCP_WINDOW_LEAST_BYTES))
    }
}
