//! The single form of a filter program: basic blocks over two registers (A and X), sixteen words of scratch memory and
//! the bytes of one packet. [`lower`](mod@crate::lower) makes it from classic BPF, and typed filters make it directly.
//! The interpreter, [`emit`](mod@crate::emit) and the kernel's code generators read it.
//!
//! It is no general machine. Blocks are in order of execution: every edge leads to a later block, except [`End::Repeat`].
//! libpcap needs that only for `ip6 protochain`, and a run may take it at most [`MAX_REPEATS`] times. So a generator that walks
//! the blocks front to back sees each block before its successors. A generator that cannot loop refuses [`Program::repeats`].
//!
//! Registers and memory start at 0. A load outside the captured bytes ends the run with 0, and so does a division by 0.
//! A block has no visible effect before its end, so [`Block::reach`] may be checked once, at its start.

use std::fmt;

/// Words of a program's scratch memory (BPF_MEMWORDS).
pub const MEMORY_WORDS: usize = 16;

/// The most blocks of a program.
pub const MAX_BLOCKS: usize = 32_768;

/// How often a run may take [`End::Repeat`]; the next time ends it with 0. The number is libpcap's
/// (MAX_BACKWARD_JUMPS): no real packet has a chain of 64 extension headers.
pub const MAX_REPEATS: u32 = 64;

/// The place of a block in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u16);

impl BlockId {
    /// The place as an index into [`Program::blocks`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of packet bytes that a load takes, most significant first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
}

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Size::Byte => 1,
            Size::Half => 2,
            Size::Word => 4,
        }
    }
}

/// A value for A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// A constant.
    Constant(u32),
    /// Packet bytes at `offset`.
    Packet {
        /// How many bytes.
        size: Size,
        /// First byte, from the start of the packet.
        offset: u32,
    },
    /// Packet bytes at X + `offset`, without wrap-around.
    Indexed {
        /// How many bytes.
        size: Size,
        /// Added to X.
        offset: u32,
    },
    /// Length of the packet on the wire.
    WireLength,
    /// A word of scratch memory, below [`MEMORY_WORDS`].
    Memory(u8),
}

/// A value for X.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// A constant.
    Constant(u32),
    /// The length in bytes of an IPv4 header that starts at this offset: `4 * (packet[offset] & 0xf)`.
    HeaderLength(u32),
    /// Length of the packet on the wire.
    WireLength,
    /// A word of scratch memory, below [`MEMORY_WORDS`].
    Memory(u8),
}

/// Right-hand side of arithmetic and comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A constant.
    Constant(u32),
    /// Register X.
    X,
}

/// Unsigned 32-bit arithmetic, modulo 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A + operand.
    Add,
    /// A - operand.
    Subtract,
    /// A * operand.
    Multiply,
    /// A / operand. Division by 0 ends the run with 0.
    Divide,
    /// A % operand. Division by 0 ends the run with 0.
    Modulo,
    /// A & operand.
    And,
    /// A | operand.
    Or,
    /// A ^ operand.
    Xor,
    /// A << operand; 0 for 32 and more.
    ShiftLeft,
    /// A >> operand; 0 for 32 and more.
    ShiftRight,
}

impl Operation {
    /// `a` operation `operand`. `None`: the run ends with 0.
    #[inline]
    pub fn apply(self, a: u32, operand: u32) -> Option<u32> {
        Some(match self {
            Operation::Add => a.wrapping_add(operand),
            Operation::Subtract => a.wrapping_sub(operand),
            Operation::Multiply => a.wrapping_mul(operand),
            Operation::Divide => a.checked_div(operand)?,
            Operation::Modulo => a.checked_rem(operand)?,
            Operation::And => a & operand,
            Operation::Or => a | operand,
            Operation::Xor => a ^ operand,
            Operation::ShiftLeft => a.checked_shl(operand).unwrap_or(0),
            Operation::ShiftRight => a.checked_shr(operand).unwrap_or(0),
        })
    }
}

/// One action inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A = value.
    LoadA(Value),
    /// X = index.
    LoadX(Index),
    /// Memory slot = A.
    StoreA(u8),
    /// Memory slot = X.
    StoreX(u8),
    /// A = A operation operand.
    Arithmetic(Operation, Operand),
    /// A = -A.
    Negate,
    /// X = A.
    CopyAToX,
    /// A = X.
    CopyXToA,
}

