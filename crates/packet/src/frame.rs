//! One pass from link header to transport header, the start of every filter that looks at packets. The result has
//! offsets and plain values but no references, so it can be kept beside a descriptor. Does not reassemble fragments or
//! open tunnels: [`Frame::fragment`] and [`Frame::protocol`] say where to continue, with [`parse_ip`].
//!
//! This file handles two lengths. The wire length comes from the IP header, or from the frame if that says 0. The
//! captured length ends with the bytes. Neither includes padding behind the IP packet.
//!
//! Tiers: Ethernet with IPv4, or IPv6 without extension headers, takes no loop and about a dozen predictable branches.
//! Tags, labels and extension headers take a bounded loop each.
//!
//! Read next: `encapsulation.rs` (below IP), `tcp.rs` and `udp.rs` (above).

use std::net::IpAddr;
use std::ops::Range;

use crate::bytes::length;
pub use crate::encapsulation::ENCAPSULATION_LIMIT;
use crate::encapsulation::{self, Encapsulation, Vlans};
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{ethernet, ipv4, ipv6, tcp, udp};

/// Transport protocol numbers that this crate knows.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// GRE.
    pub const GRE: u8 = 47;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// Ethernet in IP.
    pub const ETHER_IP: u8 = 97;
    /// L2TP.
    pub const L2TP: u8 = 115;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// MPLS in IP.
    pub const MPLS: u8 = 137;
}

/// The offsets and fields of an IP frame. Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset of the IP header.
    pub network_offset: u32,
    /// Offset behind the IP header and its extensions: a transport header, or the middle of a fragment.
    pub transport_offset: u32,
    /// Offset one past the last captured byte of the IP packet.
    pub payload_end: u32,
    /// Bytes on the wire from `transport_offset` to the end of the IP packet. More than
    /// `payload_end - transport_offset` if the capture was cut.
    pub payload_wire_len: u32,
    /// 0x0800 or 0x86dd.
    pub ether_type: u16,
    /// Identifiers of the two outermost VLANs, outermost first.
    pub vlan_ids: [u16; 2],
    /// Number of VLANs: see [`Encapsulation::vlan_count`].
    pub vlan_count: u8,
    /// Number of MPLS labels.
    pub mpls_count: u8,
    /// 4 or 6.
    pub version: u8,
    /// Protocol number at `transport_offset`: [`protocol::TCP`] ...
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// `Some` if this is one fragment of a packet.
    pub fragment: Option<Fragment>,
}

/// The fields for reassembling a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of the fragment in the packet's fragmentable part.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Shared by the fragments of one packet; 16 bits in IPv4.
    pub identification: u32,
    /// Protocol at the start of the fragmentable part. Differs from [`Frame::protocol`] only in a first IPv6 fragment
    /// with extension headers behind its fragment header.
    pub protocol: u8,
    /// Offset of this fragment's bytes in the frame; they end at [`Frame::payload_end`].
    pub start: u32,
}

/// Reads a frame up to its transport header.
///
/// `bytes` are the captured bytes, `wire_len` the length on the wire (if it is less than captured, it is ignored).
/// [`Malformed::NotIp`] means a valid frame of another protocol.
#[inline]
pub fn parse(link: LinkType, bytes: &[u8], wire_len: u32) -> Result<Frame, Malformed> {
    let encapsulation = encapsulation::parse(link, bytes)?;
    match encapsulation.ether_type {
        ethernet::IPV4 => parse_ipv4(bytes, encapsulation, wire_len),
        ethernet::IPV6 => parse_ipv6(bytes, encapsulation, wire_len),
        _ => Err(Malformed::NotIp),
    }
}

/// Reads an IP packet at `offset`: a frame's inner packet, or a reassembled one.
///
/// `wire_len` counts from the start of `bytes`, as for [`parse`]. So do the offsets in the result.
#[inline]
pub fn parse_ip(bytes: &[u8], offset: u32, wire_len: u32) -> Result<Frame, Malformed> {
    let here = Encapsulation { network_offset: offset, ..Encapsulation::default() };
    match bytes.get(offset as usize).map(|first| first >> 4) {
        Some(4) => parse_ipv4(bytes, Encapsulation { ether_type: ethernet::IPV4, ..here }, wire_len),
        Some(6) => parse_ipv6(bytes, Encapsulation { ether_type: ethernet::IPV6, ..here }, wire_len),
        Some(_) => Err(Malformed::IpVersion),
        None => Err(Malformed::TruncatedIpv4),
    }
}

