//! Ethernet and IPv4 headers of packets that the interface sends in its own name: ICMP messages, and TCP segments for connections that
//! no application has.

use packet::checksum::Sum;
use packet::pseudo;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;

/// Bytes of the two headers.
pub(crate) const HEADERS: usize = 14 + 20;

const TIME_TO_LIVE: u8 = 64;

/// A frame to `mac` with headers and `len` bytes of zeroes behind them. The interface fills in its own hardware address.
pub(crate) fn packet(mac: [u8; 6], protocol: u8, from: Ipv4Addr, to: Ipv4Addr, len: u16) -> Vec<u8> {
    let mut frame = vec![0; HEADERS + usize::from(len)];
    frame[..6].copy_from_slice(&mac);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&len.saturating_add(20).to_be_bytes());
    // It is not cut on its way: then its identification says nothing, and may be 0 (RFC 6864 4.1).
    frame[20] = 0x40;
    frame[22..24].copy_from_slice(&[TIME_TO_LIVE, protocol]);
    frame[26..30].copy_from_slice(&from.octets());
    frame[30..34].copy_from_slice(&to.octets());
    let checksum = Sum::of(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// A TCP segment without payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) sequence: u32,
    /// None: the segment has no ACK.
    pub(crate) acknowledgment: Option<u32>,
    /// Without ACK.
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// At most 40 bytes, a multiple of 4.
    pub(crate) options: &'a [u8],
}

impl Segment<'_> {
    /// The frame to `mac`, with its checksums.
    pub(crate) fn frame(&self, mac: [u8; 6]) -> Vec<u8> {
        let len = 20 + self.options.len() as u16;
        let mut frame = packet(mac, TCP, *self.from.ip(), *self.to.ip(), len);
        let segment = &mut frame[HEADERS..];
        segment[..2].copy_from_slice(&self.from.port().to_be_bytes());
        segment[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        segment[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&self.acknowledgment.unwrap_or(0).to_be_bytes());
        let ack = if self.acknowledgment.is_some() { packet::tcp::Flags::ACK.0 } else { 0 };
        segment[12..14].copy_from_slice(&[(len as u8 / 4) << 4, self.flags | ack]);
        segment[14..16].copy_from_slice(&self.window.to_be_bytes());
        segment[20..].copy_from_slice(self.options);
        let checksum = pseudo::sum(*self.from.ip(), *self.to.ip(), TCP, len).and(Sum::of(segment)).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}
