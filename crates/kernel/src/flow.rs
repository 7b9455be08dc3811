//! A packet's flow: its ports, and a hash that is the same in both directions. In Rust, and as a part of the kernel program.
//!
//! The hash divides a device's traffic among readers, so every writer of a ring must compute the same hash. It covers
//! addresses, protocol and ports. If some of these are missing, it covers the rest; without IP it is 0. One VLAN tag is
//! skipped. The hash is unfit for tables that could be flooded: an attacker can find flows with equal hashes.
//!
//! The ports are the class that the filter `port` gives a packet. They are set only if that filter certainly gives the
//! same. It handles the other cases itself: other headers before IP, extension headers, fragments, and packets whose
//! length contradicts IP.

use crate::code::{Alu, Code, Compare, Label, Register, Width};
use crate::lower::{HEAD_BYTES, facts};
use Register::{R0, R1, R2, R4, R5, R7, R9};
use buffer::live::{Facts, SlotFlags};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// TCP, UDP, SCTP: their headers begin with both ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

const PORTS_BYTES: usize = 4;

/// IPv4 without options: version and header length.
const PLAIN: u8 = 0x45;

/// IPv4 with the most options.
const LONGEST: u8 = 0x4f;

/// Bits of IPv4's fragment word that are set in fragments.
const FRAGMENT: u16 = 0x3fff;

/// Multipliers of MurmurHash3's finalizer.
const MIX: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];

/// The facts about a packet's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Its hash.
    pub hash: u32,
    /// Source << 16 | destination, if the filter `port` would pass the packet with that class. `None`: the filter must
    /// read the bytes.
    pub ports: Option<u32>,
}

impl Flow {
    /// Adds the flow to a packet's facts.
    #[must_use]
    pub fn add_to(self, facts: Facts) -> Facts {
        let flags = if self.ports.is_some() { facts.flags.with(SlotFlags::PORTS) } else { facts.flags };
        Facts { hash: self.hash, class: self.ports.unwrap_or(0), flags, ..facts }
    }
}

/// The flow of a captured frame that had `wire_len` bytes on the wire, with an Ethernet header or without a link header.
///
/// Only Ethernet frames get ports: without a link header, most devices carry IP, but some carry Frame Relay. Truncated
/// packets get none, since their bytes may be missing from the slot.
pub fn of(bytes: &[u8], wire_len: u32, ethernet: bool) -> Flow {
    let is_whole = bytes.len() as u64 >= wire_len.into();
    let head = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
    let (hash, ports) = parse(head, ethernet).unwrap_or_default();
    let hashed = ports.map_or(0, |ports| u32::from((ports ^ ports >> 16) as u16).swap_bytes());
    Flow { hash: mix(hash ^ hashed), ports: ports.filter(|_| ethernet && is_whole) }
}

fn mix(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(MIX[0]);
    (hash ^ hash >> 13).wrapping_mul(MIX[1])
}

fn parse(bytes: &[u8], ethernet: bool) -> Option<(u32, Option<u32>)> {
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
    // A length of 0 means up to the end: segmentation offload, or a jumbo packet.
    let holds = |len: u16, least: usize| len == 0 || usize::from(len) >= least;
    let (hash, protocol, ports) = match kind {
        IPV4 => {
            let protocol = bytes[at + 9];
            let hash = four(at + 12)? ^ four(at + 16)? ^ u32::from(protocol);
            let header = usize::from(bytes[at] & 0xf) * 4;
            let is_sound = (PLAIN..=LONGEST).contains(&bytes[at])
                && two(at + 6)? & FRAGMENT == 0
                && holds(two(at + 2)?, header + PORTS_BYTES);
            (hash, protocol, is_sound.then_some(at + header))
        }
        IPV6 => {
            bytes.get(at + 39)?;
            let protocol = bytes[at + 6];
            let words = (0..8).try_fold(0, |hash, word| Some(hash ^ four(at + 8 + 4 * word)?))?;
            let is_sound = bytes[at] >> 4 == 6 && holds(two(at + 4)?, PORTS_BYTES);
            (words ^ u32::from(protocol), protocol, is_sound.then_some(at + 40))
        }
        _ => return None,
    };
    let ports = ports.filter(|_| WITH_PORTS.contains(&protocol));
    Some((hash, ports.and_then(four).map(u32::swap_bytes)))
}

