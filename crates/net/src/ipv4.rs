//! Received IPv4 packets (RFC 791, RFC 1122 3.2.1). `ipv6.rs` does the same for IPv6.

use crate::counters::{End, Event};
use crate::fragments::{Added, Key, Piece};
use crate::interface::Core;
use crate::limits::FIRST_FRAGMENT_BYTES;
use crate::routes::is_host;
use crate::whole::{ETHERNET, Whole};
use crate::work::Origin;
use packet::checksum::Sum;
use packet::ipv4;
use std::net::IpAddr;

impl Core {
    /// Handles an IPv4 packet (RFC 791, RFC 1122 3.2.1).
    pub(crate) fn ipv4(&mut self, bytes: &[u8], time: u64, to_all: bool, origin: Origin, now: u64) -> End {
        let Ok(packet) = ipv4::Packet::new_checked(&bytes[ETHERNET..]) else { return End::Malformed };
        let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
        if total < header || total > bytes.len() - ETHERNET {
            return End::Malformed;
        }
        if Sum::of(&bytes[ETHERNET..ETHERNET + header]).folded() != 0xffff {
            return End::Checksum;
        }
        let (source, target) = (IpAddr::V4(packet.source()), IpAddr::V4(packet.target()));
        if !is_host(source) || self.routes.is_broadcast(source) || self.routes.is_network(source) {
            return End::BadSource;
        }
        if origin == Origin::Device && self.routes.is_own(source) {
            return End::Land;
        }
        // A DHCP server may send to the address that it gives, before the interface has it.
        if origin == Origin::Device
            && let behind = &bytes[ETHERNET + header..ETHERNET + total]
            && let Some(end) = self.hear_dhcp(&packet, behind, bytes[6..12].try_into().unwrap_or_default(), now)
        {
            return end;
        }
        let is_to_many = self.routes.is_broadcast(target);
        if !is_to_many && !self.routes.is_own(target) {
            return End::NotOurs;
        }
        if to_all && !is_to_many {
            return End::FalseBroadcast;
        }
        let (frame, header, protocol) = (&bytes[..ETHERNET + total], ETHERNET + header, packet.protocol());
        let (offset, more) = (usize::from(packet.fragment_offset()), packet.more_fragments());
        let is_fragmented = more || offset != 0;
        let whole = Whole { frame, header, protocol, source, target, is_to_many, is_fragmented, time, origin };
        if !is_fragmented {
            return self.transport(whole, now);
        }
        if offset == 0 && total < FIRST_FRAGMENT_BYTES {
            return End::FragmentTiny;
        }
        let key = Key { source, target, identification: packet.identification().into(), protocol };
        let (head, payload) = frame.split_at(header);
        match self.fragments.add(&Piece { key, head, payload, offset, more }, now) {
            Added::Ended(end) => end,
            Added::Whole(joined) => {
                self.counters.event(Event::FragmentsJoined);
                // The header is that of the first fragment, which may have another length.
                let header = ETHERNET + usize::from(joined[ETHERNET] & 0x0f) * 4;
                self.transport(Whole { frame: &joined, header, ..whole }, now)
            }
        }
    }
}
