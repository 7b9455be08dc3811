//! Packet time that one frame with a damaged timestamp cannot push ahead: a moment has come when two batches say so.
//!
//! For idle timeouts. A single frame from the year 2100 would otherwise end every connection there is.

/// The earlier of the times of the last two batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SteadyClock {
    before: u64,
    last: u64,
}

impl SteadyClock {
    /// Notes the time of a batch, ns since 1970 UTC (the same one told twice counts once), and gives the time it is.
    #[inline]
    pub fn at(&mut self, now: u64) -> u64 {
        if now != self.last {
            self.before = self.last;
            self.last = now;
        }
        self.before.min(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_come_when_two_batches_say_so() {
        let mut clock = SteadyClock::default();
        let rows = [(5, 0), (6, 5), (900, 6), (900, 6), (7, 7), (8, 7), (3, 3), (950, 3), (951, 950)];
        for (now, expected) in rows {
            assert_eq!(clock.at(now), expected, "{now}");
        }
    }
}
