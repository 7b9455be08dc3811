//! Neighbour Discovery for IPv6 over Ethernet (RFC 4861): reads and writes neighbour solicitations and advertisements
//! as ICMPv6 messages. The caller handles checksum and hop limit, which need the IPv6 header.

use std::net::Ipv6Addr;

use crate::bytes::chunk_at;
use crate::malformed::Malformed;

/// ICMPv6 type: a host looks for routers.
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type: a router announces itself.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// ICMPv6 type: asks which station has an address.
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type: a station says that it has the address.
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// ICMPv6 type: a router names a better next hop.
pub const REDIRECT: u8 = 137;

/// The hop limit of every message. A smaller one came through a router (RFC 4861 7.1).
pub const HOP_LIMIT: u8 = 255;

/// Advertisement flag: it answers a solicitation.
pub const SOLICITED: u8 = 0x40;
/// Advertisement flag: it replaces the known hardware address.
pub const OVERRIDE: u8 = 0x20;

/// Option: the sender's hardware address.
const SOURCE_ADDRESS: u8 = 1;
/// Option: the target's hardware address.
const TARGET_ADDRESS: u8 = 2;

/// The group of all stations on the link (RFC 4291 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group of the stations whose addresses have the same last 24 bits (RFC 4291 2.7.1).
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

/// A neighbour solicitation or advertisement with checked fields and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    source_mac: Option<[u8; 6]>,
    target_mac: Option<[u8; 6]>,
}

impl Packet {
    /// Length of a message without options.
    pub const HEADER_BYTES: usize = 24;

    /// Length of a message with a hardware address.
    pub const BYTES: usize = Packet::HEADER_BYTES + 8;

    /// Checks type, code, target and options (RFC 4861 7.1.1, 7.1.2). `bytes` are the whole ICMPv6 message. Every
    /// option takes at least 8 bytes, so the packet's length bounds their number.
    pub fn new_checked(bytes: &[u8]) -> Result<Packet, Malformed> {
        let (header, mut options) = bytes.split_first_chunk::<24>().ok_or(Malformed::TruncatedNdp)?;
        let [kind @ (NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT), 0, _, _, flags, ..] = *header else {
            return Err(Malformed::OtherProtocol);
        };
        // The header has 24 bytes, so 16 at offset 8 exist.
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
                // An Ethernet address with another option length.
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

    /// The flags of an advertisement: [`SOLICITED`], [`OVERRIDE`] and others.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// The address in question.
    pub const fn target(&self) -> Ipv6Addr {
        self.target
    }

    /// The sender's hardware address, from the option of a solicitation.
    pub const fn source_mac(&self) -> Option<[u8; 6]> {
        self.source_mac
    }

    /// The target's hardware address, from the option of an advertisement.
    pub const fn target_mac(&self) -> Option<[u8; 6]> {
        self.target_mac
    }
}

/// A solicitation from the station `mac` for the hardware address of `target`. The checksum is 0.
pub fn solicitation(target: Ipv6Addr, mac: [u8; 6]) -> [u8; Packet::BYTES] {
    message(NEIGHBOUR_SOLICITATION, 0, target, SOURCE_ADDRESS, mac)
}

/// A solicitation that checks whether another station has `target`, before this one takes it (RFC 4862 5.4.2). The
/// sender has no address yet, so the message contains none. The checksum is 0.
pub fn probe(target: Ipv6Addr) -> [u8; Packet::HEADER_BYTES] {
    let whole = solicitation(target, [0; 6]);
    // The message has 32 bytes, so its first 24 exist.
    *whole.first_chunk().unwrap_or(&[0; Packet::HEADER_BYTES])
}

/// An advertisement of the hardware address of `target`. The checksum is 0.
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
        // A nonce (RFC 3971 5.3.2) and other options are skipped.
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
