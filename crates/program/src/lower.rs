//! Translates classic BPF to the intermediate form. Removes unreachable code, follows chains of jumps, joins straight
//! runs into one block, and merges equal returns.
//!
//! It does no other optimisation: libpcap's optimiser has already worked on the values. Optimisations for the
//! interpreter alone (fusing loads with comparisons) are made where the interpreter's code is built.

use crate::cbpf::{Instruction, InvalidCode, Meaning, jump_target, validate};
use crate::ir::{Block, BlockId, End, InvalidProgram, MAX_BLOCKS, Program, Step, Value};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

/// Offsets that the kernel does not take for packet bytes (linux/filter.h): places before the network or link header
/// (from SKF_LL_OFF, above SKF_NET_OFF), and facts about the packet (SKF_AD_MAX of them, from SKF_AD_OFF). Higher
/// offsets lie outside any packet for the kernel, too; libpcap uses -2 if a link type has no protocol field.
const ANCILLARY_OFFSETS: Range<u32> = (-0x20_0000_i32).cast_unsigned()..(-0x1000_i32 + 64).cast_unsigned();

/// Why code could not be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowerError {
    /// The code is not valid.
    Invalid(InvalidCode),
    /// The instruction reads data that only a live packet in the kernel has.
    Ancillary {
        /// Place of the instruction.
        at: usize,
        /// The offset it loads from.
        offset: i32,
    },
    /// The blocks break a rule of the intermediate form.
    Rule(InvalidProgram),
}

impl fmt::Display for LowerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LowerError::Invalid(invalid) => invalid.fmt(out),
            LowerError::Ancillary { at, offset } => write!(
                out,
                "instruction {at} loads ancillary data at offset {offset}, which packets in files and rings do not carry; \
                 compile the expression for a capture file, not for a live device"
            ),
            LowerError::Rule(rule) => rule.fmt(out),
        }
    }
}

impl std::error::Error for LowerError {}

impl From<InvalidCode> for LowerError {
    fn from(invalid: InvalidCode) -> LowerError {
        LowerError::Invalid(invalid)
    }
}

/// Translates classic BPF to the intermediate form.
pub fn from_cbpf(code: &[Instruction]) -> Result<Program, LowerError> {
    validate(code)?;
    let starts = block_starts(code)?;
    let mut blocks = split(code, &starts);
    thread(&mut blocks);
    merge(&mut blocks);
    tidy(blocks).and_then(Program::new).map_err(LowerError::Rule)
}

