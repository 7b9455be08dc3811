//! Divides a filter given to pcap_setfilter() into an expression for the device's owner and a rest that runs here.
//!
//! The program was compiled with an inactive handle, so it expects the bytes of the wire, with tags in place. Two
//! ancillary loads read more than those bytes:
//!
//! - `inbound` and `outbound` ask for a packet's direction. For each direction there is one program. The owner gets
//!   their union, and the right one runs here.
//! - `ifindex` asks for the interface. Here it is a constant.
//!
//! A program's return value is the number of bytes to keep. If it always returns the same number, no program runs here.

use program::Interpreter;
use program::cbpf::{Instruction, MAX_INSTRUCTIONS, validate};
use program::lower::LowerError;

/// BPF_RET|BPF_K, and its operand from A.
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
/// BPF_LD|BPF_ABS as word, half-word and byte; and BPF_LD|BPF_IMM.
const LOADS: [u16; 3] = [0x20, 0x28, 0x30];
const LOAD_CONSTANT: u16 = 0x00;
/// BPF_LDX|BPF_IMM.
const LOAD_CONSTANT_X: u16 = 0x01;
/// BPF_JMP|BPF_JA.
const JUMP: u16 = 0x05;

/// SKF_AD_OFF + SKF_AD_PKTTYPE, SKF_AD_OFF + SKF_AD_IFINDEX.
const PACKET_TYPE: u32 = 0xffff_f004;
const INTERFACE_INDEX: u32 = 0xffff_f008;
/// PACKET_OUTGOING, and a value that is no outgoing type.
const OUTGOING: u32 = 4;
const INCOMING: u32 = 0;

/// The packets that a handle wants, and how many bytes of each.
#[derive(Debug, Default)]
pub struct Expression {
    /// The expression for the device's owner. Empty: all packets pass.
    pub pushed: Vec<Instruction>,
    /// The same expression, for packets that an earlier expression selected.
    pub pushed_here: Option<Interpreter>,
    /// The programs that run here, for received and for sent packets. `None`: no program runs here.
    pub rest: Option<[Interpreter; 2]>,
    /// The most bytes of each packet. `None`: the programs of `rest` return the number.
    pub keep: Option<u32>,
}

/// Rejects everything.
pub const NOTHING: [Instruction; 1] = [Instruction { code: RETURN, jt: 0, jf: 0, k: 0 }];

impl Expression {
    /// Reads a program. `interface` is the index of the device. The error has libpcap's words, or names the unsupported
    /// instruction.
    pub fn new(program: &[Instruction], interface: u32) -> Result<Expression, String> {
        if program.len() > MAX_INSTRUCTIONS || validate(program).is_err() {
            return Err("BPF program is not valid".into());
        }
        let asks = |offset| program.iter().any(|one| LOADS.contains(&one.code) && one.k == offset);
        let incoming = specialise(program, INCOMING, interface);
        let outgoing = specialise(program, OUTGOING, interface);
        let kept = kept(program);
        let here = |program: &[Instruction]| Interpreter::from_cbpf(program).map_err(|error| refusal(&error));
        let mut expression = Expression { keep: kept, ..Expression::default() };
        if asks(PACKET_TYPE) {
            expression.rest = Some([here(&incoming)?, here(&outgoing)?]);
            expression.pushed = either(&incoming, &outgoing);
        } else {
            if kept.is_none() {
                expression.rest = Some([here(&incoming)?, here(&incoming)?]);
            }
            expression.pushed = incoming;
        }
        if passes_all(&expression.pushed) {
            expression.pushed.clear();
        } else {
            expression.pushed_here = Some(here(&expression.pushed)?);
        }
        Ok(expression)
    }

    /// The same filter, run completely here because the device's owner cannot run it.
    pub fn all_here(mut self) -> Expression {
        if let Some(pushed) = self.pushed_here.take() {
            self.pushed.clear();
            self.rest.get_or_insert_with(|| [pushed.clone(), pushed]);
        }
        self
    }
}

/// Whether this program accepts every packet without a test.
fn passes_all(program: &[Instruction]) -> bool {
    matches!(program, [Instruction { code: RETURN, k: 1.., .. }, ..])
}

/// The bytes that this program keeps of every packet. `None`: the number varies.
fn kept(program: &[Instruction]) -> Option<u32> {
    let returns = program.iter().filter(|one| matches!(one.code, RETURN | RETURN_A));
    let mut kept = None;
    for one in returns {
        match (one.code, one.k) {
            (RETURN, 0) => {}
            (RETURN, k) if kept.is_none_or(|known| known == k) => kept = Some(k),
            _ => return None,
        }
    }
    Some(kept.unwrap_or(0))
}

/// Replaces the ancillary loads by constants.
fn specialise(program: &[Instruction], packet_type: u32, interface: u32) -> Vec<Instruction> {
    let constant = |k| Instruction { code: LOAD_CONSTANT, jt: 0, jf: 0, k };
    let one = |one: &Instruction| match one.k {
        PACKET_TYPE if LOADS.contains(&one.code) => constant(packet_type),
        INTERFACE_INDEX if LOADS.contains(&one.code) => constant(interface),
        _ => *one,
    };
    program.iter().map(one).collect()
}

