//! Changes addresses, ports and hops of packets in place, and mends the checksums that cover them.
//!
//! `rewrite` and `anonymize` choose the packets, make their blocks writable, and say what each field becomes (`Change`).
//!
//! Checksums are mended by the difference (RFC 1624), never recomputed. So a wrong checksum stays wrong by as much, and that
//! of a cut packet stays right for the whole packet. UDP without a checksum stays without.
//!
//! The packet inside an ICMP error is changed as the original packet was. ARP is changed, too.

use packet::checksum::{Sum, mended};
use packet::frame::{self, Frame, protocol};
use packet::{ethernet, ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The end of a packet that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Target,
}

/// Says what the fields of packets become.
pub(crate) trait Change {
    fn address(&mut self, address: IpAddr, end: End) -> IpAddr;

    /// A port of TCP, UDP, UDP-Lite or DCCP.
    fn port(&mut self, port: u16, _end: End) -> u16 {
        port
    }

    /// The time to live, or hop limit, of a packet. The field inside an ICMP error stays.
    fn hops(&mut self, hops: u8) -> u8 {
        hops
    }

    /// An Ethernet address in ARP.
    fn mac(&mut self, mac: [u8; 6], _end: End) -> [u8; 6] {
        mac
    }
}

/// Reverse ARP (RFC 903).
const RARP: u16 = 0x8035;

/// Whether it is the ether type of ARP or of reverse ARP.
pub(crate) fn is_arp(ether_type: u16) -> bool {
    ether_type == ethernet::ARP || ether_type == RARP
}

/// Whether it is the ether type of a VLAN tag.
pub(crate) fn is_tag(ether_type: u16) -> bool {
    use ethernet::{OLD_VLAN, OLD_VLAN_2, OLD_VLAN_3, SERVICE_VLAN, VLAN};
    matches!(ether_type, VLAN | SERVICE_VLAN | OLD_VLAN | OLD_VLAN_2 | OLD_VLAN_3)
}

/// Bytes of an ARP packet about IPv4 over Ethernet.
pub(crate) const ARP_BYTES: usize = 28;

/// Changes an ARP packet. `false`: it is cut, or not about IPv4 over Ethernet, and stays as it was.
pub(crate) fn change_arp(packet: &mut [u8], change: &mut impl Change) -> bool {
    let Some(packet) = packet.first_chunk_mut::<ARP_BYTES>().filter(|packet| packet[..6] == [0, 1, 8, 0, 6, 4]) else {
        return false;
    };
    for (end, at) in [(End::Source, 8), (End::Target, 18)] {
        let mac = change.mac(array(&packet[at..]), end);
        packet[at..at + 6].copy_from_slice(&mac);
        let address = change.address(Ipv4Addr::from(array::<4>(&packet[at + 6..])).into(), end);
        if let IpAddr::V4(address) = address {
            packet[at + 6..at + 10].copy_from_slice(&address.octets());
        }
    }
    true
}

/// The first bytes of `bytes`. The caller knows that they exist.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// Changes the IP packet that `read` describes.
pub(crate) fn change_ip(bytes: &mut [u8], read: &Frame, change: &mut impl Change) {
    change_packet(bytes, read, change, false);
}

fn change_packet(bytes: &mut [u8], read: &Frame, change: &mut impl Change, is_inner: bool) {
    let at = read.network_offset as usize;
    let (width, hops_at) = if read.version == 4 { (4, at + 8) } else { (16, at + 7) };
    let source_at = if read.version == 4 { at + 12 } else { at + 8 };
    let covered = covered_by_transport(bytes, read, source_at, width);
    let before = [Sum::of(&bytes[source_at..source_at + 2 * width]), Sum::of(&bytes[covered.clone()])];
    for (end, at) in [(End::Source, source_at), (End::Target, source_at + width)] {
        put_address(&mut bytes[at..at + width], end, change);
    }
    let after = [Sum::of(&bytes[source_at..source_at + 2 * width]), Sum::of(&bytes[covered])];
    // The header word of hops and protocol, without the protocol.
    let hops = Sum::number(u32::from(bytes[hops_at]) << 8);
    if !is_inner {
        bytes[hops_at] = change.hops(bytes[hops_at]);
    }
    if read.version == 4 {
        let changed = Sum::number(u32::from(bytes[hops_at]) << 8);
        mend(bytes, at + 10, before[0].and(hops), after[0].and(changed));
    }
    if !read.is_later_fragment() {
        change_transport(bytes, read, before[1], after[1], change, is_inner);
    }
}

