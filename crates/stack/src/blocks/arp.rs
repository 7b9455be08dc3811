//! ARP (RFC 826): functions that build packets, and a block that asks and answers for one address.
//!
//! Only tests of drivers use the block: for flows, the driver resolves addresses. It also shows how a block answers on
//! its own. Its sibling for IPv6 is `ndp`.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::limits::STACK_ARP_ANSWERS;
use packet::arp::{Packet, REPLY, REQUEST};
use packet::ethernet;
use request::Diagnostic;

use super::ethernet::GROUP_BIT;
use crate::block::{Block, Out, Step};
use crate::facts::Facts;
use crate::kind::{Below, Given, Kind, Layer, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "arp",
    help: "asks for link addresses, and answers for one (RFC 826)",
    layer: Layer::Network,
    is_top: true,
    below: Some(Below::Block("ethernet")),
    link: None,
    params: &[],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    let address = site.ipv4(KIND.name, given.span)?;
    Ok(Box::new(Arp { mac: site.facts.mac, address, answers: VecDeque::new() }))
}

/// The link address of all stations.
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The packet with which `sender` asks for the link address of `target`.
pub fn request(sender: ([u8; 6], Ipv4Addr), target: Ipv4Addr) -> [u8; Packet::BYTES] {
    build_packet(REQUEST, sender, ([0; 6], target))
}

/// The packet with which `sender` tells `target` its link address.
pub fn reply(sender: ([u8; 6], Ipv4Addr), target: ([u8; 6], Ipv4Addr)) -> [u8; Packet::BYTES] {
    build_packet(REPLY, sender, target)
}

fn build_packet(operation: u16, sender: ([u8; 6], Ipv4Addr), target: ([u8; 6], Ipv4Addr)) -> [u8; Packet::BYTES] {
    let mut bytes = [0; Packet::BYTES];
    // Ethernet (1), IPv4, and their address lengths.
    bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    bytes[6..8].copy_from_slice(&operation.to_be_bytes());
    for (at, (mac, address)) in [(8, sender), (18, target)] {
        bytes[at..at + 6].copy_from_slice(&mac);
        bytes[at + 6..at + 10].copy_from_slice(&address.octets());
    }
    bytes
}

/// One station: a link address and its IPv4 address.
///
/// Sending asks: the destination is the address asked for, and the payload must be empty. A reply comes up as a
/// delivery from that address, port 0, with the link address as payload.
#[derive(Debug)]
pub struct Arp {
    mac: [u8; 6],
    address: Ipv4Addr,
    answers: VecDeque<([u8; 6], Ipv4Addr)>,
}

impl Block for Arp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        Packet::BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let target = packet.meta.remote.map(|to| to.ip()).filter(|to| !to.is_unspecified());
        let Some(IpAddr::V4(target)) = target else { return Err(SendError::NoDestination) };
        if packet.byte_count() != 0 {
            return Err(SendError::MessageTooLong);
        }
        *packet.push()? = request((self.mac, self.address), target);
        packet.meta.station = BROADCAST;
        packet.meta.ether_type = ethernet::ARP;
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        if packet.meta.ether_type != ethernet::ARP {
            return Err(Discard::OtherEtherType);
        }
        let read = Packet::new_checked(packet.bytes()).map_err(|_| Discard::ArpMalformed)?;
        let (sender, (_, target)) = (read.sender(), read.target());
        // A group address is no station's: an answer would go to the whole group.
        if sender.0[0] & GROUP_BIT != 0 {
            return Err(Discard::ArpMalformed);
        }
        if target != self.address {
            return Err(Discard::ArpOther);
        }
        match read.operation() {
            REQUEST => {
                if self.answers.len() < STACK_ARP_ANSWERS {
                    self.answers.push_back(sender);
                }
                Ok(Step::Keep)
            }
            REPLY => {
                packet.meta.remote = Some(SocketAddr::new(sender.1.into(), 0));
                packet.crop(8, 14);
                Ok(Step::Pass)
            }
            _ => Err(Discard::ArpOperation),
        }
    }

    fn next(&self) -> Option<u64> {
        (!self.answers.is_empty()).then_some(0)
    }

    fn facts_changed(&mut self, _now: u64, facts: &Facts) {
        self.mac = facts.mac;
    }

    fn tend(&mut self, _now: u64, out: &mut dyn Out) {
        while let Some(asker) = self.answers.pop_front() {
            let meta = Meta { station: asker.0, ether_type: ethernet::ARP, ..Meta::default() };
            // An answer that the line refuses counts as lost.
            _ = out.emit(meta, &reply((self.mac, self.address), asker), &[]);
        }
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
