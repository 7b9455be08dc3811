//! Leases of addresses.

use std::net::Ipv4Addr;

/// A lease from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) address: Ipv4Addr,
    pub(crate) bits: u8,
    pub(crate) router: Option<Ipv4Addr>,
    pub(crate) mtu: Option<u16>,
    pub(crate) server: Ipv4Addr,
    /// When this server is asked to extend the lease, when any server is, and when it ends, ns. `u64::MAX`: never.
    pub(crate) renew: u64,
    pub(crate) rebind: u64,
    pub(crate) end: u64,
}

/// A lease of a DHCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    /// The client's identifier: stays the same on another device.
    pub(crate) id: [u8; 6],
    /// The router in use. `None`: there is none, or a user named another one.
    pub(crate) router: Option<Ipv4Addr>,
}
