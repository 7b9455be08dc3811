//! Classic BPF: instructions, the check for valid programs, and the text that `tcpdump -d` prints.
//!
//! libpcap compiles to it, and the kernel takes it for SO_ATTACH_FILTER. This file does not run it. See McCanne and
//! Jacobson, "The BSD Packet Filter" (1993), and [`lower`](mod@crate::lower) for the translation to the intermediate
//! form, whose types for values and operations this file uses.

use crate::ir::{Index, MEMORY_WORDS, Operand, Operation, Size, Step, Test, Value};
use std::fmt;

/// The longest program accepted. The kernel's own limit is 4096 (BPF_MAXINSNS). libpcap makes far longer programs of
/// long expressions, especially without optimisation.
pub const MAX_INSTRUCTIONS: usize = 262_144;

/// One instruction, laid out as `struct bpf_insn` of libpcap and `struct sock_filter` of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Instruction {
    /// Class, size, mode or operation, and kind of operand.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Constant, offset or slot.
    pub k: u32,
}

/// The meaning of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// No jump.
    Step(Step),
    /// Unconditional jump, relative to the next instruction. libpcap jumps back only for `protochain`.
    Jump(i32),
    /// Conditional jump, always forward.
    Branch {
        /// The comparison.
        test: Test,
        /// The operand that A is compared with.
        operand: Operand,
        /// Instructions to skip if it holds.
        yes: u8,
        /// Instructions to skip if it does not hold.
        no: u8,
    },
    /// End with a constant.
    Return(u32),
    /// End with A.
    ReturnA,
}

const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
/// Added to an arithmetic or jump opcode: the operand is X.
const X: u16 = 0x08;

impl Instruction {
    /// The meaning of the instruction. `None`: an unknown opcode, a slot that does not exist, or a constant that no
    /// kernel accepts (division by 0, shift of 32 or more).
    pub fn decode(self) -> Option<Meaning> {
        let k = self.k;
        let slot = || u8::try_from(k).ok().filter(|&slot| usize::from(slot) < MEMORY_WORDS);
        Some(Meaning::Step(match self.code {
            0x00 => Step::LoadA(Value::Constant(k)),
            0x20 => Step::LoadA(Value::Packet { size: Size::Word, offset: k }),
            0x28 => Step::LoadA(Value::Packet { size: Size::Half, offset: k }),
            0x30 => Step::LoadA(Value::Packet { size: Size::Byte, offset: k }),
            0x40 => Step::LoadA(Value::Indexed { size: Size::Word, offset: k }),
            0x48 => Step::LoadA(Value::Indexed { size: Size::Half, offset: k }),
            0x50 => Step::LoadA(Value::Indexed { size: Size::Byte, offset: k }),
            0x60 => Step::LoadA(Value::Memory(slot()?)),
            0x80 => Step::LoadA(Value::WireLength),
            0x01 => Step::LoadX(Index::Constant(k)),
            0x61 => Step::LoadX(Index::Memory(slot()?)),
            0x81 => Step::LoadX(Index::WireLength),
            0xb1 => Step::LoadX(Index::HeaderLength(k)),
            0x02 => Step::StoreA(slot()?),
            0x03 => Step::StoreX(slot()?),
            0x84 => Step::Negate,
            0x07 => Step::CopyAToX,
            0x87 => Step::CopyXToA,
            0x05 => return Some(Meaning::Jump(k.cast_signed())),
            0x06 => return Some(Meaning::Return(k)),
            0x16 => return Some(Meaning::ReturnA),
            code => {
                let operand = if code & X == 0 { Operand::Constant(k) } else { Operand::X };
                if code & 0x07 == JMP {
                    let test = test_of(code & !X)?;
                    return Some(Meaning::Branch { test, operand, yes: self.jt, no: self.jf });
                }
                let operation = operation_of(code & !X)?;
                match (operation, operand) {
                    (Operation::Divide | Operation::Modulo, Operand::Constant(0))
                    | (Operation::ShiftLeft | Operation::ShiftRight, Operand::Constant(32..)) => return None,
                    _ => Step::Arithmetic(operation, operand),
                }
            }
        }))
    }

