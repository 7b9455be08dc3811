//! Filter programs of sockets and taps: what is let through, as instructions of the classic machine (cBPF).
//!
//! Not the meaning of expressions, which crate `program` knows: instructions come from there.

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

/// Instructions the kernel takes at most (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_CONSTANT: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// `linux/filter.h`: where the packet's type is loaded from.
const PACKET_TYPE: u32 = (-0x1000_i32 + 4) as u32;
/// The same: whether a tag stands beside the frame.
const TAG_PRESENT: u32 = (-0x1000_i32 + 48) as u32;

const fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, k }
}

/// Every frame, cut to `snap_bytes`.
pub fn everything(snap_bytes: u32) -> Vec<Instruction> {
    vec![plain(RETURN, snap_bytes)]
}

/// No frame.
pub fn nothing() -> Vec<Instruction> {
    vec![plain(RETURN, 0)]
}

/// Frames whose VLAN tag the kernel keeps beside them, for a program that counts on tags in their place: all of them. Of
/// others, what `incoming` wants of those that come, and `outgoing` of those that go.
pub fn by_way(incoming: &[Instruction], outgoing: &[Instruction], whole: u32) -> Vec<Instruction> {
    let is = |k| Instruction { code: JUMP_IF_EQUAL, jump_true: 1, jump_false: 0, k };
    let mut program = vec![plain(LOAD_WORD, TAG_PRESENT), is(0), plain(RETURN, whole)];
    if incoming != outgoing {
        let sent = u32::from(crate::frame::PACKET_OUTGOING);
        // Over the jump where it is one that goes; the jump leads behind what is asked of those.
        let behind = plain(JUMP, outgoing.len() as u32 + 1);
        program.extend([plain(LOAD_WORD, PACKET_TYPE), is(sent), behind, plain(LOAD_CONSTANT, 0)]);
        program.extend_from_slice(outgoing);
    }
    // A program may count on a register that is zero at its beginning.
    program.push(plain(LOAD_CONSTANT, 0));
    program.extend_from_slice(incoming);
    program
}

/// Of what this host sends, what `program` wants.
pub(crate) fn outgoing_only(program: &[Instruction]) -> Vec<Instruction> {
    let outgoing = u32::from(crate::frame::PACKET_OUTGOING);
    let mut whole = vec![
        plain(LOAD_WORD, PACKET_TYPE),
        Instruction { code: JUMP_IF_EQUAL, jump_true: 1, jump_false: 0, k: outgoing },
        plain(RETURN, 0),
        // A program may count on a register that is zero at its beginning.
        plain(LOAD_CONSTANT, 0),
    ];
    whole.extend_from_slice(program);
    whole
}

/// As the kernel takes them.
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
