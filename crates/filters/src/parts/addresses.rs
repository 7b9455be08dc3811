//! The test of `host` and `net`: whether an address of a packet is in a set.

use crate::parts::networks::Networks;
use crate::parts::select::{FrameTest, StreamTest, View};
use filter::prelude::*;
use packet::flow::Flow;
use packet::malformed::Malformed;
use packet::{arp, encapsulation, ethernet};
use std::net::IpAddr;

/// Reverse ARP (RFC 903).
const RARP: u16 = 0x8035;

/// Passes packets whose source or target is one of the addresses.
pub(crate) struct AddressTest {
    pub wanted: Networks,
}

impl FrameTest for AddressTest {
    #[inline]
    fn frame(&self, view: View<'_>, _class: &mut Class) -> Result<bool, Malformed> {
        match view.packet() {
            Ok(packet) => Ok(self.wanted.has(packet.source) || self.wanted.has(packet.target)),
            Err(Malformed::NotIp) => self.address_resolution(view),
            Err(why) => Err(why),
        }
    }
}

impl AddressTest {
    /// ARP and reverse ARP carry IPv4 addresses. A test for a host matches them too, as in tcpdump.
    #[cold]
    fn address_resolution(&self, view: View<'_>) -> Result<bool, Malformed> {
        let below = encapsulation::parse(view.link, view.bytes)?;
        if below.ether_type != ethernet::ARP && below.ether_type != RARP {
            return Ok(false);
        }
        let packet = arp::Packet::new_checked(view.bytes.get(below.network_offset as usize..).unwrap_or_default())?;
        Ok([packet.sender().1, packet.target().1].into_iter().any(|address| self.wanted.has(IpAddr::V4(address))))
    }
}

impl StreamTest for AddressTest {
    fn stream(&self, flow: &Flow) -> bool {
        self.wanted.has(flow.source) || self.wanted.has(flow.target)
    }
}
