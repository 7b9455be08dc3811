//! Addresses that the kernel has on a device (`rtnetlink`, RTM_GETADDR).

use crate::netlink::{Message, Netlink, attributes};
use crate::sys::read_plain;
use std::io;
use std::net::Ipv4Addr;

/// The structure at the beginning of every message about addresses: `struct ifaddrmsg` of `linux/if_addr.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Head {
    family: u8,
    prefix: u8,
    flags: u8,
    scope: u8,
    index: u32,
}

/// The IPv4 addresses of the device with this number in this thread's namespace, each with the length of its prefix in bits.
pub fn ipv4(index: u32) -> io::Result<Vec<(Ipv4Addr, u8)>> {
    let mut message = Message::new(libc::RTM_GETADDR, 0);
    // The kernel may leave the number out of its choice; it is compared below.
    message.put(&Head { family: libc::AF_INET as u8, index, ..Head::default() });
    let each = |found: &mut Vec<_>, kind, body: &[u8]| {
        if kind == libc::RTM_NEWADDR {
            found.extend(parse(body).filter(|(device, _)| *device == index).map(|(_, address)| address));
        }
    };
    Netlink::route(0)?.dump(&message, each, Vec::new)
}

/// Device and address from the body of a message; none where it is about something else.
fn parse(body: &[u8]) -> Option<(u32, (Ipv4Addr, u8))> {
    let head: Head = read_plain(body)?;
    if i32::from(head.family) != libc::AF_INET {
        return None;
    }
    // The local address; IFA_ADDRESS is that of the other end on a line between two.
    let local = attributes(&body[size_of::<Head>()..]).find(|(kind, _)| *kind == libc::IFA_LOCAL);
    let octets: [u8; 4] = local?.1.try_into().ok()?;
    Some((head.index, (octets.into(), head.prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_its_address_where_it_is_up() {
        let loopback = crate::link::find("lo").expect("anybody may list devices").expect("there is one");
        let found = ipv4(loopback.index).expect("anybody may list addresses");
        assert!(found.iter().all(|(address, bits)| address.is_loopback() && *bits == 8), "{found:?}");
        assert_eq!(ipv4(u32::MAX >> 1).unwrap_or_default(), []);
    }

    #[test]
    fn a_short_message_is_no_address() {
        assert_eq!(parse(&[2; 7]), None);
        assert_eq!(parse(&[2; 8]), None);
    }
}
