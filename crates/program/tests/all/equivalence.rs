//! Random valid programs on random packets. The interpreter, one packet at a time and in batches, and the code emitted
//! from the intermediate form must agree with the oracle. Random nonsense must be refused without a crash.

use crate::plain;
use program::cbpf::{Instruction, disassemble, validate};
use program::{Expression, Frame, Interpreter, Passes, any_of, from_cbpf, to_cbpf};
use proptest::prelude::*;

/// Opcodes that do not jump. Those that libpcap uses most occur more often.
const STRAIGHT: [u16; 46] = [
    0x00, 0x20, 0x28, 0x30, 0x28, 0x30, 0x20, 0x40, 0x48, 0x50, 0x48, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0xb1, 0xb1,
    0x02, 0x03, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x94, 0x9c, 0x44, 0x4c, 0x54, 0x54, 0x54, 0x5c, 0xa4,
    0xac, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x07, 0x87,
];
const JUMPS: [u16; 8] = [0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d];

/// Small numbers, so that fields, bounds and values often coincide.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..40, 2 => 0u32..300, 1 => any::<u32>(), 1 => Just(u32::MAX), 1 => Just(0xf0), 1 => Just(0xffff)]
}

/// An instruction before its jumps are adjusted: opcode choice, skips, operand.
fn raw() -> impl Strategy<Value = (u8, usize, u8, u8, u32)> {
    (0u8..10, any::<usize>(), 0u8..6, 0u8..6, number())
}

/// Makes a valid program from any list of choices.
fn bend(choices: &[(u8, usize, u8, u8, u32)], tests_only: bool, back: bool) -> Vec<Instruction> {
    let mut code: Vec<Instruction> = Vec::new();
    for (at, &(kind, pick, jt, jf, k)) in choices.iter().enumerate() {
        let left = choices.len() - at;
        let fit = |skip: u8| u8::try_from(usize::from(skip).min(left - 1)).unwrap();
        let instruction = match kind {
            0..=4 => {
                let code = if tests_only {
                    [0x28, 0x30, 0x20, 0x48, 0x50, 0x40, 0xb1, 0x54, 0x80][pick % 9]
                } else {
                    STRAIGHT[pick % STRAIGHT.len()]
                };
                let k = match code {
                    0x60 | 0x61 | 0x02 | 0x03 => k % 16,
                    0x64 | 0x74 => k % 32,
                    0x34 | 0x94 => k.max(1),
                    0xb1 => k % 4,
                    0x20 | 0x28 | 0x30 if (0xffe0_0000..0xffff_f040).contains(&k) => k - 0x20_0000,
                    _ => k,
                };
                Instruction { code, jt, jf, k }
            }
            5..=7 => {
                let code = if tests_only { JUMPS[pick % 4 * 2] } else { JUMPS[pick % JUMPS.len()] };
                Instruction { code, jt: fit(jt), jf: fit(jf), k }
            }
            8 if back && at > 0 && jt > 2 => {
                let distance = -(i32::try_from(pick % at.min(12)).unwrap() + 2);
                Instruction { code: 0x05, jt: 0, jf: 0, k: distance.cast_unsigned() }
            }
            8 => Instruction { code: 0x05, jt: 0, jf: 0, k: fit(jt).into() },
            _ if jf == 0 => Instruction { code: 0x16, jt: 0, jf: 0, k: 0 },
            _ => Instruction { code: 0x06, jt: 0, jf: 0, k: k % 3 },
        };
        code.push(instruction);
    }
    code.push(Instruction { code: 0x06, jt: 0, jf: 0, k: 7 });
    code
}

fn agree(code: &[Instruction], packets: &[(Vec<u8>, u32)]) -> Result<(), TestCaseError> {
    prop_assert_eq!(validate(code), Ok(()), "{}", disassemble(code));
    let program = from_cbpf(code).unwrap();
    let again = to_cbpf(&program);
    prop_assert_eq!(validate(&again), Ok(()), "{}", disassemble(&again));
    let interpreter = Interpreter::new(&program);
    let second = Interpreter::from_cbpf(&again).unwrap();
    let mut passed = 0u64;
    for (at, (packet, wire_len)) in packets.iter().enumerate() {
        let expected = plain::run(code, packet, *wire_len);
        passed |= u64::from(expected != 0) << at;
        prop_assert_eq!(interpreter.run(packet, *wire_len), expected, "{} {:?}", disassemble(code), packet);
        prop_assert_eq!(plain::run(&again, packet, *wire_len), expected, "{} {:?}", disassemble(code), packet);
        prop_assert_eq!(second.run(packet, *wire_len), expected, "{} {:?}", disassemble(code), packet);
    }
    let frames: Vec<Frame<'_>> = packets.iter().map(|(bytes, wire_len)| Frame { bytes, wire_len: *wire_len }).collect();
    prop_assert_eq!(interpreter.select(&frames), passed, "{}", disassemble(code));
    prop_assert_eq!(second.select(&frames), passed, "{}", disassemble(code));
    Ok(())
}