/// The range of addresses that the transport checksum covers. A routing header may list stations that remain: then its last
/// station is covered instead of the target (RFC 8200, section 8.1).
fn covered_by_transport(bytes: &[u8], read: &Frame, source_at: usize, width: usize) -> std::ops::Range<usize> {
    let has_stations = read.version == 6 && has_stations_left(bytes, read);
    source_at..source_at + if has_stations { width } else { 2 * width }
}

fn has_stations_left(bytes: &[u8], read: &Frame) -> bool {
    let header = read.network_offset as usize;
    let (mut next, mut at) = (bytes[header + 6], header + ipv6::Packet::HEADER_BYTES);
    while at < read.transport_offset as usize {
        let Some(&[following, length, _, left]) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { break };
        if next == ipv6::ROUTING && left > 0 {
            return true;
        }
        at += match next {
            ipv6::FRAGMENT => 8,
            ipv6::AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        next = following;
    }
    false
}

fn put_address(field: &mut [u8], end: End, change: &mut impl Change) {
    let address = match field.len() {
        4 => IpAddr::V4(Ipv4Addr::from(array::<4>(field))),
        _ => IpAddr::V6(Ipv6Addr::from(array::<16>(field))),
    };
    match change.address(address, end) {
        IpAddr::V4(address) if field.len() == 4 => field.copy_from_slice(&address.octets()),
        IpAddr::V6(address) if field.len() == 16 => field.copy_from_slice(&address.octets()),
        // An address keeps its IP version.
        _ => {}
    }
}

/// Whether a transport header begins with two ports, and has a checksum that can be mended.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::DCCP)
}

/// The offset of the checksum in a transport header.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(16),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(6),
        protocol::ICMP | protocol::ICMPV6 | protocol::IGMP => Some(2),
        _ => None,
    }
}

/// Changes a transport header. Mends its checksum by that change, and by the change of the addresses that it covers.
fn change_transport(bytes: &mut [u8], read: &Frame, old: Sum, new: Sum, change: &mut impl Change, is_inner: bool) {
    // The bytes may be cropped to the headers.
    let (start, end) = (read.transport_offset as usize, bytes.len().min(read.payload_end as usize));
    let Some(check) = checksum_at(read.protocol) else { return };
    let Some(transport) = bytes.get_mut(start..end) else { return };
    let covers_addresses = !matches!(read.protocol, protocol::ICMP | protocol::IGMP);
    let (mut old, mut new) = if covers_addresses { (old, new) } else { Default::default() };
    if matches!(read.protocol, protocol::ICMP | protocol::ICMPV6) {
        let (before, after) = change_icmp(transport, read.protocol, change, is_inner);
        (old, new) = (old.and(before), new.and(after));
    } else if let Some(ports) = transport.first_chunk_mut::<4>().filter(|_| has_ports(read.protocol)) {
        old = old.and(Sum::of(ports));
        let [source, target] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
        let [source, target] =
            [change.port(source, End::Source), change.port(target, End::Target)].map(u16::to_be_bytes);
        *ports = [source[0], source[1], target[0], target[1]];
        new = new.and(Sum::of(ports));
    }
    mend_transport(transport, read.protocol, check, old, new);
}

/// Mends the checksum of a transport header, after a change of the header or its payload.
fn mend_transport(transport: &mut [u8], protocol: u8, check: usize, old: Sum, new: Sum) {
    let is_udp = matches!(protocol, protocol::UDP | protocol::UDP_LITE);
    if is_udp && transport.get(check..check + 2) == Some(&[0, 0]) {
        return;
    }
    mend(transport, check, old, new);
    if is_udp && transport.get(check..check + 2) == Some(&[0, 0]) {
        // 0 would mean that there is no checksum.
        transport[check..check + 2].fill(0xff);
    }
}

