//! The clock that smoltcp sees. It never goes back, and it runs five times as fast once the connection is open.
//!
//! smoltcp has a fixed minimum retransmission timeout of one second (RFC 6298, section 2.4). One segment lost at the
//! end of a burst then stalls a connection for a second, even on a link of microseconds. Linux waits 200 ms; five
//! smoltcp seconds per real second give the same. The price:
//!
//! - smoltcp's longest timeout and longest pause between window probes are 12 s, not 60 s.
//! - smoltcp stays in TIME-WAIT for 2 s, not 10 s. The driver's quarantine keeps the port longer.
//! - smoltcp answers five unacceptable segments each second, not one (RFC 5961, section 7).
//! - CUBIC's curve (RFC 9438) follows this clock, so the window recovers sooner after a loss.
//!
//! [`delay`] converts delays that the block sets. The handshake runs in real time: like Linux, it repeats a SYN after
//! 1 s.

use std::time;

use smoltcp::time::{Duration, Instant};

/// How many times as fast the clock runs once the connection is open.
const OPEN_RATE: u64 = 5;

/// A delay of an open connection on smoltcp's clock; at most one hour of real time.
pub(super) fn delay(real: time::Duration) -> Duration {
    let micros = real.as_micros().min(3_600_000_000) as u64;
    Duration::from_micros(micros * OPEN_RATE)
}

/// Maps real time in ns to smoltcp's clock in µs.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The latest real time seen.
    latest: u64,
    /// The moment since which `rate` applies: real time in `real`, smoltcp's in `micros`.
    real: u64,
    micros: u64,
    is_fast: bool,
}

impl Clock {
    fn rate(&self) -> u64 {
        if self.is_fast { OPEN_RATE } else { 1 }
    }

    fn micros_at(&self, now: u64) -> u64 {
        let passed = u128::from(now.saturating_sub(self.real)) * u128::from(self.rate()) / 1_000;
        self.micros.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// The real time. If the caller's clock went back: the latest time seen.
    pub(super) fn real_now(&mut self, now: u64) -> u64 {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The time on smoltcp's clock.
    pub(super) fn now(&mut self, now: u64) -> Instant {
        let now = self.real_now(now);
        // 2^64 ns times five fit in 63 bits of µs.
        Instant::from_micros(i64::try_from(self.micros_at(now)).unwrap_or(i64::MAX))
    }

    /// The first real time in ns at which smoltcp's clock has reached `instant`.
    pub(super) fn real(&self, instant: Instant) -> u64 {
        let micros = u64::try_from(instant.total_micros()).unwrap_or(0);
        let ahead = (u128::from(micros.saturating_sub(self.micros)) * 1_000).div_ceil(u128::from(self.rate()));
        self.real.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// Runs fast from `since` on: the clock leaps ahead by the time since then, and by `more` µs. Works once.
    pub(super) fn quicken(&mut self, since: u64, more: u64) {
        if !self.is_fast {
            let since = since.clamp(self.real, self.latest.max(self.real));
            (self.micros, self.real, self.is_fast) = (self.micros_at(since).saturating_add(more), since, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_clock_is_exact_and_never_goes_back() {
        let mut clock = Clock::default();
        assert_eq!(clock.now(70 * MS).total_micros(), 70_000);
        assert_eq!(clock.now(60 * MS).total_micros(), 70_000);
        clock.now(100 * MS);
        // A handshake of 20 ms takes 100 ms on the fast clock.
        clock.quicken(80 * MS, 0);
        assert_eq!(clock.now(100 * MS).total_micros(), 80_000 + 100_000);
        clock.quicken(0, 9);
        assert_eq!(clock.now(100 * MS).total_micros(), 180_000);
        assert_eq!(clock.now(300 * MS).total_micros(), 1_180_000, "200 ms are a second");
        for micros in (180_000..180_100).chain([1_180_000, 1_180_001, 99_000_003]) {
            let instant = Instant::from_micros(micros);
            let real = clock.real(instant);
            let mut at = Clock { latest: 0, ..clock };
            assert!(at.now(real) >= instant, "{micros}");
            let mut before = Clock { latest: 0, ..clock };
            assert!(before.now(real - 1) < instant, "{micros}");
        }
        assert_eq!(clock.real(Instant::from_micros(0)), 80 * MS, "what has passed is due");
        assert_eq!(clock.now(u64::MAX), clock.now(0));
    }
}