    /// The instruction with this meaning.
    pub fn encode(meaning: Meaning) -> Instruction {
        let plain = |code: u16, k: u32| Instruction { code, jt: 0, jf: 0, k };
        let of = |code: u16, operand: Operand| match operand {
            Operand::Constant(k) => plain(code, k),
            Operand::X => plain(code | X, 0),
        };
        match meaning {
            Meaning::Step(step) => match step {
                Step::LoadA(Value::Constant(k)) => plain(0x00, k),
                Step::LoadA(Value::Packet { size, offset }) => plain(0x20 | size_bits(size), offset),
                Step::LoadA(Value::Indexed { size, offset }) => plain(0x40 | size_bits(size), offset),
                Step::LoadA(Value::Memory(slot)) => plain(0x60, slot.into()),
                Step::LoadA(Value::WireLength) => plain(0x80, 0),
                Step::LoadX(Index::Constant(k)) => plain(0x01, k),
                Step::LoadX(Index::Memory(slot)) => plain(0x61, slot.into()),
                Step::LoadX(Index::WireLength) => plain(0x81, 0),
                Step::LoadX(Index::HeaderLength(offset)) => plain(0xb1, offset),
                Step::StoreA(slot) => plain(0x02, slot.into()),
                Step::StoreX(slot) => plain(0x03, slot.into()),
                Step::Arithmetic(operation, operand) => of(operation_code(operation), operand),
                Step::Negate => plain(0x84, 0),
                Step::CopyAToX => plain(0x07, 0),
                Step::CopyXToA => plain(0x87, 0),
            },
            Meaning::Jump(distance) => plain(0x05, distance.cast_unsigned()),
            Meaning::Branch { test, operand, yes, no } => {
                Instruction { jt: yes, jf: no, ..of(test_code(test), operand) }
            }
            Meaning::Return(k) => plain(0x06, k),
            Meaning::ReturnA => plain(0x16, 0),
        }
    }
}

const fn size_bits(size: Size) -> u16 {
    match size {
        Size::Word => 0x00,
        Size::Half => 0x08,
        Size::Byte => 0x10,
    }
}

const fn operation_code(operation: Operation) -> u16 {
    ALU | match operation {
        Operation::Add => 0x00,
        Operation::Subtract => 0x10,
        Operation::Multiply => 0x20,
        Operation::Divide => 0x30,
        Operation::Or => 0x40,
        Operation::And => 0x50,
        Operation::ShiftLeft => 0x60,
        Operation::ShiftRight => 0x70,
        Operation::Modulo => 0x90,
        Operation::Xor => 0xa0,
    }
}

fn operation_of(code: u16) -> Option<Operation> {
    Some(match code {
        0x04 => Operation::Add,
        0x14 => Operation::Subtract,
        0x24 => Operation::Multiply,
        0x34 => Operation::Divide,
        0x44 => Operation::Or,
        0x54 => Operation::And,
        0x64 => Operation::ShiftLeft,
        0x74 => Operation::ShiftRight,
        0x94 => Operation::Modulo,
        0xa4 => Operation::Xor,
        _ => return None,
    })
}

const fn test_code(test: Test) -> u16 {
    JMP | match test {
        Test::Equal => 0x10,
        Test::Greater => 0x20,
        Test::AtLeast => 0x30,
        Test::AnyBit => 0x40,
    }
}

fn test_of(code: u16) -> Option<Test> {
    Some(match code {
        0x15 => Test::Equal,
        0x25 => Test::Greater,
        0x35 => Test::AtLeast,
        0x45 => Test::AnyBit,
        _ => return None,
    })
}

/// Why a program is invalid. Positions count instructions from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidCode {
    /// There is no instruction.
    Empty,
    /// There are more than [`MAX_INSTRUCTIONS`]. Has their number.
    TooLong(usize),
    /// An instruction that no kernel accepts, see [`Instruction::decode`].
    Instruction(usize, Instruction),
    /// A jump past the end, before the start, or forever to itself.
    Jump(usize),
    /// The last instruction does not return.
    NoReturn,
}

