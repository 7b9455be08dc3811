//! The account of one guaranteed flow: its period and the time left in it. The scheduler picks the earliest deadline.
//!
//! An idle flow must not save up time and use it all late in its period: other flows rely on that time. A flow that
//! wakes therefore loses its idle time, as if it had sent, but keeps the part of its slice for the rest of the period.
//! After its period, or without having used any of it, the flow begins a new one.

use crate::clock::Moment;
use crate::guarantee::Guarantee;

/// The periods that ended at a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) periods: u64,
    /// Periods that ended before the flow had used its time.
    pub(crate) missed: u64,
}

/// A guarantee and how much of it is used.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    guarantee: Guarantee,
    start: Moment,
    /// Time left in the period, in ns; below 0 is a debt.
    remain: i64,
    /// The time at which the queue of the flow became empty. Only meaningful while the flow is idle.
    idle_since: Moment,
    /// The end of the last frame that was charged.
    sent_until: Moment,
}

impl Account {
    /// An account with a full slice, whose period begins now. The guarantee is checked.
    pub(crate) fn new(guarantee: Guarantee, now: Moment) -> Account {
        Account { guarantee, start: now, remain: signed(guarantee.slice_ns), idle_since: now, sent_until: now }
    }

    pub(crate) fn slack(&self) -> bool {
        self.guarantee.slack
    }

    /// The end of the current period.
    pub(crate) fn deadline(&self) -> Moment {
        self.start + Moment::from(self.guarantee.period_ns)
    }

    pub(crate) fn has_time(&self) -> bool {
        self.remain > 0
    }

    /// The time that the flow owes to periods to come, in ns.
    pub(crate) fn debt_ns(&self) -> u64 {
        self.remain.min(0).unsigned_abs()
    }

    /// The flow used `wire_ns` of its time.
    pub(crate) fn charge(&mut self, wire_ns: u64, now: Moment) {
        self.remain = self.remain.saturating_sub(signed(wire_ns));
        self.sent_until = now + Moment::from(wire_ns);
    }

    /// Goes to the period that `now` lies in. The debt stays; time that was left does not.
    pub(crate) fn renew(&mut self, now: Moment) -> Ended {
        if now < self.deadline() {
            return Ended::default();
        }
        let (slice, period) = (signed(self.guarantee.slice_ns), Moment::from(self.guarantee.period_ns));
        let count = (now - self.start) / period;
        self.start += count * period;
        let periods = u64::try_from(count).unwrap_or(u64::MAX);
        // The number of new slices after which the flow has time.
        let paid_after = if self.remain > 0 { 0 } else { self.debt_ns() / slice.unsigned_abs() + 1 };
        let missed = periods.saturating_sub(paid_after);
        let income = i128::from(slice) * i128::from(periods);
        let remain = (i128::from(self.remain.min(0)) + income).min(i128::from(slice));
        // Between the debt before and a slice, and both have 64 bits.
        self.remain = remain as i64;
        Ended { periods, missed }
    }

    /// The flow has no frames from now on.
    pub(crate) fn sleep(&mut self, now: Moment) {
        self.idle_since = now;
    }

    /// The flow has frames again.
    pub(crate) fn wake(&mut self, now: Moment) {
        let idle = now.saturating_sub(self.idle_since.max(self.sent_until));
        if now >= self.deadline() || (self.remain == signed(self.guarantee.slice_ns) && idle > 0) {
            self.restart(now);
            return;
        }
        if self.remain <= 0 {
            return;
        }
        let idle = i64::try_from(idle).unwrap_or(i64::MAX);
        let share = self.of_slice(self.deadline() - now, true).min(self.remain);
        self.remain = self.remain.saturating_sub(idle).max(share);
    }

    /// Another guarantee from now on. The flow keeps as debt the time by which it is ahead of its old one.
    pub(crate) fn change(&mut self, guarantee: Guarantee, now: Moment) {
        let ahead = self.ahead(now);
        self.guarantee = guarantee;
        self.start = now;
        self.remain = signed(guarantee.slice_ns).saturating_sub(ahead);
    }

    /// Begins a period now.
    fn restart(&mut self, now: Moment) {
        self.change(self.guarantee, now);
    }

    /// The time that the flow used beyond the part of its slice that belongs to the period so far, in ns. At least 0.
    fn ahead(&self, now: Moment) -> i64 {
        let used = signed(self.guarantee.slice_ns).saturating_sub(self.remain);
        used.saturating_sub(self.of_slice(now.saturating_sub(self.start), false)).max(0)
    }

    /// The part of slices that belongs to `time` of periods, rounded up or down.
    fn of_slice(&self, time: Moment, up: bool) -> i64 {
        let (slice, period) = (Moment::from(self.guarantee.slice_ns), Moment::from(self.guarantee.period_ns));
        // A slice has at most 42 bits. A time that does not fit is longer than any debt.
        let work = time.saturating_mul(slice);
        let part = if up { work.div_ceil(period) } else { work / period };
        i64::try_from(part).unwrap_or(i64::MAX)
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn account() -> Account {
        Account::new("10ms/100ms".parse().unwrap(), 0)
    }

    fn at(ms: u64) -> Moment {
        Moment::from(ms * MS)
    }

    #[test]
    fn a_debt_goes_to_the_next_periods() {
        let rows =
            [(4, 100, 10, 1, 1), (12, 100, 8, 1, 0), (35, 100, -15, 1, 0), (35, 250, -5, 2, 0), (35, 500, 10, 5, 2)];
        for (used, now, remain, periods, missed) in rows {
            let mut account = account();
            account.charge(used * MS, at(1));
            assert_eq!(account.renew(at(now)), Ended { periods, missed }, "{used} {now}");
            assert_eq!(account.remain, remain * MS as i64, "{used} {now}");
            assert_eq!(account.deadline(), at(now / 100 * 100 + 100));
        }
    }

    #[test]
    fn an_idle_flow_loses_time_as_it_passes() {
        // Used, idle from, awake at; then the time left and the end of the period.
        let rows = [
            (0, 0, 60, 10, 160),
            (4, 20, 22, 6, 100),
            (4, 60, 62, 4, 100),
            (4, 20, 90, 1, 100),
            (4, 20, 150, 10, 250),
            (12, 50, 60, -2, 100),
        ];
        for (used, from, now, remain, deadline) in rows {
            let mut account = account();
            if used > 0 {
                account.charge(used * MS, 0);
            }
            account.sleep(at(from));
            account.wake(at(now));
            assert_eq!((account.remain, account.deadline()), (remain * MS as i64, at(deadline)), "{used} {from} {now}");
        }
    }

    #[test]
    fn a_frame_on_the_wire_is_no_idle_time() {
        let mut account = account();
        account.charge(2 * MS, 0);
        account.sleep(0);
        account.wake(at(2));
        assert_eq!(account.remain, 8 * MS as i64);
    }

    #[test]
    fn a_change_keeps_the_debt() {
        let mut account = account();
        account.charge(10 * MS, at(0));
        account.change("30ms/50ms".parse().unwrap(), at(40));
        assert_eq!((account.remain, account.deadline()), (24 * MS as i64, at(90)));
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        let mut account = account();
        account.charge(u64::MAX, Moment::from(u64::MAX));
        account.charge(u64::MAX, Moment::from(u64::MAX));
        account.renew(Moment::from(u64::MAX) << 20);
        account.wake(Moment::from(u64::MAX) << 40);
        account.change("1ns/1ns".parse().unwrap(), Moment::from(u64::MAX) << 60);
        assert!(account.has_time());
    }
}