/// Computes the same from the copy in `R7`. Does not check whether the packet was truncated.
///
/// | register | result |
/// |---|---|
/// | `R9` | hash |
/// | `R5` | ports; 0 if they are unknown |
/// | `R4` | `flags`, with [`SlotFlags::PORTS`] if the ports are known |
///
/// Changes `R0` to `R2`. Keeps `R3`, `R6`, `R7` and `R8`.
///
/// Offsets are constants if possible. For a program with the verifier's guards against speculation (without
/// CAP_PERFMON), each addition of a register to a pointer costs a mask. The verifier refuses an addition whose register
/// has different bounds on different paths.
pub(crate) fn lower(code: &mut Code, ethernet: bool, flags: SlotFlags) {
    let [tagged, options, ports, unsure, mix] = std::array::from_fn(|_| code.label());
    let ways = Ways { options, ports, unsure };
    code.set(R9, 0);
    code.load(Width::Eight, R2, R7, facts::HEAD);
    if ethernet {
        code.jump_if(Compare::Less, R2, 14, unsure);
        code.load(Width::Two, R1, R7, 12);
        code.big_endian(R1, 16);
        TAGS.iter().for_each(|tag| code.jump_if(Compare::Equal, R1, (*tag).into(), tagged));
        internet(code, 14, ways);
        code.place(tagged);
        code.jump_if(Compare::Less, R2, 18, unsure);
        code.load(Width::Two, R1, R7, 16);
        code.big_endian(R1, 16);
        internet(code, 18, ways);
    } else {
        let [four, known] = std::array::from_fn(|_| code.label());
        code.jump_if(Compare::Less, R2, 1, unsure);
        code.load(Width::One, R1, R7, 0);
        code.alu(Alu::ShiftRight, R1, 4);
        code.jump_if(Compare::Equal, R1, 4, four);
        code.set(R1, IPV6.into());
        code.jump(known);
        code.place(four);
        code.set(R1, IPV4.into());
        code.place(known);
        internet(code, 0, ways);
    }
    // The ports are at `R5`, behind options. A loaded value has the same bounds on every path.
    code.place(options);
    code.store(Width::Eight, R7, facts::SCRATCH, R5);
    code.load(Width::One, R5, R7, facts::SCRATCH);
    code.copy(R1, R5);
    code.alu(Alu::Add, R1, PORTS_BYTES as i32);
    code.jump_if_register(Compare::Greater, R1, R2, unsure);
    code.jump_if(Compare::Greater, R5, HEAD_BYTES as i32 - PORTS_BYTES as i32, unsure);
    code.copy(R0, R7);
    code.alu_register(Alu::Add, R0, R5);
    code.load(Width::Four, R1, R0, 0);
    // The ports are in `R1`, in the packet's byte order.
    code.place(ports);
    code.alu_32_register(Alu::Move, R5, R1);
    code.alu_32(Alu::ShiftRight, R1, 16);
    code.alu_32_register(Alu::Xor, R1, R5);
    code.alu_32(Alu::ShiftLeft, R1, 16);
    code.alu_32_register(Alu::Xor, R9, R1);
    if ethernet {
        code.big_endian(R5, 32);
        code.set(R4, flags.with(SlotFlags::PORTS).0 as i32);
        code.jump(mix);
    }
    code.place(unsure);
    code.set(R5, 0);
    code.set(R4, flags.0 as i32);
    code.place(mix);
    for (shift, multiplier) in [16, 13].into_iter().zip(MIX) {
        code.alu_32_register(Alu::Move, R1, R9);
        code.alu_32(Alu::ShiftRight, R1, shift);
        code.alu_32_register(Alu::Xor, R9, R1);
        code.alu_32(Alu::Multiply, R9, multiplier);
    }
}

#[derive(Clone, Copy)]
struct Ways {
    options: Label,
    ports: Label,
    unsure: Label,
}

