//! Converts monotonic time, which the kernel's program stamps, to the time of day.

use rustix::time::{ClockId, clock_gettime};

/// How long an offset is valid: meanwhile a clock that is being adjusted drifts by some microseconds.
const GOOD_NS: u64 = 1_000_000_000;

/// The difference between the time of day and monotonic time.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    offset: i64,
    /// End of its validity, in monotonic time.
    until: u64,
}

impl Default for Offset {
    fn default() -> Self {
        Offset::now()
    }
}

/// The monotonic clock, ns.
pub fn monotonic() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The time of day, ns since 1970 UTC.
pub fn real() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

impl Offset {
    /// Measures three times, and takes the fastest measurement.
    pub fn now() -> Offset {
        let measure = || {
            let before = monotonic();
            let real = nanoseconds(ClockId::Realtime);
            let after = monotonic();
            (after - before, (real as i64).wrapping_sub((before + (after - before) / 2) as i64), after)
        };
        let (_, offset, after) = (0..3).map(|_| measure()).min_by_key(|(took, ..)| *took).unwrap_or((0, 0, 0));
        Offset { offset, until: after + GOOD_NS }
    }

    /// Converts a monotonic time to ns since 1970 UTC; measures again if the offset is too old.
    #[inline]
    pub fn real(&mut self, monotonic: u64) -> u64 {
        if monotonic > self.until {
            *self = Offset::now();
        }
        (monotonic as i64).wrapping_add(self.offset) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_now() {
        let mut offset = Offset::now();
        let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(offset.real(monotonic()).abs_diff(real) < 50_000_000);
    }
}
