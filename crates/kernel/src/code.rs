//! Assembles eBPF instructions with labels (Documentation/bpf/standardization/instruction-set.rst). Not a compiler: the
//! caller assigns registers; this file computes jumps, and drops unreachable code.

use std::os::fd::{AsRawFd, BorrowedFd};

pub use bpf::Instruction;

/// Whether this is a call of a helper.
pub fn is_call(instruction: &Instruction) -> bool {
    instruction.code == CALL
}

/// Whether this is a multiplication, division or modulo.
pub fn is_product(instruction: &Instruction) -> bool {
    let products = [Alu::Multiply, Alu::Divide, Alu::Modulo].map(|operation| operation as u8);
    [ALU32, ALU64].contains(&(instruction.code & 0x07)) && products.contains(&(instruction.code & 0xf0))
}

/// A register. `R0` holds a call's result; `R1` to `R5` are its arguments and do not survive it; `R6` to `R9` survive.
/// There is one more, the end of the stack, which these programs do not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// The bytes that a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Width {
    Four = 0x00,
    Two = 0x08,
    One = 0x10,
    Eight = 0x18,
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Alu {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Divide = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Negate = 0x80,
    Modulo = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
}

/// Comparisons. All but the last are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Compare {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    AtMost = 0xb0,
    SignedLess = 0xc0,
}

/// An atomic operation. Each returns the previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Atomic {
    FetchAdd = 0x01,
    FetchAnd = 0x51,
    Exchange = 0xe1,
}

/// Helper functions of the kernel (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    SmpProcessorId = 8,
    #[default]
    SkbLoadBytes = 26,
    RedirectMap = 51,
    RingbufOutput = 130,
    XdpBufferLength = 188,
    XdpLoadBytes = 189,
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(usize);

#[derive(Clone, Copy, Debug)]
struct Jump {
    at: usize,
    to: Label,
}

/// Code under construction.
#[derive(Debug, Default)]
pub struct Code {
    load_bytes: Helper,
    instructions: Vec<Instruction>,
    jumps: Vec<Jump>,
    /// By label: the index of the instruction after it.
    labels: Vec<Option<usize>>,
}

const ALU64: u8 = 0x07;
const ALU32: u8 = 0x04;
const JMP64: u8 = 0x05;
const JMP32: u8 = 0x06;
const FROM_REGISTER: u8 = 0x08;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_CONSTANT: u8 = 0x62;
const ATOMIC_64: u8 = 0xdb;
const LOAD_64: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_FAR: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAP_FD: u8 = 1;
const MAP_VALUE: u8 = 2;

/// Why no code could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// A conditional jump reaches too far.
    TooFar,
    /// A label was never placed: a bug in the code's author.
    NoPlace,
}

impl std::fmt::Display for CodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CodeError::TooFar => "the expressions together make a program with jumps that are too long",
            CodeError::NoPlace => "the program has a jump to nowhere",
        })
    }
}

impl std::error::Error for CodeError {}

impl Code {
    /// For programs that load packet bytes with this helper. Its arguments are context, offset, memory and length.
    pub fn fetching_by(load_bytes: Helper) -> Code {
        Code { load_bytes, ..Code::default() }
    }

