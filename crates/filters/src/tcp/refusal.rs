//! What the receiver of a segment would not take: wrong checksums, old timestamps, data without ACK, resets that do not fit. Whoever
//! is to see the stream as its receiver does leaves them out, too. Not what the segment means if it is taken.

use super::assembler::Settings;
use super::connection::Connection;
use super::direction::{Direction, Start, is_near};
use super::segment::{Checksum, Segment};
use base::limits::{TCP_STAMP_AGE_NS, TCP_WINDOW_LEAST_BYTES};

/// What is done about checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// Segments with a wrong one are left out, unless their sender has not shown a right one yet: then the capture is from
    /// before a device finished them, or was changed later.
    #[default]
    Auto,
    /// They are left out, and unfinished ones as well.
    Yes,
    /// Nobody looks.
    No,
}

/// Words of [`Checksums`].
pub(crate) const CHECKSUMS: [&str; 3] = ["auto", "yes", "no"];

impl Checksums {
    /// As the word says.
    pub fn of(word: Option<&str>) -> Checksums {
        match word {
            Some("yes") => Checksums::Yes,
            Some("no") => Checksums::No,
            _ => Checksums::Auto,
        }
    }

    /// Is this one enough to leave a segment out, whose sender may have shown a right one?
    pub fn refuse(self, checksum: Checksum, has_shown_right: bool) -> bool {
        checksum == Checksum::Wrong && (self == Checksums::Yes || has_shown_right)
    }
}

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
        // Who waits for an answer to a SYN knows what it can say (RFC 7323, 3.2).
        if flags.ack() && own.start != Start::Known && !own.has_data() && !other.can_be_echoed(segment.stamp) {
            return Some("timestamp never sent");
        }
        None
    }

    /// Would the other side take a reset of this side (RFC 5961, 3.2)? `end` is one past the last byte seen of each side.
    pub fn takes_reset(&self, side: usize, segment: &Segment, end: [u64; 2]) -> bool {
        let (own, other) = (&self.directions[side], &self.directions[1 - side]);
        if own.start == Start::Unknown {
            // An answer to a SYN says which (RFC 9293, 3.10.7.3).
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
    /// Does a segment end so far ahead that its receiver has no room for it?
    pub fn has_no_room_for(&self, end: u64) -> bool {
        end > self.next.max(self.acked) + u64::from(self.offered.max(TCP_WINDOW_LEAST_BYTES))
    }
}
