//! The addresses and routes of an interface: their prefixes, and those beyond neighbours. The longest prefix wins.
//!
//! A route by a gateway is in use while the gateway is a neighbour. So the routes return together with a removed address.

use crate::dhcp::lease::HeldLease;
use crate::error::{NetError, NetErrorKind};
use crate::limits::{ADDRESSES, ROUTES};
use flow::{Change, OpenInterface, RouteState, bits};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of an interface with their prefix lengths, its other routes, and the lease that brought one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) routes: Vec<RouteState>,
    pub(crate) lease: Option<HeldLease>,
}

/// The next hop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// This host.
    Own,
    /// All neighbours.
    Broadcast,
    /// This neighbour.
    Neighbour(IpAddr),
    /// There is no route.
    None,
    /// The interface sends no packets there: multicast, 127/8, 0/8, 240/4, `::1`, IPv4 addresses in IPv6 notation.
    Refused,
}

/// Addresses and routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// As users and servers gave them.
    given: Vec<(IpAddr, u8)>,
    /// The hardware address of the device, once it is open.
    mac: Option<[u8; 6]>,
    /// The given addresses, and a link-local IPv6 address if it takes one.
    addresses: Vec<(IpAddr, u8)>,
    /// Without the prefixes of addresses, whether they are in use or not.
    routes: Vec<RouteState>,
    /// The routes in use, the longest prefix first. Of two routes to one prefix, that of an own address comes first.
    table: Vec<RouteState>,
    /// The host has the routes: each address of another host is its own next hop, until the host is asked.
    is_hosts: bool,
}

/// The first and the last address of a prefix.
fn ends((address, length): (IpAddr, u8)) -> (IpAddr, IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let network = address.to_bits() & !host;
            (Ipv4Addr::from_bits(network).into(), Ipv4Addr::from_bits(network | host).into())
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let network = address.to_bits() & !host;
            (Ipv6Addr::from_bits(network).into(), Ipv6Addr::from_bits(network | host).into())
        }
    }
}

/// Whether a single host can have this address.
pub(crate) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let first = address.octets()[0];
            !(first == 0 || first == 127 || first >= 224)
        }
        // The first 2^32 contain `::`, `::1` and the addresses of RFC 4291 2.5.5.1, which are abolished.
        IpAddr::V6(address) => {
            !(address.is_multicast() || address.to_ipv4_mapped().is_some() || address.to_bits() >> 32 == 0)
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The link-local address of a hardware address (RFC 4291 2.5.6, appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> IpAddr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]).into()
}

/// The prefix of an address.
fn network(prefix: (IpAddr, u8)) -> (IpAddr, u8) {
    (ends(prefix).0, prefix.1)
}

fn refuse<T>(text: String) -> Result<T, NetError> {
    Err(NetError::new(NetErrorKind::Request, text))
}

fn check_length((address, length): (IpAddr, u8)) -> Result<(), NetError> {
    match bits(address) {
        longest if length > longest => refuse(format!("{address}/{length}: a prefix has 0 to {longest} bits")),
        _ => Ok(()),
    }
}

impl Routes {
    /// Checks an interface's options.
    pub(crate) fn new(open: &OpenInterface) -> Result<Routes, NetError> {
        if open.addresses.is_empty() && !open.dhcp {
            return refuse(format!("`{}` needs an address, as 10.0.0.2/24 or fd00::2/64", open.device));
        }
        let mut routes = Routes::default();
        for &(address, length) in &open.addresses {
            routes.change(&Change::AddAddress(address, length))?;
        }
        for (at, &gateway) in open.gateways.iter().enumerate() {
            if let Some(other) = open.gateways[..at].iter().find(|other| other.is_ipv4() == gateway.is_ipv4()) {
                return refuse(format!("{other} and {gateway} are two gateways; an interface has one of each family"));
            }
            let to = network((gateway, 0));
            routes.change(&Change::AddRoute(RouteState { to, via: Some(gateway) }))?;
        }
        Ok(routes)
    }

