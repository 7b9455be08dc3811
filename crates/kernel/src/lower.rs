//! Translates one filter program to eBPF, over a copy of the packet's first bytes as they were on the wire.
//!
//! The copy has [`HEAD_BYTES`] in this processor's part of a map, with a stripped tag back in its place. So loads work
//! as in a capture file, in whatever form the kernel keeps the packet: an address in the map, and a comparison with the
//! available bytes. A helper loads bytes behind the copy, at most four at a time. The semantics are those of
//! [`program::Interpreter`], and tests compare the two.
//!
//! | register | contents |
//! |---|---|
//! | `R6` | the packet's context |
//! | `R7` | the copy, followed by [`facts`] |
//! | `R8`, `R9` | A and X |
//! | `R0` to `R5` | scratch |

use crate::code::{Alu, Code, Compare, Label, Register, Width};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9};
use program::ir::{Block, BlockId, End, Index, MEMORY_WORDS, Operand, Operation, Program, Size, Step, Test, Value};
use program::joint::Key;

/// Bytes of a packet that are copied before any test: enough for Ethernet, two tags, IPv6 and TCP, or a long IPv4
/// header and ports. Copying 128 takes 9 ns more (BENCHMARKS.md).
pub const HEAD_BYTES: u32 = 96;

/// Places behind the copy, 64 bits each.
///
/// The programs do not use the stack. The verifier would track every value there through all later code; with this memory,
/// all paths to an instruction look alike to it. Also, for a program with guards against speculation (without CAP_PERFMON),
/// the first store to each stack slot waits for all earlier loads. That took up to 57 ns of a long packet (BENCHMARKS.md).
pub mod facts {
    use super::HEAD_BYTES;
    use program::ir::MEMORY_WORDS;
    /// Bytes in the copy.
    pub const HEAD: i16 = HEAD_BYTES as i16;
    /// Bytes on the wire.
    pub const WIRE: i16 = HEAD + 8;
    /// Bytes that were put back into the copy and that the kernel's packet lacks.
    pub const SHIFT: i16 = HEAD + 16;
    /// Bits of the expressions that want the packet.
    pub const WANTED: i16 = HEAD + 24;
    /// Bytes to write to the ring.
    pub const LEN: i16 = HEAD + 32;
    /// The packet's number.
    pub const NUMBER: i16 = HEAD + 40;
    /// The position of its bytes in the ring.
    pub const POS: i16 = HEAD + 48;
    /// Arguments and results of helpers.
    pub const SCRATCH: i16 = HEAD + 56;
    /// The program's scratch memory, a word each.
    pub const MEMORY: i16 = HEAD + 64;
    /// Bytes of the copy and all of these: the distance between two processors' parts.
    pub const BYTES: u32 = (MEMORY as u32 + 4 * MEMORY_WORDS as u32).next_power_of_two();
}

/// Why a program cannot run in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It jumps back: only `ip6 protochain` does.
    Repeats,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Repeats => {
                f.write_str("`protochain` follows a chain of headers, which programs in the kernel may not")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The entry into a program: its first block without knowledge, or a later block.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The block.
    pub at: BlockId,
    /// The number in A. `None`: A is 0.
    pub a: Option<Key>,
    /// The least number of bytes in the copy.
    pub known: u32,
}

impl Entry {
    /// The beginning of a program.
    pub const START: Entry = Entry { at: BlockId(0), a: None, known: 0 };
}

/// Loads a number from the copy into A. The caller has checked that it is there.
pub fn load_key(code: &mut Code, key: Key) {
    load_number(code, key.size, R8, R7, key.offset as i16);
    if key.mask != u32::MAX {
        code.alu_32(Alu::And, R8, key.mask);
    }
}