#[inline]
fn parse_ipv4(bytes: &[u8], below: Encapsulation, wire_len: u32) -> Result<Frame, Malformed> {
    let packet = bytes.get(below.network_offset as usize..).ok_or(Malformed::TruncatedIpv4)?;
    let header = ipv4::Packet::new_checked(packet)?;
    let captured = length(bytes);
    let start = below.network_offset.saturating_add(u32::from(header.header_len()));
    let end = match header.total_len() {
        0 => wire_len.max(captured),
        total => below.network_offset.saturating_add(u32::from(total)),
    };
    let end = below.limit.map_or(end, |limit| end.min(limit).max(start));
    let (more, offset) = (header.more_fragments(), header.fragment_offset());
    let fragment = (more || offset != 0).then(|| Fragment {
        offset,
        more,
        identification: u32::from(header.identification()),
        protocol: header.protocol(),
        start,
    });
    let mut frame = Frame {
        network_offset: below.network_offset,
        transport_offset: start,
        payload_end: end.min(captured),
        payload_wire_len: end.saturating_sub(start),
        ether_type: below.ether_type,
        vlan_ids: below.vlan_ids,
        vlan_count: below.vlan_count,
        mpls_count: below.mpls_count,
        version: 4,
        protocol: header.protocol(),
        source: IpAddr::V4(header.source()),
        target: IpAddr::V4(header.target()),
        fragment,
    };
    if frame.protocol == ipv6::AUTHENTICATION && offset == 0 {
        let (protocol, offset) = ipv6::skip_authentication(bytes, start as usize)?;
        frame.behind_extensions(protocol, offset)?;
    }
    Ok(frame)
}

#[inline]
fn parse_ipv6(bytes: &[u8], below: Encapsulation, wire_len: u32) -> Result<Frame, Malformed> {
    let packet = bytes.get(below.network_offset as usize..).ok_or(Malformed::TruncatedIpv6)?;
    let header = ipv6::Packet::new_checked(packet)?;
    let captured = length(bytes);
    let start = below.network_offset.saturating_add(ipv6::Packet::HEADER_BYTES as u32);
    let chain = ipv6::walk(bytes, start as usize, header.next_header())?;
    let end = match (header.payload_len(), chain.jumbo_len) {
        (0, Some(jumbo)) => start.saturating_add(jumbo),
        (0, None) => wire_len.max(captured),
        (payload, _) => start.saturating_add(u32::from(payload)),
    };
    let end = below.limit.map_or(end, |limit| end.min(limit).max(start));
    let mut frame = Frame {
        network_offset: below.network_offset,
        transport_offset: start,
        payload_end: end.min(captured),
        payload_wire_len: end.saturating_sub(start),
        ether_type: below.ether_type,
        vlan_ids: below.vlan_ids,
        vlan_count: below.vlan_count,
        mpls_count: below.mpls_count,
        version: 6,
        protocol: chain.protocol,
        source: IpAddr::V6(header.source()),
        target: IpAddr::V6(header.target()),
        fragment: chain.fragment.map(|found| Fragment {
            offset: found.offset,
            more: found.more,
            identification: found.identification,
            protocol: found.next_header,
            start: found.start as u32,
        }),
    };
    frame.behind_extensions(chain.protocol, chain.offset)?;
    Ok(frame)
}

impl Frame {
    /// Moves the transport header to `offset`, the end of the extension headers.
    #[inline]
    fn behind_extensions(&mut self, protocol: u8, offset: usize) -> Result<(), Malformed> {
        // The walk stays inside the captured bytes, whose length fits `u32`.
        let skipped = (offset as u32).saturating_sub(self.transport_offset);
        if skipped > self.payload_wire_len {
            return Err(Malformed::Ipv6ExtensionLength);
        }
        self.protocol = protocol;
        self.transport_offset += skipped;
        self.payload_wire_len -= skipped;
        Ok(())
    }

