//! Finds the transport header of a frame for filters of one protocol. Separates frames of other protocols from broken
//! ones. Does not read the protocol itself.
//!
//! Does not open tunnels or reassemble fragments: `decap` stands before such filters and does both. Tunnels and
//! fragments that still arrive here were not meant to be opened, or could not be.

use packet::encapsulation::Vlans;
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::{ethernet, frame, tunnel};
use std::net::IpAddr;

/// Why a frame is not used by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It carries another protocol. Not a loss.
    Other,
    /// It is a tunnel of this kind. The inner packet is not looked at.
    Tunnel(&'static str),
    /// It is broken or a fragment; the text says which.
    Dropped(&'static str),
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Refusal {
        match why {
            Malformed::NotIp | Malformed::OtherProtocol => Refusal::Other,
            why => Refusal::Dropped(why.reason()),
        }
    }
}

/// A transport header in a complete frame.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub target: IpAddr,
    /// The VLANs.
    pub vlans: Vlans,
    /// Offset of the header in the frame.
    pub offset: u32,
    /// Offset one past the last captured byte of the packet.
    pub end: u32,
    /// Bytes from the header to the end of the packet on the wire.
    pub wire_len: u32,
}

impl Located {
    /// The transport header of a parsed frame.
    pub fn of(frame: &frame::Frame) -> Located {
        Located {
            source: frame.source,
            target: frame.target,
            vlans: frame.vlans(),
            offset: frame.transport_offset,
            end: frame.payload_end,
            wire_len: frame.payload_wire_len,
        }
    }

    /// The captured bytes from the header on.
    #[inline(always)]
    pub fn bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.offset as usize..self.end as usize).unwrap_or_default()
    }
}

/// Finds the transport header of protocol `wanted`. IPv4 directly after Ethernet takes a few compares; other frames
/// take the full walk.
#[inline(always)]
pub(crate) fn locate(link: LinkType, bytes: &[u8], wire_len: u32, wanted: u8) -> Result<Located, Refusal> {
    const AT: u32 = 14 + 20;
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    if let Some(header) = bytes.first_chunk::<{ AT as usize }>() {
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let address = |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let total = u32::from(half(16));
        let plain = link == LinkType::ETHERNET
            && half(12) == ethernet::IPV4
            && header[14] == 0x45
            && header[23] == wanted
            && half(20) & MORE_FRAGMENTS_AND_OFFSET == 0
            && total >= AT - 14;
        if plain {
            return Ok(Located {
                source: address(26),
                target: address(30),
                vlans: Vlans::default(),
                offset: AT,
                end: (14 + total).min(bytes.len() as u32),
                wire_len: total - (AT - 14),
            });
        }
    }
    locate_slowly(link, bytes, wire_len, wanted)
}

#[inline(never)]
fn locate_slowly(link: LinkType, bytes: &[u8], wire_len: u32, wanted: u8) -> Result<Located, Refusal> {
    let frame = frame::parse(link, bytes, wire_len)?;
    match frame.fragment {
        None if frame.protocol == wanted => Ok(Located::of(&frame)),
        Some(fragment) if frame.protocol == wanted || fragment.protocol == wanted => Err(Refusal::Dropped("fragment")),
        _ => Err(tunnel::not_opened(&frame, bytes).map_or(Refusal::Other, |why| Refusal::Tunnel(why.reason()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::protocol;
    use proptest::prelude::*;

    proptest! {
        /// The short way agrees with the full walk on every frame that it accepts.
        #[test]
        fn plain_packets_are_as_the_whole_walk_says(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            header in proptest::option::weighted(0.9, (0u16..80, 0u16..3, 16u8..18)),
        ) {
            if let (Some((total, fragment, protocol)), true) = (header, bytes.len() > 24) {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[16..18].copy_from_slice(&total.to_be_bytes());
                bytes[20..22].copy_from_slice(&(fragment << 13).to_be_bytes());
                bytes[23] = protocol;
            }
            let both = [locate, locate_slowly].map(|locate| {
                let located = locate(LinkType::ETHERNET, &bytes, 2000, protocol::UDP);
                located.map(|it| (it.source, it.target, it.vlans, it.offset, it.end, it.wire_len))
            });
            prop_assert_eq!(both[0], both[1]);
        }
    }

    /// An Ethernet frame with an IPv4 packet of this protocol and payload.
    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        (frame[12], frame[14]) = (8, 0x45);
        frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        (frame[22], frame[23]) = (64, protocol);
        frame.extend(payload);
        frame
    }

    fn datagram(port: u16) -> Vec<u8> {
        let mut datagram = vec![0; 16];
        datagram[2..4].copy_from_slice(&port.to_be_bytes());
        datagram[5] = 16;
        packet(protocol::UDP, &datagram)
    }

    #[test]
    fn tunnels_are_told_from_other_protocols() {
        let rows = [
            (packet(protocol::GRE, &[0; 40]), Refusal::Tunnel("gre tunnel")),
            (packet(protocol::IPV4, &[0; 40]), Refusal::Tunnel("ip in ip tunnel")),
            (packet(protocol::IPV6, &[0; 60]), Refusal::Tunnel("ip in ip tunnel")),
            (packet(protocol::ICMP, &[0; 40]), Refusal::Other),
            (datagram(4789), Refusal::Tunnel("vxlan tunnel")),
            (datagram(8472), Refusal::Tunnel("vxlan tunnel")),
            (datagram(6081), Refusal::Tunnel("geneve tunnel")),
            (datagram(2152), Refusal::Tunnel("gtp tunnel")),
            (datagram(53), Refusal::Other),
            // Cut before the ports.
            (datagram(4789)[..36].to_vec(), Refusal::Other),
        ];
        for (bytes, expected) in rows {
            let located = locate(LinkType::ETHERNET, &bytes, bytes.len() as u32, protocol::TCP);
            assert_eq!(located.map(|_| ()), Err(expected), "{bytes:?}");
        }
        let vxlan = datagram(4789);
        let located = locate(LinkType::ETHERNET, &vxlan, vxlan.len() as u32, protocol::UDP);
        assert!(located.is_ok(), "it is UDP all the same");
    }
}