/// Small byte values and short packets, so that some tests hold and some loads fail.
fn packets() -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let byte = prop_oneof![4 => 0u8..4, 2 => 0u8..40, 1 => any::<u8>()];
    prop::collection::vec((prop::collection::vec(byte, 0..48), number()), 0..12)
}

/// Four times the usual number, or PROPTEST_CASES. Failures are kept as rows here, not in files.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.saturating_mul(4), failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_of_all_kinds(choices in prop::collection::vec(raw(), 0..40), packets in packets()) {
        agree(&bend(&choices, false, false), &packets)?;
    }

    #[test]
    fn programs_of_tests(choices in prop::collection::vec(raw(), 0..40), packets in packets()) {
        agree(&bend(&choices, true, false), &packets)?;
    }

    #[test]
    fn programs_that_jump_back(choices in prop::collection::vec(raw(), 0..24), packets in packets()) {
        agree(&bend(&choices, false, true), &packets)?;
    }

    /// One program for all passes packets that any of them passes, if the packets are complete.
    #[test]
    fn any_of_several(
        choices in prop::collection::vec((prop::collection::vec(raw(), 0..20), any::<bool>()), 0..5),
        packets in packets(),
    ) {
        let codes: Vec<_> = choices.iter().map(|(choices, tests_only)| bend(choices, *tests_only, false)).collect();
        let programs: Vec<_> = codes.iter().map(|code| from_cbpf(code).unwrap()).collect();
        let Some(all) = any_of(&programs.iter().collect::<Vec<_>>()) else { return Ok(()) };
        let code = to_cbpf(&all);
        for (packet, _) in &packets {
            let len = packet.len() as u32;
            let expected = codes.iter().any(|code| plain::run(code, packet, len) != 0);
            let texts: Vec<String> = codes.iter().map(|code| disassemble(code)).collect();
            prop_assert_eq!(plain::run(&code, packet, len) != 0, expected, "{} {:?}", texts.join("or\n"), packet);
        }
    }

    /// An expression's programs agree with its parts on complete packets. A part that jumps back may stay undecided.
    #[test]
    fn expressions_of_several(
        choices in prop::collection::vec((prop::collection::vec(raw(), 0..20), any::<bool>(), 0u8..8), 1..5),
        back in any::<bool>(),
        packets in packets(),
    ) {
        let mut whole: Option<(Expression, Vec<bool>)> = None;
        for (choices, tests_only, join) in &choices {
            let code = bend(choices, *tests_only, back);
            let mut part = Expression::Program(from_cbpf(&code).unwrap());
            let mut passes: Vec<bool> =
                packets.iter().map(|(packet, _)| plain::run(&code, packet, packet.len() as u32) != 0).collect();
            if join & 1 == 1 {
                part = Expression::Not(Box::new(part));
                passes.iter_mut().for_each(|passes| *passes = !*passes);
            }
            whole = Some(match whole {
                None => (part, passes),
                Some((before, passed)) => {
                    let both = passed.into_iter().zip(passes);
                    let (one, passes): (Expression, Vec<bool>) = match join & 2 {
                        0 => (Expression::All(vec![before, part]), both.map(|(a, b)| a && b).collect()),
                        _ => (Expression::Any(vec![before, part]), both.map(|(a, b)| a || b).collect()),
                    };
                    match join & 4 {
                        0 => (one, passes),
                        _ => (Expression::Not(Box::new(one)), passes.into_iter().map(|passes| !passes).collect()),
                    }
                }
            });
        }
        let Some((expression, passes)) = whole else { return Ok(()) };
        let program = |passes| expression.program(passes).map(|program| Interpreter::new(&program));
        let programs = [Passes::Perhaps, Passes::Surely, Passes::Unsure].map(program);
        let [Some(perhaps), Some(surely), Some(unsure)] = &programs else { return Ok(()) };
        for ((packet, _), passes) in packets.iter().zip(passes) {
            let [perhaps, surely, unsure] =
                [perhaps, surely, unsure].map(|program| program.run(packet, packet.len() as u32) != 0);
            let expected = (passes, passes, false);
            let is_open = (perhaps, surely, unsure) == (true, false, true) && !expression.is_exact();
            prop_assert!((perhaps, surely, unsure) == expected || is_open, "{:?} of {:?}", expression, packet);
        }
    }

    /// Most are refused. The others must run like any other program.
    #[test]
    fn nonsense(code in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), number()), 0..12), near in any::<bool>()) {
        let code: Vec<Instruction> = code
            .into_iter()
            .map(|(code, jt, jf, k)| Instruction { code: if near { code % 0xb8 } else { code }, jt, jf, k })
            .collect();
        disassemble(&code);
        match from_cbpf(&code) {
            Ok(_) => agree(&code, &[(vec![1; 20], 20)])?,
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

/// The longest programs, in shapes for which a careless pass takes quadratic time.
#[test]
fn long_programs() {
    let (longest, most) = (program::cbpf::MAX_INSTRUCTIONS, program::ir::MAX_BLOCKS);
    let ret = |k| Instruction { code: 0x06, jt: 0, jf: 0, k };
    let jump = |k| Instruction { code: 0x05, jt: 0, jf: 0, k };
    let load = |k| Instruction { code: 0x30, jt: 0, jf: 0, k };
    let test = [load(1), Instruction { code: 0x15, jt: 0, jf: 1, k: 9 }, ret(0)];
    let tests = |count: usize| -> Vec<Instruction> { test.into_iter().cycle().take(3 * count).collect() };
    let shapes: [(&str, Vec<Instruction>); 5] = [
        ("jumps to the next", vec![jump(0); longest - 1]),
        ("steps and jumps", [load(0), jump(0)].into_iter().cycle().take(longest - 1).collect()),
        ("steps", vec![load(3); longest - 1]),
        ("tests", tests(most - 2)),
        ("branches", vec![Instruction { code: 0x45, jt: 1, jf: 0, k: 9 }; most - 2]),
    ];
    let packets = [vec![], vec![9u8; 3], vec![9; 60]];
    for (what, mut code) in shapes {
        code.resize(code.len() + 2 - code.len() / (longest - 1), ret(7));
        let interpreter = Interpreter::from_cbpf(&code).unwrap();
        let frames: Vec<Frame<'_>> = packets.iter().map(|bytes| Frame { bytes, wire_len: 0 }).collect();
        let selected = interpreter.select(&frames);
        for (at, packet) in packets.iter().enumerate() {
            let expected = plain::run(&code, packet, 0);
            assert_eq!(interpreter.run(packet, 0), expected, "{what}");
            assert_eq!(selected >> at & 1 != 0, expected != 0, "{what}");
        }
        let again = to_cbpf(&from_cbpf(&code).unwrap());
        assert_eq!(plain::run(&again, &packets[2], 0), plain::run(&code, &packets[2], 0), "{what}");
    }
    let mut code = tests(most);
    code.push(ret(7));
    let refused = program::LowerError::Rule(program::ir::InvalidProgram::TooLong);
    assert_eq!(from_cbpf(&code), Err(refused));
}

#[test]
fn batches_of_every_length() {
    // tcpdump -d 'len > 100'
    let code = [
        Instruction { code: 0x80, jt: 0, jf: 0, k: 0 },
        Instruction { code: 0x25, jt: 0, jf: 1, k: 100 },
        Instruction { code: 0x06, jt: 0, jf: 0, k: 262_144 },
        Instruction { code: 0x06, jt: 0, jf: 0, k: 0 },
    ];
    let interpreter = Interpreter::from_cbpf(&code).unwrap();
    let frames: Vec<Frame<'_>> = (0..80u32).map(|at| Frame { bytes: &[], wire_len: 99 + at % 3 }).collect();
    for count in 0..=frames.len() {
        let expected = (0..count.min(64)).filter(|at| at % 3 == 2).fold(0u64, |bits, at| bits | 1 << at);
        assert_eq!(interpreter.select(&frames[..count]), expected, "{count}");
    }
    for (always, expected) in [(0, 0), (9, u64::MAX)] {
        let interpreter = Interpreter::new(&program::Program::constant(always));
        assert_eq!(interpreter.select(&frames[..64]), expected);
        assert_eq!(interpreter.run(&[], 0), always);
    }
}
