//! The clock that smoltcp sees. It never goes back, and it runs five times as fast once the connection is open.
//!
//! smoltcp's least retransmission timeout is a second (RFC 6298, section 2.4), a constant. One lost segment at the end
//! of a burst then stalls a connection for a second on a link of microseconds. Linux waits 200 ms. Five of smoltcp's
//! seconds in one real second give the same 200 ms. The price:
//!
//! - Its longest timeout and its longest pause between window probes are 12 s in place of 60 s.
//! - It stays in TIME-WAIT for 2 s in place of 10 s. The driver's quarantine keeps the port longer.
//! - It answers five segments that cannot be accepted each second, in place of one (RFC 5961, section 7).
//! - CUBIC's curve (RFC 9438) grows against this clock, so the window grows back sooner after a loss.
//!
//! Delays that the block sets itself are converted by [`delay`]. The handshake runs at the speed of real time: a SYN is
//! sent again after a second, as Linux does.

use std::time;

use smoltcp::time::{Duration, Instant};

/// How many times as fast the clock runs once the connection is open.
const OPEN_RATE: u64 = 5;

/// A delay of an open connection on smoltcp's clock. Delays of more than an hour count as one hour.
pub(super) fn delay(real: time::Duration) -> Duration {
    let micros = real.as_micros().min(3_600_000_000) as u64;
    Duration::from_micros(micros * OPEN_RATE)
}

/// Real time in ns, and the matching time on smoltcp's clock in µs.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The latest real time seen.
    latest: u64,
    /// The moment from which `rate` counts, on both clocks.
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

    /// The real time, or the latest real time if the caller's clock went back.
    pub(super) fn real_now(&mut self, now: u64) -> u64 {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The present time on smoltcp's clock.
    pub(super) fn now(&mut self, now: u64) -> Instant {
        let now = self.real_now(now);
        // 64 bits of ns, five times as many, are fewer than 63 bits of µs.
        Instant::from_micros(i64::try_from(self.micros_at(now)).unwrap_or(i64::MAX))
    }

    /// The first real time in ns at which smoltcp's clock says `instant`, or later.
    pub(super) fn real(&self, instant: Instant) -> u64 {
        let micros = u64::try_from(instant.total_micros()).unwrap_or(0);
        let ahead = (u128::from(micros.saturating_sub(self.micros)) * 1_000).div_ceil(u128::from(self.rate()));
        self.real.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))
    }

    /// Runs fast from `since` on, which is in the past: the clock leaps ahead, so that the time since then is as long
    /// as it would have been on the fast clock. `more` µs are added. A second call changes nothing.
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
        // A handshake of 20 ms: 100 ms on the fast clock.
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