/// Parses an IP packet at a fixed offset, and jumps to a continuation. `R1` holds the EtherType, `R2` the available bytes.
fn internet(code: &mut Code, at: i16, Ways { options, ports, unsure }: Ways) {
    let [v4, v6, plain] = std::array::from_fn(|_| code.label());
    // The protocol is in `R4`. Falls through if it has ports.
    let with_ports = |code: &mut Code| {
        let one_of = code.label();
        WITH_PORTS.iter().for_each(|protocol| code.jump_if(Compare::Equal, R4, (*protocol).into(), one_of));
        code.jump(unsure);
        code.place(one_of);
    };
    // The packet's length minus 1, so that 0 becomes the largest value.
    let load_last = |code: &mut Code, at: i16| {
        code.load(Width::Two, R1, R7, at);
        code.big_endian(R1, 16);
        code.alu(Alu::Subtract, R1, 1);
    };
    let load_ports = |code: &mut Code, at: i16| {
        code.jump_if(Compare::Less, R2, i32::from(at) + PORTS_BYTES as i32, unsure);
        code.load(Width::Four, R1, R7, at);
        code.jump(ports);
    };
    code.jump_if(Compare::Less, R2, i32::from(at) + 20, unsure);
    code.jump_if(Compare::Equal, R1, IPV4.into(), v4);
    code.jump_if(Compare::Equal, R1, IPV6.into(), v6);
    code.jump(unsure);

    code.place(v4);
    code.load(Width::Four, R9, R7, at + 12);
    code.load(Width::Four, R1, R7, at + 16);
    code.alu_32_register(Alu::Xor, R9, R1);
    code.load(Width::One, R4, R7, at + 9);
    code.alu_32_register(Alu::Xor, R9, R4);
    code.load(Width::Two, R1, R7, at + 6);
    code.jump_if(Compare::AnyBit, R1, FRAGMENT.to_be().into(), unsure);
    with_ports(code);
    load_last(code, at + 2);
    code.load(Width::One, R5, R7, at);
    code.jump_if(Compare::Equal, R5, PLAIN.into(), plain);
    code.jump_if(Compare::Less, R5, PLAIN.into(), unsure);
    code.jump_if(Compare::Greater, R5, LONGEST.into(), unsure);
    code.alu(Alu::And, R5, 0xf);
    code.alu(Alu::ShiftLeft, R5, 2);
    code.copy(R0, R5);
    code.alu(Alu::Add, R0, PORTS_BYTES as i32 - 1);
    code.jump_if_register(Compare::Less, R1, R0, unsure);
    code.alu(Alu::Add, R5, at.into());
    code.jump(options);
    code.place(plain);
    code.jump_if(Compare::Less, R1, 20 + PORTS_BYTES as i32 - 1, unsure);
    load_ports(code, at + 20);

    code.place(v6);
    code.jump_if(Compare::Less, R2, i32::from(at) + 40, unsure);
    for word in 0..8 {
        code.load(Width::Four, R1, R7, at + 8 + 4 * word);
        code.alu_32_register(Alu::Xor, R9, R1);
    }
    code.load(Width::One, R4, R7, at + 6);
    code.alu_32_register(Alu::Xor, R9, R4);
    with_ports(code);
    code.load(Width::One, R1, R7, at);
    code.alu(Alu::And, R1, 0xf0);
    code.jump_if(Compare::NotEqual, R1, 0x60, unsure);
    load_last(code, at + 4);
    code.jump_if(Compare::Less, R1, PORTS_BYTES as i32 - 1, unsure);
    load_ports(code, at + 40);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8], ethernet: bool) -> u32 {
        of(bytes, bytes.len() as u32, ethernet).hash
    }

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
        let there = hash(&frame([1, 2], [0, 80], 1, 2), true);
        assert_eq!(there, hash(&frame([0, 80], [1, 2], 2, 1), true));
        let mut tagged = frame([1, 2], [0, 80], 1, 2);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(hash(&tagged, true), there);
        assert_ne!(hash(&frame([1, 3], [0, 80], 1, 2), true), there);
        assert_ne!(hash(&frame([1, 2], [0, 80], 1, 3), true), there);
        assert_eq!(hash(&frame([1, 2], [0, 80], 1, 2)[14..], false), there);
        assert_eq!([hash(&[], true), hash(&[0; 13], true), hash(&[0x45; 5], false)], [0; 3]);
        // All quarters are about equally large.
        let mut quarters = [0; 4];
        for port in 0..4000u16 {
            let hash = hash(&frame(port.to_be_bytes(), [0, 80], 1, 2), true);
            quarters[(hash >> 30) as usize] += 1;
        }
        assert!(quarters.iter().all(|count| (800..1200).contains(count)), "{quarters:?}");
    }

    #[test]
    fn ports_are_said_where_they_are_sure() {
        // From port 258 to port 80.
        const TOLD: u32 = 0x0102_0050;
        let v4 = |first: u8, total: u8, fragment: u8, protocol: u8| {
            let mut packet = vec![first, 0, 0, total, 0, 7, fragment, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            packet.resize((usize::from(first & 0xf) * 4).max(20), 1);
            packet.extend([1, 2, 0, 80, 0, 8, 0, 0]);
            packet
        };
        let v6 = |first: u8, payload: u8, next: u8| {
            let mut packet = vec![first, 0, 0, 0, 0, payload, next, 64];
            packet.resize(40, 9);
            packet.extend([1, 2, 0, 80, 0, 8, 0, 0]);
            packet
        };
        let check = |kind: [u8; 2], packet: &[u8], expected: bool| {
            for before in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5]] {
                let frame = [&[0; 12], before, &kind, packet].concat();
                let wire = frame.len() as u32;
                let told = of(&frame, wire, true).ports;
                assert_eq!(told, expected.then_some(TOLD), "{before:x?} {kind:x?} {packet:x?}");
                assert_eq!(of(&frame, wire + 1, true).ports, None, "it was cut");
                assert_eq!(of(&frame[..frame.len() - 5], wire - 5, true).ports, None, "not all of the ports are there");
                assert_eq!(of(&frame[..frame.len() - 4], wire - 4, true).ports, told);
                assert_eq!(of(packet, packet.len() as u32, false).ports, None);
            }
            let tagged_twice = [&[0; 12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6][..], &kind, packet].concat();
            assert_eq!(of(&tagged_twice, 0, true).ports, None);
        };
        const FOUR: [u8; 2] = [8, 0];
        const SIX: [u8; 2] = [0x86, 0xdd];
        for protocol in 0..=255 {
            let has_ports = [6, 17, 132].contains(&protocol);
            check(FOUR, &v4(0x45, 28, 0, protocol), has_ports);
            check(SIX, &v6(0x60, 8, protocol), has_ports);
        }
        for first in 0..=255 {
            check(FOUR, &v4(first, 0, 0, 17), (0x45..=0x4f).contains(&first));
            check(SIX, &v6(first, 0, 6), first >> 4 == 6);
        }
        for len in 0..=255 {
            check(FOUR, &v4(0x45, len, 0, 6), len == 0 || len >= 24);
            check(FOUR, &v4(0x4f, len, 0, 6), len == 0 || len >= 64);
            check(SIX, &v6(0x6a, len, 17), len == 0 || len >= 4);
        }
        for fragment in 0..=255 {
            check(FOUR, &v4(0x45, 28, fragment, 6), fragment & 0x3f == 0);
        }
        check([8, 6], &v4(0x45, 28, 0, 6), false);
        check(SIX, &v4(0x45, 28, 0, 6), false);
        check(FOUR, &v6(0x60, 8, 6), false);
    }

    #[test]
    fn facts_say_what_is_known() {
        let facts = Facts { flags: SlotFlags::OUTBOUND, wire: 60, ..Facts::default() };
        let known = Flow { hash: 7, ports: Some(0) }.add_to(facts);
        assert_eq!((known.hash, known.class, known.wire), (7, 0, 60));
        assert_eq!(known.flags, SlotFlags::OUTBOUND.with(SlotFlags::PORTS));
        assert_eq!(Flow { hash: 7, ports: Some(9) }.add_to(facts).class, 9);
        assert_eq!(Flow { hash: 0, ports: None }.add_to(facts), facts);
    }
}
