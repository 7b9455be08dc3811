//! Absurd programs up to the length that a daemon accepts: each is loaded or refused with a reason. They must not cause a
//! panic or a stack overflow, or change the expressions in use.

use kernel::program_error::ProgramError;
use kernel::{CaptureProgram, Expression, Way};
use program::cbpf::Instruction;
use program::{Interpreter, from_cbpf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most instructions of one program that a daemon accepts (`filter::capture_request`).
const LONGEST: usize = 16_384;

/// Much longer than any of these takes on a busy machine: catches endless ones.
const LONG: Duration = Duration::from_secs(60);

fn line(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// A capture program for test runs. `None`, with a message: programs cannot be loaded.
fn capture() -> Option<CaptureProgram> {
    match CaptureProgram::new(1 << 20, true).and_then(|mut capture| capture.prepare(Way::In).map(|()| capture)) {
        Ok(capture) => Some(capture),
        Err(error) => {
            println!("skipped (rights): {error}");
            None
        }
    }
}

fn expressions(programs: &[Vec<Instruction>]) -> Vec<Expression> {
    let expression = |(bit, code): (usize, &Vec<Instruction>)| {
        let program = Some(Arc::new(from_cbpf(code).expect("it is valid")));
        Expression::new(bit as u8, program)
    };
    programs.iter().enumerate().map(expression).collect()
}

/// Sets programs on a device that has an expression for all packets. `true`: they are in use.
fn set(name: &str, programs: &[Vec<Instruction>]) -> Option<bool> {
    let capture = capture()?;
    let all = Expression::new(63, None);
    capture.set(std::slice::from_ref(&all)).expect("one that asks nothing");
    let mut wanted = expressions(programs);
    wanted.push(all);
    let began = Instant::now();
    let outcome = capture.set(&wanted);
    let took = began.elapsed();
    assert!(took < LONG, "{name}: {took:?}");
    let run = capture.test_run(Way::In, &[0x55; 200], 1).expect("some program is in force");
    assert_eq!(run.result, -1, "{name}");
    println!("{name}: {took:?}, {}", outcome.as_ref().map_or_else(|error| error.to_string(), |()| "taken".into()));
    match outcome {
        Ok(()) => {
            let memory = buffer::live::LiveMemory::map(
                capture.areas(),
                capture.geometry(),
                buffer::shared::segment::Access::Read,
            );
            let memory = memory.expect("it can be read");
            for (bit, code) in programs.iter().enumerate() {
                let passes = Interpreter::from_cbpf(code).expect("it is valid").run(&[0x55; 200], 200) != 0;
                assert_eq!(memory.matched(bit).packets, u64::from(passes), "{name}, program {bit}");
            }
            Some(true)
        }
        Err(ProgramError::Load(_) | ProgramError::Expression(..) | ProgramError::Code(_)) => Some(false),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// A chain of tests, each of another place.
fn tests(count: usize, of: impl Fn(usize) -> (u32, u32)) -> Vec<Instruction> {
    let mut code = Vec::new();
    for at in 0..count {
        let (offset, value) = of(at);
        code.extend([line(0x30, 0, 0, offset), line(0x15, 1, 0, value), line(0x06, 0, 0, 0)]);
    }
    code.push(line(0x06, 0, 0, 1));
    code
}

#[test]
fn long_and_odd_programs_are_taken_or_refused() {
    let third = LONGEST / 3 - 1;
    let ladder = |count: usize| -> Vec<Instruction> {
        // Each branch leads to a place that both sides can reach: 2^`count` paths.
        let mut code: Vec<Instruction> = Vec::new();
        for at in 0..count {
            code.extend([line(0x30, 0, 0, at as u32 % 200), line(0x15, 0, 1, 7), line(0x04, 0, 0, 1)]);
        }
        code.push(line(0x16, 0, 0, 0));
        code
    };
    let indexed = |count: usize| -> Vec<Instruction> {
        let step = [line(0xb1, 0, 0, 14), line(0x40, 0, 0, 14), line(0x07, 0, 0, 0), line(0x50, 0, 0, 190)];
        let mut code: Vec<Instruction> = std::iter::repeat_n(step, count).flatten().collect();
        code.push(line(0x06, 0, 0, 1));
        code
    };
    let jumps = |count: u32| -> Vec<Instruction> {
        let mut code: Vec<Instruction> = (0..count).map(|_| line(0x05, 0, 0, 0)).collect();
        code.push(line(0x06, 0, 0, 1));
        code
    };
    let arithmetic = |count: usize| -> Vec<Instruction> {
        let step =
            [line(0x87, 0, 0, 0), line(0x6c, 0, 0, 0), line(0x3c, 0, 0, 0), line(0x9c, 0, 0, 0), line(0x02, 0, 0, 15)];
        let mut code = vec![line(0x01, 0, 0, 3)];
        code.extend(std::iter::repeat_n(step, count).flatten());
        code.push(line(0x06, 0, 0, 1));
        code
    };
    let row = |name: &str, programs: &[Vec<Instruction>]| set(name, programs).is_some();
    let there = row("tests of one place", &[tests(third, |_| (20, 0x55))])
        && row("tests of many places", &[tests(third, |at| (at as u32 % 200, 0x55))])
        && row("tests far behind", &[tests(third, |at| (at as u32 * 4, 0x55))])
        && row("ladder", &[ladder(third)])
        && row("indexed loads", &[indexed(LONGEST / 4 - 1)])
        && row("shorter ladder", &[ladder(1200)])
        && row("fewer indexed loads", &[indexed(300)])
        && row("less arithmetic", &[arithmetic(500)])
        && row("jumps", &[jumps(LONGEST as u32 - 1)])
        && row("arithmetic", &[arithmetic(LONGEST / 5 - 1)])
        && row("the same forty times", &vec![tests(100, |at| (at as u32, 0x55)); 40])
        && row(
            "sixty that begin alike",
            &(0..60)
                .map(|n| tests(third, |at| (20 + (at % 90) as u32, if at == third - 1 { n } else { 0x55 })))
                .collect::<Vec<_>>(),
        )
        && row(
            "sixty that differ at once",
            &(0..60).map(|n| tests(200, |at| ((at as u32 * 7 + n) % 126, 0x55))).collect::<Vec<_>>(),
        );
    if !there {
        println!("skipped (rights): programs cannot be loaded");
    }
}

/// A valid program of this length without meaning.
fn random_program(random: &mut impl FnMut(u32) -> u32, length: usize) -> Vec<Instruction> {
    let mut code = Vec::with_capacity(length);
    while code.len() + 1 < length {
        let left = (length - code.len() - 2).min(255) as u32;
        let offset = match random(8) {
            0 => random(u32::MAX) & 0x7fff_ffff,
            1 => random(70_000),
            _ => random(220),
        };
        let places = [line(0x20, 0, 0, offset), line(0x28, 0, 0, offset), line(0x30, 0, 0, offset)];
        let indexed = [line(0x40, 0, 0, offset), line(0x48, 0, 0, offset), line(0x50, 0, 0, offset)];
        let plain =
            [0x00, 0x80, 0x01, 0x81, 0x84, 0x07, 0x87, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac];
        code.push(match random(12) {
            0..3 => places[random(3) as usize],
            3 => indexed[random(3) as usize],
            4 => line(0xb1, 0, 0, offset),
            5 => line([0x02, 0x03, 0x60, 0x61][random(4) as usize], 0, 0, random(16)),
            6 => line([0x04, 0x14, 0x24, 0x44, 0x54, 0xa4][random(6) as usize], 0, 0, random(u32::MAX)),
            7 => line([0x34, 0x94][random(2) as usize], 0, 0, 1 + random(9)),
            8 => line([0x64, 0x74][random(2) as usize], 0, 0, random(32)),
            9 => line(plain[random(plain.len() as u32) as usize], 0, 0, random(u32::MAX)),
            10 if random(20) == 0 => line(0x06, 0, 0, random(2)),
            10 => line(0x05, 0, 0, random(left.min(6) + 1)),
            _ => {
                let test = [0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d][random(8) as usize];
                let reach = left.min(if random(10) == 0 { 255 } else { 5 }) + 1;
                line(test, random(reach) as u8, random(reach) as u8, [0, 0x55, random(u32::MAX)][random(3) as usize])
            }
        });
    }
    code.push(line(0x06, 0, 0, 1));
    code
}

#[test]
fn programs_without_sense_are_taken_or_refused() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % u64::from(below.max(1))) as u32
    };
    let (mut taken, rounds) = (0, 150);
    for round in 0..rounds {
        let length = [5, 30, 200, 1000][round % 4] + random(50) as usize;
        let count = if length < 100 { 1 + random(12) } else { 1 };
        let programs: Vec<_> = (0..count).map(|_| random_program(&mut random, length)).collect();
        match set(&format!("round {round}"), &programs) {
            None => return,
            Some(in_force) => taken += u32::from(in_force),
        }
    }
    assert!(taken > rounds as u32 / 2, "only {taken} of {rounds} were taken");
}