    /// Makes a change, or says why it is invalid.
    pub(crate) fn change(&mut self, change: &Change) -> Result<(), NetError> {
        if self.is_hosts {
            let text = "a shared device has the addresses and routes of the host; change them there, then take the interface down \
                        and up again";
            return refuse(text.into());
        }
        match *change {
            Change::AddAddress(address, length) => {
                self.check_address((address, length))?;
                self.given.push((address, length));
            }
            Change::RemoveAddress(address, length) => {
                let Some(at) = self.given.iter().position(|own| *own == (address, length)) else {
                    return refuse(format!("the interface has no address {address}/{length}; {}", self.it_has()));
                };
                self.given.remove(at);
            }
            Change::AddRoute(RouteState { to, via }) => {
                self.check_route(to, via)?;
                self.routes.push(RouteState { to, via });
            }
            Change::RemoveRoute(RouteState { to, via }) => {
                let is_it = |route: &RouteState| route.to == to && via.is_none_or(|via| route.via == Some(via));
                let Some(at) = self.routes.iter().position(is_it) else {
                    let text = match via {
                        _ if self.addresses.iter().any(|own| network(*own) == to) => {
                            "it goes with its address: streamline net addr del".into()
                        }
                        Some(via) => format!("the interface has none by {via}"),
                        None => "the interface has none".into(),
                    };
                    return refuse(format!("no route to {}/{}: {text}", to.0, to.1));
                };
                self.routes.remove(at);
            }
        }
        self.tabulate();
        Ok(())
    }

    fn check_address(&self, prefix: (IpAddr, u8)) -> Result<(), NetError> {
        check_length(prefix)?;
        let ((address, length), (first, last)) = (prefix, ends(prefix));
        // The first IPv6 address of a prefix stands for all its routers (RFC 4291 2.6.1).
        let is_several = length + 1 < bits(address) && (address == first || address.is_ipv4() && address == last);
        if !is_host(address) || is_several {
            refuse(format!("{address}/{length} is no address of a host; choose one inside its prefix"))
        } else if self.is_own(address) {
            refuse(format!("the interface has {address} already"))
        } else if self.given.len() >= ADDRESSES {
            refuse(format!("an interface has {ADDRESSES} addresses at most"))
        } else {
            Ok(())
        }
    }

    fn check_route(&self, to: (IpAddr, u8), via: Option<IpAddr>) -> Result<(), NetError> {
        check_length(to)?;
        let (address, length) = to;
        if network(to) != to {
            return refuse(format!(
                "{address}/{length} has bits beyond its prefix; did you mean {}/{length}?",
                network(to).0
            ));
        }
        if let Some(via) = via
            && (via.is_ipv4() != address.is_ipv4() || !self.is_neighbour(via))
        {
            return refuse(format!(
                "the gateway {via} is no neighbour; it must lie inside a prefix of the interface; {}",
                self.it_has()
            ));
        }
        if !self.has_family(address) {
            return refuse("the interface has no address to send from; add one before routes".into());
        }
        if let Some(known) = self.state().iter().find(|known| known.to == to) {
            let hop = known.via.map_or("neighbours".to_string(), |via| via.to_string());
            return refuse(format!(
                "the interface has a route to {address}/{length} by {hop} already; delete that first"
            ));
        }
        if self.routes.len() >= ROUTES {
            return refuse(format!("an interface has {ROUTES} routes at most"));
        }
        Ok(())
    }

    fn it_has(&self) -> String {
        let all: Vec<_> = self.addresses.iter().map(|(own, length)| format!("{own}/{length}")).collect();
        if all.is_empty() { "it has no address".into() } else { format!("it has {}", all.join(", ")) }
    }

    /// As in an earlier process.
    pub(crate) fn of_table(Table { addresses, routes, .. }: &Table) -> Routes {
        let mut routes = Routes { given: addresses.clone(), routes: routes.clone(), ..Routes::default() };
        routes.tabulate();
        routes
    }

    /// For the next process.
    pub(crate) fn table(&self) -> Table {
        Table { addresses: self.given.clone(), routes: self.routes.clone(), lease: None }
    }

    /// With the addresses of the host, which has the routes.
    pub(crate) fn of_host(addresses: &[(IpAddr, u8)]) -> Routes {
        let mut routes = Routes { given: addresses.to_vec(), is_hosts: true, ..Routes::default() };
        routes.tabulate();
        routes
    }

