//! The kernel's program and the interpreter never differ: random expressions over real frames, in tcpdump's language
//! and as typed selectors.
//!
//! Some expressions sample: they take exactly the first of every `n` passing packets. Some only count: their counts
//! equal the interpreter's, and their bit is never set.
//!
//! 2,000 expressions; `STREAMLINE_EXPRESSIONS=10000 cargo test --release -p kernel --test all verdicts` runs more.

use crate::expressions::Expressions;
use buffer::live::memory::Count;
use buffer::live::{LiveMemory, LiveReader, Look};
use buffer::shared::segment::Access;
use kernel::{CaptureProgram, Expression, Way};
use program::Interpreter;
use std::sync::Arc;
use testkit::random::Random;

/// The most expressions of one program.
const AT_ONCE: usize = 40;

const FRAMES: usize = 400;

/// A random `sample`. Most expressions take all, and so does bit 63, which shows the written packets.
fn sample(random: &mut Random, bit: u8) -> u32 {
    if bit == 63 || random.below(4) > 0 { 1 } else { [2, 3, 7, 64, u32::MAX][random.below(5)] }
}

/// A random `counts`: bytes kept of each packet of an expression that only counts.
fn counts(random: &mut Random, bit: u8) -> Option<u32> {
    (bit != 63 && random.below(4) == 0).then(|| [0, 64, 100, u32::MAX][random.below(4)])
}

#[test]
fn verdicts_never_differ() {
    let wanted = std::env::var("STREAMLINE_EXPRESSIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let capture =
        match CaptureProgram::new(1 << 20, true).and_then(|mut capture| capture.prepare(Way::In).map(|()| capture)) {
            Ok(capture) => capture,
            Err(error) => return println!("skipped (rights): {error}"),
        };
    let mut random = Random(0x5eed_0123_4567_89ab);
    let frames = testkit::frames::real_and_damaged(FRAMES, &mut random);
    assert!(frames.len() > 20, "{} frames", frames.len());
    let mut made_up = Expressions::about(&frames);
    let memory = LiveMemory::map(capture.areas(), capture.geometry(), Access::Read).unwrap();
    let mut reader = LiveReader::new(memory.clone(), 1 << 63);
    let (mut asked, mut compared, mut accepted) = (0usize, 0u64, 0u64);
    while asked < wanted {
        let mut programs = Vec::new();
        let at_once = 1 + random.below(AT_ONCE);
        while programs.len() < at_once {
            let Some((text, program)) = made_up.any(&mut random, 2) else { return };
            programs.push((text, Arc::new(program)));
        }
        asked += programs.len();
        let lowered = programs.iter().map(|(_, program)| Some(Arc::clone(program)));
        let expressions: Vec<Expression> = lowered
            .chain([None])
            .zip((0..at_once as u8).chain([63]))
            .map(|(program, bit)| {
                let (sample, counts) = (sample(&mut random, bit), counts(&mut random, bit));
                Expression { sample, counts, ..Expression::new(bit, program) }
            })
            .collect();
        let booked = |bit: usize| (memory.matched(bit), memory.kept_bytes(bit));
        let before: Vec<_> = (0..at_once).map(booked).collect();
        let mut books = vec![(Count::default(), 0); at_once];
        let mut passed = vec![0u64; at_once];
        // The earlier users of these bits are gone.
        capture.set(&[]).unwrap();
        capture
            .set(&expressions)
            .unwrap_or_else(|error| panic!("{error}: {:?}", programs.iter().map(|(text, _)| text).collect::<Vec<_>>()));
        let interpreters: Vec<_> = programs.iter().map(|(_, program)| Interpreter::new(program)).collect();
        for frame in &frames {
            if capture.test_run(Way::In, frame, 1).is_err() {
                // The kernel refuses test runs of frames too short for their IP header.
                continue;
            }
            let Look::Packet(packet) = reader.look() else { panic!("nothing was written") };
            reader.advance();
            for (bit, interpreter) in interpreters.iter().enumerate() {
                let passes = interpreter.run(frame, frame.len() as u32) != 0;
                let expected = passes && passed[bit].is_multiple_of(expressions[bit].sample.into());
                passed[bit] += u64::from(passes);
                compared += 1;
                accepted += u64::from(expected);
                let found = packet.facts.wanted & 1 << bit != 0;
                let counts = expressions[bit].counts;
                assert_eq!(found, expected && counts.is_none(), "`{}` on {frame:02x?}", programs[bit].0);
                if expected {
                    let (count, kept) = &mut books[bit];
                    count.packets += 1;
                    count.wire_bytes += frame.len() as u64;
                    *kept +=
                        counts.map_or(0, |most| if most == 0 { frame.len() } else { frame.len().min(most as usize) });
                }
            }
        }
        for (bit, ((count, kept), before)) in books.into_iter().zip(before).enumerate() {
            let (now, all_kept) = booked(bit);
            assert_eq!((now.since(before.0), all_kept - before.1), (count, kept as u64), "`{}`", programs[bit].0);
        }
    }
    println!("{asked} expressions, {compared} verdicts, {accepted} of them yes; libpcap refused {}", made_up.refused);
    assert!(accepted > compared / 50 && accepted < compared - compared / 50);
}
