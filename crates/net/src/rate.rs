//! Two limits of frames over time: the rate of the wire, and the answers per second that a stranger can cause.

use crate::limits::{CATCH_UP, SECOND};

/// Bytes before and behind a frame on the wire: preamble, checksum and gap (IEEE 802.3).
const GAP_BYTES: u64 = 24;

/// The shortest frame without its checksum.
const SHORTEST: u64 = 60;

/// The wire as a clock: each frame takes the time that the wire needs for it, and the next one leaves after that.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Bits a second. `None`: the device decides.
    bits: Option<u64>,
    count_gaps: bool,
    /// When the wire is free again, ns.
    free: u64,
    /// The fraction of a nanosecond, in parts of `bits`, carried over so that rounding errors do not add up.
    rest: u64,
    /// Time of all frames so far, ns. A wire without a rate counts a byte as 1 ns, so that flows can be compared.
    used: u64,
}

impl Wire {
    pub(crate) fn new(bits: Option<u64>, count_gaps: bool) -> Wire {
        Wire { bits, count_gaps, free: 0, rest: 0, used: 0 }
    }

    /// When the next frame may leave. `None`: now.
    pub(crate) fn departure(&self, now: u64) -> Option<u64> {
        (self.bits.is_some() && self.free > now).then_some(self.free)
    }

    /// A frame of `bytes` leaves.
    pub(crate) fn charge(&mut self, bytes: usize, now: u64) {
        let Some(bits) = self.bits else {
            self.used += bytes as u64;
            return;
        };
        let bytes = bytes as u64;
        let bytes = if self.count_gaps { bytes.max(SHORTEST) + GAP_BYTES } else { bytes };
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.rest);
        self.rest = (work % u128::from(bits)) as u64;
        let time = u64::try_from(work / u128::from(bits)).unwrap_or(u64::MAX);
        // A thread that overslept catches up, within bounds.
        self.free = self.free.max(now.saturating_sub(CATCH_UP)).saturating_add(time);
        self.used += time;
    }

    /// Time of all frames so far, ns.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Whether it has a rate.
    pub(crate) fn is_paced(&self) -> bool {
        self.bits.is_some()
    }

    /// The approximate time of a frame of `bytes`, ns.
    pub(crate) fn time_of(&self, bytes: usize) -> u64 {
        let bits = u128::from(self.bits.unwrap_or(8 * SECOND).max(1));
        u64::try_from(bytes as u128 * 8 * u128::from(SECOND) / bits).unwrap_or(u64::MAX)
    }
}

/// A limit of events per second, and of events in a row.
#[derive(Debug)]
pub(crate) struct Limit {
    interval: u64,
    burst: u64,
    /// When the whole burst is available again, ns.
    full: u64,
}

impl Limit {
    pub(crate) fn new((a_second, burst): (u64, u64)) -> Limit {
        Limit { interval: SECOND / a_second, burst, full: 0 }
    }

    /// A limit of time: `1 / part` of each second, and `burst` ns of it in a row.
    pub(crate) fn of_time(part: u64, burst: u64) -> Limit {
        Limit { interval: part, burst, full: 0 }
    }

    /// Takes `ns` of time, if that much is available. Only for a limit [of time](Self::of_time).
    pub(crate) fn take_time(&mut self, ns: u64, now: u64) -> bool {
        let full = self.full.max(now).saturating_add(ns.saturating_mul(self.interval));
        let allowed = full - now <= self.burst.saturating_mul(self.interval);
        if allowed {
            self.full = full;
        }
        allowed
    }

    /// Takes one event, if one is available.
    pub(crate) fn take(&mut self, now: u64) -> bool {
        let full = self.full.max(now) + self.interval;
        let allowed = full - now <= self.burst * self.interval;
        if allowed {
            self.full = full;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends frames for a second of a clock that oversleeps each departure by `late` ns. Returns the bytes.
    fn second(bits: u64, frame: usize, gaps: bool, late: u64) -> u64 {
        let (mut wire, mut now, mut sent) = (Wire::new(Some(bits), gaps), SECOND, 0);
        while now < 2 * SECOND {
            match wire.departure(now) {
                None => {
                    wire.charge(frame, now);
                    sent += frame as u64;
                }
                Some(departure) => now = departure + late,
            }
        }
        sent
    }

    #[test]
    fn the_wire_carries_its_rate_within_a_percent_even_when_the_thread_oversleeps() {
        for (bits, frame, late) in [(100_000_000, 1514, 60_000), (10_000_000, 60, 1_000_000), (1_000_000_000, 1514, 0)]
        {
            let (sent, expected) = (second(bits, frame, false, late), bits / 8);
            assert!(sent.abs_diff(expected) * 100 <= expected, "{sent} of {expected} bytes");
        }
        let (sent, expected) = (second(100_000_000, 60, true, 0), 12_500_000 * 60 / 84);
        assert!(sent.abs_diff(expected) * 100 <= expected, "{sent} of {expected} bytes with gaps");
        assert_eq!(Wire::new(None, false).departure(0), None);
    }

    #[test]
    fn a_limit_allows_its_burst_and_then_its_rate() {
        let mut limit = Limit::new((10, 3));
        assert_eq!((0..5).filter(|_| limit.take(SECOND)).count(), 3);
        assert!(!limit.take(SECOND + SECOND / 20));
        assert!(limit.take(SECOND + SECOND / 10));
        assert_eq!((0..10).filter(|_| limit.take(9 * SECOND)).count(), 3);
    }
}
