//! The host's next hops (`rtnetlink`): device and router for a packet, and the neighbour's hardware address.
//!
//! The only change it makes: [`Netlink::use_neighbour`] makes the kernel resolve a neighbour as if it had a packet for
//! it.

use crate::netlink::{Message, Netlink, attributes};
use crate::sys::{Plain, read_plain};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

/// The structure at the beginning of messages about routes: `struct rtmsg` of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RouteHead {
    family: u8,
    to_bits: u8,
    from_bits: u8,
    service: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
}

// SAFETY: integers in a row, without holes.
unsafe impl Plain for RouteHead {}

/// The same for neighbours: `struct ndmsg` of `linux/neighbour.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct NeighbourHead {
    family: u8,
    pad: u8,
    more_pad: u16,
    device: i32,
    state: u16,
    flags: u8,
    kind: u8,
}

// SAFETY: integers in a row, without holes.
unsafe impl Plain for NeighbourHead {}

// `linux/rtnetlink.h`.
const TO: u16 = 1;
const BY_DEVICE: u16 = 4;
const GATEWAY: u16 = 5;
const SOURCE: u16 = 7;

// `linux/neighbour.h`.
const ADDRESS: u16 = 1;
const HARDWARE: u16 = 2;
const USE: u8 = 1;
const STALE: u16 = 0x04;
const FAILED: u16 = 0x20;
/// Reachable, stale, delay, probe, no ARP, permanent.
const VALID: u16 = 0x02 | STALE | 0x08 | 0x10 | 0x40 | 0x80;

/// The host's route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the device through which packets leave.
    pub device: u32,
    /// The router; `None`: the address is a neighbour.
    pub gateway: Option<Ipv4Addr>,
    /// The host's source address.
    pub source: Option<Ipv4Addr>,
    /// Whether it leads to one other host. Otherwise to this one, to several, or nowhere.
    pub is_unicast: bool,
}

/// The kernel's knowledge of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// The neighbour's hardware address.
    Known {
        /// The address.
        mac: [u8; 6],
        /// Whether it was not confirmed lately, so that it should be asked for again.
        is_old: bool,
    },
    /// The kernel is asking for it.
    Asked,
    /// The neighbour did not answer.
    Failed,
    /// The kernel does not know the neighbour.
    Absent,
}

