//! The common beginning of every program on a packet of the kernel (`struct __sk_buff`): copies the packet's first
//! bytes as they were on the wire, and counts. `decide.rs` makes the decisions.

use crate::code::{Alu, Code, Compare, Helper, Label, Register, Width};
use crate::lower::{HEAD_BYTES, facts};
use crate::program_error::ProgramError;
use crate::sys::{self, MapKind};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A map with one value, in which each processor has a part. The kernel's per-processor maps are not used: they need a
/// lookup with a key on the stack.
#[derive(Clone, Copy)]
pub(crate) struct PerCpu<'a> {
    pub(crate) map: BorrowedFd<'a>,
    /// The offset of the first part, and the bytes of each part, a power of two.
    pub(crate) at: u32,
    pub(crate) bytes: u32,
    pub(crate) cpus: u32,
}

impl PerCpu<'_> {
    /// `to` = this processor's part. `to` must not be `R0`; changes `R0` to `R5`. Jumps to `end` if there is no part,
    /// which the verifier asks for.
    pub(crate) fn this(&self, code: &mut Code, to: Register, end: Label) {
        code.call(Helper::SmpProcessorId);
        code.jump_if(Compare::AtLeast, R0, self.cpus as i32, end);
        code.copy(to, R0);
        code.alu(Alu::ShiftLeft, to, self.bytes.trailing_zeros() as i32);
        code.set_map_value(R0, self.map, self.at);
        // Add the pointer to the number. The other way round, Linux 6.18 does not recognise a copy of the pointer under
        // speculation, and makes the processor wait before each use.
        code.alu_register(Alu::Add, to, R0);
    }
}

