//! Links: the kernel's description of every device in this thread's network namespace (`rtnetlink`, RTM_GETLINK).
//!
//! `ethtool.rs` asks for facts that only the driver knows; both together make a [`Device`](crate::device::Device).

use crate::counters::LinkCounters;
use crate::netlink::{Message, Netlink, attributes};
use crate::sys::{Plain, read_plain};
use std::fmt;
use std::io;

/// A device as `rtnetlink` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Kind of a virtual device (`veth`, `tun`, `bridge`); `None` for hardware and loopback.
    pub kind: Option<String>,
    /// ARPHRD number: tells the link header of its frames. See [`link_type`](Link::link_type).
    pub hardware: u16,
    /// Its hardware address; empty if it has none.
    pub address: Address,
    /// Bytes of the largest packet, without its link header.
    pub mtu: u32,
    /// IFF flags.
    pub flags: u32,
    /// Whether the kernel knows that it can carry packets (RFC 2863, ifOperStatus up). Not all drivers tell.
    pub operational: bool,
    /// Most bytes of packets that may go out as one before they are cut (GSO).
    pub gso_max_bytes: u32,
    /// Number of receive queues.
    pub receive_queues: u32,
    /// Number of transmit queues.
    pub transmit_queues: u32,
    /// Number of users that want it to receive frames for other hosts.
    pub promiscuity: u32,
    /// Number of the device of which it is a part (bridge, bond).
    pub master: Option<u32>,
    /// The attached XDP program.
    pub xdp: Option<XdpAttached>,
    /// Whether the host's stacks use IPv6 on it (`disable_ipv6` is 0).
    pub has_ipv6: bool,
    /// The kernel's counters.
    pub counters: LinkCounters,
}

/// A hardware address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address(pub Vec<u8>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for byte in &self.0 {
            write!(f, "{between}{byte:02x}")?;
            between = ":";
        }
        Ok(())
    }
}

/// An attached XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAttached {
    /// The program's number, as `bpftool` shows it.
    pub program: u32,
    /// Place where it runs.
    pub mode: XdpMode,
}

/// Place where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the device's driver.
    Native,
    /// After the driver, in the kernel's own path.
    Generic,
    /// In the device.
    Hardware,
    /// Several programs, in several places.
    Several,
}

/// LINKTYPE of Ethernet, and of bare IP packets.
const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;
/// LINKTYPE of HDLC and Frame Relay.
const CISCO_HDLC: u16 = 104;
const FRAME_RELAY: u16 = 107;

/// `linux/if_arp.h`: bare IP packets.
const ARPHRD_RAWIP: u16 = 519;

impl Link {
    /// Whether it is switched on.
    pub fn is_up(&self) -> bool {
        self.has(libc::IFF_UP)
    }

    /// Whether it is switched on, and has a carrier.
    pub fn is_running(&self) -> bool {
        self.is_up() && self.has(libc::IFF_RUNNING)
    }

    /// Whether it gives back frames sent on it.
    pub fn is_loopback(&self) -> bool {
        self.has(libc::IFF_LOOPBACK)
    }

    /// Whether it receives frames for other hosts.
    pub fn is_promiscuous(&self) -> bool {
        self.promiscuity > 0
    }

    fn has(&self, flag: i32) -> bool {
        self.flags & flag as u32 != 0
    }

    /// LINKTYPE number of its frames in packet sockets; `None` if no number fits.
    pub fn link_type(&self) -> Option<u16> {
        link_type(self.hardware)
    }

    /// Length of the link header.
    pub fn header_bytes(&self) -> u32 {
        if self.link_type() == Some(ETHERNET) { 14 } else { 0 }
    }
}

/// LINKTYPE number of the frames of a device with this ARPHRD number. The rows are those of libpcap whose frames need
/// no invented header.
pub(crate) fn link_type(hardware: u16) -> Option<u16> {
    Some(match hardware {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => ETHERNET,
        libc::ARPHRD_NONE | ARPHRD_RAWIP => RAW_IP,
        libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT | libc::ARPHRD_SLIP => RAW_IP,
        libc::ARPHRD_CISCO => CISCO_HDLC,
        libc::ARPHRD_DLCI => FRAME_RELAY,
        _ => return None,
    })
}

/// All devices of this thread's namespace, by number.
pub fn list() -> io::Result<Vec<Link>> {
    Netlink::route(0)?.links()
}

/// The device with this name in this thread's namespace.
pub fn find(name: &str) -> io::Result<Option<Link>> {
    Ok(list()?.into_iter().find(|link| link.name == name))
}

impl Netlink {
    /// All devices of the socket's namespace, by number.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut message = Message::new(libc::RTM_GETLINK, 0);
        message.put(&no_link());
        let each = |links: &mut Vec<Link>, kind, body: &[u8]| {
            if kind == libc::RTM_NEWLINK {
                links.extend(parse(body));
            }
        };
        let mut links = self.dump(&message, each, Vec::new)?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }
}

