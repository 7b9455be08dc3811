//! The hash of a packet's flow, the same in both directions: in Rust, and as a part of the program.
//!
//! It parts a device's traffic among readers, so whoever writes a ring must make the same of the same packet. Addresses,
//! protocol and ports count; a packet without them has the hash of what it has, and one without IP has 0. One VLAN tag is
//! looked behind. Not for tables that could be flooded: anybody can find flows of one hash.

use crate::code::{Alu, Code, Compare, Label, Register, Width};
use crate::lower::{HEAD_BYTES, facts};
use Register::{R0, R1, R3, R4, R5, R7, R9};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// TCP, UDP, SCTP: both ports come first.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Multipliers of MurmurHash3's finalizer.
const MIX: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];

/// Of a frame as it is on the wire: of Ethernet, or without a link header.
pub fn of(bytes: &[u8], ethernet: bool) -> u32 {
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
    unmixed(bytes, ethernet).map_or(0, mix)
}

fn mix(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(MIX[0]);
    (hash ^ hash >> 13).wrapping_mul(MIX[1])
}

fn unmixed(bytes: &[u8], ethernet: bool) -> Option<u32> {
    let two = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let four = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (kind, at) = match ethernet {
        true => match two(12)? {
            tag if TAGS.contains(&tag) => (two(16)?, 18),
            kind => (kind, 14),
        },
        false => (if bytes.first()? >> 4 == 4 { IPV4 } else { IPV6 }, 0),
    };
    bytes.get(at + 19)?;
    let (mut hash, protocol, ports) = match kind {
        IPV4 => {
            let protocol = bytes[at + 9];
            let hash = four(at + 12)? ^ four(at + 16)? ^ u32::from(protocol);
            // Fragments have no ports but the first.
            let ports = (two(at + 6)? & 0x3fff == 0).then(|| at + usize::from(bytes[at] & 0xf) * 4);
            (hash, protocol, ports)
        }
        IPV6 => {
            bytes.get(at + 39)?;
            let protocol = bytes[at + 6];
            let words = (0..8).try_fold(0, |hash, word| Some(hash ^ four(at + 8 + 4 * word)?))?;
            (words ^ u32::from(protocol), protocol, Some(at + 40))
        }
        _ => return None,
    };
    if let Some(ports) = ports.filter(|_| WITH_PORTS.contains(&protocol))
        && let (Some(source), Some(destination)) = (two(ports), two(ports + 2))
    {
        hash ^= u32::from((source ^ destination).swap_bytes()) << 16;
    }
    Some(hash)
}

/// The same of the copy in `R7`, into its place behind it. `R0` to `R5` and `R9` are lost.
///
/// Offsets are constants wherever they can be: where a program may not skip the verifier's guard against speculation
/// (CAP_PERFMON), each addition of a register to a pointer costs a mask, and one whose register has other bounds on one
/// path than on another is refused.
pub(crate) fn lower(code: &mut Code, ethernet: bool) {
    let [tagged, mix, options, ports, none] = std::array::from_fn(|_| code.label());
    code.set(R9, 0);
    code.load(Width::Eight, R3, R7, facts::HEAD);
    if ethernet {
        code.jump_if(Compare::Less, R3, 14, none);
        code.load(Width::Two, R1, R7, 12);
        code.big_endian(R1, 16);
        TAGS.iter().for_each(|tag| code.jump_if(Compare::Equal, R1, (*tag).into(), tagged));
        internet(code, 14, [mix, options, ports, none]);
        code.place(tagged);
        code.jump_if(Compare::Less, R3, 18, none);
        code.load(Width::Two, R1, R7, 16);
        code.big_endian(R1, 16);
        internet(code, 18, [mix, options, ports, none]);
    } else {
        let [four, known] = std::array::from_fn(|_| code.label());
        code.jump_if(Compare::Less, R3, 1, none);
        code.load(Width::One, R1, R7, 0);
        code.alu(Alu::ShiftRight, R1, 4);
        code.jump_if(Compare::Equal, R1, 4, four);
        code.set(R1, IPV6.into());
        code.jump(known);
        code.place(four);
        code.set(R1, IPV4.into());
        code.place(known);
        internet(code, 0, [mix, options, ports, none]);
    }
    // Ports at `R5`, behind options. What is loaded has the same bounds whichever way it came here.
    code.place(options);
    code.store(Width::Eight, R7, facts::HASH, R5);
    code.load(Width::One, R5, R7, facts::HASH);
    code.copy(R1, R5);
    code.alu(Alu::Add, R1, 4);
    code.jump_if_register(Compare::Greater, R1, R3, mix);
    code.jump_if(Compare::Greater, R5, HEAD_BYTES as i32 - 4, mix);
    code.copy(R0, R7);
    code.alu_register(Alu::Add, R0, R5);
    code.load(Width::Two, R1, R0, 0);
    code.load(Width::Two, R4, R0, 2);
    // Ports in `R1` and `R4`.
    code.place(ports);
    code.alu_32_register(Alu::Xor, R1, R4);
    code.alu_32(Alu::ShiftLeft, R1, 16);
    code.alu_32_register(Alu::Xor, R9, R1);
    code.place(mix);
    for (shift, multiplier) in [16, 13].into_iter().zip(MIX) {
        code.alu_32_register(Alu::Move, R1, R9);
        code.alu_32(Alu::ShiftRight, R1, shift);
        code.alu_32_register(Alu::Xor, R9, R1);
        code.alu_32(Alu::Multiply, R9, multiplier);
    }
    code.place(none);
    code.store(Width::Eight, R7, facts::HASH, R9);
}