/// An unsigned comparison of A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    /// A == operand.
    Equal,
    /// A > operand.
    Greater,
    /// A >= operand.
    AtLeast,
    /// A & operand != 0.
    AnyBit,
}

impl Test {
    /// Whether the comparison holds.
    #[inline]
    pub fn holds(self, a: u32, operand: u32) -> bool {
        match self {
            Test::Equal => a == operand,
            Test::Greater => a > operand,
            Test::AtLeast => a >= operand,
            Test::AnyBit => a & operand != 0,
        }
    }
}

/// How a block ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The run ends with this number of bytes to keep; 0 drops the packet.
    Return(u32),
    /// The run ends with A.
    ReturnA,
    /// Continues at a later block.
    Jump(BlockId),
    /// Continues at this block or an earlier one, at most [`MAX_REPEATS`] times in a run.
    Repeat(BlockId),
    /// Continues at one of two later blocks.
    Branch {
        /// The comparison.
        test: Test,
        /// The operand that A is compared with.
        operand: Operand,
        /// The next block if it holds.
        yes: BlockId,
        /// The next block if it does not hold.
        no: BlockId,
    },
}

impl End {
    /// The possible next blocks. A branch with two equal targets gives that block twice.
    pub fn successors(&self) -> impl Iterator<Item = BlockId> + use<> {
        let (first, second) = match *self {
            End::Return(_) | End::ReturnA => (None, None),
            End::Jump(to) | End::Repeat(to) => (Some(to), None),
            End::Branch { yes, no, .. } => (Some(yes), Some(no)),
        };
        first.into_iter().chain(second)
    }
}

/// A sequence of steps without jumps, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The end of the block.
    pub end: End,
}

impl Block {
    /// The least length of a packet that passes all loads at fixed offsets. Other loads check themselves.
    pub fn reach(&self) -> u64 {
        let ends = self.steps.iter().map(|step| match *step {
            Step::LoadA(Value::Packet { size, offset }) => u64::from(offset) + u64::from(size.bytes()),
            Step::LoadX(Index::HeaderLength(offset)) => u64::from(offset) + 1,
            _ => 0,
        });
        ends.max().unwrap_or(0)
    }
}

/// A valid filter program, by the rules of this module. It starts at the first block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    blocks: Vec<Block>,
}

/// The rule that a program breaks, and the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidProgram {
    /// There is no block.
    Empty,
    /// There are more than [`MAX_BLOCKS`].
    TooLong,
    /// An edge leads past the end or in the wrong direction.
    Edge(BlockId),
    /// A memory slot does not exist.
    Slot(BlockId),
    /// A division by the constant 0.
    DivisionByZero(BlockId),
    /// A shift by a constant of 32 or more.
    Shift(BlockId),
}

impl fmt::Display for InvalidProgram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InvalidProgram::Empty => out.write_str("a program without blocks"),
            InvalidProgram::TooLong => write!(out, "a program of more than {MAX_BLOCKS} blocks"),
            InvalidProgram::Edge(block) => write!(out, "block {}: an edge leads nowhere or the wrong way", block.0),
            InvalidProgram::Slot(block) => {
                write!(out, "block {}: scratch memory has {MEMORY_WORDS} words only", block.0)
            }
            InvalidProgram::DivisionByZero(block) => write!(out, "block {}: division by the constant 0", block.0),
            InvalidProgram::Shift(block) => write!(out, "block {}: shift by a constant of 32 or more", block.0),
        }
    }
}

impl std::error::Error for InvalidProgram {}

impl Program {
    /// Checks the rules: edges, memory slots, constant divisors and shifts.
    pub fn new(blocks: Vec<Block>) -> Result<Program, InvalidProgram> {
        if blocks.is_empty() {
            return Err(InvalidProgram::Empty);
        }
        if blocks.len() > MAX_BLOCKS {
            return Err(InvalidProgram::TooLong);
        }
        for (id, block) in (0u16..).map(BlockId).zip(&blocks) {
            block.steps.iter().try_for_each(|step| check_step(id, step))?;
            let forward = |to: BlockId| to > id && to.index() < blocks.len();
            let sound = match block.end {
                End::Return(_) | End::ReturnA => true,
                End::Jump(to) => forward(to),
                End::Repeat(to) => to <= id,
                End::Branch { yes, no, .. } => forward(yes) && forward(no),
            };
            if !sound {
                return Err(InvalidProgram::Edge(id));
            }
        }
        Ok(Program { blocks })
    }

