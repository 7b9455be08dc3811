//! Virtual pairs in separate namespaces, for measurements and tests: each end receives the frames that the other sends.
//!
//! Only frames of the program that made them travel there: they have no addresses, no neighbours, no IPv6, no offloads.
//! Their namespaces have no names. When the last process that holds one ends, the kernel removes everything.

use crate::change::Change;
use crate::ethtool::{Ethtool, Offloads};
use crate::link::{self, Link};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::watch::Watch;
use std::io;
use std::time::{Duration, Instant};

const SETTLING: Duration = Duration::from_secs(10);

/// Makes a namespace without IPv6, so that the kernel sends nothing by itself. Takes CAP_SYS_ADMIN.
pub fn quiet_namespace() -> io::Result<Namespace> {
    let namespace = Namespace::create()?;
    namespace.enter(|| {
        for which in ["all", "default"] {
            // Without IPv6 there is nothing to switch off.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
        }
    })?;
    Ok(namespace)
}

/// A device in a namespace.
#[derive(Clone, Debug)]
pub struct End {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name there.
    pub name: String,
    /// Its number there.
    pub index: u32,
}

/// Two devices, each of which receives what is sent on the other. Both are up, without offloads.
#[derive(Clone, Debug)]
pub struct Pair {
    /// One end.
    pub near: End,
    /// The other end.
    pub far: End,
}

impl Pair {
    /// Makes a pair with these names: the near one, the far one. `queues` is for each; 0: the driver's choice.
    pub fn named([near, far]: [(&Namespace, &str); 2], queues: u32) -> io::Result<Pair> {
        near.0.enter(|| Netlink::route(0)?.create_veth(near.1, far.1, far.0, queues))??;
        let pair = Pair { near: End::find(near.0, near.1)?, far: End::find(far.0, far.1)? };
        for end in [&pair.near, &pair.far] {
            end.set_offloads(Offloads::NONE)?;
            end.change(&Change { arp: Some(false), up: Some(true), ..Change::default() })?;
        }
        for end in [&pair.near, &pair.far] {
            end.await_carrier()?;
        }
        Ok(pair)
    }
}

impl End {
    /// The device with this name in a namespace.
    pub fn find(namespace: &Namespace, name: &str) -> io::Result<End> {
        let link = namespace.enter(|| link::find(name))??.ok_or(io::ErrorKind::NotFound)?;
        Ok(End { namespace: namespace.clone(), name: name.into(), index: link.index })
    }

    /// Its present state in the kernel; an error if the device is gone.
    pub fn link(&self) -> io::Result<Link> {
        let links = self.namespace.enter(link::list)??;
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("the device `{}` is gone", self.name));
        links.into_iter().find(|link| link.index == self.index).ok_or_else(gone)
    }

    /// Changes the device.
    pub fn change(&self, change: &Change) -> io::Result<()> {
        self.namespace.enter(|| Netlink::route(0)?.change(self.index, change))?
    }

    /// Sets its offloads as far as the device allows.
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<Offloads> {
        self.namespace.enter(|| Ethtool::new()?.set_offloads(&self.name, offloads))?
    }

    /// Removes it and the other end.
    pub fn remove(&self) -> io::Result<()> {
        self.namespace.enter(|| Netlink::route(0)?.remove(self.index))?
    }

    /// Waits until frames of either end arrive at the other. The kernel notices a carrier only some time after the
    /// device was switched on. Until then it drops frames and does not count them.
    pub fn await_carrier(&self) -> io::Result<()> {
        let tells = |link: &Link| link.kind.as_deref() == Some("veth");
        self.await_state(|link| link.is_running() && (link.operational || !tells(link)))?;
        // The kernel activates the carrier right after it reports it, under a lock for which this change waits.
        self.change(&Change::default())
    }

    /// Waits until `is_so` holds for the device's state; an error if it takes too long.
    pub fn await_state(&self, is_so: impl Fn(&Link) -> bool) -> io::Result<()> {
        let mut watch = Watch::new(&self.namespace).map_err(io::Error::other)?;
        let end = Instant::now() + SETTLING;
        while !watch.links().any(|link| link.index == self.index && is_so(link)) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("`{}` did not get into the state it was asked to get into", self.name);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            watch.next(left).map_err(io::Error::other)?;
        }
        Ok(())
    }
}