/// Goes to one of the four places with what an IP packet at a fixed offset gives; `R1` has its type, `R3` the bytes there.
fn internet(code: &mut Code, at: i16, [mix, options, ports, none]: [Label; 4]) {
    let [v4, v6] = std::array::from_fn(|_| code.label());
    // Protocol in `R4`: on to the ports, if it has some.
    let with_ports = |code: &mut Code| {
        let one_of = code.label();
        WITH_PORTS.iter().for_each(|protocol| code.jump_if(Compare::Equal, R4, (*protocol).into(), one_of));
        code.jump(mix);
        code.place(one_of);
    };
    let load_ports = |code: &mut Code, at: i16| {
        code.jump_if(Compare::Less, R3, i32::from(at) + 4, mix);
        code.load(Width::Two, R1, R7, at);
        code.load(Width::Two, R4, R7, at + 2);
        code.jump(ports);
    };
    code.jump_if(Compare::Less, R3, i32::from(at) + 20, none);
    code.jump_if(Compare::Equal, R1, IPV4.into(), v4);
    code.jump_if(Compare::Equal, R1, IPV6.into(), v6);
    code.jump(none);

    code.place(v4);
    code.load(Width::Four, R9, R7, at + 12);
    code.load(Width::Four, R1, R7, at + 16);
    code.alu_32_register(Alu::Xor, R9, R1);
    code.load(Width::One, R4, R7, at + 9);
    code.alu_32_register(Alu::Xor, R9, R4);
    code.load(Width::Two, R1, R7, at + 6);
    code.big_endian(R1, 16);
    code.alu(Alu::And, R1, 0x3fff);
    code.jump_if(Compare::NotEqual, R1, 0, mix);
    with_ports(code);
    let plain = code.label();
    code.load(Width::One, R5, R7, at);
    code.alu(Alu::And, R5, 0xf);
    code.jump_if(Compare::Equal, R5, 5, plain);
    code.alu(Alu::ShiftLeft, R5, 2);
    code.alu(Alu::Add, R5, at.into());
    code.jump(options);
    code.place(plain);
    load_ports(code, at + 20);

    code.place(v6);
    code.jump_if(Compare::Less, R3, i32::from(at) + 40, none);
    code.set(R9, 0);
    for word in 0..8 {
        code.load(Width::Four, R1, R7, at + 8 + 4 * word);
        code.alu_32_register(Alu::Xor, R9, R1);
    }
    code.load(Width::One, R4, R7, at + 6);
    code.alu_32_register(Alu::Xor, R9, R4);
    with_ports(code);
    load_ports(code, at + 40);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_one_flow_and_others_are_others() {
        let frame = |source: [u8; 2], destination: [u8; 2], from: u8, to: u8| {
            let mut frame = vec![0; 60];
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[23] = 6;
            frame[26..34].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, to]);
            frame[34..36].copy_from_slice(&source);
            frame[36..38].copy_from_slice(&destination);
            frame
        };
        let there = of(&frame([1, 2], [0, 80], 1, 2), true);
        assert_eq!(there, of(&frame([0, 80], [1, 2], 2, 1), true));
        let mut tagged = frame([1, 2], [0, 80], 1, 2);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(of(&tagged, true), there);
        assert_ne!(of(&frame([1, 3], [0, 80], 1, 2), true), there);
        assert_ne!(of(&frame([1, 2], [0, 80], 1, 3), true), there);
        assert_eq!(of(&frame([1, 2], [0, 80], 1, 2)[14..], false), there);
        assert_eq!([of(&[], true), of(&[0; 13], true), of(&[0x45; 5], false)], [0; 3]);
        // Quarters are about as large as each other.
        let mut quarters = [0; 4];
        for port in 0..4000u16 {
            let hash = of(&frame(port.to_be_bytes(), [0, 80], 1, 2), true);
            quarters[(hash >> 30) as usize] += 1;
        }
        assert!(quarters.iter().all(|count| (800..1200).contains(count)), "{quarters:?}");
    }
}
