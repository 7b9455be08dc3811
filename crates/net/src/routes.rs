//! The addresses of an interface and its routes: the prefix of each address, and prefixes beyond neighbours. The longest prefix decides.
//!
//! A route by a gateway is in use while the gateway is a neighbour. So the routes are there again when an address comes back.

use crate::error::{NetError, NetErrorKind};
use crate::limits::{ADDRESSES, ROUTES};
use crate::process::message::Table;
use flow::{Change, OpenInterface, RouteState};
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    addresses: Vec<(Ipv4Addr, u8)>,
    /// Beside the prefixes of addresses, whether they are in use or not.
    routes: Vec<RouteState>,
    /// All that are in use, the longest prefix first. Of two with one prefix, that of an own address is the first.
    table: Vec<RouteState>,
    /// The host has the routes: each address of another is its own next hop, until the host is asked.
    is_hosts: bool,
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

/// The prefix that an address lies in.
fn network((address, bits): (Ipv4Addr, u8)) -> (Ipv4Addr, u8) {
    (Ipv4Addr::from(u32::from(address) & mask(bits)), bits)
}

fn holds((address, bits): (Ipv4Addr, u8), other: Ipv4Addr) -> bool {
    (u32::from(address) ^ u32::from(other)) & mask(bits) == 0
}

/// Is it an address that one host can have?
pub(crate) fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !(first == 0 || first == 127 || first >= 224)
}

fn refuse<T>(text: String) -> Result<T, NetError> {
    Err(NetError::new(NetErrorKind::Request, text))
}

impl Routes {
    /// Checks what an interface is to have.
    pub(crate) fn new(open: &OpenInterface) -> Result<Routes, NetError> {
        if open.addresses.is_empty() && !open.dhcp {
            return refuse(format!("`{}` needs an address, as 10.0.0.2/24", open.device));
        }
        let mut routes = Routes::default();
        for &(address, bits) in &open.addresses {
            routes.change(&Change::AddAddress(address, bits))?;
        }
        if let Some(gateway) = open.gateway {
            routes.change(&Change::AddRoute(RouteState { to: (Ipv4Addr::UNSPECIFIED, 0), via: Some(gateway) }))?;
        }
        Ok(routes)
    }

