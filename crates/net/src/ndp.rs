//! Neighbour Discovery (RFC 4861): answers for own addresses, and learns requested neighbours. For IPv4: `arp.rs`.
//!
//! Router advertisements and redirects are counted and ignored: root alone gives addresses and routes.

use crate::counters::End;
use crate::icmp;
use crate::interface::Core;
use crate::ipv6::HOPS;
use crate::whole::Whole;
use packet::ndp::{self, ALL_NODES, HOP_LIMIT, OVERRIDE, Packet, SOLICITED};
use std::net::{IpAddr, Ipv6Addr};

impl Core {
    /// Handles a message with a correct checksum.
    pub(crate) fn ndp(&mut self, packet: Whole<'_>, now: u64) -> End {
        // A smaller hop limit means that it comes from beyond a router. The message must be unfragmented (RFC 6980 5).
        if packet.frame[HOPS] != HOP_LIMIT || packet.is_fragmented {
            return End::NdpMalformed;
        }
        let bytes = &packet.frame[packet.header..];
        match bytes[0] {
            ndp::ROUTER_ADVERTISEMENT => return End::RouterAdvertisement,
            ndp::NEIGHBOUR_SOLICITATION | ndp::NEIGHBOUR_ADVERTISEMENT => (),
            _ => return End::NdpIgnored,
        }
        match Packet::new_checked(bytes) {
            Err(_) => End::NdpMalformed,
            Ok(message) if message.kind() == ndp::NEIGHBOUR_SOLICITATION => self.solicited(packet, message, now),
            Ok(message) => self.advertised(packet, message, now),
        }
    }

    /// A neighbour asks for the owner of an address (RFC 4861 7.2.3).
    fn solicited(&mut self, packet: Whole<'_>, message: Packet, now: u64) -> End {
        let (source, from, target) = (packet.source, packet.sender(), IpAddr::V6(message.target()));
        // It is about to take the address, and has none yet (RFC 4862 5.4.2).
        let is_probe = source.is_unspecified();
        if is_probe && (message.source_mac().is_some() || packet.target == IpAddr::V6(ALL_NODES)) {
            return End::NdpMalformed;
        }
        // A neighbour speaks for itself, or a bridge repeats its message unchanged.
        let is_honest = from != [0; 6] && message.source_mac().is_none_or(|mac| mac == from);
        let learnt = is_honest && message.source_mac().is_some() && self.learn(source, from, now);
        if !is_honest || !self.routes.is_own(target) {
            return if learnt { End::NdpLearnt } else { End::NdpIgnored };
        }
        if !self.arp_limit.take(now) {
            return End::NdpLimited;
        }
        let (to, mac, flags) = match source {
            IpAddr::V6(source) if !is_probe => (source, from, SOLICITED | OVERRIDE),
            _ => (ALL_NODES, ndp::group_mac(ALL_NODES), OVERRIDE),
        };
        self.advertise(message.target(), to, mac, flags);
        End::NdpAnswered
    }

    /// A neighbour announces itself (RFC 4861 7.2.5).
    fn advertised(&mut self, packet: Whole<'_>, message: Packet, now: u64) -> End {
        let (from, target, flags) = (packet.sender(), IpAddr::V6(message.target()), message.flags());
        let is_answer = flags & SOLICITED != 0;
        if is_answer && packet.is_to_many {
            return End::NdpMalformed;
        }
        if self.routes.is_own(target) {
            return End::NdpConflict;
        }
        let known = self.neighbours.known(target);
        let is_honest = from != [0; 6] && message.target_mac() == Some(from);
        // No news, or it may not replace the known address: only an answer proves that the neighbour hears this side.
        let is_vain = if known == Some(from) { !is_answer } else { known.is_some() && flags & OVERRIDE == 0 };
        if is_honest && !is_vain && self.learn(target, from, now) { End::NdpLearnt } else { End::NdpIgnored }
    }

    /// Asks all neighbours for this address, from an own one.
    pub(crate) fn solicit(&mut self, own: Ipv6Addr, address: Ipv6Addr) {
        let group = ndp::solicited_node(address);
        let message = ndp::solicitation(address, self.mac);
        self.discover(ndp::group_mac(group), own, group, &message);
    }

    /// Announces an own address. The first time, asks whether a neighbour has it.
    pub(crate) fn announce_by_ndp(&mut self, own: Ipv6Addr, is_first: bool) {
        if is_first {
            let group = ndp::solicited_node(own);
            self.discover(ndp::group_mac(group), Ipv6Addr::UNSPECIFIED, group, &ndp::probe(own));
        } else {
            self.advertise(own, ALL_NODES, ndp::group_mac(ALL_NODES), OVERRIDE);
        }
    }

    fn advertise(&mut self, own: Ipv6Addr, to: Ipv6Addr, mac: [u8; 6], flags: u8) {
        let message = ndp::advertisement(flags, own, self.mac);
        self.discover(mac, own, to, &message);
    }

    fn discover(&mut self, mac: [u8; 6], from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) {
        if let Some(mut frame) = icmp::frame(mac, from.into(), to.into(), &[message]) {
            frame[HOPS] = HOP_LIMIT;
            self.answer(frame);
        }
    }
}
