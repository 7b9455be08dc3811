//! Changes links of this thread's network namespace: on and off, MTU, address, pairs of virtual devices.
//!
//! For devices that this program made (`tuntap.rs`) and for tests. It leaves alone what other programs configured.

use crate::link::{Address, no_link};
use crate::namespace::Namespace;
use crate::netlink::{Message, Netlink};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const VETH_INFO_PEER: u16 = 1;

/// Changes of a link. A field that is `None` changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Switched on or off.
    pub up: Option<bool>,
    /// Bytes of the largest packet.
    pub mtu: Option<u32>,
    /// Most frames that wait for being sent.
    pub queue_frames: Option<u32>,
    /// Its hardware address.
    pub address: Option<Address>,
    /// Its name; the link must be off.
    pub name: Option<String>,
    /// Whether it resolves addresses of neighbours, for which it sends frames of its own.
    pub arp: Option<bool>,
    /// Whether it receives frames for other hosts. Stays so until it is changed back.
    pub promiscuous: Option<bool>,
}

impl Netlink {
    /// Changes the link with this number.
    pub fn change(&mut self, index: u32, change: &Change) -> io::Result<()> {
        let mut head = no_link();
        head.ifi_index = index as i32;
        let mut flag = |flag: i32, wanted: Option<bool>| {
            if let Some(wanted) = wanted {
                head.ifi_change |= flag as u32;
                head.ifi_flags |= if wanted { flag as u32 } else { 0 };
            }
        };
        flag(libc::IFF_UP, change.up);
        flag(libc::IFF_NOARP, change.arp.map(|arp| !arp));
        flag(libc::IFF_PROMISC, change.promiscuous);
        let mut message = Message::new(libc::RTM_NEWLINK, 0);
        message.put(&head);
        if let Some(mtu) = change.mtu {
            message.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        }
        if let Some(frames) = change.queue_frames {
            message.attribute(libc::IFLA_TXQLEN, &frames.to_ne_bytes());
        }
        if let Some(address) = &change.address {
            message.attribute(libc::IFLA_ADDRESS, &address.0);
        }
        if let Some(name) = &change.name {
            message.text(libc::IFLA_IFNAME, name);
        }
        self.request(&message)
    }

    /// Makes a pair of devices, each of which receives what is sent on the other: `near` in this namespace, `far` in
    /// `far_namespace`. Both are off. They go together, and with either's namespace. 0 `queues`: the driver's choice.
    pub fn create_veth(&mut self, near: &str, far: &str, far_namespace: &Namespace, queues: u32) -> io::Result<()> {
        let mut message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        let describe = |message: &mut Message, name| {
            message.put(&no_link()).text(libc::IFLA_IFNAME, name);
            if queues > 0 {
                message.attribute(libc::IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes());
                message.attribute(libc::IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes());
            }
        };
        describe(&mut message, near);
        message.nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |peer| {
                    describe(peer, far);
                    let fd = far_namespace.as_fd().as_raw_fd();
                    peer.attribute(libc::IFLA_NET_NS_FD, &fd.to_ne_bytes());
                });
            });
        });
        self.request(&message)
    }

    /// Removes the link with this number, and its other end if it has one.
    pub fn remove(&mut self, index: u32) -> io::Result<()> {
        let mut head = no_link();
        head.ifi_index = index as i32;
        self.request(Message::new(libc::RTM_DELLINK, 0).put(&head))
    }
}
