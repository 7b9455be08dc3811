//! A line on a terminal that shows how far a long run is, how fast it goes and when it will end. Shows nothing in a pipe.
//! It makes way for data on the same terminal, and comes back when none has come for a moment.

use crate::terminal;
use filter::Progress as BytesRead;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use streamline::Worker;

const EVERY: Duration = Duration::from_millis(200);

/// The displayed rate is an average over about this time.
const RATE_OVER: Duration = Duration::from_secs(5);

/// How long data on the same terminal have to pause before the line stands below them.
const SILENCE: Duration = Duration::from_secs(1);

/// Shows notices as they come, and progress if standard error is a terminal.
pub(crate) struct Progress {
    enabled: bool,
    meter: Meter,
    quiet: bool,
}

impl Progress {
    /// Progress on standard error, if it is a terminal. `quiet`: show nothing, not even notices.
    pub(crate) fn new(quiet: bool) -> Progress {
        Progress { enabled: !quiet && std::io::stderr().is_terminal(), meter: Meter::new(Instant::now()), quiet }
    }

    /// Called now and then during the run.
    pub(crate) fn look(&mut self, worker: &mut Worker) {
        for notice in worker.take_notices() {
            if !self.quiet {
                tell!("warning: {notice}");
            }
        }
        let now = Instant::now();
        if !self.enabled || now < self.meter.next {
            return;
        }
        let (bytes, blocks) = worker.progress();
        let line = self.meter.line(now, bytes, blocks);
        if terminal::data_pauses(now, SILENCE) {
            terminal::show_line(&line);
        }
    }
}

struct Meter {
    started: Instant,
    next: Instant,
    /// When the numbers were last read, and their values.
    last: (Instant, u64),
    /// Bytes or blocks a second.
    rate: f64,
    /// (bytes in all, per cent shown): the percentage never falls for the same input.
    shown: (u64, u64),
}

impl Meter {
    fn new(now: Instant) -> Meter {
        Meter { started: now, next: now + EVERY, last: (now, 0), rate: 0.0, shown: (0, 0) }
    }

    /// `bytes` are those that were read, if they are counted; `blocks` is the number of blocks read.
    fn line(&mut self, now: Instant, bytes: Option<BytesRead>, blocks: u64) -> String {
        self.next = now + EVERY;
        let elapsed = duration(now.saturating_duration_since(self.started));
        match bytes {
            Some(BytesRead { done, all: Some(all) }) if all > 0 => {
                self.look(now, done);
                let percent = done.min(all) * 100 / all;
                let before = if self.shown.0 == all { self.shown.1 } else { 0 };
                self.shown = (all, percent.max(before));
                let (rate, left) = (size(self.rate as u64), self.left(all.saturating_sub(done)));
                format!("{:3}% of {}, {rate}/s, {left}, {} frames", self.shown.1, size(all), count(blocks))
            }
            Some(BytesRead { done, all: None }) => {
                self.look(now, done);
                format!("{}, {}/s, {elapsed}, {} frames", size(done), size(self.rate as u64), count(blocks))
            }
            _ => {
                self.look(now, blocks);
                format!("{} frames, {}/s, {elapsed}", count(blocks), count(self.rate as u64))
            }
        }
    }

    /// Updates the rate. The last seconds weigh most.
    fn look(&mut self, now: Instant, done: u64) {
        let (when, before) = std::mem::replace(&mut self.last, (now, done));
        let seconds = now.saturating_duration_since(when).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        // The numbers of another request start at 0.
        let rate = done.saturating_sub(before) as f64 / seconds;
        let is_first = when == self.started;
        let weight = if is_first { 1.0 } else { 1.0 - (-seconds / RATE_OVER.as_secs_f64()).exp() };
        self.rate += (rate - self.rate) * weight;
    }

    fn left(&self, bytes: u64) -> String {
        if self.rate < 1.0 {
            return "waiting".into();
        }
        let left = Duration::try_from_secs_f64((bytes as f64 / self.rate).ceil()).unwrap_or(Duration::MAX);
        format!("{} left", duration(left))
    }
}

/// A duration in its two largest units.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A number of bits a second for people.
pub(crate) fn bit_rate(bits: u64) -> String {
    scaled(bits, 1000, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s", "Ebit/s"])
}

pub(crate) fn count(things: u64) -> String {
    if things < 100_000 { things.to_string() } else { scaled(things, 1000, &["", "k", "M", "G", "T", "P", "E"]) }
}

fn scaled(number: u64, step: u64, units: &[&str]) -> String {
    let (mut scale, mut unit) = (1u64, 0);
    while number / scale >= step && unit + 1 < units.len() {
        scale = scale.saturating_mul(step);
        unit += 1;
    }
    let space = if units[unit].len() > 1 || !units[0].is_empty() { " " } else { "" };
    if unit == 0 {
        return format!("{number}{space}{}", units[0]);
    }
    let tenths = (u128::from(number) * 10 / u128::from(scale)) as u64;
    format!("{}.{}{space}{}", tenths / 10, tenths % 10, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_how_fast_and_how_long_still() {
        let began = Instant::now();
        let mut meter = Meter::new(began);
        let mut check = |seconds: u64, bytes: Option<(u64, u64)>, blocks, expected: &str| {
            let bytes = bytes.map(|(done, all)| BytesRead { done, all: Some(all) });
            assert_eq!(meter.line(began + Duration::from_secs(seconds), bytes, blocks), expected);
        };
        const MIB: u64 = 1 << 20;
        let all = 1000 * MIB;
        check(1, Some((100 * MIB, all)), 2000, " 10% of 1000.0 MiB, 100.0 MiB/s, 9 s left, 2000 frames");
        check(2, Some((200 * MIB, all)), 4000, " 20% of 1000.0 MiB, 100.0 MiB/s, 8 s left, 4000 frames");
        check(2, Some((150 * MIB, all)), 4000, " 20% of 1000.0 MiB, 100.0 MiB/s, 9 s left, 4000 frames");
        check(1000, Some((150 * MIB, all)), 4000, " 20% of 1000.0 MiB, 0 B/s, waiting, 4000 frames");
        check(1001, Some((2 * all, all)), 250_000, "100% of 1000.0 MiB, 335.3 MiB/s, 0 s left, 250.0k frames");
        check(1002, Some((MIB, 4 * MIB)), 10, " 25% of 4.0 MiB, 274.5 MiB/s, 1 s left, 10 frames");
    }

    #[test]
    fn where_the_end_is_not_known_bytes_or_frames_are_counted() {
        let began = Instant::now();
        let mut meter = Meter::new(began);
        let line =
            |meter: &mut Meter, seconds: u64, blocks| meter.line(began + Duration::from_secs(seconds), None, blocks);
        assert_eq!(line(&mut meter, 2, 3000), "3000 frames, 1500/s, 2 s");
        assert_eq!(line(&mut meter, 3662, 3000), "3000 frames, 0/s, 1 h 1 min");
        let mut meter = Meter::new(began);
        let pipe = Some(BytesRead { done: 3 << 20, all: None });
        let line = meter.line(began + Duration::from_secs(2), pipe, 3000);
        assert_eq!(line, "3.0 MiB, 1.5 MiB/s, 2 s, 3000 frames");
    }

    #[test]
    fn numbers_read_as_people_say_them() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (u64::MAX, "15.9 EiB")]
        {
            assert_eq!(size(bytes), text);
        }
        for (things, text) in [(0, "0"), (99_999, "99999"), (1_250_000, "1.2M")] {
            assert_eq!(count(things), text);
        }
    }
}