    /// The program that returns `length` for every packet.
    pub fn constant(length: u32) -> Program {
        Program { blocks: vec![Block { steps: Vec::new(), end: End::Return(length) }] }
    }

    /// A program that runs only the first `blocks`, and passes a packet where this one would continue. So it passes
    /// every packet that this one passes. If those blocks reject nothing, it is the program that passes everything.
    #[must_use]
    pub fn beginning(&self, blocks: usize) -> Program {
        let pass = blocks.min(self.blocks.len());
        let refuse = pass + 1;
        let mut refuses = false;
        let mut moved = |mut to: BlockId| {
            loop {
                match &self.blocks[to.index()] {
                    _ if to.index() < pass => return to,
                    Block { steps, end: End::Jump(on) } if steps.is_empty() => to = *on,
                    Block { steps, end: End::Return(0) } if steps.is_empty() => {
                        refuses = true;
                        return BlockId(refuse as u16);
                    }
                    _ => return BlockId(pass as u16),
                }
            }
        };
        let mut begins: Vec<Block> = Vec::with_capacity(refuse + 1);
        for Block { steps, end } in &self.blocks[..pass] {
            let end = match *end {
                End::Jump(to) => End::Jump(moved(to)),
                End::Branch { test, operand, yes, no } => End::Branch { test, operand, yes: moved(yes), no: moved(no) },
                End::Repeat(_) => End::Return(crate::ir::WHOLE),
                end @ (End::Return(_) | End::ReturnA) => end,
            };
            begins.push(Block { steps: steps.clone(), end });
        }
        if !refuses && begins.iter().all(|block| block.end != End::Return(0)) {
            return Program::constant(crate::ir::WHOLE);
        }
        begins.extend([crate::ir::WHOLE, 0].map(|length| Block { steps: Vec::new(), end: End::Return(length) }));
        Program { blocks: begins }
    }

    /// Passes packets that both programs pass, with the verdict of `other`. `other` runs only on packets that this one passes.
    pub fn and_then(&self, other: &Program) -> Result<Program, InvalidProgram> {
        let clear = Block {
            // Reset the registers, and the memory that `other` reads before it writes it.
            steps: {
                let mut steps = vec![Step::LoadA(Value::Constant(0))];
                let slots = other.blocks.iter().flat_map(|block| &block.steps).filter_map(|step| match step {
                    Step::LoadA(Value::Memory(slot)) | Step::LoadX(Index::Memory(slot)) => Some(*slot),
                    _ => None,
                });
                let slots: std::collections::BTreeSet<u8> = slots.collect();
                steps.extend(slots.into_iter().map(Step::StoreA));
                steps.push(Step::LoadX(Index::Constant(0)));
                steps
            },
            end: End::Jump(BlockId(0)),
        };
        let first = self.blocks.len();
        let moved =
            |id: BlockId, by: usize| u16::try_from(id.index() + by).map(BlockId).map_err(|_| InvalidProgram::TooLong);
        let clear_at = moved(BlockId(0), first)?;
        // The block for a rejection by a verdict in A. `other` follows it.
        let refuse_at = moved(BlockId(0), first + 1)?;
        let second = first + 2;
        let mut blocks = Vec::with_capacity(second + other.blocks.len());
        for block in &self.blocks {
            let end = match block.end {
                End::Return(0) => End::Return(0),
                End::Return(_) => End::Jump(clear_at),
                End::ReturnA => {
                    End::Branch { test: Test::Equal, operand: Operand::Constant(0), yes: refuse_at, no: clear_at }
                }
                end => end,
            };
            blocks.push(Block { steps: block.steps.clone(), end });
        }
        blocks.push(Block { end: End::Jump(moved(BlockId(0), second)?), ..clear });
        blocks.push(Block { steps: Vec::new(), end: End::Return(0) });
        for block in &other.blocks {
            let end = match block.end {
                End::Jump(to) => End::Jump(moved(to, second)?),
                End::Repeat(to) => End::Repeat(moved(to, second)?),
                End::Branch { test, operand, yes, no } => {
                    End::Branch { test, operand, yes: moved(yes, second)?, no: moved(no, second)? }
                }
                end => end,
            };
            blocks.push(Block { steps: block.steps.clone(), end });
        }
        Program::new(blocks)
    }

