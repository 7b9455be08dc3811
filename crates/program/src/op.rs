//! Steps on registers as the interpreter runs them: [`Step`] with its nested choices flattened, so that one jump selects.

use crate::ir::{Index, MEMORY_WORDS, Operand, Operation, Size, Step, Value};
use crate::symbol::{header_length, load};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Constant(u32),
    Byte(u32),
    Half(u32),
    Word(u32),
    IndexedByte(u32),
    IndexedHalf(u32),
    IndexedWord(u32),
    WireLength,
    Memory(u8),
    XConstant(u32),
    XHeaderLength(u32),
    XWireLength,
    XMemory(u8),
    Store(u8),
    StoreX(u8),
    CopyAToX,
    CopyXToA,
    Add(u32),
    And(u32),
    ShiftLeft(u32),
    ShiftRight(u32),
    AddX,
    SubtractX,
    /// Rare: other arithmetic with a constant.
    Arithmetic(Operation, u32),
    /// Rare: other arithmetic with X.
    ArithmeticX(Operation),
}

impl Op {
    pub(crate) fn new(step: Step) -> Op {
        match step {
            Step::LoadA(Value::Constant(value)) => Op::Constant(value),
            Step::LoadA(Value::Packet { size: Size::Byte, offset }) => Op::Byte(offset),
            Step::LoadA(Value::Packet { size: Size::Half, offset }) => Op::Half(offset),
            Step::LoadA(Value::Packet { size: Size::Word, offset }) => Op::Word(offset),
            Step::LoadA(Value::Indexed { size: Size::Byte, offset }) => Op::IndexedByte(offset),
            Step::LoadA(Value::Indexed { size: Size::Half, offset }) => Op::IndexedHalf(offset),
            Step::LoadA(Value::Indexed { size: Size::Word, offset }) => Op::IndexedWord(offset),
            Step::LoadA(Value::WireLength) => Op::WireLength,
            Step::LoadA(Value::Memory(slot)) => Op::Memory(slot),
            Step::LoadX(Index::Constant(value)) => Op::XConstant(value),
            Step::LoadX(Index::HeaderLength(offset)) => Op::XHeaderLength(offset),
            Step::LoadX(Index::WireLength) => Op::XWireLength,
            Step::LoadX(Index::Memory(slot)) => Op::XMemory(slot),
            Step::StoreA(slot) => Op::Store(slot),
            Step::StoreX(slot) => Op::StoreX(slot),
            Step::CopyAToX => Op::CopyAToX,
            Step::CopyXToA => Op::CopyXToA,
            // -A is A times -1, modulo 2^32.
            Step::Negate => Op::Arithmetic(Operation::Multiply, u32::MAX),
            Step::Arithmetic(Operation::Add, Operand::Constant(value)) => Op::Add(value),
            Step::Arithmetic(Operation::And, Operand::Constant(value)) => Op::And(value),
            Step::Arithmetic(Operation::ShiftLeft, Operand::Constant(value)) => Op::ShiftLeft(value),
            Step::Arithmetic(Operation::ShiftRight, Operand::Constant(value)) => Op::ShiftRight(value),
            Step::Arithmetic(operation, Operand::Constant(value)) => Op::Arithmetic(operation, value),
            Step::Arithmetic(Operation::Add, Operand::X) => Op::AddX,
            Step::Arithmetic(Operation::Subtract, Operand::X) => Op::SubtractX,
            Step::Arithmetic(operation, Operand::X) => Op::ArithmeticX(operation),
        }
    }
}

/// Runs steps on A, X and scratch memory. Returns the new A and X; `None` ends the run with 0.
#[inline(always)]
pub(crate) fn run(
    ops: &[Op],
    (mut a, mut x): (u32, u32),
    memory: &mut [u32; MEMORY_WORDS],
    packet: &[u8],
    wire_len: u32,
) -> Option<(u32, u32)> {
    for op in ops {
        match *op {
            Op::Constant(value) => a = value,
            Op::Byte(offset) => a = load(packet, 0, Size::Byte, offset)?,
            Op::Half(offset) => a = load(packet, 0, Size::Half, offset)?,
            Op::Word(offset) => a = load(packet, 0, Size::Word, offset)?,
            Op::IndexedByte(offset) => a = load(packet, x, Size::Byte, offset)?,
            Op::IndexedHalf(offset) => a = load(packet, x, Size::Half, offset)?,
            Op::IndexedWord(offset) => a = load(packet, x, Size::Word, offset)?,
            Op::WireLength => a = wire_len,
            Op::Memory(slot) => a = *memory.get(usize::from(slot))?,
            Op::XConstant(value) => x = value,
            Op::XHeaderLength(offset) => x = header_length(packet, offset)?,
            Op::XWireLength => x = wire_len,
            Op::XMemory(slot) => x = *memory.get(usize::from(slot))?,
            Op::Store(slot) => *memory.get_mut(usize::from(slot))? = a,
            Op::StoreX(slot) => *memory.get_mut(usize::from(slot))? = x,
            Op::CopyAToX => x = a,
            Op::CopyXToA => a = x,
            Op::Add(value) => a = a.wrapping_add(value),
            Op::And(value) => a &= value,
            Op::ShiftLeft(value) => a = a.checked_shl(value).unwrap_or(0),
            Op::ShiftRight(value) => a = a.checked_shr(value).unwrap_or(0),
            Op::AddX => a = a.wrapping_add(x),
            Op::SubtractX => a = a.wrapping_sub(x),
            Op::Arithmetic(operation, value) => a = operation.apply(a, value)?,
            Op::ArithmeticX(operation) => a = operation.apply(a, x)?,
        }
    }
    Some((a, x))
}