impl Netlink {
    /// The host's route to an address; `None` if it has none.
    pub fn route_to(&mut self, to: Ipv4Addr) -> io::Result<Option<Route>> {
        let mut message = Message::new(libc::RTM_GETROUTE, 0);
        message.put(&RouteHead { family: libc::AF_INET as u8, to_bits: 32, ..RouteHead::default() });
        message.attribute(TO, &to.octets());
        match self.get(&message, |kind, body| if kind == libc::RTM_NEWROUTE { parse_route(body) } else { None }) {
            // Prohibited and unreachable routes and black holes give errors of their own.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NetworkUnreachable
                        | ErrorKind::HostUnreachable
                        | ErrorKind::PermissionDenied
                        | ErrorKind::InvalidInput
                ) =>
            {
                Ok(None)
            }
            found => found,
        }
    }

    /// The kernel's knowledge of a neighbour on this device.
    pub fn neighbour(&mut self, device: u32, address: Ipv4Addr) -> io::Result<Neighbour> {
        let message = about_neighbour(libc::RTM_GETNEIGH, 0, device, 0, address);
        match self.get(&message, |kind, body| if kind == libc::RTM_NEWNEIGH { parse_neighbour(body) } else { None }) {
            Ok(found) => Ok(found.unwrap_or(Neighbour::Absent)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Neighbour::Absent),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel resolve a neighbour, or confirm one that it knows (`NTF_USE`). Takes CAP_NET_ADMIN.
    pub fn use_neighbour(&mut self, device: u32, address: Ipv4Addr) -> io::Result<()> {
        self.request(&about_neighbour(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE, device, USE, address))
    }
}

fn about_neighbour(kind: u16, flags: i32, device: u32, how: u8, address: Ipv4Addr) -> Message {
    let mut message = Message::new(kind, flags);
    let device = device.cast_signed();
    message.put(&NeighbourHead { family: libc::AF_INET as u8, device, flags: how, ..NeighbourHead::default() });
    message.attribute(ADDRESS, &address.octets());
    message
}

fn parse_route(body: &[u8]) -> Option<Route> {
    let head: RouteHead = read_plain(body)?;
    let mut route = Route { device: 0, gateway: None, source: None, is_unicast: head.kind == libc::RTN_UNICAST };
    for (kind, value) in attributes(&body[size_of::<RouteHead>()..]) {
        let Ok(four) = <[u8; 4]>::try_from(value) else { continue };
        match kind {
            BY_DEVICE => route.device = u32::from_ne_bytes(four),
            GATEWAY => route.gateway = Some(four.into()),
            SOURCE => route.source = Some(four.into()),
            _ => {}
        }
    }
    Some(route)
}

fn parse_neighbour(body: &[u8]) -> Option<Neighbour> {
    let head: NeighbourHead = read_plain(body)?;
    let hardware = attributes(&body[size_of::<NeighbourHead>()..]).find(|(kind, _)| *kind == HARDWARE);
    Some(match hardware.and_then(|(_, value)| <[u8; 6]>::try_from(value).ok()) {
        Some(mac) if head.state & VALID != 0 => Neighbour::Known { mac, is_old: head.state & STALE != 0 },
        _ if head.state & FAILED != 0 => Neighbour::Failed,
        _ if head.state == 0 => Neighbour::Absent,
        _ => Neighbour::Asked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_host_leads_to_no_other() {
        let mut netlink = Netlink::route(0).expect("anybody may ask");
        if let Some(route) = netlink.route_to(Ipv4Addr::LOCALHOST).expect("the kernel answers") {
            assert!(!route.is_unicast && route.device != 0, "{route:?}");
        }
        let loopback = crate::link::find("lo").expect("anybody may list devices").expect("there is one");
        let found = netlink.neighbour(loopback.index, Ipv4Addr::new(192, 0, 2, 77)).expect("the kernel answers");
        assert_eq!(found, Neighbour::Absent);
    }

    #[test]
    fn bodies_are_read_as_far_as_they_go() {
        let route = [&[2, 32, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0][..], &[8, 0, 4, 0], &7_u32.to_ne_bytes()].concat();
        let route = [&route[..], &[8, 0, 5, 0, 10, 0, 0, 1, 8, 0, 7, 0, 10, 0, 0, 2]].concat();
        let [gateway, source] = [1, 2].map(|last| Some(Ipv4Addr::new(10, 0, 0, last)));
        assert_eq!(parse_route(&route), Some(Route { device: 7, gateway, source, is_unicast: true }));
        assert_eq!(parse_route(&route[..11]), None);
        let neighbour = |state: u8, more: &[u8]| {
            let head = [&[2, 0, 0, 0, 7, 0, 0, 0][..], &u16::from(state).to_ne_bytes(), &[0, 1]].concat();
            parse_neighbour(&[&head[..], more].concat())
        };
        let address = [10, 0, 2, 0, 2, 0, 0, 0, 0, 9, 0, 0];
        let mac = [2, 0, 0, 0, 0, 9];
        assert_eq!(neighbour(2, &address), Some(Neighbour::Known { mac, is_old: false }));
        assert_eq!(neighbour(4, &address), Some(Neighbour::Known { mac, is_old: true }));
        assert_eq!(neighbour(2, &[]), Some(Neighbour::Asked));
        assert_eq!(neighbour(1, &[]), Some(Neighbour::Asked));
        assert_eq!(neighbour(0x20, &[]), Some(Neighbour::Failed));
        assert_eq!(neighbour(0, &[]), Some(Neighbour::Absent));
        assert_eq!(parse_neighbour(&[2; 11]), None);
    }
}