/// The structure at the beginning of every message about links, all zero.
pub(crate) fn no_link() -> libc::ifinfomsg {
    // SAFETY: integers; zeroes are a value.
    unsafe { std::mem::zeroed() }
}

/// Decodes a link from the body of a message; `None` if it is about something else (a bridge's ports).
pub(crate) fn parse(body: &[u8]) -> Option<Link> {
    let head: libc::ifinfomsg = read_plain(body)?;
    if i32::from(head.ifi_family) != libc::AF_UNSPEC {
        return None;
    }
    let mut link = Link {
        index: u32::try_from(head.ifi_index).ok()?,
        name: String::new(),
        kind: None,
        hardware: head.ifi_type,
        address: Address::default(),
        mtu: 0,
        flags: head.ifi_flags,
        operational: false,
        gso_max_bytes: 0,
        receive_queues: 1,
        transmit_queues: 1,
        promiscuity: 0,
        master: None,
        xdp: None,
        has_ipv6: false,
        counters: LinkCounters::default(),
    };
    for (kind, value) in attributes(&body[size_of::<libc::ifinfomsg>()..]) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.address = Address(value.to_vec()),
            libc::IFLA_MTU => link.mtu = number(value),
            libc::IFLA_GSO_MAX_SIZE => link.gso_max_bytes = number(value),
            libc::IFLA_NUM_RX_QUEUES => link.receive_queues = number(value),
            libc::IFLA_NUM_TX_QUEUES => link.transmit_queues = number(value),
            libc::IFLA_PROMISCUITY => link.promiscuity = number(value),
            libc::IFLA_OPERSTATE => link.operational = value == [IF_OPER_UP],
            libc::IFLA_MASTER => link.master = Some(number(value)),
            libc::IFLA_STATS64 => link.counters = LinkCounters::parse(value),
            libc::IFLA_XDP => link.xdp = xdp(value),
            libc::IFLA_AF_SPEC => link.has_ipv6 = has_ipv6(value),
            libc::IFLA_LINKINFO => {
                link.kind =
                    attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND).map(|(_, name)| text(name));
            }
            _ => {}
        }
    }
    Some(link)
}

/// `linux/if.h`
const IF_OPER_UP: u8 = 6;

// `linux/if_link.h`: attributes inside IFLA_XDP, and values of the second.
const XDP_ATTACHED: u16 = 2;
const XDP_PROG_ID: u16 = 4;

fn xdp(value: &[u8]) -> Option<XdpAttached> {
    let find = |wanted| attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let mode = match *find(XDP_ATTACHED)?.first()? {
        1 => XdpMode::Native,
        2 => XdpMode::Generic,
        3 => XdpMode::Hardware,
        4 => XdpMode::Several,
        _ => return None,
    };
    Some(XdpAttached { program: find(XDP_PROG_ID).map_or(0, number), mode })
}

// `linux/if_link.h`: the IPv6 settings inside IFLA_AF_SPEC; `linux/ipv6.h`: the index of one.
const INET6_CONF: u16 = 2;
const DEVCONF_DISABLE_IPV6: usize = 26;

/// A kernel without IPv6 sends no such settings.
fn has_ipv6(value: &[u8]) -> bool {
    let find = |value, wanted| attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let settings = find(value, libc::AF_INET6 as u16).and_then(|inside| find(inside, INET6_CONF));
    let is_disabled = settings.and_then(|settings| settings.as_chunks::<4>().0.get(DEVCONF_DISABLE_IPV6));
    is_disabled == Some(&[0; 4])
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

fn number<T: Plain + Default>(value: &[u8]) -> T {
    read_plain(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_loopback_device() {
        let links = list().expect("anybody may list devices");
        let loopback = links.iter().find(|link| link.is_loopback()).expect("there is one");
        assert_eq!((loopback.name.as_str(), loopback.link_type(), loopback.kind.as_deref()), ("lo", Some(1), None));
        assert_eq!(loopback.address.to_string(), "00:00:00:00:00:00");
        assert!(loopback.mtu >= 1280 && loopback.receive_queues >= 1);
        assert_eq!(find("lo").expect("as above").map(|link| link.index), Some(loopback.index));
        assert_eq!(find("no such device").expect("as above"), None);
    }

    #[test]
    fn whether_the_host_speaks_ipv6_is_what_its_switch_says() {
        for link in list().expect("anybody may list devices") {
            let switch = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", link.name);
            let is_on = std::fs::read_to_string(switch).is_ok_and(|text| text.trim() == "0");
            assert_eq!(link.has_ipv6, is_on, "{}", link.name);
        }
    }

    #[test]
    fn a_short_message_is_no_link() {
        assert_eq!(parse(&[0; 15]), None);
        assert_eq!(parse(&[7; 16]), None);
        assert!(parse(&[0; 16]).is_some());
    }
}