impl fmt::Display for InvalidCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InvalidCode::Empty => out.write_str("a filter program without instructions"),
            InvalidCode::TooLong(count) => {
                write!(out, "a filter program of {count} instructions; the limit is {MAX_INSTRUCTIONS}")
            }
            InvalidCode::Instruction(at, instruction) => {
                write!(out, "instruction {at} is not valid: code {:#x}, k {:#x}", instruction.code, instruction.k)
            }
            InvalidCode::Jump(at) => write!(out, "instruction {at} jumps out of the program or to itself"),
            InvalidCode::NoReturn => out.write_str("the last instruction is not a return"),
        }
    }
}

impl std::error::Error for InvalidCode {}

/// Checks a program like libpcap's bpf_validate:
///
/// - known opcodes
/// - jumps in range (an unconditional one may go back, as `protochain` needs, but not to itself)
/// - existing memory slots
/// - no constant division by 0
/// - a return at the end
///
/// Ancillary loads are ordinary numbers here; [`lower`](mod@crate::lower) refuses them.
pub fn validate(code: &[Instruction]) -> Result<(), InvalidCode> {
    if code.len() > MAX_INSTRUCTIONS {
        return Err(InvalidCode::TooLong(code.len()));
    }
    let Some(last) = code.last() else { return Err(InvalidCode::Empty) };
    for (at, &instruction) in code.iter().enumerate() {
        let sound = match instruction.decode().ok_or(InvalidCode::Instruction(at, instruction))? {
            Meaning::Jump(distance) => distance != -1 && jump_target(at, distance, code.len()).is_some(),
            Meaning::Branch { yes, no, .. } => at + 1 + usize::from(yes.max(no)) < code.len(),
            _ => true,
        };
        if !sound {
            return Err(InvalidCode::Jump(at));
        }
    }
    match last.decode() {
        Some(Meaning::Return(_) | Meaning::ReturnA) => Ok(()),
        _ => Err(InvalidCode::NoReturn),
    }
}

/// The target of a jump at `at`, if it is inside a program of `length` instructions.
pub(crate) fn jump_target(at: usize, distance: i32, length: usize) -> Option<usize> {
    let target = (at + 1).checked_add_signed(isize::try_from(distance).ok()?)?;
    (target < length).then_some(target)
}

/// The program as `tcpdump -d` prints it, one line per instruction.
pub fn disassemble(code: &[Instruction]) -> String {
    code.iter().enumerate().map(|(at, &instruction)| format!("{}\n", Line { at, instruction })).collect()
}

/// One line of [`disassemble`].
struct Line {
    at: usize,
    instruction: Instruction,
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, next) = (self.at, self.at + 1);
        let Instruction { code, jt, jf, k } = self.instruction;
        // Like printf's %d, which tcpdump uses for offsets, slots and most operands.
        let signed = k.cast_signed();
        let letter = match code & 0x18 {
            0x08 => "h",
            0x10 => "b",
            _ => "",
        };
        let hexadecimal = matches!(code & 0xf0, 0x40 | 0x50 | 0xa0);
        let (name, operand) = match code {
            0x20 | 0x28 | 0x30 => (format!("ld{letter}"), format!("[{signed}]")),
            0x40 | 0x48 | 0x50 => (format!("ld{letter}"), format!("[x + {signed}]")),
            0x00 => ("ld".into(), format!("#{k:#x}")),
            0x01 => ("ldx".into(), format!("#{k:#x}")),
            0x60 => ("ld".into(), format!("M[{signed}]")),
            0x61 => ("ldx".into(), format!("M[{signed}]")),
            0x80 => ("ld".into(), "#pktlen".into()),
            0x81 => ("ldx".into(), "#pktlen".into()),
            0xb1 => ("ldxb".into(), format!("4*([{signed}]&0xf)")),
            0x02 => ("st".into(), format!("M[{signed}]")),
            0x03 => ("stx".into(), format!("M[{signed}]")),
            0x05 => ("ja".into(), i64::from(signed).saturating_add_unsigned(next as u64).to_string()),
            0x06 => ("ret".into(), format!("#{signed}")),
            0x16 => ("ret".into(), String::new()),
            0x07 => ("tax".into(), String::new()),
            0x87 => ("txa".into(), String::new()),
            0x84 => ("neg".into(), String::new()),
            _ => {
                let x = code & X != 0;
                match (test_of(code & !X), operation_of(code & !X)) {
                    (Some(test), _) => {
                        let operand = if x { "x".into() } else { format!("#{k:#x}") };
                        let (yes, no) = (next + usize::from(jt), next + usize::from(jf));
                        return write!(out, "({at:03}) {:<8} {operand:<16} jt {yes}\tjf {no}", test_name(test));
                    }
                    (_, Some(operation)) => {
                        let operand = match (x, hexadecimal) {
                            (true, _) => "x".into(),
                            (_, true) => format!("#{k:#x}"),
                            _ => format!("#{signed}"),
                        };
                        (operation_name(operation).into(), operand)
                    }
                    _ => ("unimp".into(), format!("{code:#x}")),
                }
            }
        };
        write!(out, "({at:03}) {name:<8} {operand}")
    }
}