    /// The VLAN tags in front of the packet.
    #[inline]
    pub fn vlans(&self) -> Vlans {
        Vlans::new(self.vlan_count, self.vlan_ids)
    }

    /// The captured bytes of the IP payload, with its transport header, as a range of the frame.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.transport_offset as usize..self.payload_end as usize
    }

    /// The captured bytes of the IP payload. `bytes` is the frame this was parsed from.
    #[inline]
    pub fn payload_of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.payload()).unwrap_or_default()
    }

    /// Whether it is a fragment other than the first. Then there is no header at `transport_offset`.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset != 0)
    }

    /// Whether the IP packet was longer on the wire than captured.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.payload_end.saturating_sub(self.transport_offset) < self.payload_wire_len
    }

    /// The TCP segment. `bytes` is the frame this was parsed from.
    #[inline]
    pub fn tcp<'a>(&self, bytes: &'a [u8]) -> Result<tcp::Packet<'a>, Malformed> {
        self.expect(protocol::TCP)?;
        tcp::Packet::new_checked(self.payload_of(bytes), self.payload_wire_len)
    }

    /// The UDP datagram. `bytes` is the frame this was parsed from.
    #[inline]
    pub fn udp<'a>(&self, bytes: &'a [u8]) -> Result<udp::Packet<'a>, Malformed> {
        self.expect(protocol::UDP)?;
        udp::Packet::new_checked(self.payload_of(bytes), self.payload_wire_len)
    }

    #[inline]
    fn expect(&self, protocol: u8) -> Result<(), Malformed> {
        if self.protocol != protocol {
            Err(Malformed::OtherProtocol)
        } else if self.is_later_fragment() {
            Err(Malformed::LaterFragment)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: &[u8] = &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    /// UDP from 10.0.0.1:1000 to 10.0.0.2:53 with four bytes of payload: 32 bytes.
    fn packet_4() -> Vec<u8> {
        let header = [0x45, 0, 0, 32, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&header[..], &[0x03, 0xe8, 0, 53, 0, 12, 0, 0], b"data"].concat()
    }

    /// The same from ::1 to ::2: 52 bytes.
    fn packet_6() -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
        header.extend_from_slice(&1_u128.to_be_bytes());
        header.extend_from_slice(&2_u128.to_be_bytes());
        [&header[..], &packet_4()[20..]].concat()
    }

    fn read(link: LinkType, bytes: &[u8]) -> Result<Frame, Malformed> {
        parse(link, bytes, bytes.len() as u32)
    }

    /// A PPPoE length shorter than the IP header's claim: the rest is padding.
    #[test]
    fn pppoe_length_bounds_the_packet() {
        for (packet, header) in [(packet_4(), [0, 31, 0, 0x21]), (packet_6(), [0, 51, 0, 0x57])] {
            let bytes = [ADDRESSES, &[0x88, 0x64, 0x11, 0, 0, 1], &header, &packet].concat();
            let frame = read(LinkType::ETHERNET, &bytes).unwrap();
            assert_eq!(frame.udp(&bytes).unwrap().payload(), b"d");
            assert!(!frame.is_cut());
        }
    }

    /// Each row: a link type and the bytes before the packet.
    #[test]
    fn links() {
        let check = |link: LinkType, before: &[&[u8]], packet: &[u8]| {
            let bytes = [&before.concat(), packet].concat();
            let frame = read(link, &bytes).unwrap_or_else(|error| panic!("{link} {before:x?}: {error}"));
            assert_eq!(frame.network_offset as usize, bytes.len() - packet.len(), "{link} {before:x?}");
            assert_eq!(frame.udp(&bytes).unwrap().payload(), b"data");
            assert_eq!(frame.version, packet[0] >> 4);
            for cut in 0..bytes.len() - 4 {
                let read = parse(link, &bytes[..cut], bytes.len() as u32)
                    .and_then(|frame| frame.udp(&bytes[..cut]).map(|_| ()));
                assert!(read.is_err(), "{link} {before:x?} cut to {cut}: {read:?}");
            }
        };
        let (v4, v6) = (packet_4(), packet_6());
        check(LinkType::RAW, &[], &v4);
        check(LinkType(12), &[], &v6);
        check(LinkType::IPV4, &[], &v4);
        check(LinkType::NULL, &[&[2, 0, 0, 0]], &v4);
        check(LinkType::NULL, &[&[0, 0, 0, 2]], &v4);
        check(LinkType::NULL, &[&[30, 0, 0, 0]], &v6);
        check(LinkType::LOOP, &[&[0, 0, 0, 24]], &v6);
        check(LinkType::ETHERNET, &[ADDRESSES, &[8, 0]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x86, 0xdd]], &v6);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0, 40, 6, 6, 3]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 34, 0, 0x21]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 53, 0x57]], &v6);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x89, 9, 1, 1, 0, 1, 0, 2, 8, 0]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x89, 0x26, 0, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x89, 0x3f, 0, 0, 0, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x88, 0xe7, 0, 0, 0, 1], ADDRESSES, &[8, 0]], &v4);
        check(LinkType::PPP, &[&[0xff, 3, 0, 0x21]], &v4);
        check(LinkType::PPP, &[&[0x57]], &v6);
        check(LinkType::PPP_SERIAL, &[&[0x0f, 0, 8, 0]], &v4);
        check(LinkType::PPP_WITH_DIRECTION, &[&[1, 0xff, 3, 0, 0x21]], &v4);
        check(LinkType::PPP_PPPD, &[&[1, 3, 0, 0x21]], &v4);
        check(LinkType::PPP_ETHER, &[&[0x11, 0, 0, 1, 0, 34, 0, 0x21]], &v4);
        check(LinkType::C_HDLC, &[&[0x0f, 0, 8, 0]], &v4);
        check(LinkType::C_HDLC_WITH_DIRECTION, &[&[0, 0x0f, 0, 8, 0]], &v4);
        check(LinkType::FRELAY, &[&[0x18, 0x41, 3, 0xcc]], &v4);
        check(LinkType::FRELAY, &[&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::FRELAY_WITH_DIRECTION, &[&[0, 0x18, 0x40, 0, 0x41, 3, 0x8e]], &v6);
        check(LinkType::FDDI, &[&[0x50], ADDRESSES, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::ATM_RFC1483, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]], &v4);
        check(LinkType::LINUX_SLL, &[&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]], &v4);
        check(LinkType::LINUX_SLL2, &[&[0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]], &v6);
        check(LinkType::MPLS, &[&[0, 1, 0, 64, 0, 2, 1, 64]], &v4);
        check(LinkType::ENC, &[&[2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]], &v4);
        check(LinkType::PFLOG, &[&[61, 2], &[0; 62]], &v4);
        check(LinkType::SLIP, &[&[1, 0x45], &[0; 14]], &v4);
        check(LinkType::SLIP_BSDOS, &[&[0; 24]], &v6);
        check(LinkType::IEEE802, &[&[0x10, 0x40], ADDRESSES, SNAP_4], &v4);
        check(LinkType::ARCNET, &[&[1, 2, 212, 0, 0, 7]], &v4);
        check(LinkType::ARCNET, &[&[1, 2, 212, 0xff, 0xff, 0xff, 196, 0, 0, 7]], &v4);
        check(LinkType::ARCNET, &[&[1, 2, 240]], &v4);
        check(LinkType::ARCNET_LINUX, &[&[1, 2, 0, 0, 196, 0, 0, 7]], &v6);
        check(LinkType::ARCNET_LINUX, &[&[1, 2, 0, 0, 240]], &v4);
        check(LinkType::SUNATM, &[&[0x82, 0, 0, 5], SNAP_4], &v4);
        check(LinkType::IP_OVER_FC, &[&[0; 16], SNAP_4], &v4);
        check(LinkType::APPLE_IP_OVER_IEEE1394, &[&[1; 16], &[0x86, 0xdd]], &v6);
        check(LinkType::IPOIB, &[&[7; 40], &[8, 0, 0, 0]], &v4);
        check(LinkType::NETANALYZER, &[&[0; 4], ADDRESSES, &[8, 0]], &v4);
        check(LinkType::NETANALYZER_TRANSPARENT, &[&[0x55; 12], ADDRESSES, &[8, 0]], &v4);
        check(LinkType::ETHERNET_MPACKET, &[&[0x55; 8], ADDRESSES, &[8, 0]], &v4);
        check(LinkType::EPON, &[&[0x55; 8], ADDRESSES, &[0x86, 0xdd]], &v6);
        // PPI leading to another link: a VLAN on Ethernet, raw IP, 802.11.
        check(LinkType::PPI, &[&[0, 0, 12, 0, 1, 0, 0, 0, 9, 9, 9, 9], ADDRESSES, &[0x81, 0, 0, 7, 8, 0]], &v4);
        check(LinkType::PPI, &[&[0, 0, 8, 0, 105, 0, 0, 0], WLAN, SNAP_4], &v4);
        check(LinkType::PKTAP, &[&[16, 0, 0, 0, 1, 0, 0, 0, 12, 0, 0, 0, 9, 9, 9, 9]], &v4);
        check(LinkType::PKTAP, &[&[12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0]], &v6);
        // NSH in front of IP, and of Ethernet.
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x89, 0x4f, 0, 6, 1, 1, 0, 0, 0, 9], &[3; 16]], &v4);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x89, 0x4f, 0, 2, 2, 3, 0, 0, 0, 9], ADDRESSES, &[0x86, 0xdd]], &v6);
    }

    /// 802.11: data from a station to an access point, three addresses.
    const WLAN: &[u8] = &[0x08, 0x01, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 0x10, 0];
    const SNAP_4: &[u8] = &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    #[test]
    fn wlan_frames() {
        let with = |changes: &[(usize, u8)], more: &[u8]| {
            let mut header = [WLAN, more].concat();
            changes.iter().for_each(|(at, value)| header[*at] = *value);
            [&header, SNAP_4].concat()
        };
        let check = |link: LinkType, before: &[u8], header: Vec<u8>| {
            let bytes = [before, &header, &packet_4()].concat();
            let frame = read(link, &bytes).unwrap_or_else(|error| panic!("{link} {bytes:x?}: {error}"));
            assert_eq!(frame.udp(&bytes).unwrap().payload(), b"data");
            for cut in 0..bytes.len() - 4 {
                let read = parse(link, &bytes[..cut], bytes.len() as u32)
                    .and_then(|frame| frame.udp(&bytes[..cut]).map(|_| ()));
                assert!(read.is_err(), "{link} cut to {cut}");
            }
        };
        let wlan = |header: Vec<u8>| check(LinkType::IEEE802_11, &[], header);
        wlan(with(&[], &[]));
        // Between access points there is a fourth address. A QoS frame has one more field.
        wlan(with(&[(1, 3)], &[4; 6]));
        wlan(with(&[(0, 0x88)], &[5, 0]));
        wlan(with(&[(0, 0x88), (1, 0x81)], &[5, 0, 9, 9, 9, 9]));
        wlan(with(&[(0, 0x88), (1, 3)], &[4, 4, 4, 4, 4, 4, 5, 0]));
        let radiotap = |before: &[u8], header: Vec<u8>| check(LinkType::IEEE802_11_RADIO, before, header);
        radiotap(&[0, 0, 8, 0, 0, 0, 0, 0], with(&[], &[]));
        radiotap(&[0, 0, 9, 0, 2, 0, 0, 0, 0x10], with(&[], &[]));
        // The flags announce padding. They follow a timestamp and the flag words of several antennas.
        let padded = || with(&[(0, 0x88)], &[5, 0, 0, 0]);
        radiotap(&[0, 0, 9, 0, 2, 0, 0, 0, 0x20], padded());
        radiotap(&[0, 0, 17, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x20], padded());
        let words = [0, 0, 25, 0, 3, 0, 0, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x20];
        radiotap(&words, padded());
        check(LinkType::PRISM_HEADER, &[0x44; 144], with(&[], &[]));
        let avs = [&[0x80, 0x21, 0x10, 1, 0, 0, 0, 64][..], &[0; 56]].concat();
        check(LinkType::PRISM_HEADER, &avs, with(&[], &[]));
        check(LinkType::IEEE802_11_RADIO_AVS, &avs, with(&[], &[]));
        let refused = |header: Vec<u8>, expected: Malformed| {
            assert_eq!(read(LinkType::IEEE802_11, &[&header[..], &packet_4()].concat()), Err(expected));
        };
        // A beacon, an acknowledgement, a frame without data, an undefined version, an encrypted frame.
        refused(with(&[(0, 0x80)], &[]), Malformed::NotIp);
        refused(vec![0xd4, 0, 0, 0, 1, 1, 1, 1, 1, 1], Malformed::NotIp);
        refused(with(&[(0, 0x48)], &[]), Malformed::NotIp);
        refused(with(&[(0, 0x09)], &[]), Malformed::NotIp);
        refused(with(&[(1, 0x41)], &[]), Malformed::NotIp);
        // A fragment of a packet, and a frame with several packets.
        refused(with(&[(1, 0x05)], &[]), Malformed::WlanFragment);
        refused(with(&[(22, 0x12)], &[]), Malformed::WlanFragment);
        refused(with(&[(0, 0x88)], &[0x80, 0]), Malformed::WlanAggregate);
    }

    #[test]
    fn nflog_packets() {
        let check = |family: u8, attributes: &[&[u8]], packet: &[u8]| {
            let bytes = [&[family, 0, 0, 5], &attributes.concat()[..], packet].concat();
            let frame = read(LinkType::NFLOG, &bytes).unwrap_or_else(|error| panic!("{bytes:x?}: {error}"));
            assert_eq!(frame.udp(&bytes).unwrap().payload(), b"data");
            for cut in 0..bytes.len() - 4 {
                let read =
                    parse(LinkType::NFLOG, &bytes[..cut], 999).and_then(|frame| frame.udp(&bytes[..cut]).map(|_| ()));
                assert!(read.is_err(), "cut to {cut}");
            }
        };
        let (v4, v6) = (packet_4(), packet_6());
        check(2, &[&[8, 0, 1, 0, 8, 0, 1, 0], &[5, 0, 10, 0, 0, 0, 0, 0], &[36, 0, 9, 0]], &v4);
        check(10, &[&[56, 0, 9, 0]], &v6);
        // From a host of the other byte order.
        check(2, &[&[0, 8, 0, 1, 8, 0, 1, 0], &[0, 36, 0, 9]], &v4);
        let refused = |bytes: &[u8], expected: Malformed| assert_eq!(read(LinkType::NFLOG, bytes), Err(expected));
        refused(&[2, 1, 0, 0, 8, 0, 9, 0], Malformed::NotIp);
        refused(&[7, 0, 0, 0, 36, 0, 9, 0, 0], Malformed::IpVersion);
        refused(&[1, 0, 0, 0, 36, 0, 9, 0, 0x45], Malformed::NotIp);
        refused(&[2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 1, 0, 2, 0, 3, 0], Malformed::TruncatedLink);
        refused(&[&[2, 0, 0, 0][..], &[4, 0, 1, 0].repeat(100)].concat(), Malformed::TooManyEncapsulations);
    }

    /// Tags, outermost first, in front of 0x0800.
    #[test]
    fn vlan_tags() {
        let check = |tags: &[[u8; 4]], count: u8, ids: [u16; 2]| {
            let bytes = [ADDRESSES, &tags.concat(), &[8, 0], &packet_4()].concat();
            let frame = read(LinkType::ETHERNET, &bytes).unwrap();
            assert_eq!((frame.vlan_count, frame.vlan_ids), (count, ids));
        };
        check(&[], 0, [0, 0]);
        check(&[[0x81, 0, 0xe0, 6]], 1, [6, 0]);
        check(&[[0x88, 0xa8, 0, 1], [0x81, 0, 0, 10]], 2, [1, 10]);
        check(&[[0x91, 0, 0, 1], [0x81, 0, 0, 2], [0x81, 0, 0, 3]], 3, [1, 2]);
        let priority = [0x81, 0, 0xe0, 0];
        check(&[priority], 1, [0, 0]);
        check(&[priority; 2], 1, [0, 0]);
        check(&[priority, [0x81, 0, 0, 6], priority, [0x81, 0, 0, 7]], 2, [6, 7]);
        check(&[[0x81, 0, 0, 1], [0x81, 0, 0, 2], priority, [0x81, 0, 0, 3], priority], 3, [1, 2]);
        let flood = [ADDRESSES, &[0x81, 0, 0, 1].repeat(40), &[8, 0], &packet_4()].concat();
        assert_eq!(read(LinkType::ETHERNET, &flood), Err(Malformed::TooManyEncapsulations));
    }

    #[test]
    fn mpls() {
        let check = |before: &[&[u8]], expected: Result<u8, Malformed>| {
            let bytes = [ADDRESSES, &[0x88, 0x47], &before.concat()[..], &packet_4()].concat();
            assert_eq!(read(LinkType::ETHERNET, &bytes).map(|frame| frame.mpls_count), expected);
        };
        check(&[&[0, 1, 1, 64]], Ok(1));
        check(&[&[0, 1, 0, 64, 0, 1, 0, 64, 0, 1, 1, 64]], Ok(3));
        // A pseudowire: control word, then Ethernet, whose frame has labels again.
        let inner: &[&[u8]] = &[&[0, 1, 1, 64], &[0; 4], ADDRESSES, &[0x88, 0x47], &[0, 2, 1, 64]];
        check(inner, Ok(2));
        // An associated channel begins with nibble 1.
        check(&[&[0, 1, 1, 64], &[0x10, 0, 0, 7]], Err(Malformed::NotIp));
        check(&[&[0, 1, 0, 64].repeat(40)], Err(Malformed::TooManyEncapsulations));
    }

    #[test]
    fn refused() {
        let check = |link: LinkType, bytes: &[u8], expected: Malformed| {
            assert_eq!(read(link, bytes), Err(expected));
        };
        check(LinkType::ETHERNET, &[ADDRESSES, &[8, 6], &[0; 28]].concat(), Malformed::NotIp);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0, 38, 0x42, 0x42, 3], &[0; 35]].concat(), Malformed::NotIp);
        check(LinkType::ETHERNET, &[ADDRESSES, &[8, 0], &packet_6()].concat(), Malformed::IpVersion);
        check(LinkType::ETHERNET, &[ADDRESSES, &[0x86, 0xdd], &packet_4()].concat(), Malformed::TruncatedIpv6);
        check(LinkType::RAW, &[0x10; 40], Malformed::IpVersion);
        check(LinkType::PPP, &[0xff, 3, 0xc0, 0x21, 1, 1, 0, 4], Malformed::NotIp);
        check(LinkType::NULL, &[7, 0, 0, 0, 0x45], Malformed::NotIp);
        check(LinkType::LINUX_SLL, &[0, 0, 3, 56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0], Malformed::NotIp);
        check(LinkType(147), &packet_4(), Malformed::UnsupportedLink);
    }

    /// Captured and wire length of the payload of an IPv4 packet with this total length, in a frame of 14 + 32 bytes.
    #[test]
    fn lengths() {
        let check = |total: u16, captured: usize, wire_len: u32, expected: Result<(usize, u32, bool), Malformed>| {
            let mut bytes = [ADDRESSES, &[8, 0], &packet_4(), &[0xee; 14]].concat();
            bytes[16..18].copy_from_slice(&total.to_be_bytes());
            let frame = parse(LinkType::ETHERNET, &bytes[..captured], wire_len);
            assert_eq!(frame.map(|frame| (frame.payload().len(), frame.payload_wire_len, frame.is_cut())), expected);
        };
        check(32, 46, 46, Ok((12, 12, false)));
        // Padding to 60 bytes.
        check(32, 60, 60, Ok((12, 12, false)));
        // Cut by the snap length.
        check(1500, 46, 1514, Ok((12, 1480, true)));
        check(32, 40, 46, Ok((6, 12, true)));
        // Segmentation offload (total length 0): the packet ends with the frame.
        check(0, 46, 46, Ok((12, 12, false)));
        check(0, 46, 64_034, Ok((12, 64_000, true)));
        // A wire length below the captured length is ignored.
        check(0, 46, 10, Ok((12, 12, false)));
        check(20, 46, 46, Ok((0, 0, false)));
        check(19, 46, 46, Err(Malformed::Ipv4TotalLength));
    }

    #[test]
    fn fragments_4() {
        let check = |field: u16, expected: Option<(u16, bool)>, udp: Result<(), Malformed>| {
            let mut bytes = packet_4();
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            let frame = read(LinkType::RAW, &bytes).unwrap();
            assert_eq!(frame.fragment.map(|fragment| (fragment.offset, fragment.more)), expected);
            assert_eq!(frame.udp(&bytes).map(|_| ()), udp);
            if let Some(fragment) = frame.fragment {
                assert_eq!((fragment.identification, fragment.protocol, fragment.start), (7, protocol::UDP, 20));
            }
        };
        check(0x4000, None, Ok(()));
        check(0x2000, Some((0, true)), Ok(()));
        check(0x2001, Some((8, true)), Err(Malformed::LaterFragment));
        check(0x1fff, Some((65_528, false)), Err(Malformed::LaterFragment));
    }

    /// Rows: extension headers before the UDP header of an IPv6 packet, and the payload length in its header.
    #[test]
    fn extensions_6() {
        let check = |first: u8, extensions: &[u8], payload_len: u16, expected: Result<(u8, u32, u32), Malformed>| {
            let mut bytes = packet_6();
            bytes.splice(40..40, extensions.iter().copied());
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
            bytes[6] = first;
            let frame = read(LinkType::RAW, &bytes);
            let got = frame.map(|frame| (frame.protocol, frame.transport_offset, frame.payload_wire_len));
            assert_eq!(got, expected);
        };
        check(17, &[], 12, Ok((17, 40, 12)));
        check(0, &[17, 0, 1, 4, 0, 0, 0, 0], 20, Ok((17, 48, 12)));
        check(51, &[17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9], 28, Ok((17, 56, 12)));
        check(44, &[17, 0, 0, 1, 0, 0, 0, 9], 20, Ok((17, 48, 12)));
        check(0, &[17, 0, 1, 4, 0, 0, 0, 0], 7, Err(Malformed::Ipv6ExtensionLength));
        // Jumbogram, and segmentation offload.
        check(0, &[17, 0, 0xc2, 4, 0, 1, 0, 8], 0, Ok((17, 48, 65_536)));
        check(17, &[], 0, Ok((17, 40, 12)));
        check(50, &[], 12, Ok((50, 40, 12)));
        check(0, &[17, 200, 1, 4, 0, 0, 0, 0], 20, Err(Malformed::TruncatedIpv6Extension));
    }

    #[test]
    fn authentication_header_in_ipv4() {
        let mut bytes = packet_4();
        bytes[9] = ipv6::AUTHENTICATION;
        bytes[3] += 12;
        bytes.splice(20..20, [17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        let frame = read(LinkType::RAW, &bytes).unwrap();
        assert_eq!((frame.protocol, frame.transport_offset, frame.payload_wire_len), (protocol::UDP, 32, 12));
        assert_eq!(frame.udp(&bytes).unwrap().payload(), b"data");
    }

    #[test]
    fn inner_packet() {
        let outer = [ADDRESSES, &[8, 0, 0x45, 0, 0, 52, 0, 7, 0, 0, 64, 4, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]].concat();
        let bytes = [&outer[..], &packet_4()].concat();
        let frame = read(LinkType::ETHERNET, &bytes).unwrap();
        assert_eq!(frame.protocol, protocol::IPV4);
        let inner = parse_ip(&bytes, frame.transport_offset, bytes.len() as u32).unwrap();
        assert_eq!(inner.udp(&bytes).unwrap().payload(), b"data");
        assert_eq!(parse_ip(&bytes, 1000, 2000), Err(Malformed::TruncatedIpv4));
        assert_eq!(parse_ip(&bytes, u32::MAX, u32::MAX), Err(Malformed::TruncatedIpv4));
    }
}