    /// The blocks in order of execution, the entry first. Never empty.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether there is a backward edge. The kernel's classic BPF and a plain forward generator cannot handle one.
    pub fn repeats(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.end, End::Repeat(_)))
    }

    /// The verdict, if it is the same for every packet. 0: the filter passes no packet.
    pub fn always(&self) -> Option<u32> {
        match self.blocks.as_slice() {
            [Block { steps, end: End::Return(length) }] if steps.is_empty() => Some(*length),
            _ => None,
        }
    }
}

fn check_step(id: BlockId, step: &Step) -> Result<(), InvalidProgram> {
    match *step {
        Step::LoadA(Value::Memory(slot))
        | Step::LoadX(Index::Memory(slot))
        | Step::StoreA(slot)
        | Step::StoreX(slot)
            if usize::from(slot) >= MEMORY_WORDS =>
        {
            Err(InvalidProgram::Slot(id))
        }
        Step::Arithmetic(Operation::Divide | Operation::Modulo, Operand::Constant(0)) => {
            Err(InvalidProgram::DivisionByZero(id))
        }
        Step::Arithmetic(Operation::ShiftLeft | Operation::ShiftRight, Operand::Constant(32..)) => {
            Err(InvalidProgram::Shift(id))
        }
        _ => Ok(()),
    }
}

