//! The kernel's addresses on a device (`rtnetlink`, RTM_GETADDR).

use crate::netlink::{Message, Netlink, attributes};
use crate::sys::{Plain, read_plain};
use std::io;
use std::net::IpAddr;

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

// SAFETY: integers in a row, without holes.
unsafe impl Plain for Head {}

/// The addresses of the device with this number in this thread's namespace, each with the length of its prefix in bits.
pub fn list(index: u32) -> io::Result<Vec<(IpAddr, u8)>> {
    let mut message = Message::new(libc::RTM_GETADDR, 0);
    // The kernel may ignore the number and list all devices, so it is compared below.
    message.put(&Head { family: libc::AF_UNSPEC as u8, index, ..Head::default() });
    let each = |found: &mut Vec<_>, kind, body: &[u8]| {
        if kind == libc::RTM_NEWADDR {
            found.extend(parse(body).filter(|(device, _)| *device == index).map(|(_, address)| address));
        }
    };
    Netlink::route(0)?.dump(&message, each, Vec::new)
}

/// Device and address from the body of a message; `None` if it is about something else.
fn parse(body: &[u8]) -> Option<(u32, (IpAddr, u8))> {
    let head: Head = read_plain(body)?;
    let find = |wanted| attributes(&body[size_of::<Head>()..]).find(|(kind, _)| *kind == wanted);
    // On a point-to-point link IFA_ADDRESS is that of the other end; IPv6 has IFA_LOCAL only there.
    let (_, local) = find(libc::IFA_LOCAL).or_else(|| find(libc::IFA_ADDRESS))?;
    let address = match i32::from(head.family) {
        libc::AF_INET => IpAddr::from(<[u8; 4]>::try_from(local).ok()?),
        libc::AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(local).ok()?),
        _ => return None,
    };
    Some((head.index, (address, head.prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_its_addresses_where_it_is_up() {
        let loopback = crate::link::find("lo").expect("anybody may list devices").expect("there is one");
        let found = list(loopback.index).expect("anybody may list addresses");
        let is_usual =
            |&(address, bits): &(IpAddr, u8)| address.is_loopback() && bits == if address.is_ipv4() { 8 } else { 128 };
        assert!(found.iter().all(is_usual), "{found:?}");
        assert_eq!(list(u32::MAX >> 1).unwrap_or_default(), []);
    }

    #[test]
    fn a_short_message_is_no_address() {
        assert_eq!(parse(&[2; 7]), None);
        assert_eq!(parse(&[2; 8]), None);
    }
}
