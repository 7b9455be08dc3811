//! A received packet with a checked IP header.

use crate::work::Origin;
use packet::ethernet;
use std::net::IpAddr;

pub(crate) const ETHERNET: usize = ethernet::Packet::HEADER_BYTES;

/// A packet with a checked IP header, from its Ethernet header to its last byte. It has no IPv6 extension headers.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) frame: &'a [u8],
    /// Bytes before the transport header.
    pub(crate) header: usize,
    pub(crate) protocol: u8,
    pub(crate) source: IpAddr,
    pub(crate) target: IpAddr,
    /// Whether it was for several hosts: an IPv4 broadcast, an IPv6 group.
    pub(crate) is_to_many: bool,
    /// Whether it came in fragments, or as a lone fragment.
    pub(crate) is_fragmented: bool,
    /// When the device received it.
    pub(crate) time: u64,
    pub(crate) origin: Origin,
}

impl Whole<'_> {
    /// The hardware address that it came from.
    pub(crate) fn sender(&self) -> [u8; 6] {
        self.frame[6..].first_chunk().copied().unwrap_or_default()
    }
}
