//! Changes of an interface that is up: its addresses and routes, and its device. Flows survive them.
//!
//! - A route decides about each packet when it is sent, so flows need not be told of a new one.
//! - A removed address is *away*: its flows' packets stay in their channels. After [`ADDRESS_TIME`] the flows end.
//! - Another process opens another device, and takes everything over (`process/`). The new device has another hardware address,
//!   and perhaps another MTU. The driver writes the hardware address into each header; the applications are told both.

use crate::counters::Event;
use crate::dhcp::Dhcp;
use crate::error::{NetError, NetErrorKind};
use crate::flow_id::FlowId;
use crate::interface::{Core, Interface};
use crate::limits::{ADDRESS_TIME, ADDRESSES, MTU, PATH_MTU_V6, SECOND};
use crate::routes::Table;
use buffer::flow::Facts;
use driver::namespace::Namespace;
use driver::watch::{Watch, What};
use flow::Change;
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Own addresses that were removed while flows used them, and until when those wait, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Away(Vec<(u64, IpAddr)>);

impl Away {
    /// Whether it is one of them.
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        // Almost always the list is empty.
        !self.0.is_empty() && self.0.iter().any(|(_, away)| *away == address)
    }

    /// When the flows of the next address end. `None`: no flow waits.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.first().map(|(until, _)| *until)
    }

    /// All of them.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.0.iter().map(|(_, address)| *address).collect()
    }

    fn forget(&mut self, address: IpAddr) {
        self.0.retain(|(_, away)| *away != address);
    }

    /// Removes an address whose time is over, or the oldest of too many.
    fn pop(&mut self, now: u64) -> Option<IpAddr> {
        let is_over = self.next().is_some_and(|until| until <= now) || self.0.len() > ADDRESSES;
        is_over.then(|| self.0.remove(0).1)
    }
}

impl Core {
    /// Addresses, routes and lease, for the next process.
    pub(crate) fn table(&self) -> Table {
        Table { lease: self.dhcp.as_ref().and_then(Dhcp::held), ..self.routes.table() }
    }

