//! Tries expressions together before they see a device's packets: the program to be attached, on maps of its own and
//! only in test runs, must set the same bits as the interpreter.
//!
//! Expressions that count or sample are tried as if they took all: the trial is about which packets pass.

use crate::capture_program::{CaptureProgram, Way};
use crate::expression::Expression;
use crate::probe;
use crate::program_error::ProgramError;
use buffer::live::{LiveMemory, LiveReader, Look};
use buffer::shared::segment::Access;
use program::{Interpreter, Program};

/// The most frames: a few milliseconds.
const FRAMES: usize = 256;

/// Tries all expressions on frames that are made for the `new` programs. `tags` as for [`CaptureProgram::new`].
pub(crate) fn check(tags: bool, expressions: &[Expression], new: &[&Program]) -> Result<(), ProgramError> {
    let expressions: Vec<Expression> =
        expressions.iter().map(|expression| Expression::new(expression.bit, expression.program.clone())).collect();
    let each = (FRAMES / new.len().max(1)).max(1);
    let frames = new.iter().flat_map(|program| probe::frames(program).into_iter().take(each));
    agree(tags, &expressions, &asked(&expressions), frames)
}

/// The bit and the interpreter of an expression. `None` passes all packets.
type Asked = (u64, Option<Interpreter>);

fn asked(expressions: &[Expression]) -> Vec<Asked> {
    let ready = |expression: &Expression| expression.program.as_deref().map(Interpreter::new);
    expressions.iter().map(|expression| (1 << expression.bit, ready(expression))).collect()
}

/// Whether the kernel's program and the interpreter agree on these frames.
fn agree(
    tags: bool,
    expressions: &[Expression],
    asked: &[Asked],
    frames: impl Iterator<Item = Vec<u8>>,
) -> Result<(), ProgramError> {
    let mut capture = CaptureProgram::new(1, tags)?;
    capture.prepare(Way::In)?;
    capture.put(expressions)?;
    let memory = LiveMemory::map(capture.areas(), capture.geometry(), Access::Read);
    let memory = memory.map_err(|error| ProgramError::System("the ring of a trial was not mapped", error))?;
    let mut reader = LiveReader::new(memory, u64::MAX);
    for frame in frames {
        // The kernel refuses test runs of frames too short for their headers.
        if capture.test_run(Way::In, &frame, 1).is_err() {
            continue;
        }
        let wanted = match reader.look() {
            Look::Packet(packet) => packet.facts.wanted,
            Look::More | Look::Nothing => 0,
        };
        if wanted != 0 {
            reader.advance();
        }
        let passes = |program: &Option<Interpreter>| {
            program.as_ref().is_none_or(|program| program.run(&frame, frame.len() as u32) != 0)
        };
        let expected = asked.iter().filter(|(_, program)| passes(program)).fold(0, |bits, (bit, _)| bits | bit);
        if wanted != expected {
            return Err(ProgramError::Verdict(frame));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use testkit::packets::to_port;

    #[test]
    fn a_program_that_says_something_else_than_the_interpreter_is_found() {
        let to_port = |port| Arc::new(program::from_cbpf(&to_port(port)).unwrap());
        let expression = |port| Expression::new(9, Some(to_port(port)));
        let frames = || probe::frames(&to_port(53)).into_iter();
        match agree(true, &[expression(53)], &asked(&[expression(53)]), frames()) {
            Ok(()) => {}
            Err(error) => return println!("skipped (rights): {error}"),
        }
        let other = agree(true, &[expression(53)], &asked(&[expression(80)]), frames());
        assert!(matches!(other, Err(ProgramError::Verdict(_))), "{other:?}");
        let none = agree(true, &[], &asked(&[expression(53)]), frames());
        assert!(matches!(none, Err(ProgramError::Verdict(_))), "{none:?}");
        let more = agree(true, &[expression(53), Expression::new(3, None)], &asked(&[expression(53)]), frames());
        assert!(matches!(more, Err(ProgramError::Verdict(_))), "{more:?}");
    }
}