const fn test_name(test: Test) -> &'static str {
    match test {
        Test::Equal => "jeq",
        Test::Greater => "jgt",
        Test::AtLeast => "jge",
        Test::AnyBit => "jset",
    }
}

const fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Add => "add",
        Operation::Subtract => "sub",
        Operation::Multiply => "mul",
        Operation::Divide => "div",
        Operation::Modulo => "mod",
        Operation::And => "and",
        Operation::Or => "or",
        Operation::Xor => "xor",
        Operation::ShiftLeft => "lsh",
        Operation::ShiftRight => "rsh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn check(code: &[Instruction], expected: Result<(), InvalidCode>) {
        assert_eq!(validate(code), expected, "{code:?}");
    }

    #[test]
    fn validity() {
        let ret = i(6, 0, 0, 0);
        let bad = |k| Err(InvalidCode::Instruction(0, k));
        check(&[], Err(InvalidCode::Empty));
        check(&[ret], Ok(()));
        check(&vec![ret; MAX_INSTRUCTIONS], Ok(()));
        check(&vec![ret; MAX_INSTRUCTIONS + 1], Err(InvalidCode::TooLong(MAX_INSTRUCTIONS + 1)));
        check(&[i(0x28, 0, 0, 12)], Err(InvalidCode::NoReturn));
        for (code, limit) in [(0x60, 16), (0x61, 16), (0x02, 16), (0x03, 16), (0x64, 32), (0x74, 32)] {
            check(&[i(code, 0, 0, limit - 1), ret], Ok(()));
            check(&[i(code, 0, 0, limit), ret], bad(i(code, 0, 0, limit)));
        }
        for code in [0x34, 0x94] {
            check(&[i(code, 0, 0, 0), ret], bad(i(code, 0, 0, 0)));
            check(&[i(code | 8, 0, 0, 0), ret], Ok(()));
        }
        for code in [0x0e, 0x08, 0x10, 0x21, 0x55, 0x85, 0xb4, 0xff, 0x106, 0xffff] {
            check(&[i(code, 0, 0, 1), ret], bad(i(code, 0, 0, 1)));
        }
        check(&[i(0x15, 0, 0, 0), ret], Ok(()));
        check(&[i(0x15, 1, 0, 0), ret], Err(InvalidCode::Jump(0)));
        check(&[i(0x15, 0, 1, 0), ret], Err(InvalidCode::Jump(0)));
        check(&[i(5, 0, 0, 0), ret], Ok(()));
        check(&[i(5, 0, 0, 1), ret], Err(InvalidCode::Jump(0)));
        check(&[i(5, 0, 0, u32::MAX), ret], Err(InvalidCode::Jump(0)));
        check(&[i(5, 0, 0, u32::MAX - 1), ret], Err(InvalidCode::Jump(0)));
        check(&[i(0, 0, 0, 0), i(5, 0, 0, u32::MAX - 1), ret], Ok(()));
        check(&[i(5, 0, 0, i32::MIN.cast_unsigned()), ret], Err(InvalidCode::Jump(0)));
    }

    /// Exactly the valid opcodes decode, and encode to themselves.
    #[test]
    fn opcodes() {
        let mut count = 0;
        for code in 0..=u16::MAX {
            let instruction = i(code, 0, 0, 7);
            let Some(meaning) = instruction.decode() else { continue };
            let Instruction { code: again, .. } = Instruction::encode(meaning);
            assert_eq!(again, code);
            assert_eq!(Instruction::encode(meaning).decode(), Some(meaning));
            count += 1;
        }
        assert_eq!(count, 18 + 1 + 2 + 2 * 10 + 2 * 4);
    }

    /// The right-hand side is the output of libpcap 1.10.3.
    #[test]
    fn text() {
        let rows = [
            (i(0x00, 0, 0, 16), "(007) ld       #0x10"),
            (i(0x01, 0, 0, 16), "(007) ldx      #0x10"),
            (i(0x02, 0, 0, 3), "(007) st       M[3]"),
            (i(0x03, 0, 0, 3), "(007) stx      M[3]"),
            (i(0x04, 0, 0, 0x8000_0010), "(007) add      #-2147483632"),
            (i(0x05, 0, 0, 16), "(007) ja       24"),
            (i(0x05, 0, 0, (-15i32).cast_unsigned()), "(007) ja       -7"),
            (i(0x06, 0, 0, 262_144), "(007) ret      #262144"),
            (i(0x07, 0, 0, 0), "(007) tax      "),
            (i(0x0c, 0, 0, 0), "(007) add      x"),
            (i(0x15, 3, 4, 0x800), "(007) jeq      #0x800           jt 11\tjf 12"),
            (i(0x16, 0, 0, 0), "(007) ret      "),
            (i(0x1d, 3, 4, 0), "(007) jeq      x                jt 11\tjf 12"),
            (i(0x20, 0, 0, 26), "(007) ld       [26]"),
            (i(0x28, 0, 0, 12), "(007) ldh      [12]"),
            (i(0x30, 0, 0, 23), "(007) ldb      [23]"),
            (i(0x25, 0, 0, 1), "(007) jgt      #0x1             jt 8\tjf 8"),
            (i(0x35, 0, 0, 1), "(007) jge      #0x1             jt 8\tjf 8"),
            (i(0x45, 0, 9, 0x1fff), "(007) jset     #0x1fff          jt 8\tjf 17"),
            (i(0x48, 0, 0, 14), "(007) ldh      [x + 14]"),
            (i(0x44, 0, 0, 255), "(007) or       #0xff"),
            (i(0x54, 0, 0, 255), "(007) and      #0xff"),
            (i(0xa4, 0, 0, 255), "(007) xor      #0xff"),
            (i(0x94, 0, 0, 255), "(007) mod      #255"),
            (i(0x60, 0, 0, 1), "(007) ld       M[1]"),
            (i(0x61, 0, 0, 1), "(007) ldx      M[1]"),
            (i(0x64, 0, 0, 2), "(007) lsh      #2"),
            (i(0x7c, 0, 0, 0), "(007) rsh      x"),
            (i(0x80, 0, 0, 0), "(007) ld       #pktlen"),
            (i(0x84, 0, 0, 0), "(007) neg      "),
            (i(0x87, 0, 0, 0), "(007) txa      "),
            (i(0xb1, 0, 0, 14), "(007) ldxb     4*([14]&0xf)"),
            (i(0xff, 0, 0, 14), "(007) unimp    0xff"),
        ];
        for (instruction, expected) in rows {
            assert_eq!(Line { at: 7, instruction }.to_string(), expected);
        }
        assert_eq!(disassemble(&[i(0x28, 0, 0, 12), i(6, 0, 0, 0)]), "(000) ldh      [12]\n(001) ret      #0\n");
    }
}
