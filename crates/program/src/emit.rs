//! Translates the intermediate form to classic BPF, for the kernel's socket filters and to show that the form loses nothing.
//!
//! A conditional jump reaches 255 instructions. If that is not enough, an unconditional jump follows it. Programs that
//! repeat get a backward jump, which libpcap runs and the kernel refuses: check [`Program::repeats`] first.

use crate::cbpf::{Instruction, Meaning};
use crate::ir::{BlockId, End, Program};

/// A conditional jump may have to skip one more unconditional jump.
const REACH: usize = u8::MAX as usize - 1;

/// The program as classic BPF, never empty. It may exceed the kernel's limit (4096 instructions).
pub fn to_cbpf(program: &Program) -> Vec<Instruction> {
    // Emit the last instruction first: then the distance to every later instruction is known.
    let mut code: Vec<Instruction> = Vec::new();
    let mut depth = vec![0usize; program.blocks().len()];
    let mut repeats: Vec<(usize, BlockId)> = Vec::new();
    for (at, block) in program.blocks().iter().enumerate().rev() {
        // The skip of the next jump to a block: the number of instructions emitted since that block began.
        let skip = |made: usize, to: BlockId| made - depth[to.index()];
        match block.end {
            End::Return(length) => code.push(Instruction::encode(Meaning::Return(length))),
            End::ReturnA => code.push(Instruction::encode(Meaning::ReturnA)),
            End::Jump(to) => {
                let distance = skip(code.len(), to);
                if distance > 0 {
                    code.push(jump(distance));
                }
            }
            End::Repeat(to) => {
                if code.is_empty() {
                    // Valid code ends with a return, even if it is unreachable.
                    code.push(Instruction::encode(Meaning::Return(0)));
                }
                repeats.push((code.len(), to));
                code.push(jump(0));
            }
            End::Branch { test, operand, yes, no } => {
                let far = [yes, no].map(|to| skip(code.len(), to) > REACH);
                let mut place = |to: BlockId, far: bool| {
                    if far {
                        code.push(jump(skip(code.len(), to)));
                        return code.len();
                    }
                    depth[to.index()]
                };
                let targets = [place(yes, far[0]), place(no, far[1])];
                // Both fit: near targets are at most REACH away, plus one jump emitted here.
                let [yes, no] = targets.map(|target| u8::try_from(code.len() - target).unwrap_or(u8::MAX));
                code.push(Instruction::encode(Meaning::Branch { test, operand, yes, no }));
            }
        }
        code.extend(block.steps.iter().rev().map(|&step| Instruction::encode(Meaning::Step(step))));
        depth[at] = code.len();
    }
    for (made, to) in repeats {
        // `made` instructions follow the jump; `depth` counts from the target's first instruction to the end.
        let back = i32::try_from(depth[to.index()] - made).unwrap_or(i32::MAX);
        // A jump to itself: nothing changes between repetitions, so the run ends with 0.
        let meaning = if back == 1 { Meaning::Return(0) } else { Meaning::Jump(-back) };
        code[made] = Instruction::encode(meaning);
    }
    code.reverse();
    code
}

fn jump(distance: usize) -> Instruction {
    Instruction::encode(Meaning::Jump(i32::try_from(distance).unwrap_or(i32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbpf::{disassemble, validate};
    use crate::ir::{Block, Operand, Size, Step, Test, Value};
    use crate::lower::from_cbpf;

    fn check(blocks: Vec<Block>, expected: &str) {
        let program = Program::new(blocks).unwrap();
        let code = to_cbpf(&program);
        assert_eq!(disassemble(&code), expected);
        assert_eq!(validate(&code), Ok(()));
    }

    #[test]
    fn text() {
        let half = Step::LoadA(Value::Packet { size: Size::Half, offset: 12 });
        let block = |steps: &[Step], end| Block { steps: steps.to_vec(), end };
        let equal = |yes, no| End::Branch {
            test: Test::Equal,
            operand: Operand::Constant(0x800),
            yes: BlockId(yes),
            no: BlockId(no),
        };
        check(
            vec![block(&[half], equal(1, 2)), block(&[], End::Return(9)), block(&[], End::Return(0))],
            "(000) ldh      [12]\n(001) jeq      #0x800           jt 2\tjf 3\n(002) ret      #9\n(003) ret      #0\n",
        );
        check(
            vec![
                block(&[half], equal(1, 2)),
                block(&[Step::CopyXToA, Step::CopyAToX], End::Repeat(BlockId(0))),
                block(&[], End::Return(0)),
            ],
            "(000) ldh      [12]\n(001) jeq      #0x800           jt 2\tjf 5\n(002) txa      \n(003) tax      \n\
             (004) ja       0\n(005) ret      #0\n",
        );
    }

    #[test]
    fn endless_programs_end_with_a_return() {
        let repeat = |steps: &[Step]| vec![Block { steps: steps.to_vec(), end: End::Repeat(BlockId(0)) }];
        check(repeat(&[]), "(000) ret      #0\n(001) ret      #0\n");
        check(repeat(&[Step::Negate]), "(000) neg      \n(001) ja       0\n(002) ret      #0\n");
    }

    /// Blocks of growing size between a branch and its targets, across the limit of 255.
    #[test]
    fn far_targets() {
        for filler in [0usize, 1, 250, 251, 252, 253, 254, 255, 256, 257, 300, 2000] {
            for far_yes in [false, true] {
                let (yes, no) = if far_yes { (BlockId(2), BlockId(1)) } else { (BlockId(1), BlockId(2)) };
                let blocks = vec![
                    Block {
                        steps: vec![Step::LoadA(Value::WireLength)],
                        end: End::Branch { test: Test::Greater, operand: Operand::Constant(100), yes, no },
                    },
                    Block { steps: vec![Step::Negate; filler], end: End::Return(1) },
                    Block { steps: vec![Step::Negate], end: End::Return(2) },
                ];
                let program = Program::new(blocks).unwrap();
                let code = to_cbpf(&program);
                assert_eq!(validate(&code), Ok(()), "{filler}");
                // The extra jumps disappear again.
                let again = from_cbpf(&code).unwrap();
                assert_eq!(again.blocks().len(), 3, "{filler}");
                assert_eq!(from_cbpf(&to_cbpf(&again)).unwrap(), again, "{filler}");
                for wire in [100, 101] {
                    let expected = if (wire > 100) == far_yes { 2 } else { 1 };
                    assert_eq!(crate::Interpreter::new(&program).run(&[], wire), expected, "{filler}");
                    assert_eq!(crate::Interpreter::new(&again).run(&[], wire), expected, "{filler}");
                }
            }
        }
    }
}
