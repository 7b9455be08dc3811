//! The addresses of an interface and its routes: a neighbour's prefix each, and one gateway for all else.

use crate::error::{NetError, NetErrorKind};
use flow::{OpenInterface, RouteState};
use std::net::Ipv4Addr;

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// To this host.
    Own,
    /// To all neighbours.
    Broadcast,
    /// To this neighbour.
    Neighbour(Ipv4Addr),
    /// No route holds it.
    None,
    /// The interface sends nothing there: multicast, 127/8, 0/8, 240/4.
    Refused,
}

/// Addresses and routes.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    addresses: Vec<(Ipv4Addr, u8)>,
    gateway: Option<Ipv4Addr>,
    /// The host has the routes: each address of another is its own next hop, until the host is asked.
    is_hosts: bool,
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

fn holds((address, bits): (Ipv4Addr, u8), other: Ipv4Addr) -> bool {
    (u32::from(address) ^ u32::from(other)) & mask(bits) == 0
}

/// Is it an address that one host can have?
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !(first == 0 || first == 127 || first >= 224)
}

impl Routes {
    /// Checks what an interface is to have.
    pub(crate) fn new(open: &OpenInterface) -> Result<Routes, NetError> {
        let refuse = |text: String| Err(NetError::new(NetErrorKind::Request, text));
        let device = &open.device;
        if open.addresses.is_empty() {
            return refuse(format!("`{device}` needs an address, as 10.0.0.2/24"));
        }
        for (at, &(address, bits)) in open.addresses.iter().enumerate() {
            if bits > 32 {
                return refuse(format!("{address}/{bits}: a prefix has 0 to 32 bits"));
            }
            let routes = Routes { addresses: vec![(address, bits)], gateway: None, is_hosts: false };
            if !is_host(address) || routes.is_broadcast(address) || routes.is_network(address) {
                return refuse(format!("{address}/{bits} is no address of a host; choose one inside its prefix"));
            }
            if open.addresses[..at].iter().any(|(other, _)| *other == address) {
                return refuse(format!("{address} is given twice"));
            }
        }
        let routes = Routes { addresses: open.addresses.clone(), gateway: open.gateway, is_hosts: false };
        match open.gateway {
            Some(gateway) if !is_host(gateway) || routes.hop_on_link(gateway) != Some(Hop::Neighbour(gateway)) => {
                refuse(format!("the gateway {gateway} is no neighbour; it must lie inside a prefix of `{device}`"))
            }
            _ => Ok(routes),
        }
    }

    /// With the addresses of the host, which has the routes.
    pub(crate) fn of_host(addresses: &[(Ipv4Addr, u8)]) -> Routes {
        Routes { addresses: addresses.to_vec(), gateway: None, is_hosts: true }
    }