/// A block under construction. Places are those of the first split, before any block is removed.
#[derive(Debug, Clone)]
struct Draft {
    steps: Vec<Step>,
    end: DraftEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DraftEnd {
    /// Ends the run: [`End::Return`] or [`End::ReturnA`].
    Return(End),
    Jump(usize),
    Repeat(usize),
    Branch {
        meaning: Comparison,
        yes: usize,
        no: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Comparison {
    test: crate::ir::Test,
    operand: crate::ir::Operand,
}

impl DraftEnd {
    fn successors(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            DraftEnd::Return(_) => (None, None),
            DraftEnd::Jump(to) | DraftEnd::Repeat(to) => (Some(to), None),
            DraftEnd::Branch { yes, no, .. } => (Some(yes), Some(no)),
        };
        first.into_iter().chain(second)
    }
}

/// For each instruction: `None` if it is unreachable, else whether a block starts there.
fn block_starts(code: &[Instruction]) -> Result<Vec<Option<bool>>, LowerError> {
    let mut starts: Vec<Option<bool>> = vec![None; code.len()];
    let mut open = vec![(0, true)];
    while let Some((at, start)) = open.pop() {
        let seen = starts[at].is_some();
        starts[at] = Some(start || starts[at] == Some(true));
        if seen {
            continue;
        }
        match code[at].decode() {
            Some(Meaning::Step(Step::LoadA(Value::Packet { offset, .. }))) if ANCILLARY_OFFSETS.contains(&offset) => {
                return Err(LowerError::Ancillary { at, offset: offset.cast_signed() });
            }
            // The last instruction is a return, so there is a next one.
            Some(Meaning::Step(_)) => open.push((at + 1, false)),
            Some(Meaning::Jump(distance)) => open.extend(jump_target(at, distance, code.len()).map(|to| (to, true))),
            Some(Meaning::Branch { yes, no, .. }) => {
                open.extend([yes, no].map(|skip| (at + 1 + usize::from(skip), true)));
            }
            Some(Meaning::Return(_) | Meaning::ReturnA) | None => {}
        }
    }
    Ok(starts)
}

/// Cuts the reachable code into blocks, in the order of the code.
fn split(code: &[Instruction], starts: &[Option<bool>]) -> Vec<Draft> {
    let mut places = vec![0usize; code.len()];
    let mut count = 0;
    for (at, start) in starts.iter().enumerate() {
        if *start == Some(true) {
            places[at] = count;
            count += 1;
        }
    }
    let mut blocks: Vec<Draft> = Vec::with_capacity(count);
    for first in (0..code.len()).filter(|&at| starts[at] == Some(true)) {
        let mut steps = Vec::new();
        let mut at = first;
        let end = loop {
            match code[at].decode() {
                Some(Meaning::Step(step)) => steps.push(step),
                Some(Meaning::Jump(distance)) => {
                    let to = jump_target(at, distance, code.len()).map_or(0, |to| places[to]);
                    break if to > places[first] { DraftEnd::Jump(to) } else { DraftEnd::Repeat(to) };
                }
                Some(Meaning::Branch { test, operand, yes, no }) => {
                    let [yes, no] = [yes, no].map(|skip| places[at + 1 + usize::from(skip)]);
                    break DraftEnd::Branch { meaning: Comparison { test, operand }, yes, no };
                }
                Some(Meaning::ReturnA) => break DraftEnd::Return(End::ReturnA),
                Some(Meaning::Return(length)) => break DraftEnd::Return(End::Return(length)),
                // `validate` has checked that every instruction decodes.
                None => break DraftEnd::Return(End::Return(0)),
            }
            at += 1;
            if starts.get(at) == Some(&Some(true)) {
                break DraftEnd::Jump(places[at]);
            }
        };
        blocks.push(Draft { steps, end });
    }
    blocks
}

/// Redirects edges past blocks that only jump or return, from the last block to the first: once per chain.
fn thread(blocks: &mut [Draft]) {
    for at in (0..blocks.len()).rev() {
        let onward = |to: usize| match &blocks[to] {
            Draft { steps, end: DraftEnd::Jump(next) } if steps.is_empty() => *next,
            _ => to,
        };
        let verdict = |to: usize| match &blocks[to] {
            Draft { steps, end: DraftEnd::Return(verdict) } if steps.is_empty() => Some(*verdict),
            _ => None,
        };
        let jump = |to: usize| verdict(to).map_or(DraftEnd::Jump(to), DraftEnd::Return);
        blocks[at].end = match blocks[at].end {
            DraftEnd::Jump(to) => jump(onward(to)),
            DraftEnd::Branch { meaning, yes, no } => match (onward(yes), onward(no)) {
                (yes, no) if yes == no || (verdict(yes).is_some() && verdict(yes) == verdict(no)) => jump(yes),
                (yes, no) => DraftEnd::Branch { meaning, yes, no },
            },
            end => end,
        };
    }
}

/// Joins a block to the one it jumps to, if no other edge leads there.
fn merge(blocks: &mut [Draft]) {
    let mut edges = vec![0u32; blocks.len()];
    let mut seen = vec![false; blocks.len()];
    for at in reachable(blocks) {
        seen[at] = true;
        blocks[at].end.successors().for_each(|to| edges[to] += 1);
    }
    // Front to back, each block taking as many as it can: every step moves once.
    for at in (0..blocks.len()).filter(|&at| seen[at]) {
        while let DraftEnd::Jump(to) = blocks[at].end
            && edges[to] == 1
            // A backward edge must still lead backward from here.
            && !matches!(blocks[to].end, DraftEnd::Repeat(back) if back > at)
        {
            let gone = Draft { steps: Vec::new(), end: DraftEnd::Return(End::Return(0)) };
            let Draft { steps, end } = std::mem::replace(&mut blocks[to], gone);
            blocks[at].steps.extend(steps);
            blocks[at].end = end;
        }
    }
}

fn reachable(blocks: &[Draft]) -> Vec<usize> {
    let mut seen = vec![false; blocks.len()];
    let mut open = vec![0];
    let mut order = Vec::new();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            order.push(at);
            open.extend(blocks[at].end.successors());
        }
    }
    order.sort_unstable();
    order
}

