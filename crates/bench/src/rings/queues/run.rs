//! One run: numbered entries from a thread on one processor to a thread on another, timed and checked.

use super::contenders::Queue;
use crate::process::{Cost, Stopwatch, pin, two_processors};
use base::id::{Class, RingId};
use buffer::Descriptor;
use std::hint::{black_box, spin_loop};
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

const BATCH: u64 = 32;

/// An entry that carries a number.
pub trait Payload: Copy + Send + 'static {
    /// The entry with this number.
    fn numbered(number: u64) -> Self;
    /// Its number; a wrong one if its parts disagree.
    fn number(self) -> u64;
}

impl Payload for u64 {
    #[inline]
    fn numbered(number: u64) -> u64 {
        number
    }

    #[inline]
    fn number(self) -> u64 {
        self
    }
}

impl Payload for Descriptor {
    #[inline]
    fn numbered(number: u64) -> Descriptor {
        Descriptor {
            pos: number,
            time: number,
            len: 60,
            class: Class(number as u32),
            ring: RingId(1),
            ..Descriptor::default()
        }
    }

    #[inline]
    fn number(self) -> u64 {
        let differs = (self.time ^ self.pos) | u64::from(self.class.0 ^ self.pos as u32) | u64::from(self.len ^ 60);
        if differs == 0 { self.pos } else { u64::MAX }
    }
}

/// Pushes and pops entries one by one, with some nanoseconds of work on either side of each.
pub fn singles<Q: Queue<T>, T: Payload>(slots: usize, entries: u64, work_ns: u32) -> Result<Cost, String> {
    let (mut sender, mut receiver) = Q::new(slots)?;
    let turns = if work_ns == 0 { 0 } else { turns(work_ns) };
    two_threads(
        move || {
            for number in 0..entries {
                work(turns);
                while !Q::push(&mut sender, T::numbered(number)) {
                    spin_loop();
                }
            }
        },
        move || {
            let mut wrong = 0;
            for number in 0..entries {
                let entry = loop {
                    match Q::pop(&mut receiver) {
                        Some(entry) => break entry,
                        None => spin_loop(),
                    }
                };
                wrong |= entry.number() ^ number;
                work(turns);
            }
            checked(wrong)
        },
    )
}

/// Pushes and pops entries in batches of up to 32.
pub fn batches<Q: Queue<T>, T: Payload>(slots: usize, entries: u64) -> Result<Cost, String> {
    let (mut sender, mut receiver) = Q::new(slots)?;
    two_threads(
        move || {
            let mut left: Range<u64> = 0..entries;
            while !left.is_empty() {
                let batch = left.start..left.end.min(left.start + BATCH);
                let pushed = Q::push_batch(&mut sender, batch, T::numbered);
                left.start += pushed;
                if pushed == 0 {
                    spin_loop();
                }
            }
        },
        move || {
            let (mut wrong, mut number) = (0, 0);
            while number < entries {
                let before = number;
                Q::pop_batch(&mut receiver, BATCH as usize, |entry| {
                    wrong |= entry.number() ^ number;
                    number += 1;
                });
                if number == before {
                    spin_loop();
                }
            }
            checked(wrong)
        },
    )
}

/// Sends one entry there and back, again and again.
pub fn round_trips<Q: Queue<u64>>(slots: usize, trips: u64) -> Result<Cost, String> {
    let (mut there, mut here) = Q::new(slots)?;
    let (mut back, mut home) = Q::new(slots)?;
    let next = |receiver: &mut Q::Receiver| loop {
        match Q::pop(receiver) {
            Some(entry) => break entry,
            None => spin_loop(),
        }
    };
    two_threads(
        move || {
            for _ in 0..trips {
                let number = next(&mut here);
                while !Q::push(&mut back, number) {
                    spin_loop();
                }
            }
        },
        move || {
            let mut wrong = 0;
            for number in 0..trips {
                while !Q::push(&mut there, number) {
                    spin_loop();
                }
                wrong |= next(&mut home) ^ number;
            }
            checked(wrong)
        },
    )
}

/// The floor: one thread stores the same numbers into the same number of slots, without telling another thread.
pub fn bare_stores(slots: usize, entries: u64) -> Result<Cost, String> {
    let mut memory = vec![0u64; slots.next_power_of_two()];
    let mask = memory.len() - 1;
    let watch = Stopwatch::start_here()?;
    for number in 0..entries {
        memory[number as usize & mask] = number;
        // Forces each store, in order.
        black_box(&mut memory);
    }
    watch.stop()
}

fn checked(wrong: u64) -> Result<(), String> {
    if wrong == 0 { Ok(()) } else { Err("entries were lost, doubled, mixed up or torn".to_owned()) }
}

/// Runs both at once, each on a processor of its own, and gives the cost.
fn two_threads(
    sending: impl FnOnce() + Send,
    receiving: impl FnOnce() -> Result<(), String> + Send,
) -> Result<Cost, String> {
    let [first, second] = two_processors()?;
    let watch = Stopwatch::start_here()?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || pin(first).map(|()| sending()));
        let receiver = scope.spawn(move || pin(second).and_then(|()| receiving()));
        let ended = |_| "a thread panicked".to_owned();
        sender.join().map_err(ended)??;
        receiver.join().map_err(ended)?
    })?;
    watch.stop()
}

#[inline]
fn work(turns: u32) {
    for turn in 0..turns {
        black_box(turn);
    }
}

fn turns(work_ns: u32) -> u32 {
    static TURNS_PER_US: OnceLock<u32> = OnceLock::new();
    let per_us = *TURNS_PER_US.get_or_init(|| {
        const TRIAL: u32 = 1_000_000;
        let fastest = (0..5).map(|_| {
            let start = Instant::now();
            work(TRIAL);
            start.elapsed().as_nanos().max(1)
        });
        let fastest_ns = fastest.min().unwrap_or(1);
        u32::try_from(u128::from(TRIAL) * 1000 / fastest_ns).unwrap_or(u32::MAX).max(1)
    });
    (per_us.saturating_mul(work_ns) / 1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::contenders::{CrossbeamArray, FastForward, Indexed, Rtrb};
    use super::*;

    fn check<Q: Queue<u64> + Queue<Descriptor>>() {
        for slots in [2, 64] {
            singles::<Q, u64>(slots, 2000, 0).unwrap();
            singles::<Q, Descriptor>(slots, 2000, 10).unwrap();
            batches::<Q, u64>(slots, 2000).unwrap();
            batches::<Q, Descriptor>(slots, 2000).unwrap();
        }
        round_trips::<Q>(64, 200).unwrap();
    }

    #[test]
    fn every_contender_carries_everything() {
        check::<Indexed>();
        check::<FastForward>();
        check::<Rtrb>();
        check::<CrossbeamArray>();
        bare_stores(64, 2000).unwrap();
    }

    #[test]
    fn a_torn_descriptor_shows() {
        let whole = Descriptor::numbered(7);
        assert_eq!(whole.number(), 7);
        assert_ne!(Descriptor { time: 8, ..whole }.number(), 7);
        assert!(checked(1).is_err());
    }
}
