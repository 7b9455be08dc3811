//! The most instructions that an expression costs a packet.
//!
//! Programs in the kernel only jump forward: a packet runs each instruction of an expression at most once. Slow
//! instructions count as several. The weights are measured (test runs on an EPYC): an addition that depends on the
//! previous one takes 0.3 ns, a product or division 0.8 to 1.6 ns, a call that loads bytes 20 ns.

use crate::code::{self, Code, Instruction};
use crate::lower::{Entry, lower};
use program::Program;

/// The weight of a helper call.
const CALL: u32 = 64;

/// The weight of a multiplication, division or modulo.
const PRODUCT: u32 = 4;

/// The weight of sampling: an atomic operation and a 64-bit modulo.
const SAMPLE: u32 = 64;

/// The most instructions that an expression costs a packet; `u32::MAX` if the kernel cannot run it. `program`: `None`
/// passes all packets. `sample`: takes one packet of this number; 0 and 1 take all.
pub fn cost(program: Option<&Program>, sample: u32) -> u32 {
    let sample = if sample > 1 { SAMPLE } else { 0 };
    program.map_or(0, cost_of).saturating_add(sample)
}

fn cost_of(program: &Program) -> u32 {
    if program.always().is_some() {
        // It has no tests.
        return 0;
    }
    let mut code = Code::default();
    let (accept, reject) = (code.label(), code.label());
    if lower(&mut code, program, Entry::START, accept, reject).is_err() {
        return u32::MAX;
    }
    code.place(accept);
    code.place(reject);
    code.exit();
    // Without the final instruction, which is shared.
    code.finish().map_or(u32::MAX, |code| code[..code.len() - 1].iter().map(weight).sum())
}

fn weight(instruction: &Instruction) -> u32 {
    match instruction {
        _ if code::is_call(instruction) => CALL,
        _ if code::is_product(instruction) => PRODUCT,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::cbpf::Instruction as Line;

    fn check(lines: &[(u16, u8, u8, u32)], expected: u32) {
        let lines: Vec<Line> = lines.iter().map(|&(code, jt, jf, k)| Line { code, jt, jf, k }).collect();
        assert_eq!(cost(Some(&program::from_cbpf(&lines).unwrap()), 1), expected, "{lines:?}");
    }

    #[test]
    fn instructions_are_counted_and_slow_ones_several_times() {
        const KEEP: (u16, u8, u8, u32) = (0x06, 0, 0, 1);
        const REFUSE: (u16, u8, u8, u32) = (0x06, 0, 0, 0);
        check(&[KEEP], 0);
        // Two instructions clear registers. Two check that the byte is there. Then the load, the test, and the jumps to
        // both ends.
        check(&[(0x30, 0, 0, 20), (0x15, 0, 1, 7), KEEP, REFUSE], 2 + 2 + 1 + 3);
        // The byte is behind the copy: 7 instructions prepare the call, one checks its result.
        check(&[(0x30, 0, 0, 200), (0x15, 0, 1, 7), KEEP, REFUSE], 2 + 2 + 7 + CALL + 1 + 1 + 3);
        check(
            &[(0x80, 0, 0, 0), (0x24, 0, 0, 3), (0x34, 0, 0, 5), (0x15, 0, 1, 7), KEEP, REFUSE],
            2 + 1 + 2 * PRODUCT + 3,
        );
        assert_eq!([cost(None, 0), cost(None, 1), cost(None, 2)], [0, 0, SAMPLE]);
    }

    #[test]
    fn what_the_kernel_cannot_run_costs_more_than_there_is() {
        let repeats = [
            Line { code: 0x30, jt: 0, jf: 0, k: 0 },
            Line { code: 0x05, jt: 0, jf: 0, k: u32::MAX - 1 },
            Line { code: 6, jt: 0, jf: 0, k: 1 },
        ];
        assert_eq!(cost(Some(&program::from_cbpf(&repeats).unwrap()), 2), u32::MAX);
    }
}
