//! ARP (RFC 826): answers for own addresses, and learns neighbours that the interface asked for. For IPv6: `ndp.rs`.

use crate::counters::End;
use crate::interface::Core;
use crate::receive::{BROADCAST, is_group};
use crate::whole::ETHERNET;
use packet::{arp, ethernet};
use std::net::Ipv4Addr;

impl Core {
    /// Handles an ARP packet (RFC 826).
    pub(crate) fn arp(&mut self, bytes: &[u8], from: [u8; 6], now: u64) -> End {
        let Ok(packet) = arp::Packet::new_checked(&bytes[ETHERNET..]) else { return End::ArpMalformed };
        let ((mac, sender), (_, target)) = (packet.sender(), packet.target());
        self.hear_dhcp_conflict(&packet, now);
        if self.routes.is_own(sender.into()) {
            return End::ArpConflict;
        }
        // A neighbour speaks for itself, or a bridge repeats its packet unchanged.
        let is_honest = mac == from && !is_group(mac) && mac != [0; 6];
        let learnt =
            is_honest && matches!(packet.operation(), arp::REQUEST | arp::REPLY) && self.learn(sender.into(), mac, now);
        if packet.operation() == arp::REQUEST && self.routes.is_own(target.into()) && is_honest {
            // Address probes (RFC 5227) come from 0.0.0.0 and are answered, too.
            if !self.arp_limit.take(now) {
                return End::ArpLimited;
            }
            self.answer(frame(arp::REPLY, self.mac, target, mac, sender, mac));
            return End::ArpAnswered;
        }
        if learnt { End::ArpLearnt } else { End::ArpIgnored }
    }

    /// Asks all neighbours for this address, from an own one.
    pub(crate) fn ask_by_arp(&mut self, own: Ipv4Addr, address: Ipv4Addr) {
        self.answer(frame(arp::REQUEST, self.mac, own, [0; 6], address, BROADCAST));
    }

    /// Announces an own address (RFC 5227 2.3).
    pub(crate) fn announce_by_arp(&mut self, own: Ipv4Addr) {
        self.answer(frame(arp::REQUEST, self.mac, own, [0; 6], own, BROADCAST));
    }
}

/// An ARP packet in a frame to `to`.
fn frame(operation: u16, mac: [u8; 6], own: Ipv4Addr, target_mac: [u8; 6], target: Ipv4Addr, to: [u8; 6]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + arp::Packet::BYTES);
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&ethernet::ARP.to_be_bytes());
    frame.extend_from_slice(&[0, 1, 8, 0, 6, 4]);
    frame.extend_from_slice(&operation.to_be_bytes());
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&own.octets());
    frame.extend_from_slice(&target_mac);
    frame.extend_from_slice(&target.octets());
    frame
}
