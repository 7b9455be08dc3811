//! Neighbour Discovery for IPv6 over Ethernet (RFC 4861): solicitations and advertisements of neighbours, read and written as
//! ICMPv6 messages. The checksum and the hop limit are with the IPv6 header, and so the caller's.

use std::net::Ipv6Addr;

use crate::bytes::chunk_at;
use crate::malformed::Malformed;

/// Types of ICMPv6: a router is sought, and says that it is one.
pub const ROUTER_SOLICITATION: u8 = 133;
/// A router says that it is one.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Asks who has an address.
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Tells who has it.
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// A router says who is nearer.
pub const REDIRECT: u8 = 137;

/// The hop limit of every message: one with a smaller one came by a router (RFC 4861 7.1).
pub const HOP_LIMIT: u8 = 255;

/// Flags of an advertisement: it answers a solicitation.
pub const SOLICITED: u8 = 0x40;
/// It replaces the hardware address that is known.
pub const OVERRIDE: u8 = 0x20;

/// Options: the sender's hardware address.
const SOURCE_ADDRESS: u8 = 1;
/// The hardware address of the target.
const TARGET_ADDRESS: u8 = 2;

/// All stations of the link (RFC 4291 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group of the stations whose addresses end as this one does (RFC 4291 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., f, g, h] = address.octets();
    let low = (g as u16) << 8 | h as u16;
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | f as u16, low)
}

/// The hardware address of a group (RFC 2464 7).
pub const fn group_mac(group: Ipv6Addr) -> [u8; 6] {
    let [.., e, f, g, h] = group.octets();
    [0x33, 0x33, e, f, g, h]
}

/// A solicitation or an advertisement of a neighbour whose fields and options were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    source_mac: Option<[u8; 6]>,
    target_mac: Option<[u8; 6]>,
}

impl Packet {
    /// A message without options.
    pub const HEADER_BYTES: usize = 24;

    /// A message with a hardware address.
    pub const BYTES: usize = Packet::HEADER_BYTES + 8;

    /// Checks type, code, target and options (RFC 4861 7.1.1, 7.1.2); `bytes` are the whole ICMPv6 message. Every option takes
    /// 8 bytes or more, so that there are no more of them than the packet has room for.
    pub fn new_checked(bytes: &[u8]) -> Result<Packet, Malformed> {
        let (header, mut options) = bytes.split_first_chunk::<24>().ok_or(Malformed::TruncatedNdp)?;
        let [kind @ (NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT), 0, _, _, flags, ..] = *header else {
            return Err(Malformed::OtherProtocol);
        };
        // 16 bytes at 8 of 24 are always there.
        let target = Ipv6Addr::from(*chunk_at::<16>(header, 8).unwrap_or(&[0; 16]));
        if target.is_multicast() {
            return Err(Malformed::NdpTarget);
        }
        let mut packet = Packet { kind, flags, target, source_mac: None, target_mac: None };
        while let [option, units, ..] = *options {
            let (whole, rest) = options.split_at_checked(usize::from(units) * 8).ok_or(Malformed::NdpOption)?;
            let mac = whole.get(2..).and_then(|mac| <[u8; 6]>::try_from(mac).ok());
            match (option, mac) {
                _ if units == 0 => return Err(Malformed::NdpOption),
                // An address of Ethernet has one length.
                (SOURCE_ADDRESS | TARGET_ADDRESS, None) => return Err(Malformed::NdpOption),
                (SOURCE_ADDRESS, mac) => packet.source_mac = mac,
                (TARGET_ADDRESS, mac) => packet.target_mac = mac,
                _ => {}
            }
            options = rest;
        }
        if options.is_empty() { Ok(packet) } else { Err(Malformed::NdpOption) }
    }

    /// [`NEIGHBOUR_SOLICITATION`] or [`NEIGHBOUR_ADVERTISEMENT`].
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// [`SOLICITED`], [`OVERRIDE`] and others, of an advertisement.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// The address that it is about.
    pub const fn target(&self) -> Ipv6Addr {
        self.target
    }

    /// The sender's hardware address, as the option of a solicitation says it.
    pub const fn source_mac(&self) -> Option<[u8; 6]> {
        self.source_mac
    }

    /// The target's hardware address, as the option of an advertisement says it.
    pub const fn target_mac(&self) -> Option<[u8; 6]> {
        self.target_mac
    }
}

