//! Classic BPF to the intermediate form: code that cannot be reached is dropped, chains of jumps are threaded, straight
//! runs become one block, equal returns become one.
//!
//! No other optimisation is done here: libpcap's optimiser has done the work on the values, and what pays for the
//! interpreter alone (fusing loads with comparisons) is done where it is built.

use crate::cbpf::{Instruction, InvalidCode, Meaning, jump_target, validate};
use crate::ir::{Block, BlockId, End, InvalidProgram, MAX_BLOCKS, Program, Step, Value};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

/// Offsets that are not packet bytes to the kernel but places before the network or link header (from SKF_LL_OFF, over
/// SKF_NET_OFF) and facts about the packet (SKF_AD_MAX of them from SKF_AD_OFF), linux/filter.h. Those behind lie
/// outside any packet for the kernel too; libpcap asks for -2 where a link type has no protocol field.
const ANCILLARY_OFFSETS: Range<u32> = (-0x20_0000_i32).cast_unsigned()..(-0x1000_i32 + 64).cast_unsigned();

/// Why there is no program in the intermediate form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowerError {
    /// The code is not valid.
    Invalid(InvalidCode),
    /// The instruction at this place reads what only a live packet in the kernel has.
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

/// Brings classic BPF into the intermediate form.
pub fn from_cbpf(code: &[Instruction]) -> Result<Program, LowerError> {
    validate(code)?;
    let starts = block_starts(code)?;
    let mut blocks = split(code, &starts);
    thread(&mut blocks);
    merge(&mut blocks);
    tidy(blocks).and_then(Program::new).map_err(LowerError::Rule)
}

/// A block under construction: places are those of the first split, before anything is dropped.
#[derive(Debug, Clone)]
struct Draft {
    steps: Vec<Step>,
    end: DraftEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DraftEnd {
    /// Nothing leads out: [`End::Return`] or [`End::ReturnA`].
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

/// For each instruction: whether it can be reached, and if so whether a block starts there.
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
                // `validate` has decoded every instruction.
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

/// Lets edges skip blocks that only jump or return, last block first, so that each chain is followed once.
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

/// Joins a block to the one it jumps to where no other edge leads there.
fn merge(blocks: &mut [Draft]) {
    let mut edges = vec![0u32; blocks.len()];
    let mut seen = vec![false; blocks.len()];
    for at in reachable(blocks) {
        seen[at] = true;
        blocks[at].end.successors().for_each(|to| edges[to] += 1);
    }
    // Front to back, each block taking as many as it can, so that every step is moved once.
    for at in (0..blocks.len()).filter(|&at| seen[at]) {
        while let DraftEnd::Jump(to) = blocks[at].end
            && edges[to] == 1
            // An edge back must still lead back from here.
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

/// Keeps what can be reached, puts each bare return once at the end, and numbers the blocks.
fn tidy(blocks: Vec<Draft>) -> Result<Vec<Block>, InvalidProgram> {
    let order = reachable(&blocks);
    // What a backward edge leads to must stay before it.
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
    // Numbers that do not fit are of programs that are refused below.
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
        // What cannot be reached is dropped, whatever it is.
        check(&[i(6, 0, 0, 9), i(0x20, 0, 0, 0xffff_f000), i(6, 0, 0, 0)], &[block(&[], End::Return(9))]);
        // Equal returns are one; a jump to a return is a return.
        check(
            &[i(0x28, 0, 0, 12), i(0x15, 1, 0, 8), i(5, 0, 0, 1), i(6, 0, 0, 9), i(6, 0, 0, 0)],
            &[block(&[half], branch(8, 2, 1)), block(&[], End::Return(0)), block(&[], End::Return(9))],
        );
        // Both ways the same: the comparison goes, the load stays, for it may fail.
        check(&[i(0x28, 0, 0, 12), i(0x15, 1, 0, 8), i(5, 0, 0, 0), i(6, 0, 0, 9)], &[block(&[half], End::Return(9))]);
        // A chain of jumps is threaded, a run of single edges joined.
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
