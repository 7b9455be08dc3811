//! Finds the highest value that passes, by bisection (RFC 2544, section 26.1): a rate without loss, or the work that a
//! request has time for. The caller runs the trials.

#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The highest value that is tried, and the first.
    pub(super) highest: u64,
    /// The search ends where what passed and what did not are nearer than this fraction of the value.
    pub(super) resolution: f64,
    /// Values below are not told apart from nothing. At least 1.
    pub(super) least: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// The sender did not reach the value. It reached this one, which passed.
    Short(u64),
}

/// What keeps the value from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The bench's subject: it failed above.
    Measured,
    /// The sender, or the range: no trial failed.
    Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The highest value that passed; 0 where none did.
    pub(super) value: u64,
    /// Why not more.
    pub(super) bound: Bound,
    pub(super) trials: u32,
}

/// Searches; the first error of a trial ends it.
pub(super) fn search<E>(range: Range, mut trial: impl FnMut(u64) -> Result<Verdict, E>) -> Result<Found, E> {
    let (mut low, mut high) = (0, range.highest);
    let mut found = Found { value: 0, bound: Bound::Sender, trials: 0 };
    let mut value = high;
    loop {
        found.trials += 1;
        match trial(value)? {
            Verdict::Passed => low = value,
            Verdict::Failed => (high, found.bound) = (value, Bound::Measured),
            Verdict::Short(reached) => {
                (high, found.bound) = (value, Bound::Sender);
                low = low.max(reached.min(value));
            }
        }
        let near = ((high as f64 * range.resolution) as u64).max(1);
        if high - low <= near || high <= range.least {
            return Ok(Found { value: low, ..found });
        }
        value = low + (high - low) / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A device that loses frames above one rate, and a sender that does not reach more than another.
    fn check(device: u64, sender: u64, highest: u64) -> Found {
        let trial = |rate: u64| {
            let offered = rate.min(sender);
            Ok::<_, Infallible>(match (offered > device, offered < rate) {
                (true, _) => Verdict::Failed,
                (false, true) => Verdict::Short(offered),
                (false, false) => Verdict::Passed,
            })
        };
        let Ok(found) = search(Range { highest, resolution: 0.01, least: 100 }, trial);
        assert!(found.value <= device.min(sender), "{found:?}");
        assert!(found.trials < 30, "{found:?}");
        found
    }

    #[test]
    fn finds_the_rate_that_a_device_takes_within_the_resolution() {
        for device in [777, 1000, 123_456, 999_999] {
            let found = check(device, u64::MAX, 1_000_000);
            assert!(found.value as f64 >= device as f64 * 0.98, "{device}: {found:?}");
            assert_eq!(found.bound, Bound::Measured);
        }
    }

    #[test]
    fn what_passes_at_once_is_tried_once() {
        assert_eq!(check(2_000_000, u64::MAX, 1_000_000), Found { value: 1_000_000, bound: Bound::Sender, trials: 1 });
    }

    #[test]
    fn a_sender_that_is_slower_than_the_device_is_told_apart() {
        let found = check(800_000, 300_000, 1_000_000);
        assert_eq!((found.value, found.bound), (300_000, Bound::Sender));
        let found = check(300_000, 800_000, 1_000_000);
        assert!(found.value >= 297_000 && found.bound == Bound::Measured, "{found:?}");
    }

    #[test]
    fn a_device_that_loses_everything_ends_the_search() {
        let found = check(0, u64::MAX, 1_000_000_000);
        assert_eq!((found.value, found.bound), (0, Bound::Measured));
    }

    #[test]
    fn an_error_ends_it() {
        let range = Range { highest: 1000, resolution: 0.01, least: 1 };
        let mut left = 3;
        let outcome = search(range, |_| {
            left -= 1;
            if left == 0 { Err("gone") } else { Ok(Verdict::Failed) }
        });
        assert_eq!((outcome, left), (Err("gone"), 0));
    }
}