    /// Is it an own address?
    pub(crate) fn is_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Is it the broadcast address of a prefix, or of the link? Prefixes of 31 and 32 bits have none (RFC 3021).
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let directed =
            |(own, bits): &(Ipv4Addr, u8)| *bits < 31 && u32::from(*own) | !mask(*bits) == u32::from(address);
        address == Ipv4Addr::BROADCAST || self.addresses.iter().any(directed)
    }

    /// Is it the name of a prefix, the old form of its broadcast address?
    pub(crate) fn is_network(&self, address: Ipv4Addr) -> bool {
        let names = |(own, bits): &(Ipv4Addr, u8)| *bits < 31 && u32::from(*own) & mask(*bits) == u32::from(address);
        self.addresses.iter().any(names)
    }

    /// Is it an address that a neighbour can have?
    pub(crate) fn is_on_link(&self, address: Ipv4Addr) -> bool {
        matches!(self.hop_on_link(address), Some(Hop::Neighbour(_)))
    }

    fn hop_on_link(&self, to: Ipv4Addr) -> Option<Hop> {
        if self.is_own(to) {
            Some(Hop::Own)
        } else if self.is_broadcast(to) {
            Some(Hop::Broadcast)
        } else if !is_host(to) || self.is_network(to) {
            Some(Hop::Refused)
        } else {
            self.addresses.iter().any(|&prefix| holds(prefix, to)).then_some(Hop::Neighbour(to))
        }
    }

    /// Where a packet to this address goes next.
    pub(crate) fn hop(&self, to: Ipv4Addr) -> Hop {
        match self.hop_on_link(to) {
            Some(hop) => hop,
            None if self.is_hosts => Hop::Neighbour(to),
            None => self.gateway.map_or(Hop::None, Hop::Neighbour),
        }
    }

    /// Length of the prefix that routes to this address; none: no route holds it. The gateway's is 0.
    pub(crate) fn best(&self, to: Ipv4Addr) -> Option<u8> {
        let prefixes = self.addresses.iter().filter(|prefix| holds(**prefix, to)).map(|(_, bits)| *bits);
        prefixes.max().or((self.is_hosts || self.gateway.is_some()).then_some(0))
    }

    /// The own address to send from to this one: that of the prefix that holds it or the gateway; else the first.
    pub(crate) fn source(&self, to: Option<Ipv4Addr>) -> (Ipv4Addr, u8) {
        let first = self.addresses.first().copied().unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let Some(to) = to else { return first };
        if let Some(own) = self.addresses.iter().find(|(own, _)| *own == to) {
            return *own;
        }
        let holder = |to| {
            let holders = self.addresses.iter().filter(|prefix| holds(**prefix, to));
            holders.max_by_key(|(_, bits)| *bits).copied()
        };
        holder(to).or_else(|| holder(self.gateway?)).unwrap_or(first)
    }

    /// Length of the prefix of an own address.
    pub(crate) fn prefix(&self, own: Ipv4Addr) -> Option<u8> {
        self.addresses.iter().find(|(address, _)| *address == own).map(|(_, bits)| *bits)
    }

    /// All addresses.
    pub(crate) fn addresses(&self) -> &[(Ipv4Addr, u8)] {
        &self.addresses
    }

    /// All routes, the most specific first; none where the host has them.
    pub(crate) fn state(&self) -> Vec<RouteState> {
        if self.is_hosts {
            return Vec::new();
        }
        let network = |&(own, bits): &(Ipv4Addr, u8)| (Ipv4Addr::from(u32::from(own) & mask(bits)), bits);
        let mut routes: Vec<_> =
            self.addresses.iter().map(|prefix| RouteState { to: network(prefix), via: None }).collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.to.1));
        routes.dedup();
        routes.extend(self.gateway.map(|gateway| RouteState { to: (Ipv4Addr::UNSPECIFIED, 0), via: Some(gateway) }));
        routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(addresses: &[([u8; 4], u8)], gateway: Option<[u8; 4]>) -> OpenInterface {
        OpenInterface {
            device: "d".into(),
            how: None,
            addresses: addresses.iter().map(|(address, bits)| (Ipv4Addr::from(*address), *bits)).collect(),
            gateway: gateway.map(Ipv4Addr::from),
            rate: None,
            count_gaps: false,
            share: false,
        }
    }

    #[test]
    fn hops() {
        let open = interface(&[([10, 0, 0, 2], 24), ([10, 0, 0, 130], 25), ([192, 0, 2, 1], 31)], Some([10, 0, 0, 1]));
        let routes = Routes::new(&open).expect("it is sound");
        let check = |to: [u8; 4], hop: Hop, source: [u8; 4]| {
            let to = Ipv4Addr::from(to);
            assert_eq!((routes.hop(to), routes.source(Some(to)).0), (hop, source.into()), "{to}");
        };
        let neighbour = |address: [u8; 4]| Hop::Neighbour(address.into());
        check([10, 0, 0, 2], Hop::Own, [10, 0, 0, 2]);
        check([10, 0, 0, 9], neighbour([10, 0, 0, 9]), [10, 0, 0, 2]);
        check([10, 0, 0, 131], neighbour([10, 0, 0, 131]), [10, 0, 0, 130]);
        check([10, 0, 0, 255], Hop::Broadcast, [10, 0, 0, 130]);
        check([255, 255, 255, 255], Hop::Broadcast, [10, 0, 0, 2]);
        check([10, 0, 0, 0], Hop::Refused, [10, 0, 0, 2]);
        check([192, 0, 2, 0], neighbour([192, 0, 2, 0]), [192, 0, 2, 1]);
        check([8, 8, 8, 8], neighbour([10, 0, 0, 1]), [10, 0, 0, 2]);
        for refused in [[224, 0, 0, 1], [127, 0, 0, 1], [0, 0, 0, 0], [240, 0, 0, 1]] {
            check(refused, Hop::Refused, [10, 0, 0, 2]);
        }
        assert_eq!(routes.state().iter().map(|route| route.to.1).collect::<Vec<_>>(), [31, 25, 24, 0]);
        let alone = Routes::new(&interface(&[([10, 0, 0, 2], 24)], None)).expect("it is sound");
        assert_eq!(alone.hop(Ipv4Addr::new(8, 8, 8, 8)), Hop::None);
    }

    #[test]
    fn on_a_shared_device_the_host_is_asked_about_others() {
        let routes = Routes::of_host(&[(Ipv4Addr::new(10, 0, 0, 2), 24)]);
        let check = |to: [u8; 4], hop: Hop| assert_eq!(routes.hop(to.into()), hop, "{to:?}");
        check([10, 0, 0, 2], Hop::Own);
        check([10, 0, 0, 255], Hop::Broadcast);
        check([224, 0, 0, 1], Hop::Refused);
        for to in [[10, 0, 0, 9], [8, 8, 8, 8]] {
            check(to, Hop::Neighbour(to.into()));
        }
        assert_eq!([10, 8].map(|first| routes.best([first, 0, 0, 9].into())), [Some(24), Some(0)]);
        assert_eq!(routes.state(), []);
    }

    #[test]
    fn addresses_that_no_host_has_are_refused() {
        let check = |addresses: &[([u8; 4], u8)], gateway, expected: bool| {
            assert_eq!(Routes::new(&interface(addresses, gateway)).is_ok(), expected, "{addresses:?} {gateway:?}");
        };
        check(&[], None, false);
        check(&[([10, 0, 0, 2], 33)], None, false);
        check(&[([10, 0, 0, 255], 24)], None, false);
        check(&[([10, 0, 0, 0], 24)], None, false);
        check(&[([10, 0, 0, 0], 31)], None, true);
        check(&[([10, 0, 0, 2], 32)], None, true);
        check(&[([10, 0, 0, 2], 0)], Some([99, 0, 0, 1]), true);
        check(&[([224, 0, 0, 1], 24)], None, false);
        check(&[([127, 0, 0, 1], 8)], None, false);
        check(&[([10, 0, 0, 2], 24), ([10, 0, 0, 2], 24)], None, false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 1, 1]), false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 2]), false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 1]), true);
    }
}