/// A message by which the station with this hardware address asks for that of `target`; its checksum is 0.
pub fn solicitation(target: Ipv6Addr, mac: [u8; 6]) -> [u8; Packet::BYTES] {
    message(NEIGHBOUR_SOLICITATION, 0, target, SOURCE_ADDRESS, mac)
}

/// A message by which a station asks whether another one has `target`, which it is about to take (RFC 4862 5.4.2). It has no
/// address yet, and so the message has none. Its checksum is 0.
pub fn probe(target: Ipv6Addr) -> [u8; Packet::HEADER_BYTES] {
    let whole = solicitation(target, [0; 6]);
    // 24 of 32 bytes are always there.
    *whole.first_chunk().unwrap_or(&[0; Packet::HEADER_BYTES])
}

/// A message that tells the hardware address of `target`; its checksum is 0.
pub fn advertisement(flags: u8, target: Ipv6Addr, mac: [u8; 6]) -> [u8; Packet::BYTES] {
    message(NEIGHBOUR_ADVERTISEMENT, flags, target, TARGET_ADDRESS, mac)
}

fn message(kind: u8, flags: u8, target: Ipv6Addr, option: u8, mac: [u8; 6]) -> [u8; Packet::BYTES] {
    let mut bytes = [0; Packet::BYTES];
    (bytes[0], bytes[4]) = (kind, flags);
    bytes[8..24].copy_from_slice(&target.octets());
    bytes[24..26].copy_from_slice(&[option, 1]);
    bytes[26..].copy_from_slice(&mac);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const TARGET: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, 0x3456);

    #[test]
    fn groups_are_those_of_the_rfcs() {
        assert_eq!(solicited_node(TARGET).to_string(), "ff02::1:ff12:3456");
        assert_eq!(group_mac(solicited_node(TARGET)), [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert_eq!(group_mac(ALL_NODES), [0x33, 0x33, 0, 0, 0, 1]);
    }

    #[test]
    fn what_is_written_is_read() {
        let read = |bytes: &[u8]| {
            let packet = Packet::new_checked(bytes).unwrap();
            (packet.kind(), packet.flags(), packet.target(), packet.source_mac(), packet.target_mac())
        };
        assert_eq!(read(&solicitation(TARGET, MAC)), (NEIGHBOUR_SOLICITATION, 0, TARGET, Some(MAC), None));
        assert_eq!(read(&probe(TARGET)), (NEIGHBOUR_SOLICITATION, 0, TARGET, None, None));
        let advertised = advertisement(SOLICITED | OVERRIDE, TARGET, MAC);
        assert_eq!(read(&advertised), (NEIGHBOUR_ADVERTISEMENT, 0x60, TARGET, None, Some(MAC)));
    }

    #[test]
    fn options_are_walked_and_wrong_lengths_are_refused() {
        let check = |options: &[u8], expected: Result<Option<[u8; 6]>, Malformed>| {
            let bytes = [&probe(TARGET)[..], options].concat();
            assert_eq!(Packet::new_checked(&bytes).map(|packet| packet.source_mac()), expected, "{options:?}");
        };
        let source = [&[1, 1][..], &MAC].concat();
        check(&source, Ok(Some(MAC)));
        // A nonce (RFC 3971 5.3.2) and others are passed over.
        check(&[&[14, 1, 1, 2, 3, 4, 5, 6][..], &source, &[200, 2], &[0; 14]].concat(), Ok(Some(MAC)));
        check(&[14, 0, 1, 2, 3, 4, 5, 6], Err(Malformed::NdpOption));
        check(&[1, 0, 1, 2, 3, 4, 5, 6], Err(Malformed::NdpOption));
        check(&[1, 2, 1, 2, 3, 4, 5, 6], Err(Malformed::NdpOption));
        check(&[&[1, 2][..], &[0; 14]].concat(), Err(Malformed::NdpOption));
        check(&[14], Err(Malformed::NdpOption));
        check(&[14, 255, 0, 0, 0, 0, 0, 0], Err(Malformed::NdpOption));
        check(&[&source[..], &[1]].concat(), Err(Malformed::NdpOption));
        assert_eq!(Packet::new_checked(&probe(TARGET)[..23]), Err(Malformed::TruncatedNdp));
        assert_eq!(Packet::new_checked(&probe(ALL_NODES)), Err(Malformed::NdpTarget));
        let mut other = probe(TARGET);
        other[1] = 1;
        assert_eq!(Packet::new_checked(&other), Err(Malformed::OtherProtocol));
    }
}