/// Adds a program. It jumps to `accept` if it keeps the packet, else to `reject`.
pub fn lower(code: &mut Code, program: &Program, entry: Entry, accept: Label, reject: Label) -> Result<(), Refusal> {
    if program.repeats() {
        return Err(Refusal::Repeats);
    }
    let (blocks, known) = reachable(program.blocks(), entry);
    if uses(&blocks, |step| matches!(step, Step::LoadA(Value::Memory(_)) | Step::LoadX(Index::Memory(_)))) {
        for word in 0..MEMORY_WORDS as i16 / 2 {
            code.store_constant(Width::Eight, R7, facts::MEMORY + 8 * word, 0);
        }
    }
    // The verifier requires initialised registers. Most programs write them first.
    match entry.a {
        None => code.set(R8, 0),
        Some(key) => load_key(code, key),
    }
    code.set(R9, 0);
    let looks = if looks_near(program.blocks(), entry) { Looks::Near } else { Looks::Anywhere };
    let labels: Vec<Label> = known.iter().map(|_| code.label()).collect();
    for ((block, label), known) in program.blocks().iter().zip(&labels).zip(known) {
        code.place(*label);
        let Some(known) = known else { continue };
        let reach = block.reach();
        if reach > u64::from(known) {
            // Bytes missing from the copy, within its length, are missing from the packet, too.
            let inside = reach.min(HEAD_BYTES.into()) as u32;
            if inside > known {
                code.load(Width::Eight, R1, R7, facts::HEAD);
                code.jump_if(Compare::Less, R1, inside as i32, reject);
            }
        }
        for step in &block.steps {
            add_step(code, *step, looks, reject);
        }
        match block.end {
            End::Return(0) => code.jump(reject),
            End::Return(_) => code.jump(accept),
            End::ReturnA => {
                code.jump_if_32(Compare::Equal, R8, 0, reject);
                code.jump(accept);
            }
            End::Jump(to) => code.jump(labels[to.index()]),
            End::Repeat(_) => return Err(Refusal::Repeats),
            End::Branch { test, operand, yes, no } => {
                let compare = match test {
                    Test::Equal => Compare::Equal,
                    Test::Greater => Compare::Greater,
                    Test::AtLeast => Compare::AtLeast,
                    Test::AnyBit => Compare::AnyBit,
                };
                match operand {
                    Operand::Constant(constant) => code.jump_if_32(compare, R8, constant, labels[yes.index()]),
                    Operand::X => code.jump_if_32_register(compare, R8, R9, labels[yes.index()]),
                }
                code.jump(labels[no.index()]);
            }
        }
    }
    Ok(())
}

fn uses(blocks: &[&Block], what: impl Fn(&Step) -> bool) -> bool {
    blocks.iter().any(|block| block.steps.iter().any(&what))
}

/// The reachable blocks, and for each block the least number of bytes that every path to it has checked. `None`: the
/// block is unreachable.
fn reachable(blocks: &[Block], entry: Entry) -> (Vec<&Block>, Vec<Option<u32>>) {
    let mut known: Vec<Option<u32>> = vec![None; blocks.len()];
    known[entry.at.index()] = Some(entry.known);
    for (at, block) in blocks.iter().enumerate() {
        // Edges lead to later blocks, so all paths to this one are done.
        let Some(before) = known[at] else { continue };
        let after = before.max(block.reach().min(HEAD_BYTES.into()) as u32);
        for to in block.end.successors() {
            let there = &mut known[to.index()];
            *there = Some(there.map_or(after, |there| there.min(after)));
        }
    }
    let there = blocks.iter().zip(&known).filter(|(_, known)| known.is_some());
    (there.map(|(block, _)| block).collect(), known)
}

/// Where a program's loads relative to X look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// Behind an IPv4 header, within the copy. X holds only that, so it has the same bounds on every path.
    Near,
    /// Anywhere. With guards against speculation, the verifier refuses a program that adds a register to a pointer with
    /// different bounds on different paths.
    Anywhere,
}

/// The longest header whose length X can hold.
const HEADER_MAX: u64 = 60;