/// The union of two programs: at each place where the first one rejects, the second one begins. If the first one
/// returns a register, which might be 0, the second cannot follow: then all packets pass, and the filter runs here.
fn either(first: &[Instruction], second: &[Instruction]) -> Vec<Instruction> {
    if first.iter().any(|one| one.code == RETURN_A) {
        return Vec::new();
    }
    let follow = first.iter().enumerate().map(|(at, one)| match one {
        Instruction { code: RETURN, k: 0, .. } => {
            Instruction { code: JUMP, jt: 0, jf: 0, k: (first.len() - at - 1) as u32 }
        }
        other => *other,
    });
    // A program starts with all registers 0.
    let zero = [LOAD_CONSTANT, LOAD_CONSTANT_X].map(|code| Instruction { code, jt: 0, jf: 0, k: 0 });
    follow.chain(zero).chain(second.iter().copied()).collect()
}

fn refusal(error: &LowerError) -> String {
    format!("the filter cannot be used on this device: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn verdicts(expression: &Expression, packet: &[u8]) -> [u32; 2] {
        let pushed = expression.pushed_here.as_ref().is_none_or(|program| program.run(packet, 60) != 0);
        [0, 1].map(|way| match (&expression.rest, pushed) {
            (_, false) => 0,
            (Some(rest), true) => rest[way].run(packet, 60).min(expression.keep.unwrap_or(u32::MAX)),
            (None, true) => expression.keep.unwrap(),
        })
    }

    #[test]
    fn directions_are_decided_by_the_right_program() {
        let outbound = [i(0x28, 0, 0, PACKET_TYPE), i(0x15, 0, 1, 4), i(6, 0, 0, 100), i(6, 0, 0, 0)];
        let inbound = [i(0x28, 0, 0, PACKET_TYPE), i(0x15, 0, 1, 4), i(6, 0, 0, 0), i(6, 0, 0, 100)];
        // outbound, or its first byte is 7
        let mixed = [
            i(0x28, 0, 0, PACKET_TYPE),
            i(0x15, 2, 0, 4),
            i(0x30, 0, 0, 0),
            i(0x15, 0, 1, 7),
            i(6, 0, 0, 64),
            i(6, 0, 0, 0),
        ];
        let rows: [(&[Instruction], u8, [u32; 2]); 4] =
            [(&outbound, 0, [0, 100]), (&inbound, 0, [100, 0]), (&mixed, 7, [64, 64]), (&mixed, 8, [0, 64])];
        for (program, byte, expected) in rows {
            let expression = Expression::new(program, 3).unwrap();
            assert_eq!(verdicts(&expression, &[byte; 60]), expected, "{program:?}");
            assert_eq!(verdicts(&expression.all_here(), &[byte; 60]), expected, "{program:?}");
        }
    }

    #[test]
    fn the_interface_is_a_constant() {
        let program = [i(0x20, 0, 0, INTERFACE_INDEX), i(0x15, 0, 1, 3), i(6, 0, 0, 100), i(6, 0, 0, 0)];
        assert_eq!(verdicts(&Expression::new(&program, 3).unwrap(), &[0; 60]), [100, 100]);
        assert_eq!(verdicts(&Expression::new(&program, 4).unwrap(), &[0; 60]), [0, 0]);
    }

    #[test]
    fn what_passes_all_asks_nobody() {
        let expression = Expression::new(&[i(6, 0, 0, 96)], 1).unwrap();
        assert!(expression.pushed.is_empty() && expression.rest.is_none());
        assert_eq!(expression.keep, Some(96));
        let nothing = Expression::new(&NOTHING, 1).unwrap();
        assert_eq!(nothing.pushed, NOTHING);
    }

    #[test]
    fn lengths_that_depend_are_found_here() {
        // Keeps 64 bytes if the first byte is 7, else 80; then: keeps as many as the first byte says.
        let two = [i(0x30, 0, 0, 0), i(0x15, 0, 1, 7), i(6, 0, 0, 64), i(6, 0, 0, 80)];
        let register = [i(0x30, 0, 0, 0), i(0x16, 0, 0, 0)];
        for (program, byte, expected) in [(&two[..], 7, 64), (&two, 8, 80), (&register, 9, 9), (&register, 0, 0)] {
            let expression = Expression::new(program, 1).unwrap();
            assert_eq!(expression.keep, None);
            assert_eq!(verdicts(&expression, &[byte; 60]), [expected; 2]);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        assert_eq!(Expression::new(&[], 1).unwrap_err(), "BPF program is not valid");
        assert_eq!(Expression::new(&[i(0xffff, 0, 0, 0)], 1).unwrap_err(), "BPF program is not valid");
        let mark = [i(0x20, 0, 0, 0xffff_f014), i(0x16, 0, 0, 0)];
        assert!(Expression::new(&mark, 1).unwrap_err().starts_with("the filter cannot be used on this device"));
    }
}