/// Recomputes the checksums of the IPv4 header and of the transport header, where all covered bytes are present. UDP over
/// IPv4 without a checksum stays without.
pub fn sum_up(bytes: &mut [u8], read: &Frame) {
    let at = read.network_offset as usize;
    let addresses = if read.version == 4 { at + 12..at + 20 } else { at + 8..at + 40 };
    if read.version == 4 {
        let end = at + usize::from(bytes[at] & 0xf) * 4;
        put_checksum(&mut bytes[at..end], 10, Sum::default());
    }
    let covered = Sum::of(&bytes[addresses]).and(Sum::number(read.protocol.into()));
    let is_whole = read.fragment.is_none() && !read.is_cut() && !(read.version == 6 && has_stations_left(bytes, read));
    let (Some(check), true) = (checksum_at(read.protocol), is_whole) else { return };
    let transport = &mut bytes[read.payload()];
    let len = match read.protocol {
        // The length field ends a UDP datagram. In UDP-Lite it says how much the checksum covers, 0: all (RFC 3828).
        protocol::UDP | protocol::UDP_LITE => match transport.get(4..6) {
            Some(&[0, 0]) | None => transport.len(),
            Some(len) => usize::from(u16::from_be_bytes(array(len))),
        },
        _ => transport.len(),
    };
    let all = transport.len();
    let (Some(covers), true) = (transport.get_mut(..len), len >= check + 2) else { return };
    let is_udp = matches!(read.protocol, protocol::UDP | protocol::UDP_LITE);
    if read.protocol == protocol::UDP && read.version == 4 && covers[check..check + 2] == [0, 0] {
        return;
    }
    let pseudo_len = if read.protocol == protocol::UDP { len } else { all };
    let pseudo = match read.protocol {
        protocol::ICMP | protocol::IGMP => Sum::default(),
        _ => covered.and(Sum::number(pseudo_len as u32)),
    };
    put_checksum(covers, check, pseudo);
    if is_udp && covers[check..check + 2] == [0, 0] {
        covers[check..check + 2].fill(0xff);
    }
}

/// Writes the checksum of `bytes` at `at`. `also`: the sum of further covered bytes.
fn put_checksum(bytes: &mut [u8], at: usize, also: Sum) {
    bytes[at..at + 2].fill(0);
    let check = Sum::of(bytes).and(also).checksum();
    bytes[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

/// Mends the transport checksum after the payload's sum changed from `old` to `new`. Both payloads begin at an even offset
/// of the segment.
pub(crate) fn mend_payload(bytes: &mut [u8], read: &Frame, old: Sum, new: Sum) {
    let Some(check) = checksum_at(read.protocol) else { return };
    if let Some(transport) = bytes.get_mut(read.transport_offset as usize..) {
        mend_transport(transport, read.protocol, check, old, new);
    }
}

/// Mends the checksum at `at`, if it was captured.
fn mend(bytes: &mut [u8], at: usize, old: Sum, new: Sum) {
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *field = mended(u16::from_be_bytes(*field), old, new).to_be_bytes();
    }
}

/// Addresses and the packet inside an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// Offset and length of an address.
    pub(crate) address: Option<(usize, usize)>,
    /// Offset of the inner packet.
    pub(crate) packet: Option<usize>,
    /// Bytes of the message that are not payload, without those of the inner packet.
    pub(crate) header_bytes: usize,
}

/// Describes messages of this protocol and type.
pub(crate) fn inside_icmp(protocol: u8, kind: u8) -> Inside {
    let none = Inside { address: None, packet: None, header_bytes: 8 };
    let packet = Inside { packet: Some(8), ..none };
    match (protocol, kind) {
        // RFC 792: unreachable, quench, time exceeded, parameter problem. Redirect has the gateway before the packet.
        (protocol::ICMP, 3 | 4 | 11 | 12) => packet,
        (protocol::ICMP, 5) => Inside { address: Some((4, 4)), ..packet },
        // RFC 4443: unreachable, too big, time exceeded, parameter problem.
        (protocol::ICMPV6, 1..=4) => packet,
        // RFC 4861: neighbour solicitation and advertisement. Their options are payload here.
        (protocol::ICMPV6, 135 | 136) => Inside { address: Some((8, 16)), header_bytes: 24, ..none },
        _ => none,
    }
}

/// Changes addresses and the packet inside an ICMP message. Returns the sums of the message's body before and after.
fn change_icmp(message: &mut [u8], protocol: u8, change: &mut impl Change, is_inner: bool) -> (Sum, Sum) {
    let none = (Sum::default(), Sum::default());
    // No ICMP error is about an ICMP error.
    let Some(kind) = message.first().copied().filter(|_| !is_inner) else { return none };
    let Inside { address, packet, .. } = inside_icmp(protocol, kind);
    if address.is_none() && packet.is_none() {
        return none;
    }
    let before = Sum::of(&message[4.min(message.len())..]);
    if let Some(field) = address.and_then(|(at, bytes)| message.get_mut(at..at + bytes)) {
        put_address(field, End::Target, change);
    }
    if let Some(at) = packet
        && let Ok(read) = frame::parse_ip(message, at as u32, message.len() as u32)
    {
        change_packet(message, &read, change, true);
    }
    (before, Sum::of(&message[4.min(message.len())..]))
}
