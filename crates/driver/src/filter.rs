//! Filter programs of sockets and taps: instructions of the classic machine (cBPF) that choose frames.
//!
//! This module does not know expressions: crate `program` makes the instructions.

use crate::error::Error;

/// One instruction: code, jump if true, jump if false, constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if it is true.
    pub jump_true: u8,
    /// Instructions to skip if it is false.
    pub jump_false: u8,
    /// Constant.
    pub k: u32,
}

/// Most instructions that the kernel takes (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_CONSTANT: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// `linux/filter.h`: offset of the packet's type.
const PACKET_TYPE: u32 = (-0x1000_i32 + 4) as u32;
/// `linux/filter.h`: offset of the word that says whether a tag is beside the frame.
const TAG_PRESENT: u32 = (-0x1000_i32 + 48) as u32;

const fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, k }
}

/// Passes every frame, cut to `snap_bytes`.
pub fn everything(snap_bytes: u32) -> Vec<Instruction> {
    vec![plain(RETURN, snap_bytes)]
}

/// Passes no frame.
pub fn nothing() -> Vec<Instruction> {
    vec![plain(RETURN, 0)]
}

/// For programs that expect tags in place: passes every frame whose VLAN tag the kernel keeps beside it, cut to
/// `whole`. `incoming` decides on other received frames, `outgoing` on other sent ones.
pub fn by_way(incoming: &[Instruction], outgoing: &[Instruction], whole: u32) -> Vec<Instruction> {
    let is = |k| Instruction { code: JUMP_IF_EQUAL, jump_true: 1, jump_false: 0, k };
    let mut program = vec![plain(LOAD_WORD, TAG_PRESENT), is(0), plain(RETURN, whole)];
    if incoming != outgoing {
        let sent = u32::from(crate::frame::PACKET_OUTGOING);
        // For a sent frame, skips the jump; the jump leads past the program for sent frames.
        let behind = plain(JUMP, outgoing.len() as u32 + 1);
        program.extend([plain(LOAD_WORD, PACKET_TYPE), is(sent), behind, plain(LOAD_CONSTANT, 0)]);
        program.extend_from_slice(outgoing);
    }
    // A program may rely on a register that is zero at its beginning.
    program.push(plain(LOAD_CONSTANT, 0));
    program.extend_from_slice(incoming);
    program
}

/// Passes frames that this host sends and that `program` wants.
pub(crate) fn outgoing_only(program: &[Instruction]) -> Vec<Instruction> {
    let outgoing = u32::from(crate::frame::PACKET_OUTGOING);
    let mut whole = vec![
        plain(LOAD_WORD, PACKET_TYPE),
        Instruction { code: JUMP_IF_EQUAL, jump_true: 1, jump_false: 0, k: outgoing },
        plain(RETURN, 0),
        // A program may rely on a register that is zero at its beginning.
        plain(LOAD_CONSTANT, 0),
    ];
    whole.extend_from_slice(program);
    whole
}

/// Converts a program to the kernel's structures.
pub(crate) fn for_kernel(program: &[Instruction]) -> Result<Vec<libc::sock_filter>, Error> {
    if program.is_empty() || program.len() > INSTRUCTIONS_MAX {
        let length = program.len();
        return Err(Error::Invalid(format!(
            "a filter of {length} instructions; the kernel takes 1 to {INSTRUCTIONS_MAX}"
        )));
    }
    let turn =
        |one: &Instruction| libc::sock_filter { code: one.code, jt: one.jump_true, jf: one.jump_false, k: one.k };
    Ok(program.iter().map(turn).collect())
}