    /// With the link-local address of the device with this hardware address, if there is none for IPv6 (RFC 4291 2.1).
    pub(crate) fn on_device(mut self, mac: [u8; 6]) -> Routes {
        self.mac = Some(mac);
        self.tabulate();
        self
    }

    /// Whether it has an IPv6 address.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.has_family(Ipv6Addr::UNSPECIFIED.into())
    }

    /// Whether it has an address of the same family.
    pub(crate) fn has_family(&self, of: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| own.is_ipv4() == of.is_ipv4())
    }

    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Own IPv4 addresses with network and broadcast addresses: prefixes of 31 and 32 bits have none (RFC 3021).
    fn networks(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.addresses.iter().filter(|(own, length)| own.is_ipv4() && *length < 31).map(|prefix| ends(*prefix))
    }

    /// Whether it is the broadcast address of a prefix, or of the link. IPv6 has none.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::BROADCAST) || self.networks().any(|(_, last)| last == address)
    }

    /// Whether it is the network address of a prefix, the old form of its broadcast address.
    pub(crate) fn is_network(&self, address: IpAddr) -> bool {
        self.networks().any(|(first, _)| first == address)
    }

    /// Whether a neighbour can have this address.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        match self.special(address) {
            Some(hop) => matches!(hop, Hop::Neighbour(_)),
            None => self.route(address).is_some_and(|(_, via)| via.is_none()),
        }
    }

    /// Whether a gateway can have this address. Routes do not count: a gateway is a neighbour of an own address.
    fn is_neighbour(&self, address: IpAddr) -> bool {
        match self.special(address) {
            Some(hop) => matches!(hop, Hop::Neighbour(_)),
            None => self.addresses.iter().any(|own| flow::holds(*own, address)),
        }
    }

    /// The next hop of addresses that no route covers.
    fn special(&self, to: IpAddr) -> Option<Hop> {
        if self.is_own(to) {
            Some(Hop::Own)
        } else if self.is_broadcast(to) {
            Some(Hop::Broadcast)
        } else if !is_host(to) || self.is_network(to) {
            Some(Hop::Refused)
        } else if is_link_local(to) {
            // Routers do not forward it (RFC 4291 2.5.6).
            Some(if self.has_ipv6() { Hop::Neighbour(to) } else { Hop::None })
        } else {
            None
        }
    }

    /// The longest prefix with this address: its bits, and its next hop (`None`: neighbours).
    fn route(&self, to: IpAddr) -> Option<(u8, Option<IpAddr>)> {
        self.table.iter().find(|route| flow::holds(route.to, to)).map(|route| (route.to.1, route.via))
    }

    /// Rebuilds the table after a change.
    fn tabulate(&mut self) {
        self.addresses.clone_from(&self.given);
        if let Some(mac) = self.mac
            && !self.is_hosts
            && self.has_ipv6()
            && !self.addresses.iter().any(|(own, _)| is_link_local(*own))
        {
            self.addresses.push((link_local(mac), 64));
        }
        let own = self.addresses.iter().map(|own| RouteState { to: network(*own), via: None });
        let usable = |route: &&RouteState| route.via.map_or(self.has_family(route.to.0), |via| self.is_neighbour(via));
        let mut table: Vec<_> = own.chain(self.routes.iter().filter(usable).cloned()).collect();
        table.sort_by_key(|route| Reverse(route.to.1));
        self.table = table;
    }

    /// The next hop of packets to this address.
    pub(crate) fn hop(&self, to: IpAddr) -> Hop {
        match (self.special(to), self.route(to)) {
            (Some(hop), _) => hop,
            (None, Some((_, via))) => Hop::Neighbour(via.unwrap_or(to)),
            (None, None) if self.is_hosts && to.is_ipv4() => Hop::Neighbour(to),
            (None, None) => Hop::None,
        }
    }

    /// The length of the prefix that routes to this address. `None`: there is no route.
    pub(crate) fn best(&self, to: IpAddr) -> Option<u8> {
        self.route(to).map(|(length, _)| length).or((self.is_hosts && to.is_ipv4()).then_some(0))
    }

    /// The own address for an unspecified one, before a packet has a destination: the first one of its family. If there
    /// is no IPv4 address, 0.0.0.0 stands for an IPv6 one.
    pub(crate) fn first(&self, unspecified: IpAddr) -> Option<IpAddr> {
        let own = |is_ipv4| self.addresses.iter().map(|(own, _)| *own).find(|own| own.is_ipv4() == is_ipv4);
        own(unspecified.is_ipv4()).or_else(|| own(false))
    }

    /// The own address for sending to this one. `None`: there is no own address of its family.
    ///
    /// For IPv4: the address whose prefix holds the next hop or the destination, else the first one. For IPv6: an address with
    /// the scope of the destination, and among these the one that shares most bits with it (RFC 6724 5, rules 1, 2 and 8).
    pub(crate) fn source(&self, to: IpAddr) -> Option<IpAddr> {
        if self.is_own(to) {
            return Some(to);
        }
        let all = self.addresses.iter().enumerate().filter(|(_, (own, _))| own.is_ipv4() == to.is_ipv4());
        if to.is_ipv6() {
            // If all are equal, the first one.
            let rank = |(at, (own, _)): &(usize, &(IpAddr, u8))| {
                (is_link_local(*own) == is_link_local(to), flow::common(*own, to), Reverse(*at))
            };
            return all.max_by_key(rank).map(|(_, (own, _))| *own);
        }
        let holder = |to| {
            let holders = self.addresses.iter().filter(|prefix| flow::holds(**prefix, to));
            holders.max_by_key(|(_, length)| *length).map(|(own, _)| *own)
        };
        let first = all.map(|(_, (own, _))| *own).next();
        let next = self.route(to).and_then(|(_, via)| via).unwrap_or(to);
        holder(next).or_else(|| holder(to)).or(first)
    }

    /// Length of the prefix of an own address.
    pub(crate) fn prefix(&self, own: IpAddr) -> Option<u8> {
        self.addresses.iter().find(|(address, _)| *address == own).map(|(_, length)| *length)
    }

    pub(crate) fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.addresses
    }

    /// All routes, IPv4 first, the most specific of a family first. Empty if the host has them.
    pub(crate) fn state(&self) -> Vec<RouteState> {
        if self.is_hosts {
            return Vec::new();
        }
        let own = self.addresses.iter().map(|own| RouteState { to: network(*own), via: None });
        let mut routes: Vec<_> = own.chain(self.routes.iter().cloned()).collect();
        routes.sort_by_key(|route| (route.to.0.is_ipv6(), Reverse(route.to.1), route.to.0));
        routes.dedup();
        routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn interface(addresses: &[&str], gateways: &[&str]) -> OpenInterface {
        let prefix = |text: &&str| {
            let (address, length) = text.split_once('/').expect("a prefix");
            (ip(address), length.parse().expect("a number"))
        };
        OpenInterface {
            device: "d".into(),
            how: None,
            addresses: addresses.iter().map(prefix).collect(),
            gateways: gateways.iter().map(|text| ip(text)).collect(),
            rate: None,
            count_gaps: false,
            dhcp: false,
            share: false,
        }
    }

    /// For a device with the hardware address 02:00:00:00:00:01.
    fn routes(addresses: &[&str], gateways: &[&str]) -> Routes {
        Routes::new(&interface(addresses, gateways)).expect("it is sound").on_device([2, 0, 0, 0, 0, 1])
    }

    #[test]
    fn hops_of_ipv4() {
        let routes = routes(&["10.0.0.2/24", "10.0.0.130/25", "192.0.2.1/31"], &["10.0.0.1"]);
        let check = |to: &str, hop: Hop, source: &str| {
            assert_eq!((routes.hop(ip(to)), routes.source(ip(to))), (hop, Some(ip(source))), "{to}");
        };
        let neighbour = |address: &str| Hop::Neighbour(ip(address));
        check("10.0.0.2", Hop::Own, "10.0.0.2");
        check("10.0.0.9", neighbour("10.0.0.9"), "10.0.0.2");
        check("10.0.0.131", neighbour("10.0.0.131"), "10.0.0.130");
        check("10.0.0.255", Hop::Broadcast, "10.0.0.130");
        check("255.255.255.255", Hop::Broadcast, "10.0.0.2");
        check("10.0.0.0", Hop::Refused, "10.0.0.2");
        check("192.0.2.0", neighbour("192.0.2.0"), "192.0.2.1");
        check("8.8.8.8", neighbour("10.0.0.1"), "10.0.0.2");
        for refused in ["224.0.0.1", "127.0.0.1", "0.0.0.0", "240.0.0.1"] {
            check(refused, Hop::Refused, "10.0.0.2");
        }
        assert_eq!(routes.state().iter().map(|route| route.to.1).collect::<Vec<_>>(), [31, 25, 24, 0]);
        assert_eq!((routes.has_ipv6(), routes.source(ip("fd00::1"))), (false, None));
        for to in ["fd00::1", "fe80::1"] {
            assert_eq!((routes.hop(ip(to)), routes.best(ip(to))), (Hop::None, None), "{to}");
        }
    }

    #[test]
    fn hops_of_ipv6() {
        let addresses = ["fd00::2/64", "2001:db8:1::2/64", "2001:db8:1::9/127", "10.0.0.2/24"];
        let routes = routes(&addresses, &["fe80::1", "10.0.0.1"]);
        let check = |to: &str, hop: Hop, source: &str| {
            assert_eq!((routes.hop(ip(to)), routes.source(ip(to))), (hop, Some(ip(source))), "{to}");
        };
        let neighbour = |address: &str| Hop::Neighbour(ip(address));
        check("fd00::2", Hop::Own, "fd00::2");
        check("fd00::9", neighbour("fd00::9"), "fd00::2");
        check("2001:db8:1::7", neighbour("2001:db8:1::7"), "2001:db8:1::2");
        check("2001:db8:1::8", neighbour("2001:db8:1::8"), "2001:db8:1::9");
        // The address of all routers of the prefix.
        check("fd00::", neighbour("fd00::"), "fd00::2");
        // EUI-64, and only to neighbours of that scope. Packets with it do not leave the link.
        check("fe80::ff:fe00:1", Hop::Own, "fe80::ff:fe00:1");
        check("fe80::1", neighbour("fe80::1"), "fe80::ff:fe00:1");
        check("fe80:1::1", neighbour("fe80:1::1"), "fe80::ff:fe00:1");
        check("fd00:1::1", neighbour("fe80::1"), "fd00::2");
        check("2a00::1", neighbour("fe80::1"), "2001:db8:1::2");
        check("8.8.8.8", neighbour("10.0.0.1"), "10.0.0.2");
        for refused in ["ff02::1", "ff0e::1", "::1", "::", "::ffff:10.0.0.1", "::10.0.0.1"] {
            assert_eq!(routes.hop(ip(refused)), Hop::Refused, "{refused}");
        }
        let first = ["0.0.0.0", "::"].map(|text| routes.first(ip(text)));
        assert_eq!(first, ["10.0.0.2", "fd00::2"].map(|text| Some(ip(text))));
        let state: Vec<_> = routes.state().iter().map(|route| format!("{}/{}", route.to.0, route.to.1)).collect();
        let expected =
            ["10.0.0.0/24", "0.0.0.0/0", "2001:db8:1::8/127", "2001:db8:1::/64", "fd00::/64", "fe80::/64", "::/0"];
        assert_eq!(state, expected);
    }

    #[test]
    fn a_link_local_address_that_was_given_stays_the_only_one() {
        let check = |addresses: &[&str], expected: &[&str]| {
            let own: Vec<_> = routes(addresses, &[]).addresses().iter().map(|(own, _)| own.to_string()).collect();
            assert_eq!(own, expected);
        };
        check(&["fe80::7/64"], &["fe80::7"]);
        check(&["fd00::2/64", "fe80::7/64"], &["fd00::2", "fe80::7"]);
        check(&["10.0.0.2/24", "fd00::2/64"], &["10.0.0.2", "fd00::2", "fe80::ff:fe00:1"]);
        check(&["10.0.0.2/24"], &["10.0.0.2"]);
    }

    #[test]
    fn on_a_shared_device_the_host_is_asked_about_others() {
        let routes = Routes::of_host(&[(ip("10.0.0.2"), 24)]);
        let check = |to: &str, hop: Hop| assert_eq!(routes.hop(ip(to)), hop, "{to}");
        check("10.0.0.2", Hop::Own);
        check("10.0.0.255", Hop::Broadcast);
        check("224.0.0.1", Hop::Refused);
        for to in ["10.0.0.9", "8.8.8.8"] {
            check(to, Hop::Neighbour(ip(to)));
        }
        check("fd00::1", Hop::None);
        assert_eq!(["10.0.0.9", "8.0.0.9", "fd00::1"].map(|to| routes.best(ip(to))), [Some(24), Some(0), None]);
        assert_eq!(routes.state(), []);
    }

    #[test]
    fn addresses_that_no_host_has_are_refused() {
        let check = |addresses: &[&str], gateways: &[&str], expected: bool| {
            assert_eq!(Routes::new(&interface(addresses, gateways)).is_ok(), expected, "{addresses:?} {gateways:?}");
        };
        check(&[], &[], false);
        check(&["10.0.0.2/33"], &[], false);
        check(&["10.0.0.255/24"], &[], false);
        check(&["10.0.0.0/24"], &[], false);
        check(&["10.0.0.0/31"], &[], true);
        check(&["10.0.0.2/32"], &[], true);
        check(&["10.0.0.2/0"], &[], true);
        // All hosts are neighbours: the gateway would never be used.
        check(&["10.0.0.2/0"], &["99.0.0.1"], false);
        check(&["224.0.0.1/24"], &[], false);
        check(&["127.0.0.1/8"], &[], false);
        check(&["10.0.0.2/24", "10.0.0.2/24"], &[], false);
        check(&["10.0.0.2/24"], &["10.0.1.1"], false);
        check(&["10.0.0.2/24"], &["10.0.0.2"], false);
        check(&["10.0.0.2/24"], &["10.0.0.1"], true);
        check(&["fd00::2/64"], &[], true);
        check(&["fd00::2/129"], &[], false);
        check(&["fd00::/64"], &[], false);
        check(&["fd00::/127"], &[], true);
        check(&["fd00::ffff:ffff:ffff:ffff/64"], &[], true);
        for no_host in ["::/64", "::1/128", "::ffff:10.0.0.2/96", "::10.0.0.2/96", "ff02::1/64"] {
            check(&[no_host], &[], false);
        }
        check(&["fd00::2/64"], &["fd00::1"], true);
        check(&["fd00::2/64"], &["fe80::1"], true);
        check(&["fd00::2/64"], &["fd01::1"], false);
        check(&["fd00::2/64"], &["10.0.0.1"], false);
        check(&["10.0.0.2/24"], &["fe80::1"], false);
        check(&["10.0.0.2/24", "fd00::2/64"], &["10.0.0.1", "fd00::1"], true);
        check(&["fd00::2/64"], &["fd00::1", "fe80::1"], false);
    }

    fn route(to: [u8; 4], bits: u8, via: Option<[u8; 4]>) -> RouteState {
        RouteState { to: (to.into(), bits), via: via.map(IpAddr::from) }
    }

    #[test]
    fn the_longest_prefix_decides_and_a_route_waits_for_the_address_of_its_gateway() {
        let mut routes = routes(&["10.0.0.2/24"], &["10.0.0.1"]);
        let hops = |routes: &Routes| {
            [[8, 8, 8, 8], [20, 1, 0, 9], [20, 2, 0, 9], [10, 0, 0, 200], [30, 0, 0, 7]].map(|to| {
                match routes.hop(to.into()) {
                    Hop::Neighbour(IpAddr::V4(next)) => next.octets(),
                    _ => [0; 4],
                }
            })
        };
        for added in [
            route([20, 0, 0, 0], 8, Some([10, 0, 0, 9])),
            route([20, 1, 0, 0], 16, Some([10, 0, 0, 8])),
            route([10, 0, 0, 128], 25, Some([10, 0, 0, 7])),
            route([30, 0, 0, 0], 24, None),
        ] {
            routes.change(&Change::AddRoute(added)).expect("it is sound");
        }
        let whole = [[10, 0, 0, 1], [10, 0, 0, 8], [10, 0, 0, 9], [10, 0, 0, 7], [30, 0, 0, 7]];
        assert_eq!(hops(&routes), whole);
        assert!(routes.is_on_link([30, 0, 0, 7].into()) && !routes.is_on_link([10, 0, 0, 200].into()));
        assert_eq!(routes.best([20, 1, 0, 9].into()), Some(16));
        // Without an address no host is reachable. With another one, all hosts are that need no gateway.
        routes.change(&Change::RemoveAddress([10, 0, 0, 2].into(), 24)).expect("it is there");
        assert_eq!(hops(&routes), [[0; 4]; 5]);
        assert_eq!(routes.first(ip("0.0.0.0")), None);
        routes.change(&Change::AddAddress([10, 0, 1, 2].into(), 24)).expect("it is sound");
        assert_eq!(hops(&routes), [[0; 4], [0; 4], [0; 4], [0; 4], [30, 0, 0, 7]]);
        assert_eq!(routes.state().len(), 6, "all are kept");
        routes.change(&Change::AddAddress([10, 0, 0, 2].into(), 24)).expect("it is sound");
        assert_eq!(hops(&routes), whole);
        assert_eq!(routes.source(ip("8.8.8.8")), Some(ip("10.0.0.2")));
    }

    #[test]
    fn changes_that_make_no_sense_change_nothing_and_say_why() {
        let mut routes = routes(&["10.0.0.2/24"], &["10.0.0.1"]);
        let before = format!("{routes:?}");
        for (change, expected) in [
            (Change::AddAddress([10, 0, 0, 2].into(), 24), "has 10.0.0.2 already"),
            (Change::AddAddress([10, 0, 0, 2].into(), 33), "0 to 32 bits"),
            (Change::AddAddress([10, 1, 0, 0].into(), 16), "no address of a host"),
            (Change::RemoveAddress([10, 0, 0, 2].into(), 25), "it has 10.0.0.2/24"),
            (Change::AddRoute(route([20, 0, 0, 1], 8, Some([10, 0, 0, 1]))), "did you mean 20.0.0.0/8?"),
            (Change::AddRoute(route([20, 0, 0, 0], 8, Some([20, 0, 0, 1]))), "is no neighbour"),
            (Change::AddRoute(route([20, 0, 0, 0], 8, Some([10, 0, 0, 2]))), "is no neighbour"),
            (Change::AddRoute(route([0, 0, 0, 0], 0, Some([10, 0, 0, 9]))), "by 10.0.0.1 already"),
            (Change::AddRoute(route([10, 0, 0, 0], 24, Some([10, 0, 0, 9]))), "by neighbours already"),
            (Change::RemoveRoute(route([10, 0, 0, 0], 24, None)), "goes with its address"),
            (Change::RemoveRoute(route([0, 0, 0, 0], 0, Some([10, 0, 0, 9]))), "none by 10.0.0.9"),
            (Change::RemoveRoute(route([20, 0, 0, 0], 8, None)), "has none"),
        ] {
            let error = routes.change(&change).expect_err("it makes no sense");
            assert!(error.text.contains(expected), "{change:?}: {error}");
            assert_eq!(format!("{routes:?}"), before);
        }
        routes.change(&Change::RemoveRoute(route([0, 0, 0, 0], 0, None))).expect("it is there");
        assert_eq!(routes.hop([8, 8, 8, 8].into()), Hop::None);
        for last in 0..=u8::MAX {
            _ = routes.change(&Change::AddAddress([10, 1, last, 1].into(), 24));
            _ = routes.change(&Change::AddRoute(route([20, last, 0, 0], 16, Some([10, 0, 0, 1]))));
        }
        assert_eq!((routes.addresses.len(), routes.routes.len()), (ADDRESSES, ROUTES));
        let shared =
            Routes::of_host(&[]).change(&Change::AddAddress([10, 0, 0, 3].into(), 24)).expect_err("the host's");
        assert!(shared.text.contains("of the host"), "{shared}");
    }
}
