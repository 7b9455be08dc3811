//! Virtual pairs in namespaces of their own, for measurements and tests: each end receives the frames that the other sends.
//!
//! Nothing moves in them but what their maker sends: they have no addresses, no neighbours, no IPv6, no offloads. Their
//! namespaces have no names: when the last process that holds one ends, however it ends, the kernel takes everything away.

use crate::change::Change;
use crate::ethtool::{Ethtool, Offloads};
use crate::link::{self, Link};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::watch::Watch;
use std::io;
use std::time::{Duration, Instant};

/// How long a device may take to get into the state it was asked to get into.
const SETTLING: Duration = Duration::from_secs(10);

/// A new namespace in which IPv6 is off, so that the kernel sends nothing by itself. Takes CAP_SYS_ADMIN.
pub fn quiet_namespace() -> io::Result<Namespace> {
    let namespace = Namespace::create()?;
    namespace.enter(|| {
        for which in ["all", "default"] {
            // Where there is no IPv6, there is nothing to switch off.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
        }
    })?;
    Ok(namespace)
}

/// A device in a namespace.
#[derive(Clone, Debug)]
pub struct End {
    /// Where it is.
    pub namespace: Namespace,
    /// Its name there.
    pub name: String,
    /// Its number there.
    pub index: u32,
}

/// Two devices each of which receives what is sent on the other. Both are up, without offloads.
#[derive(Clone, Debug)]
pub struct Pair {
    /// One.
    pub near: End,
    /// The other.
    pub far: End,
}

impl Pair {
    /// Makes a pair of these names: the near one, the far one. With 0 queues each has as many as the driver likes.
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
    /// The device of this name in a namespace.
    pub fn find(namespace: &Namespace, name: &str) -> io::Result<End> {
        let link = namespace.enter(|| link::find(name))??.ok_or(io::ErrorKind::NotFound)?;
        Ok(End { namespace: namespace.clone(), name: name.into(), index: link.index })
    }

    /// Its state, as the kernel has it; an error where the device is gone.
    pub fn link(&self) -> io::Result<Link> {
        let links = self.namespace.enter(link::list)??;
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("the device `{}` is gone", self.name));
        links.into_iter().find(|link| link.index == self.index).ok_or_else(gone)
    }

    /// Changes it.
    pub fn change(&self, change: &Change) -> io::Result<()> {
        self.namespace.enter(|| Netlink::route(0)?.change(self.index, change))?
    }

    /// Sets its offloads as far as they can be set.
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<Offloads> {
        self.namespace.enter(|| Ethtool::new()?.set_offloads(&self.name, offloads))?
    }

    /// Removes it, and the other end with it.
    pub fn remove(&self) -> io::Result<()> {
        self.namespace.enter(|| Netlink::route(0)?.remove(self.index))?
    }

    /// Waits until frames of either end arrive at the other. The kernel hears of a carrier later than the one who
    /// switched the device on. Until then it drops frames and counts none.
    pub fn await_carrier(&self) -> io::Result<()> {
        let tells = |link: &Link| link.kind.as_deref() == Some("veth");
        self.await_state(|link| link.is_running() && (link.operational || !tells(link)))?;
        // Under the lock under which it says so it makes it so, right after: this waits for it.
        self.change(&Change::default())
    }

    /// Waits until the kernel says of it what `is_so` wants; an error where that does not come to be.
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