/// The map for copies of packets' first bytes, for this number of processors.
pub(crate) fn heads(map: BorrowedFd<'_>, cpus: u32) -> PerCpu<'_> {
    PerCpu { map, at: 0, bytes: facts::BYTES, cpus }
}

/// Makes that map. Fails if programs can interrupt each other on a processor: they would overwrite each other's copy.
pub(crate) fn create_heads(cpus: u32) -> Result<OwnedFd, ProgramError> {
    if sys::is_realtime() {
        let why = io::Error::new(io::ErrorKind::Unsupported, "this is a real-time kernel (PREEMPT_RT)");
        return Err(ProgramError::System("programs could interrupt each other", why));
    }
    sys::create_map(MapKind::Array, "sl_head", facts::BYTES * cpus, 1, 0)
        .map_err(|error| ProgramError::System("the kernel gave no map", error))
}

/// Copies the packet's first bytes to this processor's part, as they were on the wire, and fills in the facts behind
/// them ([`facts`]). Sets `R6` = context, `R7` = the copy, `R8` = bytes on the wire. Packets without bytes go to `end`.
pub(crate) fn copy_head(code: &mut Code, heads: PerCpu<'_>, tags: bool, end: Label) {
    let (untagged, copied, short) = (code.label(), code.label(), code.label());
    code.copy(R6, R1);
    heads.this(code, R7, end);
    code.load(Width::Four, R8, R6, skb::LEN);
    code.store_constant(Width::Eight, R7, facts::SHIFT, 0);
    if tags {
        code.load(Width::Four, R1, R6, skb::VLAN_PRESENT);
        code.jump_if(Compare::Equal, R1, 0, untagged);
        code.jump_if(Compare::Less, R8, ADDRESSES + 1, end);
        load_bytes(code, 0, R7, 0, ADDRESSES);
        code.jump_if(Compare::NotEqual, R0, 0, end);
        code.load(Width::Four, R1, R6, skb::VLAN_PROTO);
        code.store(Width::Two, R7, ADDRESSES as i16, R1);
        code.load(Width::Four, R1, R6, skb::VLAN_TCI);
        code.big_endian(R1, 16);
        code.store(Width::Two, R7, ADDRESSES as i16 + 2, R1);
        code.store_constant(Width::Eight, R7, facts::SHIFT, TAG);
        // The rest of the bytes, as far as they exist and fit.
        code.copy(R4, R8);
        code.alu(Alu::Subtract, R4, ADDRESSES);
        let rest = HEAD_BYTES as i32 - ADDRESSES - TAG;
        code.jump_if(Compare::Less, R4, rest, short);
        code.set(R4, rest);
        code.place(short);
        code.jump_if(Compare::Less, R4, 1, end);
        code.jump_if(Compare::Greater, R4, rest, end);
        code.alu(Alu::Add, R8, TAG);
        code.copy(R1, R4);
        code.alu(Alu::Add, R1, ADDRESSES + TAG);
        code.store(Width::Eight, R7, facts::HEAD, R1);
        code.copy(R3, R7);
        code.alu(Alu::Add, R3, ADDRESSES + TAG);
        code.set(R2, ADDRESSES);
        code.copy(R1, R6);
        code.call(Helper::SkbLoadBytes);
        code.jump_if(Compare::NotEqual, R0, 0, end);
        code.jump(copied);
    }
    code.place(untagged);
    copy_first(code, end);
    code.place(copied);
    code.store(Width::Eight, R7, facts::WIRE, R8);
}

/// Counts a seen packet of `R8` bytes.
pub(crate) fn count_seen(code: &mut Code, counts: PerCpu<'_>, end: Label) {
    counts.this(code, R1, end);
    add_constant(code, R1, count::SEEN, 1);
    add_register(code, R1, count::SEEN_BYTES, R8);
}

/// Copies the packet's first bytes to the part in `R7`, as many as exist and fit. `R8` holds the packet's length.
pub(crate) fn copy_first(code: &mut Code, end: Label) {
    let all = code.label();
    code.copy(R4, R8);
    code.jump_if(Compare::Less, R4, HEAD_BYTES as i32, all);
    code.set(R4, HEAD_BYTES as i32);
    code.place(all);
    code.jump_if(Compare::Less, R4, 1, end);
    code.jump_if(Compare::Greater, R4, HEAD_BYTES as i32, end);
    code.store(Width::Eight, R7, facts::HEAD, R4);
    code.copy(R3, R7);
    code.set(R2, 0);
    code.copy(R1, R6);
    code.load_bytes();
    code.jump_if(Compare::NotEqual, R0, 0, end);
}

fn load_bytes(code: &mut Code, from: i32, to: Register, offset: i32, len: i32) {
    code.copy(R3, to);
    code.alu(Alu::Add, R3, offset);
    code.set(R4, len);
    code.set(R2, from);
    code.copy(R1, R6);
    code.call(Helper::SkbLoadBytes);
}

pub(crate) fn add_constant(code: &mut Code, page: Register, offset: i16, more: i32) {
    code.load(Width::Eight, R5, page, offset);
    code.alu(Alu::Add, R5, more);
    code.store(Width::Eight, page, offset, R5);
}

pub(crate) fn add_register(code: &mut Code, page: Register, offset: i16, more: Register) {
    code.load(Width::Eight, R5, page, offset);
    code.alu_register(Alu::Add, R5, more);
    code.store(Width::Eight, page, offset, R5);
}

/// Bytes of the two addresses at the beginning of an Ethernet frame, and of a tag behind them.
pub(crate) const ADDRESSES: i32 = 12;
pub(crate) const TAG: i32 = 4;

/// Offsets in `struct __sk_buff` (linux/bpf.h).
pub(crate) mod skb {
    pub const LEN: i16 = 0;
    pub const PKT_TYPE: i16 = 4;
    pub const MARK: i16 = 8;
    pub const VLAN_PRESENT: i16 = 20;
    pub const VLAN_TCI: i16 = 24;
    pub const VLAN_PROTO: i16 = 28;
    pub const GSO_SIZE: i16 = 176;
}

/// Offsets in `buffer::live::words::CpuPage`.
pub(crate) mod count {
    use buffer::live::words::{CpuPage, ExpressionCount};
    pub const SEEN: i16 = std::mem::offset_of!(CpuPage, seen) as i16;
    pub const SEEN_BYTES: i16 = std::mem::offset_of!(CpuPage, seen_bytes) as i16;
    pub const WANTED: i16 = std::mem::offset_of!(CpuPage, wanted) as i16;
    pub const LOST: i16 = std::mem::offset_of!(CpuPage, lost) as i16;
    pub const EXPRESSIONS: i16 = std::mem::offset_of!(CpuPage, expressions) as i16;
    pub const EXPRESSION: i16 = size_of::<ExpressionCount>() as i16;
    pub const KEPT_BYTES: i16 = std::mem::offset_of!(CpuPage, kept_bytes) as i16;
    pub const WIRE_BYTES: i16 = std::mem::offset_of!(ExpressionCount, wire_bytes) as i16;
}
