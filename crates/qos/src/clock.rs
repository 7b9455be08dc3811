//! The caller's clock, made to go forward only. A step back counts as no time, a leap as the time it says.

/// A point in the scheduler's own time, in nanoseconds. 128 bits cannot overflow by adding leaps of 64 bits.
pub(crate) type Moment = u128;

/// The time that passed, summed over every forward step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// The caller's time at the last step. None before the first.
    last: Option<u64>,
    passed: Moment,
}

impl Clock {
    /// Moves to the caller's time `now` in ns, and gives the scheduler's.
    pub(crate) fn advance(&mut self, now: u64) -> Moment {
        let step = now.saturating_sub(self.last.unwrap_or(now));
        self.last = Some(now);
        self.passed += u128::from(step);
        self.passed
    }

    /// The scheduler's time at the last step.
    pub(crate) fn now(&self) -> Moment {
        self.passed
    }

    /// The caller's time at `moment`, as seen from the last step.
    pub(crate) fn outside(&self, moment: Moment) -> u64 {
        let ahead = u64::try_from(moment.saturating_sub(self.passed)).unwrap_or(u64::MAX);
        self.last.unwrap_or(0).saturating_add(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_only() {
        let mut clock = Clock::default();
        let rows = [(500, 0), (600, 100), (100, 100), (150, 150), (u64::MAX, u128::from(u64::MAX))];
        for (now, expected) in rows {
            assert_eq!(clock.advance(now), expected, "{now}");
        }
        clock.advance(7);
        assert_eq!(clock.outside(clock.now() + 5), 12);
        assert_eq!(clock.outside(0), 7);
    }
}
