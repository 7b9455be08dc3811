//! What a part of a measurement is told on its input, and what it says on its output.

use nix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Line {
    pub(super) gone: AtomicBool,
    pub(super) ended: AtomicBool,
    pub(super) received: AtomicU64,
}

impl Line {
    /// Says that this part is ready, and listens to its parent.
    pub(super) fn ready() -> Arc<Line> {
        let line = Arc::new(Line::default());
        let listening = Arc::clone(&line);
        println!("ready");
        std::thread::spawn(move || {
            for word in io::stdin().lock().lines().map_while(Result::ok) {
                match word.as_str() {
                    "go" => listening.gone.store(true, Ordering::Relaxed),
                    "time" => println!("{}", processor_ns()),
                    _ => println!("{}", listening.received.load(Ordering::Relaxed)),
                }
            }
            listening.ended.store(true, Ordering::Relaxed);
        });
        line
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn await_go(&self) {
        while !self.gone.load(Ordering::Relaxed) && !self.has_ended() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn await_end(&self) {
        while !self.has_ended() {
            std::thread::sleep(WAIT);
        }
    }
}

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` makes no sense here"))
}

pub(super) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The longest wait; after it, a part checks whether it has to end.
pub(super) const WAIT: Duration = Duration::from_millis(100);

/// Processor time of this process so far, including ended threads, in ns.
fn processor_ns() -> u64 {
    let spent = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
    spent.map_or(0, |spent| spent.as_nanos() as u64)
}