fn looks_near(blocks: &[Block], entry: Entry) -> bool {
    // By block: whether X holds a header length on all paths.
    let mut told: Vec<Option<bool>> = vec![None; blocks.len()];
    told[entry.at.index()] = Some(false);
    for (at, block) in blocks.iter().enumerate() {
        let Some(mut is_told) = told[at] else { continue };
        for step in &block.steps {
            match step {
                Step::LoadX(Index::HeaderLength(_)) => is_told = true,
                Step::LoadX(_) | Step::CopyAToX => is_told = false,
                // A comparison of A would also narrow X.
                Step::CopyXToA => return false,
                Step::LoadA(Value::Indexed { size, offset }) => {
                    let end = u64::from(*offset) + u64::from(size.bytes()) + HEADER_MAX;
                    if !is_told || end > u64::from(HEAD_BYTES) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        if matches!(block.end, End::Branch { operand: Operand::X, .. }) {
            return false;
        }
        for to in block.end.successors() {
            let there = &mut told[to.index()];
            *there = Some(there.is_none_or(|there| there) && is_told);
        }
    }
    true
}

fn memory(slot: u8) -> i16 {
    facts::MEMORY + 4 * i16::from(slot)
}

fn width(size: Size) -> Width {
    match size {
        Size::Byte => Width::One,
        Size::Half => Width::Two,
        Size::Word => Width::Four,
    }
}

fn load_number(code: &mut Code, size: Size, to: Register, from: Register, offset: i16) {
    code.load(width(size), to, from, offset);
    match size {
        Size::Byte => {}
        Size::Half => code.big_endian(to, 16),
        Size::Word => code.big_endian(to, 32),
    }
}

fn add_step(code: &mut Code, step: Step, looks: Looks, reject: Label) {
    match step {
        Step::LoadA(Value::Constant(constant)) => code.alu_32(Alu::Move, R8, constant),
        Step::LoadA(Value::Packet { size, offset }) => {
            if offset + size.bytes() <= HEAD_BYTES {
                load_number(code, size, R8, R7, offset as i16);
            } else {
                fetch_fixed(code, size, offset, R8, reject);
            }
        }
        Step::LoadA(Value::Indexed { size, offset }) => fetch_indexed(code, size, offset, looks, reject),
        Step::LoadA(Value::WireLength) => code.load(Width::Four, R8, R7, facts::WIRE),
        Step::LoadA(Value::Memory(slot)) => code.load(Width::Four, R8, R7, memory(slot)),
        Step::LoadX(Index::Constant(constant)) => code.alu_32(Alu::Move, R9, constant),
        Step::LoadX(Index::HeaderLength(offset)) => {
            if offset < HEAD_BYTES {
                code.load(Width::One, R9, R7, offset as i16);
            } else {
                fetch_fixed(code, Size::Byte, offset, R9, reject);
            }
            code.alu_32(Alu::And, R9, 0xf);
            code.alu_32(Alu::ShiftLeft, R9, 2);
        }
        Step::LoadX(Index::WireLength) => code.load(Width::Four, R9, R7, facts::WIRE),
        Step::LoadX(Index::Memory(slot)) => code.load(Width::Four, R9, R7, memory(slot)),
        Step::StoreA(slot) => code.store(Width::Four, R7, memory(slot), R8),
        Step::StoreX(slot) => code.store(Width::Four, R7, memory(slot), R9),
        Step::Arithmetic(operation, operand) => arithmetic(code, operation, operand, reject),
        Step::Negate => code.alu_32(Alu::Negate, R8, 0),
        Step::CopyAToX => code.alu_32_register(Alu::Move, R9, R8),
        Step::CopyXToA => code.alu_32_register(Alu::Move, R8, R9),
    }
}

/// The longest packet. Loads beyond it fail without a call.
const FURTHEST: u32 = 0xffff;

/// Loads from a fixed offset that is at least partly behind the copy.
fn fetch_fixed(code: &mut Code, size: Size, offset: u32, to: Register, reject: Label) {
    if offset > FURTHEST {
        return code.jump(reject);
    }
    code.set(R2, offset as i32);
    fetch(code, size, to, reject);
}

/// Loads from X + offset, without wrap-around.
fn fetch_indexed(code: &mut Code, size: Size, offset: u32, looks: Looks, reject: Label) {
    let (behind, done) = (code.label(), code.label());
    if offset > FURTHEST {
        return code.jump(reject);
    }
    code.alu_32_register(Alu::Move, R2, R9);
    code.alu(Alu::Add, R2, offset as i32);
    code.jump_if(Compare::Greater, R2, FURTHEST as i32, reject);
    if offset > HEAD_BYTES - size.bytes() {
        // Always behind the copy. A useless check would do harm: the verifier explores the impossible path as
        // speculation, and before Linux 6.17 refuses the program.
        return fetch(code, size, R8, reject);
    }
    let last = (HEAD_BYTES - size.bytes()) as i32;
    // If the program looks near, this never jumps: all bytes are in the copy.
    code.jump_if(Compare::Greater, R2, last, if looks == Looks::Near { reject } else { behind });
    if looks == Looks::Anywhere {
        // A loaded value has the same bounds on every path.
        code.store(Width::Eight, R7, facts::SCRATCH, R2);
        code.load(Width::One, R2, R7, facts::SCRATCH);
        code.jump_if(Compare::Greater, R2, last, reject);
    }
    // Bytes missing from the copy are missing from the packet.
    code.copy(R3, R2);
    code.alu(Alu::Add, R3, size.bytes() as i32);
    code.load(Width::Eight, R1, R7, facts::HEAD);
    code.jump_if_register(Compare::Greater, R3, R1, reject);
    code.copy(R1, R7);
    code.alu_register(Alu::Add, R1, R2);
    load_number(code, size, R8, R1, 0);
    code.jump(done);
    code.place(behind);
    fetch(code, size, R8, reject);
    code.place(done);
}

/// Calls the helper to load from the offset in `R2`. The offset counts on the wire, and lies behind a tag that was put back.
fn fetch(code: &mut Code, size: Size, to: Register, reject: Label) {
    code.load(Width::Eight, R1, R7, facts::SHIFT);
    code.alu_register(Alu::Subtract, R2, R1);
    code.copy(R1, R6);
    code.copy(R3, R7);
    code.alu(Alu::Add, R3, facts::SCRATCH.into());
    code.set(R4, size.bytes() as i32);
    code.load_bytes();
    code.jump_if(Compare::NotEqual, R0, 0, reject);
    load_number(code, size, to, R7, facts::SCRATCH);
}

fn arithmetic(code: &mut Code, operation: Operation, operand: Operand, reject: Label) {
    let alu = match operation {
        Operation::Add => Alu::Add,
        Operation::Subtract => Alu::Subtract,
        Operation::Multiply => Alu::Multiply,
        Operation::Divide => Alu::Divide,
        Operation::Modulo => Alu::Modulo,
        Operation::And => Alu::And,
        Operation::Or => Alu::Or,
        Operation::Xor => Alu::Xor,
        Operation::ShiftLeft => Alu::ShiftLeft,
        Operation::ShiftRight => Alu::ShiftRight,
    };
    match (operation, operand) {
        // Constants were checked: no division by 0, no shift that is too large.
        (_, Operand::Constant(constant)) => code.alu_32(alu, R8, constant),
        (Operation::Divide | Operation::Modulo, Operand::X) => {
            code.jump_if_32(Compare::Equal, R9, 0, reject);
            code.alu_32_register(alu, R8, R9);
        }
        (Operation::ShiftLeft | Operation::ShiftRight, Operand::X) => {
            let (shift, done) = (code.label(), code.label());
            code.jump_if_32(Compare::Less, R9, 32, shift);
            code.alu_32(Alu::Move, R8, 0);
            code.jump(done);
            code.place(shift);
            code.alu_32_register(alu, R8, R9);
            code.place(done);
        }
        (_, Operand::X) => code.alu_32_register(alu, R8, R9),
    }
}