    /// Makes a change, or says why it is invalid.
    pub(crate) fn change(&mut self, change: &Change, now: u64) -> Result<(), NetError> {
        if let Change::AddAddress(address, _) = change
            && address.is_ipv6()
            && self.mtu < PATH_MTU_V6
        {
            let text = format!(
                "`{}` takes packets of {} bytes, and IPv6 needs {PATH_MTU_V6}: give the device a larger MTU",
                self.name, self.mtu
            );
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        self.routes.change(change)?;
        self.routes_changed = true;
        match *change {
            Change::AddAddress(address, _) => {
                self.away.forget(address);
                self.neighbours.forget(address);
                self.announcements.restart();
                self.tell_flows(Some(address));
            }
            Change::RemoveAddress(address, _) => {
                self.wait_for_addresses(now);
                self.tell_flows(Some(address));
            }
            Change::AddRoute(_) | Change::RemoveRoute(_) => (),
        }
        self.look_again(now);
        Ok(())
    }

    /// Lets flows and listeners whose address is away wait for it.
    pub(crate) fn wait_for_addresses(&mut self, now: u64) {
        let listeners = self.flows.listeners.locals();
        let locals = listeners.iter().chain(self.flows.all().map(|flow| &flow.name.local));
        for address in locals.map(|local| local.ip()) {
            if !self.routes.is_own(address) && !address.is_unspecified() && !self.away.holds(address) {
                self.away.0.push((now + ADDRESS_TIME, address));
            }
        }
    }

    /// Ends the flows and listeners of addresses that were away too long.
    pub(crate) fn end_away(&mut self, now: u64) {
        while let Some(address) = self.away.pop(now) {
            for local in self.flows.listeners.locals().into_iter().filter(|local| local.ip() == address) {
                self.close_listener(local, now);
            }
            for id in self.flows_of(Some(address)) {
                self.counters.event(Event::FlowsWithoutAddress);
                self.close(id, Errno::ADDRNOTAVAIL.raw_os_error(), now);
            }
        }
    }

    /// The flows of an own address. `None`: all flows.
    fn flows_of(&self, address: Option<IpAddr>) -> Vec<FlowId> {
        let mut ids = self.flows.ids();
        ids.retain(|id| {
            let local = self.flows.get(*id).map(|flow| flow.name.local.ip());
            address.is_none() || address == local
        });
        ids
    }

    /// Tells the flows of an own address (`None`: all flows) their hardware address and MTU.
    pub(crate) fn tell_flows(&mut self, address: Option<IpAddr>) {
        for id in self.flows_of(address) {
            let Some(local) = self.flows.get(id).map(|flow| flow.name.local.ip()) else { continue };
            let facts = Facts {
                mac: self.mac,
                prefix: self.routes.prefix(local).unwrap_or(flow::bits(local)),
                mtu: self.mtu,
                has_address: self.routes.is_own(local),
                unfinished_checksums: self.unfinished_checksums,
            };
            if let Some(flow) = self.flows.get_mut(id) {
                flow.driver.tell(&facts);
            }
            self.ring_later(id);
        }
    }

    /// Retries waiting packets, which may have a route now, or another one.
    fn look_again(&mut self, now: u64) {
        let waits =
            |id: &FlowId| self.flows.get(*id).is_some_and(|flow| flow.held.is_some() || flow.driver.waiting() > 0);
        let waiting: Vec<_> = self.flows.ids().into_iter().filter(waits).collect();
        for id in waiting {
            self.activate_number(id.number, now);
        }
    }

    /// The device has another MTU.
    fn refit(&mut self, device_mtu: u32) {
        self.device_mtu = device_mtu;
        self.mtu = self.longest_packet();
        self.tell_flows(None);
    }

    /// The DHCP server's MTU may have changed.
    pub(crate) fn fit_mtu(&mut self) {
        if self.mtu != self.longest_packet() {
            self.refit(self.device_mtu);
        }
    }

    fn longest_packet(&self) -> u32 {
        let limit = self.dhcp.as_ref().and_then(|dhcp| dhcp.mtu());
        limit.map_or(self.device_mtu, |limit| limit.min(self.device_mtu))
    }
}

/// Notices when the device's MTU changes.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    watch: Watch,
    /// The next time to ask: asking is a system call.
    due: u64,
    /// Bytes of the longest packet that fits into the device's rings.
    longest: u32,
}

impl DeviceWatch {
    /// For devices in this thread's network namespace. `longest`: bytes of the longest packet that the device was opened for.
    pub(crate) fn new(longest: u32) -> Result<DeviceWatch, NetError> {
        let namespace = Namespace::current().map_err(|error| NetError::system("find the network namespace", error))?;
        Ok(DeviceWatch { watch: Watch::new(&namespace)?, due: 0, longest })
    }

    /// Readable after an event. Then call [`hurry`](Self::hurry).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Makes the next look due now.
    pub(crate) fn hurry(&mut self) {
        self.due = 0;
    }

    /// The MTU of this device, if it changed.
    fn mtu_of(&mut self, device: &str) -> Result<Option<u32>, driver::Error> {
        let mut mtu = None;
        while let Some(event) = self.watch.next(Duration::ZERO)? {
            if let What::Mtu { to, .. } = event.what
                && event.name == device
            {
                mtu = Some(to);
            }
        }
        Ok(mtu.map(|mtu| mtu.min(self.longest)).filter(|mtu| MTU.contains(mtu)))
    }
}

impl Interface {
    /// Learns of events of the device. Without a wake-up, at most once a second.
    pub(crate) fn look_at_watch(&mut self, now: u64) {
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.due <= now) else { return };
        watch.due = now + SECOND;
        match watch.mtu_of(&self.core.name) {
            Ok(Some(mtu)) if mtu != self.core.device_mtu => self.core.refit(mtu),
            Ok(_) => (),
            // The kernel gives no more messages, and would wake the thread forever.
            Err(_) => self.watch = None,
        }
    }
}
