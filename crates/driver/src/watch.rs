//! Watches devices: reports which ones came, went and changed in a network namespace.
//!
//! Events are differences between two states. If the kernel had more messages than the socket could hold, the state is
//! read again and the differences come out all the same. Only a device that came and went in between is missed.

use crate::error::Error;
use crate::link::{self, Link};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A change of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub index: u32,
    /// Its name, the new one if it changed.
    pub name: String,
    /// Its kind.
    pub what: What,
}

/// The kind of an [`Event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new.
    Added,
    /// It is gone, or moved to another namespace.
    Removed,
    /// It was switched on.
    Up,
    /// It was switched off.
    Down,
    /// It has a carrier: packets can travel.
    Running,
    /// It has lost its carrier.
    Stopped,
    /// The largest packet has another length.
    Mtu {
        /// Bytes before.
        from: u32,
        /// Bytes now.
        to: u32,
    },
    /// It has a new name.
    Renamed {
        /// The name before.
        from: String,
    },
    /// It has another hardware address.
    Readdressed,
    /// It now receives frames for other hosts, or no longer.
    Promiscuous(bool),
}

/// The state of all devices of a namespace, and events since.
#[derive(Debug)]
pub struct Watch {
    netlink: Netlink,
    links: BTreeMap<u32, Link>,
    events: VecDeque<Event>,
}

impl Watch {
    /// Starts watching.
    pub fn new(namespace: &Namespace) -> Result<Watch, Error> {
        let open = || {
            // First subscribes, then asks, so that no change falls in between.
            let netlink = Netlink::route(libc::RTMGRP_LINK as u32)?;
            Ok((netlink, link::list()?))
        };
        let (netlink, links) =
            namespace.enter(open).and_then(|opened| opened).map_err(Error::doing("watch devices"))?;
        let links = links.into_iter().map(|link| (link.index, link)).collect();
        Ok(Watch { netlink, links, events: VecDeque::new() })
    }

    /// The devices as far as they are known.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The next event; waits at most for `wait`. `None` if there was none, or a signal came.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>, Error> {
        if self.events.is_empty() {
            self.look(wait).map_err(Error::doing("watch devices"))?;
        }
        Ok(self.events.pop_front())
    }

    fn look(&mut self, wait: Duration) -> io::Result<()> {
        let (links, events) = (&mut self.links, &mut self.events);
        let listened = self.netlink.listen(wait, |kind, body| {
            let Some(link) = link::parse(body) else { return };
            match kind {
                libc::RTM_NEWLINK => update(links, link, events),
                libc::RTM_DELLINK => remove(links, link.index, events),
                _ => {}
            }
        });
        match listened {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.look_again(),
            listened => listened.map(|_| ()),
        }
    }

    /// Reads the whole state again. Messages that wait are older than that, and bring nothing new.
    fn look_again(&mut self) -> io::Result<()> {
        let found = self.netlink.links()?;
        let gone: Vec<u32> =
            self.links.keys().copied().filter(|index| !found.iter().any(|link| link.index == *index)).collect();
        gone.into_iter().for_each(|index| remove(&mut self.links, index, &mut self.events));
        found.into_iter().for_each(|link| update(&mut self.links, link, &mut self.events));
        Ok(())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

fn remove(links: &mut BTreeMap<u32, Link>, index: u32, events: &mut VecDeque<Event>) {
    if let Some(link) = links.remove(&index) {
        events.push_back(Event { index, name: link.name, what: What::Removed });
    }
}

fn update(links: &mut BTreeMap<u32, Link>, link: Link, events: &mut VecDeque<Event>) {
    let mut event = |what| events.push_back(Event { index: link.index, name: link.name.clone(), what });
    match links.get(&link.index) {
        None => event(What::Added),
        Some(before) => {
            if before.name != link.name {
                event(What::Renamed { from: before.name.clone() });
            }
            if before.address != link.address {
                event(What::Readdressed);
            }
            if before.mtu != link.mtu {
                event(What::Mtu { from: before.mtu, to: link.mtu });
            }
            if before.is_promiscuous() != link.is_promiscuous() {
                event(What::Promiscuous(link.is_promiscuous()));
            }
            match (before.is_up(), link.is_up()) {
                (false, true) => event(What::Up),
                (true, false) => event(What::Down),
                _ => {}
            }
            match (before.is_running(), link.is_running()) {
                (false, true) => event(What::Running),
                (true, false) => event(What::Stopped),
                _ => {}
            }
        }
    }
    links.insert(link.index, link);
}
