//! When flows want a turn: one time per channel, sorted. Idle flows have none and cost nothing.

use std::collections::BTreeSet;

/// Times by channel, in ns on the runtime's clock.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(u64, u32)>,
    /// Until when the leader sleeps; `u64::MAX`: no limit. `None`: it is awake, and looks here before it sleeps.
    asleep_until: Option<u64>,
}

impl Timers {
    /// Moves this channel's turn from `before` to `time`. `true`: wake the leader, which would oversleep.
    #[must_use]
    pub(crate) fn set(&mut self, channel: u32, before: Option<u64>, time: u64) -> bool {
        self.clear(channel, before);
        self.due.insert((time, channel));
        match self.asleep_until {
            Some(until) if time < until => {
                // One nudge is enough.
                self.asleep_until = None;
                true
            }
            _ => false,
        }
    }

    /// Cancels the channel's turn.
    pub(crate) fn clear(&mut self, channel: u32, before: Option<u64>) {
        if let Some(before) = before {
            self.due.remove(&(before, channel));
        }
    }

    /// Removes and returns the next channel whose time has come.
    pub(crate) fn pop(&mut self, now: u64) -> Option<u32> {
        let (time, channel) = *self.due.first()?;
        (time <= now).then(|| {
            self.due.pop_first();
            channel
        })
    }

    /// The leader is about to sleep until the returned time; `None`: without a limit.
    pub(crate) fn fall_asleep(&mut self) -> Option<u64> {
        let next = self.due.first().map(|(time, _)| *time);
        self.asleep_until = Some(next.unwrap_or(u64::MAX));
        next
    }

    pub(crate) fn awake(&mut self) {
        self.asleep_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_in_the_order_of_their_times_and_once() {
        let mut timers = Timers::default();
        for (channel, time) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            assert!(!timers.set(channel, None, time), "nobody sleeps");
        }
        assert!(!timers.set(3, Some(20), 5));
        timers.clear(4, Some(10));
        assert_eq!(timers.pop(4), None);
        assert_eq!([timers.pop(29), timers.pop(29), timers.pop(29)], [Some(3), Some(2), None]);
        assert_eq!([timers.pop(30), timers.pop(u64::MAX)], [Some(1), None]);
    }

    #[test]
    fn a_sleeper_is_woken_for_earlier_times_only_and_once() {
        let mut timers = Timers::default();
        assert_eq!(timers.fall_asleep(), None);
        assert!(timers.set(1, None, 50), "it sleeps without a limit");
        assert!(!timers.set(2, None, 40), "it was nudged");
        timers.awake();
        assert_eq!(timers.fall_asleep(), Some(40));
        assert!(!timers.set(3, None, 40) && !timers.set(4, None, 60));
        assert!(timers.set(5, None, 39));
    }
}