/// The return value of an expression's program for a passing packet: more bytes than any packet has.
pub const WHOLE: u32 = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: Vec<Block>, expected: Result<(), InvalidProgram>) {
        assert_eq!(Program::new(blocks.clone()).map(|_| ()), expected, "{blocks:?}");
    }

    fn block(steps: &[Step], end: End) -> Block {
        Block { steps: steps.to_vec(), end }
    }

    #[test]
    fn rules() {
        let done = || block(&[], End::Return(0));
        let jump = |to| block(&[], End::Jump(BlockId(to)));
        let branch = |yes, no| {
            let (yes, no) = (BlockId(yes), BlockId(no));
            block(&[], End::Branch { test: Test::Equal, operand: Operand::X, yes, no })
        };
        check(vec![], Err(InvalidProgram::Empty));
        check(vec![done()], Ok(()));
        check(vec![jump(1), done()], Ok(()));
        check(vec![jump(0)], Err(InvalidProgram::Edge(BlockId(0))));
        check(vec![jump(2), done()], Err(InvalidProgram::Edge(BlockId(0))));
        check(vec![branch(1, 1), done()], Ok(()));
        check(vec![branch(1, 0), done()], Err(InvalidProgram::Edge(BlockId(0))));
        check(vec![block(&[], End::Repeat(BlockId(0)))], Ok(()));
        check(vec![block(&[], End::Repeat(BlockId(1))), done()], Err(InvalidProgram::Edge(BlockId(0))));
        check(vec![block(&[Step::StoreX(15)], End::Return(0))], Ok(()));
        check(vec![block(&[Step::StoreX(16)], End::Return(0))], Err(InvalidProgram::Slot(BlockId(0))));
        check(
            vec![jump(1), block(&[Step::LoadA(Value::Memory(16))], End::ReturnA)],
            Err(InvalidProgram::Slot(BlockId(1))),
        );
        let arithmetic = |operation, k| vec![block(&[Step::Arithmetic(operation, Operand::Constant(k))], End::ReturnA)];
        check(arithmetic(Operation::Modulo, 0), Err(InvalidProgram::DivisionByZero(BlockId(0))));
        check(arithmetic(Operation::ShiftLeft, 32), Err(InvalidProgram::Shift(BlockId(0))));
        check(arithmetic(Operation::ShiftRight, 31), Ok(()));
        check(vec![done(); MAX_BLOCKS + 1], Err(InvalidProgram::TooLong));
    }

    #[test]
    fn reach_is_the_furthest_fixed_load() {
        let steps = [
            Step::LoadA(Value::Packet { size: Size::Half, offset: 12 }),
            Step::LoadX(Index::HeaderLength(14)),
            Step::LoadA(Value::Indexed { size: Size::Word, offset: 400 }),
        ];
        assert_eq!(block(&steps, End::ReturnA).reach(), 15);
        assert_eq!(
            block(&[Step::LoadA(Value::Packet { size: Size::Word, offset: u32::MAX })], End::ReturnA).reach(),
            u64::from(u32::MAX) + 4
        );
    }

    #[test]
    fn what_a_programs_beginning_refuses_the_whole_program_refuses() {
        use crate::Interpreter;
        use crate::cbpf::Instruction;
        // The first byte is 1, and the second is not one of 1 to 8.
        let line = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let mut lines = vec![line(0x30, 0, 0, 0), line(0x15, 0, 10, 1), line(0x30, 0, 0, 1)];
        lines.extend((1..9).map(|value| line(0x15, 8 - value as u8 + 1, 0, value)));
        lines.extend([line(0x06, 0, 0, 7), line(0x06, 0, 0, 0)]);
        let program = crate::from_cbpf(&lines).unwrap();
        let run = |program: &Program, packet: &[u8]| Interpreter::new(program).run(packet, packet.len() as u32) != 0;
        for blocks in 0..program.blocks().len() + 3 {
            let beginning = Program::new(program.beginning(blocks).blocks().to_vec()).expect("it is a program");
            for first in 0..3u8 {
                for second in 0..10u8 {
                    let (whole, begins) = (run(&program, &[first, second]), run(&beginning, &[first, second]));
                    assert!(begins || !whole, "{blocks} of {first} {second}");
                    assert_eq!(
                        begins,
                        whole || blocks == 0 || first == 1 && usize::from(second) >= blocks,
                        "{blocks}: {first} {second}"
                    );
                }
            }
        }
        assert_eq!(program.beginning(0).always(), Some(crate::ir::WHOLE));
    }

    #[test]
    fn both_pass_what_each_passes() {
        use crate::Interpreter;
        let byte = |at, value| {
            let load = Step::LoadA(Value::Packet { size: Size::Byte, offset: at });
            let (yes, no) = (BlockId(1), BlockId(2));
            let end = End::Branch { test: Test::Equal, operand: Operand::Constant(value), yes, no };
            let blocks = vec![block(&[load], end), block(&[], End::Return(9)), block(&[], End::Return(0))];
            Program::new(blocks).unwrap()
        };
        // Its verdict is the byte itself, and it leaves registers and memory changed.
        let dirty = Program::new(vec![block(
            &[Step::LoadA(Value::Packet { size: Size::Byte, offset: 2 }), Step::StoreA(3), Step::CopyAToX],
            End::ReturnA,
        )]);
        let reads = Program::new(vec![block(
            &[
                Step::LoadA(Value::Memory(3)),
                Step::Arithmetic(Operation::Or, Operand::X),
                Step::Arithmetic(Operation::Add, Operand::Constant(5)),
            ],
            End::ReturnA,
        )]);
        let (dirty, reads) = (dirty.unwrap(), reads.unwrap());
        for packet in [[1, 2, 3], [1, 3, 3], [0, 2, 3], [1, 2, 0]] {
            let both = Interpreter::new(&byte(0, 1).and_then(&byte(1, 2)).unwrap());
            assert_eq!(both.run(&packet, 3), if packet[..2] == [1, 2] { 9 } else { 0 });
            let after = Interpreter::new(&dirty.and_then(&reads).unwrap());
            assert_eq!(after.run(&packet, 3), if packet[2] != 0 { 5 } else { 0 });
        }
        assert_eq!(Program::constant(0).and_then(&byte(0, 1)).map(|both| Interpreter::new(&both).run(&[1], 1)), Ok(0));
    }

    #[test]
    fn always() {
        assert_eq!(Program::constant(7).always(), Some(7));
        let reads = block(&[Step::LoadA(Value::Packet { size: Size::Byte, offset: 0 })], End::Return(7));
        assert_eq!(Program::new(vec![reads]).unwrap().always(), None, "an empty packet gives 0");
    }
}
