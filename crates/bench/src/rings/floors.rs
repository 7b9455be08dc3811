//! The best that a producer alone could do: fills blocks and stores them into memory as large as a ring, without a
//! reader.

use super::payload::fill;
use super::pipes::PIPE_BYTES;
use super::processes::{Part, Ran, run};
use std::hint::black_box;
use std::time::Duration;

/// Fills blocks and copies them into memory.
pub fn copies<const BYTES: usize>(blocks: u64) -> Result<Ran, String> {
    let mut memory = vec![[0; BYTES]; PIPE_BYTES / BYTES];
    run(&mut [Part::new(0, || {
        let mut block = [0; BYTES];
        let places = memory.len();
        for number in 0..blocks {
            fill(&mut block, number);
            memory[number as usize & (places - 1)] = *black_box(&block);
        }
        black_box(&mut memory);
        Ok(0.0)
    })])
}

/// Two processes that sleep.
pub fn sleeps(time: Duration) -> Result<Ran, String> {
    let part = |processor| {
        Part::new(processor, move || {
            std::thread::sleep(time);
            Ok(0.0)
        })
    };
    run(&mut [part(0), part(1)])
}
