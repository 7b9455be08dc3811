//! Neighbour Discovery (RFC 4861): a block that asks and answers for one address, as `arp` does for IPv4. It makes and
//! reads its own IPv6 headers, because every message needs hop limit 255.
//!
//! Only tests of drivers use this block: for flows, the driver resolves addresses.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use base::limits::STACK_ARP_ANSWERS;
use packet::frame::protocol;
use packet::ndp::{self, ALL_NODES, HOP_LIMIT, NEIGHBOUR_SOLICITATION, OVERRIDE, Packet, SOLICITED};
use packet::{ethernet, ipv6};
use request::Diagnostic;

use super::ethernet::GROUP_BIT;
use crate::block::{Block, Out, Step};
use crate::kind::{Below, Given, Kind, Layer, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing};
use crate::problem;

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "ndp",
    help: "asks for link addresses, and answers for one (RFC 4861)",
    layer: Layer::Network,
    is_top: true,
    below: Some(Below::Block("ethernet")),
    link: None,
    params: &[],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    let address = site.ipv6(KIND.name, given.span)?;
    Ok(Box::new(Ndp { mac: site.facts.mac, address, answers: VecDeque::new() }))
}

const IP_BYTES: usize = ipv6::Packet::HEADER_BYTES;

/// Bytes of a packet with one message.
const BYTES: usize = IP_BYTES + Packet::BYTES;

/// A packet with a message; the checksum is still missing.
pub fn packet(from: Ipv6Addr, to: Ipv6Addr, message: &[u8; Packet::BYTES]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0] = 0x60;
    bytes[5] = Packet::BYTES as u8;
    bytes[6..8].copy_from_slice(&[protocol::ICMPV6, HOP_LIMIT]);
    bytes[8..24].copy_from_slice(&from.octets());
    bytes[24..40].copy_from_slice(&to.octets());
    bytes[IP_BYTES..].copy_from_slice(message);
    let checksum = problem::sum(message, from.into(), to.into()).checksum();
    bytes[IP_BYTES + 2..IP_BYTES + 4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// One station: a link address and its IPv6 address.
///
/// Sending asks: the destination is the address asked for, and the payload must be empty. An advertisement comes up as
/// a delivery from that address, port 0, with the link address as payload.
#[derive(Debug)]
pub struct Ndp {
    mac: [u8; 6],
    address: Ipv6Addr,
    /// Link and IPv6 addresses of stations to answer; `::` for one without an address yet.
    answers: VecDeque<([u8; 6], Ipv6Addr)>,
}

impl Block for Ndp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let target = packet.meta.remote.map(|to| to.ip()).filter(|to| !to.is_unspecified());
        let Some(IpAddr::V6(target)) = target else { return Err(SendError::NoDestination) };
        if packet.byte_count() != 0 {
            return Err(SendError::MessageTooLong);
        }
        let group = ndp::solicited_node(target);
        *packet.push()? = self::packet(self.address, group, &ndp::solicitation(target, self.mac));
        packet.meta.station = ndp::group_mac(group);
        packet.meta.ether_type = ethernet::IPV6;
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        if packet.meta.ether_type != ethernet::IPV6 {
            return Err(Discard::OtherEtherType);
        }
        let bytes = packet.bytes();
        let read = ipv6::Packet::new_checked(bytes).map_err(|_| Discard::Ipv6Truncated)?;
        let message = bytes.get(IP_BYTES..IP_BYTES + usize::from(read.payload_len())).ok_or(Discard::Ipv6Length)?;
        if read.next_header() != protocol::ICMPV6 {
            return Err(Discard::OtherProtocol);
        }
        let (source, target) = (read.source(), read.target());
        if problem::sum(message, source.into(), target.into()).checksum() != 0 {
            return Err(Discard::IcmpChecksum);
        }
        let read = Packet::new_checked(message).map_err(|_| Discard::NdpMalformed)?;
        // A smaller hop limit means that a router forwarded it (RFC 4861, section 7.1). No station has a group MAC.
        let says_group =
            [read.source_mac(), read.target_mac()].into_iter().flatten().any(|mac| mac[0] & GROUP_BIT != 0);
        if bytes.get(7) != Some(&HOP_LIMIT) || says_group || source.is_multicast() {
            return Err(Discard::NdpMalformed);
        }
        if read.kind() == NEIGHBOUR_SOLICITATION {
            if read.target() != self.address {
                return Err(Discard::NdpOther);
            }
            let mac = read.source_mac().unwrap_or(packet.meta.station);
            if self.answers.len() < STACK_ARP_ANSWERS {
                self.answers.push_back((mac, source));
            }
            return Ok(Step::Keep);
        }
        // If several options have a link address, the last one counts.
        if target != self.address && target != ALL_NODES {
            return Err(Discard::NdpOther);
        }
        let mac = read.target_mac().ok_or(Discard::NdpMalformed)?;
        let at = message.windows(8).position(|option| option[..2] == [2, 1] && option[2..] == mac);
        let at = IP_BYTES + at.ok_or(Discard::NdpMalformed)? + 2;
        packet.meta.remote = Some(SocketAddr::new(read.target().into(), 0));
        packet.crop(at, at + 6);
        Ok(Step::Pass)
    }

    fn next(&self) -> Option<u64> {
        (!self.answers.is_empty()).then_some(0)
    }

    fn tend(&mut self, _now: u64, out: &mut dyn Out) {
        while let Some((mac, asker)) = self.answers.pop_front() {
            // A station without an address is answered on the all-nodes group (RFC 4861, section 7.2.4).
            let (to, station, flags) = match asker.is_unspecified() {
                true => (ALL_NODES, ndp::group_mac(ALL_NODES), OVERRIDE),
                false => (asker, mac, SOLICITED | OVERRIDE),
            };
            let meta = Meta { station, ether_type: ethernet::IPV6, ..Meta::default() };
            let answer = packet(self.address, to, &ndp::advertisement(flags, self.address, self.mac));
            // An answer that the line refuses counts as lost.
            _ = out.emit(meta, &answer, &[]);
        }
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
