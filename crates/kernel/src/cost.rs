//! What an expression costs each packet at most, counted in instructions.
//!
//! Programs in the kernel jump forward only: no packet runs more of an expression than the expression has. Not every
//! instruction takes equally long, so some count as several. The weights are measured (test runs on an EPYC): an addition
//! that waits for the one before takes 0.3 ns, a product or a division 0.8 to 1.6 ns, a call that fetches bytes 20 ns.

use crate::code::{self, Code, Instruction};
use crate::lower::{Entry, lower};
use program::Program;

/// A call of one of the kernel's helpers counts as so many instructions.
const CALL: u32 = 64;

/// A multiplication, division or modulo, as well.
const PRODUCT: u32 = 4;

/// Taking one packet in so many is an atomic step and a modulo of 64 bits.
const SAMPLE: u32 = 64;

/// Instructions that an expression costs a packet at most; `u32::MAX` where the kernel cannot run it. `program` is what
/// decides, none where all packets pass; `sample` takes one packet in so many, 0 and 1 take all.
pub fn cost(program: Option<&Program>, sample: u32) -> u32 {
    let sample = if sample > 1 { SAMPLE } else { 0 };
    program.map_or(0, cost_of).saturating_add(sample)
}

fn cost_of(program: &Program) -> u32 {
    if program.always().is_some() {
        // It asks nothing.
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
    // All but the end, which is nobody's.
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
        // Two registers are set to 0. Is the byte there (2)? The byte, the test, where to go otherwise, and where in the end.
        check(&[(0x30, 0, 0, 20), (0x15, 0, 1, 7), KEEP, REFUSE], 2 + 2 + 1 + 3);
        // A byte behind the copy is fetched: 7 instructions prepare the call, one asks how it went.
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