/// Keeps reachable blocks, moves each bare return once to the end, and numbers the blocks.
fn tidy(blocks: Vec<Draft>) -> Result<Vec<Block>, InvalidProgram> {
    let order = reachable(&blocks);
    // The target of a backward edge must stay before it.
    let repeated: HashSet<usize> = order
        .iter()
        .filter_map(|&at| match blocks[at].end {
            DraftEnd::Repeat(to) => Some(to),
            _ => None,
        })
        .collect();
    let bare = |at: usize| {
        matches!(blocks[at].end, DraftEnd::Return(_)) && blocks[at].steps.is_empty() && !repeated.contains(&at)
    };
    let mut places = vec![BlockId(0); blocks.len()];
    // Numbers that do not fit belong to programs that are refused below.
    let number = |place: usize| BlockId(u16::try_from(place).unwrap_or(u16::MAX));
    let (returns, others): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|&at| bare(at));
    for (place, &at) in others.iter().enumerate() {
        places[at] = number(place);
    }
    let mut verdicts: HashMap<DraftEnd, BlockId> = HashMap::new();
    let mut kept = others.clone();
    for at in returns {
        places[at] = *verdicts.entry(blocks[at].end).or_insert_with(|| {
            kept.push(at);
            number(kept.len() - 1)
        });
    }
    if kept.len() > MAX_BLOCKS {
        return Err(InvalidProgram::TooLong);
    }
    let kept = kept.into_iter().map(|at| {
        let Draft { steps, end } = blocks[at].clone();
        let end = match end {
            DraftEnd::Return(end) => end,
            DraftEnd::Jump(to) => End::Jump(places[to]),
            DraftEnd::Repeat(to) => End::Repeat(places[to]),
            DraftEnd::Branch { yes, no, .. } if places[yes] == places[no] => End::Jump(places[yes]),
            DraftEnd::Branch { meaning: Comparison { test, operand }, yes, no } => {
                End::Branch { test, operand, yes: places[yes], no: places[no] }
            }
        };
        Block { steps, end }
    });
    Ok(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Operand, Size, Test};

    const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn check(code: &[Instruction], expected: &[Block]) {
        assert_eq!(from_cbpf(code).unwrap().blocks(), expected, "{code:?}");
    }

    fn branch(k: u32, yes: u16, no: u16) -> End {
        End::Branch { test: Test::Equal, operand: Operand::Constant(k), yes: BlockId(yes), no: BlockId(no) }
    }

    #[test]
    fn shapes() {
        let half = Step::LoadA(Value::Packet { size: Size::Half, offset: 12 });
        let block = |steps: &[Step], end| Block { steps: steps.to_vec(), end };
        let back = (-4i32).cast_unsigned();
        // A single return.
        check(&[i(6, 0, 0, 9)], &[block(&[], End::Return(9))]);
        // Unreachable code is removed, whatever it is.
        check(&[i(6, 0, 0, 9), i(0x20, 0, 0, 0xffff_f000), i(6, 0, 0, 0)], &[block(&[], End::Return(9))]);
        // Equal returns are merged. A jump to a return becomes a return.
        check(
            &[i(0x28, 0, 0, 12), i(0x15, 1, 0, 8), i(5, 0, 0, 1), i(6, 0, 0, 9), i(6, 0, 0, 0)],
            &[block(&[half], branch(8, 2, 1)), block(&[], End::Return(0)), block(&[], End::Return(9))],
        );
        // Equal targets: the comparison goes, but the load stays, since it may fail.
        check(&[i(0x28, 0, 0, 12), i(0x15, 1, 0, 8), i(5, 0, 0, 0), i(6, 0, 0, 9)], &[block(&[half], End::Return(9))]);
        // A chain of jumps is followed, a run of single edges joined.
        check(
            &[i(5, 0, 0, 1), i(6, 0, 0, 0), i(5, 0, 0, 0), i(0x28, 0, 0, 12), i(5, 0, 0, 0), i(0x16, 0, 0, 0)],
            &[block(&[half], End::ReturnA)],
        );
        // A backward jump is kept.
        check(
            &[i(0x28, 0, 0, 12), i(0x15, 0, 2, 8), i(0x87, 0, 0, 0), i(5, 0, 0, back), i(6, 0, 0, 0)],
            &[
                block(&[half], branch(8, 1, 2)),
                block(&[Step::CopyXToA], End::Repeat(BlockId(0))),
                block(&[], End::Return(0)),
            ],
        );
    }

    /// A backward jump to a return, which would otherwise be moved behind it.
    #[test]
    fn backward_to_a_return() {
        let back = (-2i32).cast_unsigned();
        let program = from_cbpf(&[i(5, 0, 0, 1), i(6, 0, 0, 9), i(5, 0, 0, back), i(6, 0, 0, 0)]).unwrap();
        assert_eq!(crate::Interpreter::new(&program).run(&[], 0), 9);
    }

    #[test]
    fn refused() {
        for offset in [-0x1000 + 63, -0x1000 + 44, -0x1000, -0x10_0000, -0x20_0000] {
            let code = [i(0x20, 0, 0, i32::cast_unsigned(offset)), i(6, 0, 0, 0)];
            assert_eq!(from_cbpf(&code), Err(LowerError::Ancillary { at: 0, offset }));
        }
        // Outside any packet, but no ancillary load.
        for offset in [-0x20_0001, -0x1000 + 64, -2] {
            let program = from_cbpf(&[i(0x20, 0, 0, i32::cast_unsigned(offset)), i(6, 0, 0, 9)]).unwrap();
            assert_eq!(crate::Interpreter::new(&program).run(&[1; 64], 64), 0);
        }
        assert_eq!(from_cbpf(&[]), Err(LowerError::Invalid(InvalidCode::Empty)));
    }
}
