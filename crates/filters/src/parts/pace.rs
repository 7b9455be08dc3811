//! Says when the next frames are due: at a rate of frames or bits per second, or with the gaps they were captured with.
//! Reads no clock: the time is passed in.
//!
//! Every frame has a cost, and every second adds a fixed budget. A frame is due when all frames before it are paid for.
//! So nothing drifts: at a million frames per second, frame number 1,000,001 is due exactly one second after the first.

use filter::Wait;
use filter::prelude::*;
use std::num::NonZeroU64;
use std::time::Duration;

/// When a slow reader or a stopped process is later than this, the schedule moves. Otherwise it would catch up with a
/// flood of frames.
const LATE_NS: u64 = 100_000_000;

/// With `set wait=adaptive`, the thread spins for this last part of every wait.
const SPIN_NS: u64 = 50_000;

const SECOND: u128 = base::limits::SECOND_NS as u128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// 1 for each frame: the rate is in frames per second.
    Frame,
    /// The frame's bits: the rate is in bits per second.
    Bits,
    /// The ns until the next captured frame: replays at the captured speed.
    Gap,
}

#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    cost: Cost,
    per_second: u64,
    /// Number of frames that are due together.
    burst: u64,
    /// Frames already sent of the current burst.
    in_burst: u64,
    /// When the first frame was due, ns. Moves when the schedule moves.
    began: Option<u64>,
    spent: u128,
    /// Budget left at the current time. Below 0, the next burst is not due.
    left: i128,
    /// How far the schedule has moved in all, ns.
    late: u64,
    wait: Wait,
}

impl Pacer {
    /// A budget of `per_second`, with bursts of `burst` frames.
    ///
    /// # Panics
    /// If `per_second` or `burst` is 0.
    pub(crate) fn new(cost: Cost, per_second: u64, burst: u64, wait: Wait) -> Pacer {
        assert!(per_second > 0 && burst > 0, "a pace of nothing");
        Pacer { cost, per_second, burst, in_burst: 0, began: None, spent: 0, left: 0, late: 0, wait }
    }

    /// Reads the parameters `rate`, `bits` and `burst`. `None`: neither `rate` nor `bits` is given.
    pub(crate) fn of_params(params: &Params, wait: Wait) -> Result<Option<Pacer>, ParamError> {
        for key in ["rate", "bits", "burst"] {
            if params.number(key) == Some(0) {
                return Err(ParamError::new(key, "0 would never send anything"));
            }
        }
        let burst = params.number("burst");
        match (params.number("rate"), params.number("bits")) {
            (Some(_), Some(_)) => Err(ParamError::new("bits", "`rate` is given, too: one of them decides")),
            (None, None) if burst.is_some() => {
                Err(ParamError::new("burst", "bursts need a rate").with_help("as in rate=100k burst=32"))
            }
            (None, None) => Ok(None),
            (Some(rate), None) => Ok(Some(Pacer::new(Cost::Frame, rate, burst.unwrap_or(1), wait))),
            (None, Some(bits)) => Ok(Some(Pacer::new(Cost::Bits, bits, burst.unwrap_or(1), wait))),
        }
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Sets the current time (monotonic, ns). The first call makes a system call so that this thread is woken on time.
    pub(crate) fn at(&mut self, now: u64) {
        let began = *self.began.get_or_insert_with(|| {
            // By default the kernel may wake the thread 50 us late, to merge wake-ups. Still true if this fails.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            now
        });
        let due = |began: u64| u128::from(now.saturating_sub(began)) * u128::from(self.per_second) / SECOND;
        let (left, late) = (due(began) as i128 - self.spent as i128, self.ns(LATE_NS));
        self.left = left;
        if left > late {
            // Move by whole ns; the rest stays in the budget.
            let ns = (((left - late) as u128) * SECOND / u128::from(self.per_second)) as u64;
            self.began = Some(began + ns);
            self.late += ns;
            self.left = due(began + ns) as i128 - self.spent as i128;
        }
    }

    /// The budget that `ns` nanoseconds add.
    fn ns(&self, ns: u64) -> i128 {
        (u128::from(ns) * u128::from(self.per_second) / SECOND) as i128
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.in_burst > 0 || self.left >= 0
    }

    /// Pays for one frame that is sent now.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64) {
        self.in_burst = if self.in_burst + 1 == self.burst { 0 } else { self.in_burst + 1 };
        self.left -= i128::from(cost);
        self.spent += u128::from(cost);
    }

