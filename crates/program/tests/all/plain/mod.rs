//! The oracle: a switch over classic BPF opcodes, written from libpcap's bpf_filter. Shares only the instruction type.

use program::cbpf::Instruction;

/// The most backward jumps of a run (libpcap's MAX_BACKWARD_JUMPS).
const MAX_BACKWARD_JUMPS: u32 = 64;

fn bytes(packet: &[u8], at: u64, count: u64) -> Option<u32> {
    let packet = packet.get(usize::try_from(at).ok()?..usize::try_from(at + count).ok()?)?;
    Some(packet.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

/// The verdict of a valid program on a packet.
#[inline(never)]
pub fn run(code: &[Instruction], packet: &[u8], wire_len: u32) -> u32 {
    step_through(code, packet, wire_len).unwrap_or(0)
}

#[inline(always)]
fn step_through(code: &[Instruction], packet: &[u8], wire_len: u32) -> Option<u32> {
    let (mut a, mut x, mut memory, mut back, mut at) = (0u32, 0u32, [0u32; 16], 0u32, 0usize);
    loop {
        let Instruction { code: opcode, jt, jf, k } = *code.get(at)?;
        at += 1;
        let mut branch = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match opcode {
            0x06 => return Some(k),
            0x16 => return Some(a),
            0x20 => a = bytes(packet, k.into(), 4)?,
            0x28 => a = bytes(packet, k.into(), 2)?,
            0x30 => a = bytes(packet, k.into(), 1)?,
            0x40 => a = bytes(packet, u64::from(x) + u64::from(k), 4)?,
            0x48 => a = bytes(packet, u64::from(x) + u64::from(k), 2)?,
            0x50 => a = bytes(packet, u64::from(x) + u64::from(k), 1)?,
            0x80 => a = wire_len,
            0x81 => x = wire_len,
            0xb1 => x = (bytes(packet, k.into(), 1)? & 0xf) << 2,
            0x00 => a = k,
            0x01 => x = k,
            0x60 => a = *memory.get(k as usize)?,
            0x61 => x = *memory.get(k as usize)?,
            0x02 => *memory.get_mut(k as usize)? = a,
            0x03 => *memory.get_mut(k as usize)? = x,
            0x05 => {
                let distance = k.cast_signed();
                if distance < 0 {
                    if distance == -1 || back == MAX_BACKWARD_JUMPS {
                        return None;
                    }
                    back += 1;
                }
                at = at.checked_add_signed(distance as isize)?;
            }
            0x15 => branch(a == k),
            0x25 => branch(a > k),
            0x35 => branch(a >= k),
            0x45 => branch(a & k != 0),
            0x1d => branch(a == x),
            0x2d => branch(a > x),
            0x3d => branch(a >= x),
            0x4d => branch(a & x != 0),
            0x04 => a = a.wrapping_add(k),
            0x14 => a = a.wrapping_sub(k),
            0x24 => a = a.wrapping_mul(k),
            0x34 => a = a.checked_div(k)?,
            0x94 => a = a.checked_rem(k)?,
            0x44 => a |= k,
            0x54 => a &= k,
            0xa4 => a ^= k,
            0x64 => a = if k < 32 { a << k } else { 0 },
            0x74 => a = if k < 32 { a >> k } else { 0 },
            0x0c => a = a.wrapping_add(x),
            0x1c => a = a.wrapping_sub(x),
            0x2c => a = a.wrapping_mul(x),
            0x3c => a = a.checked_div(x)?,
            0x9c => a = a.checked_rem(x)?,
            0x4c => a |= x,
            0x5c => a &= x,
            0xac => a ^= x,
            0x6c => a = if x < 32 { a << x } else { 0 },
            0x7c => a = if x < 32 { a >> x } else { 0 },
            0x84 => a = a.wrapping_neg(),
            0x07 => x = a,
            0x87 => a = x,
            _ => return None,
        }
    }
}
