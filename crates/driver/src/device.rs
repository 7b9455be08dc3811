//! Devices with all facts that can be known before they are used. For `streamline devices`, and for opening one.
//!
//! Asking changes nothing: no device is switched on, made promiscuous or captured from.

use crate::error::Error;
use crate::ethtool::{Channels, Ethtool, Offloads};
use crate::link::{self, Link};
use crate::namespace::Namespace;

/// A device with its facts.
#[derive(Clone, Debug)]
pub struct Device {
    /// The kernel's description.
    pub link: Link,
    /// Its driver's name, if it has one.
    pub driver: Option<String>,
    /// Its queues, if its driver says.
    pub channels: Option<Channels>,
    /// The work that it does for the kernel.
    pub offloads: Offloads,
    /// Number of its network namespace.
    pub namespace: u64,
}

/// All devices of a network namespace, by number.
pub fn list(namespace: &Namespace) -> Result<Vec<Device>, Error> {
    let found = namespace.enter(|| {
        let ethtool = Ethtool::new()?;
        let links = link::list()?;
        Ok(links.into_iter().map(|link| describe(link, &ethtool, namespace)).collect())
    });
    found.and_then(|devices| devices).map_err(Error::doing("list devices"))
}

/// The device with this name in a network namespace.
pub fn find(namespace: &Namespace, name: &str) -> Result<Device, Error> {
    let found = namespace.enter(|| {
        let link = link::find(name)?;
        link.map(|link| Ok(describe(link, &Ethtool::new()?, namespace))).transpose()
    });
    let device = found.and_then(|device| device).map_err(Error::doing(format!("look for `{name}`")))?;
    device.ok_or_else(|| Error::Absent(name.into()))
}

fn describe(link: Link, ethtool: &Ethtool, namespace: &Namespace) -> Device {
    Device {
        driver: ethtool.driver(&link.name).ok().filter(|name| !name.is_empty()),
        channels: ethtool.channels(&link.name).ok(),
        offloads: ethtool.offloads(&link.name),
        namespace: namespace.id(),
        link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name() {
        let here = Namespace::current().expect("/proc is there");
        let loopback = find(&here, "lo").expect("there is one everywhere");
        assert_eq!(loopback.namespace, here.id());
        assert!(list(&here).expect("as above").iter().any(|device| device.link.index == loopback.link.index));
        let error = find(&here, "no-such").expect_err("there is none");
        assert_eq!(error.to_string(), "there is no device `no-such`");
    }
}