    /// How long to wait until the next frame is due.
    pub(crate) fn rest(&self, now: u64) -> Pull {
        let began = self.began.unwrap_or(now);
        let due = began as u128 + (self.spent * SECOND).div_ceil(u128::from(self.per_second));
        let left = u64::try_from(due.saturating_sub(u128::from(now))).unwrap_or(u64::MAX);
        let spin = match self.wait {
            Wait::Sleep => 0,
            Wait::Adaptive => SPIN_NS,
            Wait::Busy => u64::MAX,
        };
        if left <= spin { Pull::Ready } else { Pull::Idle(Duration::from_nanos(left - spin)) }
    }

    /// A notice for the end of the run if the pace was not kept.
    pub(crate) fn note(&self, name: &str) -> Option<String> {
        let late = Duration::from_nanos(self.late);
        (self.late > 0).then(|| {
            format!("{name}: what follows could not take frames at this rate: the last went {late:.1?} later than they should have")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Number of frames that are due at `now`, each at this cost.
    fn go(pacer: &mut Pacer, now: u64, cost: u64) -> u64 {
        pacer.at(now);
        let mut frames = 0;
        while pacer.is_due() {
            pacer.spend(cost);
            frames += 1;
        }
        frames
    }

    #[test]
    fn frames_are_due_when_their_rate_says_and_nothing_drifts() {
        for (cost, rate, of_each) in
            [(Cost::Frame, 1_000_003, 1), (Cost::Bits, 512_001_536, 512), (Cost::Gap, 1_000_000_000, 999)]
        {
            let mut pacer = Pacer::new(cost, rate, 1, Wait::Sleep);
            let (mut sent, began) = (0, 77_000);
            // Ask every 37 us for ten seconds.
            for step in 0..270_271u64 {
                let passed = step * 37_000;
                sent += go(&mut pacer, began + passed, of_each);
                let exact = u128::from(passed) * u128::from(rate) / SECOND / u128::from(of_each) + 1;
                assert_eq!(u128::from(sent), exact, "{cost:?} after {passed} ns");
            }
            assert_eq!(pacer.note("x"), None);
        }
    }

    #[test]
    fn waits_are_as_long_as_it_takes() {
        let mut pacer = Pacer::new(Cost::Frame, 1000, 1, Wait::Sleep);
        assert_eq!(go(&mut pacer, 5, 1), 1, "the first frame is due at once");
        assert_eq!(pacer.rest(5), Pull::Idle(Duration::from_millis(1)));
        assert_eq!(go(&mut pacer, 5 + MS - 1, 1), 0);
        assert_eq!(pacer.rest(5 + MS - 1), Pull::Idle(Duration::from_nanos(1)));
        assert_eq!(go(&mut pacer, 5 + MS, 1), 1);
    }

    #[test]
    fn bursts_go_together() {
        let mut pacer = Pacer::new(Cost::Frame, 1000, 32, Wait::Sleep);
        assert_eq!(go(&mut pacer, 0, 1), 32);
        assert_eq!(go(&mut pacer, 31 * MS, 1), 0);
        assert_eq!(pacer.rest(31 * MS), Pull::Idle(Duration::from_millis(1)));
        assert_eq!(go(&mut pacer, 32 * MS, 1), 32);
        // A burst that has begun is finished at any time.
        pacer.at(64 * MS);
        pacer.spend(1);
        assert_eq!(go(&mut pacer, 64 * MS, 1), 31);
    }

    #[test]
    fn what_was_missed_is_no_flood_and_is_said() {
        let mut pacer = Pacer::new(Cost::Frame, 1000, 1, Wait::Sleep);
        assert_eq!(go(&mut pacer, 0, 1), 1);
        assert_eq!(go(&mut pacer, 60_000 * MS, 1), 101, "what a tenth of a second brings, and the one that is due now");
        assert_eq!(go(&mut pacer, 60_001 * MS, 1), 1);
        let note = pacer.note("generate").unwrap();
        assert!(note.starts_with("generate: ") && note.contains("59.9s later"), "{note}");
    }

    #[test]
    fn how_to_wait() {
        let rest = |wait, rate| {
            let mut pacer = Pacer::new(Cost::Frame, rate, 1, wait);
            go(&mut pacer, 0, 1);
            pacer.rest(0)
        };
        let idle = |ns| Pull::Idle(Duration::from_nanos(ns));
        for (wait, rate, expected) in [
            (Wait::Sleep, 1000, idle(MS)),
            (Wait::Sleep, 10_000_000, idle(100)),
            (Wait::Adaptive, 1000, idle(MS - SPIN_NS)),
            (Wait::Adaptive, 20_000, Pull::Ready),
            (Wait::Busy, 1, Pull::Ready),
        ] {
            assert_eq!(rest(wait, rate), expected, "{wait:?} {rate}");
        }
    }
}