    /// Makes a change, or says why it makes no sense.
    pub(crate) fn change(&mut self, change: &Change) -> Result<(), NetError> {
        if self.is_hosts {
            let text = "a shared device has the addresses and routes of the host; change them there, then take the interface down \
                        and up again";
            return refuse(text.into());
        }
        match *change {
            Change::AddAddress(address, bits) => {
                self.check_address(address, bits)?;
                self.addresses.push((address, bits));
            }
            Change::RemoveAddress(address, bits) => {
                let Some(at) = self.addresses.iter().position(|own| *own == (address, bits)) else {
                    return refuse(format!("the interface has no address {address}/{bits}; {}", self.it_has()));
                };
                self.addresses.remove(at);
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

    fn check_address(&self, address: Ipv4Addr, bits: u8) -> Result<(), NetError> {
        let alone = Routes::of_host(&[(address, bits)]);
        if bits > 32 {
            refuse(format!("{address}/{bits}: a prefix has 0 to 32 bits"))
        } else if !is_host(address) || alone.is_broadcast(address) || alone.is_network(address) {
            refuse(format!("{address}/{bits} is no address of a host; choose one inside its prefix"))
        } else if self.is_own(address) {
            refuse(format!("the interface has {address} already"))
        } else if self.addresses.len() >= ADDRESSES {
            refuse(format!("an interface has {ADDRESSES} addresses at most"))
        } else {
            Ok(())
        }
    }

    fn check_route(&self, to: (Ipv4Addr, u8), via: Option<Ipv4Addr>) -> Result<(), NetError> {
        let (address, bits) = to;
        if bits > 32 {
            return refuse(format!("{address}/{bits}: a prefix has 0 to 32 bits"));
        }
        if network(to) != to {
            return refuse(format!(
                "{address}/{bits} has bits beyond its prefix; did you mean {}/{bits}?",
                network(to).0
            ));
        }
        if let Some(via) = via
            && !self.is_neighbour(via)
        {
            return refuse(format!(
                "the gateway {via} is no neighbour; it must lie inside a prefix of the interface; {}",
                self.it_has()
            ));
        }
        if self.addresses.is_empty() {
            return refuse("the interface has no address to send from; add one before routes".into());
        }
        if let Some(known) = self.state().iter().find(|known| known.to == to) {
            let hop = known.via.map_or("neighbours".to_string(), |via| via.to_string());
            return refuse(format!(
                "the interface has a route to {address}/{bits} by {hop} already; delete that first"
            ));
        }
        if self.routes.len() >= ROUTES {
            return refuse(format!("an interface has {ROUTES} routes at most"));
        }
        Ok(())
    }

    fn it_has(&self) -> String {
        let all: Vec<_> = self.addresses.iter().map(|(own, bits)| format!("{own}/{bits}")).collect();
        if all.is_empty() { "it has no address".into() } else { format!("it has {}", all.join(", ")) }
    }

    /// As an earlier process had them.
    pub(crate) fn of_table(Table { addresses, routes, .. }: &Table) -> Routes {
        let mut routes = Routes { addresses: addresses.clone(), routes: routes.clone(), ..Routes::default() };
        routes.tabulate();
        routes
    }

    /// For a process that follows.
    pub(crate) fn table(&self) -> Table {
        Table { addresses: self.addresses.clone(), routes: self.routes.clone(), lease: None }
    }

    /// With the addresses of the host, which has the routes.
    pub(crate) fn of_host(addresses: &[(Ipv4Addr, u8)]) -> Routes {
        let mut routes =
            Routes { addresses: addresses.to_vec(), routes: Vec::new(), table: Vec::new(), is_hosts: true };
        routes.tabulate();
        routes
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
        self.special(address).is_none() && self.route(address).is_some_and(|(_, via)| via.is_none())
    }

    /// Can a gateway have this address? Not by a route: a gateway is a neighbour of an own address.
    fn is_neighbour(&self, address: Ipv4Addr) -> bool {
        self.special(address).is_none() && self.addresses.iter().any(|own| holds(*own, address))
    }

    /// Where a packet to an address goes that no route decides about.
    fn special(&self, to: Ipv4Addr) -> Option<Hop> {
        if self.is_own(to) {
            Some(Hop::Own)
        } else if self.is_broadcast(to) {
            Some(Hop::Broadcast)
        } else if !is_host(to) || self.is_network(to) {
            Some(Hop::Refused)
        } else {
            None
        }
    }

    /// The longest prefix that holds this address: its bits, and its next hop (none: it is for neighbours).
    fn route(&self, to: Ipv4Addr) -> Option<(u8, Option<Ipv4Addr>)> {
        self.table.iter().find(|route| holds(route.to, to)).map(|route| (route.to.1, route.via))
    }

    /// Makes the table anew after a change.
    fn tabulate(&mut self) {
        let own = self.addresses.iter().map(|own| RouteState { to: network(*own), via: None });
        let usable = |route: &&RouteState| route.via.map_or(!self.addresses.is_empty(), |via| self.is_neighbour(via));
        let mut table: Vec<_> = own.chain(self.routes.iter().filter(usable).cloned()).collect();
        table.sort_by_key(|route| std::cmp::Reverse(route.to.1));
        self.table = table;
    }

    /// Where a packet to this address goes next.
    pub(crate) fn hop(&self, to: Ipv4Addr) -> Hop {
        match (self.special(to), self.route(to)) {
            (Some(hop), _) => hop,
            (None, Some((_, via))) => Hop::Neighbour(via.unwrap_or(to)),
            (None, None) if self.is_hosts => Hop::Neighbour(to),
            (None, None) => Hop::None,
        }
    }

    /// Length of the prefix that routes to this address; none: no route holds it.
    pub(crate) fn best(&self, to: Ipv4Addr) -> Option<u8> {
        self.route(to).map(|(bits, _)| bits).or(self.is_hosts.then_some(0))
    }

    /// The own address to send from to this one: that of the prefix that holds it or the next hop; else the first. 0.0.0.0: there is none.
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
        let next = self.route(to).and_then(|(_, via)| via).unwrap_or(to);
        holder(next).or_else(|| holder(to)).unwrap_or(first)
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
        let own = self.addresses.iter().map(|own| RouteState { to: network(*own), via: None });
        let mut routes: Vec<_> = own.chain(self.routes.iter().cloned()).collect();
        routes.sort_by_key(|route| (std::cmp::Reverse(route.to.1), route.to.0));
        routes.dedup();
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
            dhcp: false,
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
        check(&[([10, 0, 0, 2], 0)], None, true);
        // All are neighbours: the gateway would never be used.
        check(&[([10, 0, 0, 2], 0)], Some([99, 0, 0, 1]), false);
        check(&[([224, 0, 0, 1], 24)], None, false);
        check(&[([127, 0, 0, 1], 8)], None, false);
        check(&[([10, 0, 0, 2], 24), ([10, 0, 0, 2], 24)], None, false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 1, 1]), false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 2]), false);
        check(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 1]), true);
    }

    fn route(to: [u8; 4], bits: u8, via: Option<[u8; 4]>) -> RouteState {
        RouteState { to: (to.into(), bits), via: via.map(Ipv4Addr::from) }
    }

    #[test]
    fn the_longest_prefix_decides_and_a_route_waits_for_the_address_of_its_gateway() {
        let mut routes = Routes::new(&interface(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 1]))).expect("it is sound");
        let hops = |routes: &Routes| {
            [[8, 8, 8, 8], [20, 1, 0, 9], [20, 2, 0, 9], [10, 0, 0, 200], [30, 0, 0, 7]].map(|to| {
                match routes.hop(to.into()) {
                    Hop::Neighbour(next) => next.octets(),
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
        // Without an address nothing is reached; with another one, what needs no gateway.
        routes.change(&Change::RemoveAddress([10, 0, 0, 2].into(), 24)).expect("it is there");
        assert_eq!(hops(&routes), [[0; 4]; 5]);
        assert_eq!(routes.source(None).0, Ipv4Addr::UNSPECIFIED);
        routes.change(&Change::AddAddress([10, 0, 1, 2].into(), 24)).expect("it is sound");
        assert_eq!(hops(&routes), [[0; 4], [0; 4], [0; 4], [0; 4], [30, 0, 0, 7]]);
        assert_eq!(routes.state().len(), 6, "all are kept");
        routes.change(&Change::AddAddress([10, 0, 0, 2].into(), 24)).expect("it is sound");
        assert_eq!(hops(&routes), whole);
        assert_eq!(routes.source(Some([8, 8, 8, 8].into())).0, Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn changes_that_make_no_sense_change_nothing_and_say_why() {
        let mut routes = Routes::new(&interface(&[([10, 0, 0, 2], 24)], Some([10, 0, 0, 1]))).expect("it is sound");
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
