//! Measures the kernel program: its time per packet by number of expressions (test runs, ns), and the time to make, try
//! and load it. Prints the least of seven runs.
//!
//! `cargo run --release -p kernel --example cost`

use kernel::{CaptureProgram, Expression, Way};
use program::{Compile, from_cbpf};
use std::sync::Arc;
use testkit::packets::REJECTING;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let compiler = testkit::Compiler::new();
    let expression = |bit: usize, text: Option<&str>| -> Result<Expression, Box<dyn std::error::Error>> {
        let compile = |text| -> Result<_, Box<dyn std::error::Error>> {
            Ok(Arc::new(from_cbpf(&compiler.compile(text, 1, 262_144)?)?))
        };
        let program = text.map(compile).transpose()?;
        Ok(Expression::new(bit as u8, program))
    };
    let one = vec![expression(0, Some(REJECTING[0]))?];
    let nine =
        REJECTING.iter().enumerate().map(|(bit, text)| expression(bit, Some(text))).collect::<Result<Vec<_>, _>>()?;
    let all = |count| (0..count).map(|bit| expression(bit, None)).collect::<Result<Vec<_>, _>>();
    let sampled = all(1)?.into_iter().map(|expression| Expression { sample: 1000, ..expression }).collect();
    let rows = [
        ("no expression", vec![]),
        ("one that rejects", one),
        ("nine that reject", nine),
        ("one that takes all", all(1)?),
        ("nine that take all", all(9)?),
        ("one that takes one in 1000", sampled),
    ];
    for (name, expressions) in &rows {
        let set = || {
            let mut capture = CaptureProgram::new(1, true)?;
            capture.prepare(Way::In)?;
            let began = std::time::Instant::now();
            capture.set(expressions)?;
            Ok(began.elapsed().as_micros())
        };
        let times = (0..7).map(|_| set()).collect::<Result<Vec<_>, kernel::program_error::ProgramError>>()?;
        println!("in place: {name:26} {:6} us", times.into_iter().min().unwrap_or(0));
    }
    for len in [64, 1514] {
        let mut frame = vec![0u8; len];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 6;
        frame[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 80]);
        for (name, expressions) in &rows {
            let mut capture = CaptureProgram::new(32 << 20, true)?;
            capture.prepare(Way::In)?;
            capture.set(expressions)?;
            let runs = (0..7).map(|_| Ok(capture.test_run(Way::In, &frame, 300_000)?.duration_ns));
            let least = runs.collect::<Result<Vec<_>, kernel::program_error::ProgramError>>()?.into_iter().min();
            println!("{len:5} bytes, {name:26} {:5} ns", least.unwrap_or(0));
        }
    }
    Ok(())
}