    /// Calls the helper that loads packet bytes. Its arguments must be in place.
    pub fn load_bytes(&mut self) {
        self.call(self.load_bytes);
    }

    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, immediate: i32) {
        let registers = to as u8 | from << 4;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// A new label, not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// to = from, 64 bits.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.push(ALU64 | FROM_REGISTER | Alu::Move as u8, to, from as u8, 0, 0);
    }

    /// to = constant, sign-extended.
    pub fn set(&mut self, to: Register, constant: i32) {
        self.push(ALU64 | Alu::Move as u8, to, 0, 0, constant);
    }

    /// to = constant, 64 bits.
    pub fn set_64(&mut self, to: Register, constant: u64) {
        self.push(LOAD_64, to, 0, 0, constant as i32);
        self.push(0, Register::R0, 0, 0, (constant >> 32) as i32);
    }

    /// to = the map itself, as an argument for helpers.
    pub fn set_map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.push(LOAD_64, to, MAP_FD, 0, map.as_raw_fd());
        self.push(0, Register::R0, 0, 0, 0);
    }

    /// to = the address of `offset` in the only value of an array map.
    pub fn set_map_value(&mut self, to: Register, map: BorrowedFd<'_>, offset: u32) {
        self.push(LOAD_64, to, MAP_VALUE, 0, map.as_raw_fd());
        self.push(0, Register::R0, 0, 0, offset as i32);
    }

    /// to = to `operation` constant, 64 bits; the constant is sign-extended.
    pub fn alu(&mut self, operation: Alu, to: Register, constant: i32) {
        self.push(ALU64 | operation as u8, to, 0, 0, constant);
    }

    /// to = to `operation` from, 64 bits.
    pub fn alu_register(&mut self, operation: Alu, to: Register, from: Register) {
        self.push(ALU64 | FROM_REGISTER | operation as u8, to, from as u8, 0, 0);
    }

    /// to = to `operation` constant, 32 bits; clears the upper half.
    pub fn alu_32(&mut self, operation: Alu, to: Register, constant: u32) {
        self.push(ALU32 | operation as u8, to, 0, 0, constant.cast_signed());
    }

    /// to = to `operation` from, 32 bits; clears the upper half.
    pub fn alu_32_register(&mut self, operation: Alu, to: Register, from: Register) {
        self.push(ALU32 | FROM_REGISTER | operation as u8, to, from as u8, 0, 0);
    }

    /// Converts the low 16 or 32 bits between the packet's byte order and a number.
    pub fn big_endian(&mut self, to: Register, bits: i32) {
        self.push(TO_BIG_ENDIAN, to, 0, 0, bits);
    }

    /// to = the value at from + offset.
    pub fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(LOAD | width as u8, to, from as u8, offset, 0);
    }

    /// Stores `from` at to + offset.
    pub fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(STORE | width as u8, to, from as u8, offset, 0);
    }

    /// Stores a constant at to + offset.
    pub fn store_constant(&mut self, width: Width, to: Register, offset: i16, constant: i32) {
        self.push(STORE_CONSTANT | width as u8, to, 0, offset, constant);
    }

    /// Changes the 64 bits at to + offset, and sets `from` to the previous value.
    pub fn atomic(&mut self, operation: Atomic, to: Register, offset: i16, from: Register) {
        self.push(ATOMIC_64, to, from as u8, offset, operation as i32);
    }

    /// Jumps if the comparison holds, on 64 bits; the constant is sign-extended.
    pub fn jump_if(&mut self, compare: Compare, register: Register, constant: i32, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(JMP64 | compare as u8, register, 0, 0, constant);
    }

    /// Jumps if the comparison holds, on 64 bits.
    pub fn jump_if_register(&mut self, compare: Compare, register: Register, other: Register, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(JMP64 | FROM_REGISTER | compare as u8, register, other as u8, 0, 0);
    }

    /// Jumps if the comparison holds, on the low 32 bits.
    pub fn jump_if_32(&mut self, compare: Compare, register: Register, constant: u32, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(JMP32 | compare as u8, register, 0, 0, constant.cast_signed());
    }

    /// Jumps if the comparison holds, on the low 32 bits.
    pub fn jump_if_32_register(&mut self, compare: Compare, register: Register, other: Register, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(JMP32 | FROM_REGISTER | compare as u8, register, other as u8, 0, 0);
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push(Jump { at: self.instructions.len(), to });
        self.push(JUMP, Register::R0, 0, 0, 0);
    }

    /// Calls a helper.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, Register::R0, 0, 0, helper as i32);
    }

    /// Ends the program with the value of `R0`.
    pub fn exit(&mut self) {
        self.push(EXIT, Register::R0, 0, 0, 0);
    }

    /// Fills in the jumps, and removes unreachable instructions, which the verifier would refuse.
    pub fn finish(self) -> Result<Vec<Instruction>, CodeError> {
        let Code { instructions, jumps, labels, .. } = self;
        let mut targets: Vec<Option<usize>> = vec![None; instructions.len()];
        for Jump { at, to } in jumps {
            targets[at] = Some(labels[to.0].ok_or(CodeError::NoPlace)?);
        }
        let reached = reach(&instructions, &targets);
        // Remove an unconditional jump over unreachable code only.
        let mut keep = reached.clone();
        for at in 0..instructions.len() {
            if instructions[at].code == JUMP && keep[at] {
                let target = targets[at].ok_or(CodeError::NoPlace)?;
                if target > at && (at + 1..target).all(|between| !reached[between]) {
                    keep[at] = false;
                }
            }
        }
        let mut places = Vec::with_capacity(instructions.len() + 1);
        let mut count = 0;
        for &kept in &keep {
            places.push(count);
            count += i64::from(kept);
        }
        places.push(count);
        let mut code = Vec::with_capacity(count as usize);
        for (at, mut instruction) in instructions.into_iter().enumerate() {
            if !keep[at] {
                continue;
            }
            if let Some(target) = targets[at] {
                let distance = places[target] - places[at] - 1;
                match i16::try_from(distance) {
                    Ok(distance) => instruction.offset = distance,
                    Err(_) if instruction.code == JUMP => {
                        instruction.code = JUMP_FAR;
                        instruction.immediate = i32::try_from(distance).map_err(|_| CodeError::TooFar)?;
                    }
                    Err(_) => return Err(CodeError::TooFar),
                }
            }
            code.push(instruction);
        }
        Ok(code)
    }
}

fn reach(instructions: &[Instruction], targets: &[Option<usize>]) -> Vec<bool> {
    let mut reached = vec![false; instructions.len()];
    let mut left = vec![0];
    while let Some(at) = left.pop() {
        if at >= instructions.len() || std::mem::replace(&mut reached[at], true) {
            continue;
        }
        let code = instructions[at].code;
        left.extend(targets[at]);
        if code == LOAD_64 {
            // The second half of the instruction.
            reached[at + 1] = true;
            left.push(at + 2);
        } else if code != EXIT && code != JUMP {
            left.push(at + 1);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R0, R1};

    #[test]
    fn jumps_are_counted_and_dead_code_goes() {
        let mut code = Code::default();
        let (end, dead) = (code.label(), code.label());
        code.jump_if(Compare::Equal, R1, 0, end);
        code.set_64(R0, 1 << 40);
        code.jump(end);
        code.place(dead);
        code.set(R0, 7);
        code.place(end);
        code.exit();
        let code = code.finish().unwrap();
        assert_eq!(code.iter().map(|i| i.code).collect::<Vec<_>>(), [0x15, LOAD_64, 0, EXIT]);
        assert_eq!(code[0].offset, 2);
    }

    #[test]
    fn a_label_without_a_place_is_an_error() {
        let mut code = Code::default();
        let nowhere = code.label();
        code.jump(nowhere);
        assert_eq!(code.finish(), Err(CodeError::NoPlace));
    }
}
