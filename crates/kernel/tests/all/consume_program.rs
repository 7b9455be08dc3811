//! The program that takes frames away from the host wants exactly the frames that the interpreter wants.

use crate::expressions::Expressions;
use kernel::consume_program::ConsumeCounts;
use kernel::program_error::ProgramError;
use kernel::{ConsumeProgram, Wanted};
use program::cbpf::Instruction;
use program::{Interpreter, from_cbpf};
use testkit::random::Random;

const ASKED: usize = 150;

const FRAMES: usize = 300;

#[test]
fn verdicts_are_the_interpreters() {
    let first = match ConsumeProgram::new(1, Wanted::All) {
        Ok(consume_program) => consume_program,
        Err(error) => return println!("skipped (rights): {error}"),
    };
    let mut random = Random(0x7357_ed01_2345_6789);
    let frames = testkit::frames::real_and_damaged(FRAMES, &mut random);
    let mut expressions = Expressions::about(&frames);
    let (mut asked, mut counted, mut not_run) = (0, ConsumeCounts::default(), 0);
    while asked < ASKED {
        let Some((text, program)) = expressions.any(&mut random, 2) else { return };
        asked += 1;
        // All replacements continue the counts.
        let consume_program = first.with(Wanted::Any(&[&program])).unwrap_or_else(|error| panic!("{error}: {text}"));
        let interpreter = Interpreter::new(&program);
        for frame in &frames {
            let Ok(wanted) = consume_program.test_run(frame) else {
                not_run += 1;
                continue;
            };
            let expected = interpreter.run(frame, frame.len() as u32) != 0;
            assert_eq!(wanted, expected, "`{text}` on {frame:02x?}");
            let len = frame.len() as u64;
            counted.seen += 1;
            counted.seen_bytes += len;
            counted.wanted += u64::from(wanted);
            counted.wanted_bytes += if wanted { len } else { 0 };
            counted.left += u64::from(!wanted);
            counted.left_bytes += if wanted { 0 } else { len };
        }
    }
    assert_eq!((first.counted(), counted.left), (counted, counted.seen - counted.wanted));
    println!("{asked} expressions: {counted:?}, {not_run} not run");
    assert!(counted.wanted > counted.seen / 20 && counted.left > counted.seen / 20);
    assert!(not_run < counted.seen / 2, "{not_run} of {counted:?}");
}

#[test]
fn without_an_expression_all_are_wanted_and_who_refuses_says_why() {
    let consume_program = match ConsumeProgram::new(4, Wanted::All) {
        Ok(consume_program) => consume_program,
        Err(error) => return println!("skipped (rights): {error}"),
    };
    assert!(consume_program.test_run(&[0; 60]).unwrap());
    // A jump back, which programs in the kernel may not make.
    let at = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let repeats = from_cbpf(&[at(0x30, 0), at(0x04, 1), at(0x05, -2_i32 as u32), at(0x06, 0)]).unwrap();
    assert!(repeats.repeats());
    assert!(matches!(consume_program.with(Wanted::Any(&[&repeats])), Err(ProgramError::Expression(..))));
}

#[test]
fn what_any_of_several_wants_is_taken_and_nothing_where_nobody_wants_anything() {
    let consume_program = match ConsumeProgram::new(1, Wanted::Any(&[])) {
        Ok(consume_program) => consume_program,
        Err(error) => return println!("skipped (rights): {error}"),
    };
    assert!(!consume_program.test_run(&[0; 60]).unwrap());
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    // The first program looks further than most frames reach: for those, the next program is asked.
    let byte = |place, value| {
        from_cbpf(&[at(0x30, 0, 0, place), at(0x15, 0, 1, value), at(6, 0, 0, 1), at(6, 0, 0, 0)]).unwrap()
    };
    let programs = [byte(500, 1), byte(20, 2), byte(21, 3)];
    let consume_program = consume_program.with(Wanted::Any(&programs.each_ref())).unwrap();
    let counting = consume_program.counting();
    for (place, value, len, wanted) in
        [(500, 1, 501, true), (500, 1, 600, true), (20, 2, 60, true), (21, 3, 60, true), (20, 3, 60, false)]
    {
        let mut frame = vec![0; len];
        frame[place] = value;
        assert_eq!(consume_program.test_run(&frame).unwrap(), wanted, "{place} is {value}");
    }
    let counted = counting.counted();
    assert_eq!((counted.seen, counted.wanted, counted.left), (6, 4, 2));
}
