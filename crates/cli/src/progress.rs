//! A line on a terminal that says how far a long run is; nothing in a pipe.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use streamline::Worker;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(200);

/// Shows notices as they come, and progress where somebody is looking.
pub(crate) struct Progress {
    shown: bool,
    enabled: bool,
    next: Instant,
    started: Instant,
    quiet: bool,
}

impl Progress {
    /// Progress on standard error, if that is a terminal; `quiet` shows nothing, not even notices.
    pub(crate) fn new(quiet: bool) -> Progress {
        let started = Instant::now();
        let enabled = !quiet && std::io::stderr().is_terminal();
        Progress { shown: false, enabled, next: started + EVERY, started, quiet }
    }

    /// Called now and then during the run.
    pub(crate) fn look(&mut self, worker: &mut Worker) {
        for notice in worker.take_notices() {
            if !self.quiet {
                self.clear();
                tell!("warning: {notice}");
            }
        }
        if !self.enabled || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let (bytes, blocks) = worker.progress();
        let seconds = self.started.elapsed().as_secs();
        let line = match bytes {
            Some((done, all)) if all > 0 => {
                format!("{:3}% of {}, {} blocks, {seconds} s", done * 100 / all, size(all), count(blocks))
            }
            _ => format!("{} blocks, {seconds} s", count(blocks)),
        };
        let mut stderr = std::io::stderr().lock();
        // Progress that cannot be shown is no loss.
        let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        self.shown = true;
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// A number of bytes as people say it.
pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A number of things as people say it.
pub(crate) fn count(things: u64) -> String {
    if things < 100_000 { things.to_string() } else { scaled(things, 1000, &["", "k", "M", "G", "T", "P", "E"]) }
}

fn scaled(number: u64, step: u64, units: &[&str]) -> String {
    let (mut scale, mut unit) = (1u64, 0);
    while number / scale >= step && unit + 1 < units.len() {
        scale = scale.saturating_mul(step);
        unit += 1;
    }
    let space = if units[unit].len() > 1 || units[0] == "B" { " " } else { "" };
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
