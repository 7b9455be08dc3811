//! Finds memory as a hostile peer would: by looking where this process has mapped shared memory.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests that look for maps run one at a time, so that each finds only its own.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A writable map of shared memory, which must stay mapped as long as this value is used.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    start: usize,
    pub len: usize,
}

/// The writable maps of memfds with this name, those of the file's beginning first.
pub fn writable(name: &str) -> Vec<Victim> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is mapped");
    let mut found: Vec<(usize, Victim)> = maps
        .lines()
        .filter(|line| line.contains(&format!("/memfd:{name} ")) && line.contains(" rw-s "))
        .map(|line| {
            let number = |text: &str| usize::from_str_radix(text, 16).expect("a number, in hexadecimal");
            let mut columns = line.split(' ');
            let (start, end) = columns.next().and_then(|it| it.split_once('-')).expect("a range of addresses first");
            let offset = number(columns.nth(1).expect("rights, then where in the file"));
            (offset, Victim { start: number(start), len: number(end) - number(start) })
        })
        .collect();
    found.sort_by_key(|(offset, _)| *offset);
    found.into_iter().map(|(_, victim)| victim).collect()
}

impl Victim {
    pub fn word(&self, index: usize) -> &AtomicU64 {
        let offset = index % (self.len / 8) * 8;
        // SAFETY: inside a writable map, which stays as long as the test uses it; aligned; all users use it as atomics.
        unsafe { AtomicU64::from_ptr((self.start + offset) as *mut u64) }
    }

    pub fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr((self.start + offset % self.len) as *mut u8) }
    }

    pub fn fill(&self, from: usize, bytes: &[u8]) {
        bytes.iter().enumerate().for_each(|(at, byte)| self.byte(from + at).store(*byte, Ordering::Relaxed));
    }
}

/// Random numbers (xorshift), the same in each run.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// When dropped, ends what runs beside a test, also if the test panicked.
pub struct Until<'a>(pub &'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
