//! From a frame to its transport header, for filters that take one protocol: what is theirs, what is another's, and what
//! is broken. Not the protocol itself.
//!
//! Not tunnels and not fragments: `decap` stands before such filters, opens the ones and puts the others together. What is
//! left of them here was not to be opened, or could not be.

use packet::encapsulation::Vlans;
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::{ethernet, frame, tunnel};
use std::net::IpAddr;

/// Why a frame is not for a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It carries something else: no loss.
    Other,
    /// It carries something else in a tunnel of this sort, and what is in there is not looked for.
    Tunnel(&'static str),
    /// It is broken or a fragment, for this reason.
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

/// A transport header in its frame, which is whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// VLAN tags of the frame.
    pub vlans: Vlans,
    /// Where the header begins in the frame.
    pub offset: u32,
    /// One past the last captured byte of the packet.
    pub end: u32,
    /// Bytes from the header to the end of the packet, as the wire had it.
    pub wire_len: u32,
}

impl Located {
    /// What was captured from the header on.
    #[inline(always)]
    pub fn bytes<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.offset as usize..self.end as usize).unwrap_or_default()
    }
}

/// Finds the transport header of a frame, which is of this protocol: a few compares where it stands in IPv4 straight behind
/// Ethernet, and else the whole walk.
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
        None if frame.protocol == wanted => Ok(Located {
            source: frame.source,
            target: frame.target,
            vlans: frame.vlans(),
            offset: frame.transport_offset,
            end: frame.payload_end,
            wire_len: frame.payload_wire_len,
        }),
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
        /// The short way and the long way say the same of every frame that the short way takes.
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

    /// Ethernet, IPv4 with this protocol, and what it carries.
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
            // Cut before its ports.
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
