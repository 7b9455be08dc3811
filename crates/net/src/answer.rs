//! Ethernet and IP headers of packets that the interface itself sends: ICMP messages, Neighbour Discovery, and TCP
//! segments for connections without an application.

use crate::whole::ETHERNET;
use packet::checksum::Sum;
use packet::{ipv4, ipv6, pseudo};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;

/// The hop limit of answers.
const HOPS: u8 = 64;

/// Bytes of an IP header without options, of this address's family.
pub(crate) fn ip_header(of: IpAddr) -> usize {
    if of.is_ipv4() { ipv4::Packet::HEADER_BYTES } else { ipv6::Packet::HEADER_BYTES }
}

/// Bytes of Ethernet and IP header, of this address's family.
pub(crate) fn headers(of: IpAddr) -> usize {
    ETHERNET + ip_header(of)
}

fn of_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// A frame to `mac`: headers and `len` zero bytes, for two addresses of one family. Its sender is filled in later.
pub(crate) fn packet(mac: [u8; 6], protocol: u8, from: IpAddr, to: IpAddr, len: u16) -> Vec<u8> {
    let mut frame = vec![0; headers(from).max(headers(to)) + usize::from(len)];
    frame[..6].copy_from_slice(&mac);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[16..18].copy_from_slice(&len.saturating_add(20).to_be_bytes());
            // The packet is not fragmented, so its identification is meaningless and may be 0 (RFC 6864 4.1).
            frame[20] = 0x40;
            frame[22..24].copy_from_slice(&[HOPS, protocol]);
            frame[26..30].copy_from_slice(&from.octets());
            frame[30..34].copy_from_slice(&to.octets());
            let checksum = Sum::of(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        _ => {
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[18..20].copy_from_slice(&len.to_be_bytes());
            frame[20..22].copy_from_slice(&[protocol, HOPS]);
            frame[22..38].copy_from_slice(&of_ipv6(from).octets());
            frame[38..54].copy_from_slice(&of_ipv6(to).octets());
        }
    }
    frame
}

/// A TCP segment without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    /// `None`: the segment has no ACK.
    pub(crate) acknowledgment: Option<u32>,
    /// All flags except ACK.
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// At most 40 bytes, a multiple of 4.
    pub(crate) options: &'a [u8],
}

impl Segment<'_> {
    /// The frame to `mac`, with its checksums.
    pub(crate) fn frame(&self, mac: [u8; 6]) -> Vec<u8> {
        let (from, to, len) = (self.from.ip(), self.to.ip(), 20 + self.options.len() as u16);
        let mut frame = packet(mac, TCP, from, to, len);
        let segment = &mut frame[headers(to)..];
        segment[..2].copy_from_slice(&self.from.port().to_be_bytes());
        segment[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        segment[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&self.acknowledgment.unwrap_or(0).to_be_bytes());
        let ack = if self.acknowledgment.is_some() { packet::tcp::Flags::ACK.0 } else { 0 };
        segment[12..14].copy_from_slice(&[(len as u8 / 4) << 4, self.flags | ack]);
        segment[14..16].copy_from_slice(&self.window.to_be_bytes());
        segment[20..].copy_from_slice(self.options);
        let checksum = pseudo::sum(from, to, TCP, len).and(Sum::of(segment)).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}
