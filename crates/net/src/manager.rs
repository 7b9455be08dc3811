//! The Flow Manager of an interface: opens and closes flows (listeners: `accept.rs`) and reports state between turns.

use crate::answer::TCP;
use crate::connection::Connection;
use crate::counters::Event;
use crate::error::{NetError, NetErrorKind};
use crate::flow_id::FlowId;
use crate::flows::{Flow, Name, NewFlow};
use crate::interface::{Client, Core, Device, Holder, Interface};
use crate::limits::{CLIENT_FLOWS, DEVICE_LOOK};
use crate::overload::Account;
use crate::process::message::Owner;
use crate::share::{self, ShareLimits};
use crate::sharing::Sharing;
use crate::template::{Template, UDP};
use crate::users::Permit;
use buffer::flow::{Bells, Driver};
use flow::{FlowState, Granted, InterfaceState, OpenFlow};
use qos::{Class, User};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

/// A flow to open: everything that can be made outside the interface's thread.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) open: OpenFlow,
    pub(crate) owner: Owner,
    pub(crate) number: u64,
    pub(crate) driver: Driver,
    /// Only for the first flow of a client.
    pub(crate) bells: Option<Bells>,
    pub(crate) permit: Permit,
}

impl Core {
    /// Opens a flow.
    pub(crate) fn open(&mut self, opening: Opening, now: u64) -> Result<Granted, NetError> {
        let granted = self.try_open(opening, now);
        self.counters.event(if granted.is_ok() { Event::FlowsOpened } else { Event::FlowsRefused });
        granted
    }

    fn try_open(&mut self, opening: Opening, now: u64) -> Result<Granted, NetError> {
        let Opening { open, owner, number, driver, bells, permit } = opening;
        let Owner { client, process, user, limits, .. } = owner;
        let name = self.flow_name(open.protocol, open.local, open.remote)?;
        self.has_port(&owner)?;
        let (channel, class) = self.channel_for(client, bells.as_ref(), open.share.as_deref())?;
        self.permits(class, limits, user, None)?;
        let has_bells = bells.is_some();
        let name = self.flows.name(name, user, now)?;
        let connection = (name.protocol == TCP).then(Connection::default);
        let channel = channel as u32;
        let user_weight = limits.user_weight;
        let new = NewFlow { number, name, process, user, user_weight, client, channel, driver, connection, permit };
        let id = self.insert(new, class, now)?;
        self.give_bells(client, process, user, bells);
        self.hold(client, channel, Holder::Flow(id));
        let isn = match name.remote {
            Some(remote) if name.protocol == TCP => self.secret.number(name.local, remote, now),
            _ => 0,
        };
        Ok(Granted { has_bells, ..self.granted(number, channel, name, isn) })
    }

    /// A free channel number, and the parsed share of the wire, for a client with these or earlier doorbells.
    pub(crate) fn channel_for(
        &self,
        client: u64,
        bells: Option<&Bells>,
        share: Option<&str>,
    ) -> Result<(usize, Class), NetError> {
        if self.is_gone {
            let trouble = self.trouble.clone().unwrap_or_default();
            return Err(NetError::new(NetErrorKind::Absent, format!("{trouble}; it takes a new `up`")));
        }
        let class = share::read(share.unwrap_or("fair"), self.wire.is_paced())?;
        let channels = match (bells, self.clients.get(&client)) {
            (_, Some(client)) => client.channels.as_slice(),
            (Some(_), None) => &[],
            (None, None) => return Err(NetError::new(NetErrorKind::System, "this client has no doorbells here")),
        };
        let channel = channels.iter().position(Option::is_none).unwrap_or(channels.len());
        if channel >= CLIENT_FLOWS {
            let text =
                format!("this connection has {CLIENT_FLOWS} flows, the most it may have; close some or connect again");
            return Err(NetError::new(NetErrorKind::Full, text));
        }
        Ok((channel, class))
    }

    /// On a shared device: an error unless the daemon holds the port, so that the host cannot take it.
    pub(crate) fn has_port(&self, owner: &Owner) -> Result<(), NetError> {
        match &self.sharing {
            Some(_) if !owner.has_port => {
                Err(NetError::new(NetErrorKind::System, "no port of the host is held for this flow"))
            }
            _ => Ok(()),
        }
    }

    /// Sets a client's doorbells. `None`: it keeps its own.
    pub(crate) fn give_bells(&mut self, client: u64, process: i32, user: u32, bells: Option<Bells>) {
        let Some(bells) = bells else { return };
        let channels = self.clients.remove(&client).map_or_else(Vec::new, |client| client.channels);
        self.clients.insert(client, Client { bells, channels, process, user });
    }

    /// Assigns this channel number to a flow or listener of a client.
    pub(crate) fn hold(&mut self, client: u64, channel: u32, holder: Holder) {
        if let Some(client) = self.clients.get_mut(&client) {
            let at = channel as usize;
            if client.channels.len() <= at {
                client.channels.resize(at + 1, None);
            }
            client.channels[at] = Some(holder);
        }
    }

    /// The answer to a client about its flow.
    pub(crate) fn granted(&self, flow: u64, channel: u32, name: Name, isn: u32) -> Granted {
        Granted {
            flow,
            channel,
            device: self.name.clone(),
            mac: self.mac,
            prefix: self.routes.prefix(name.local.ip()).unwrap_or(flow::bits(name.local.ip())),
            mtu: self.mtu,
            local: name.local,
            remote: name.remote,
            unfinished_checksums: self.unfinished_checksums,
            has_bells: false,
            isn,
        }
    }

    /// Adds a flow whose name was reserved. Releases the name if the wire has no such share left.
    pub(crate) fn insert(&mut self, new: NewFlow, class: Class, now: u64) -> Result<FlowId, NetError> {
        let NewFlow { number, name, process, user, user_weight, client, channel, driver, connection, permit } = new;
        let geometry = driver.geometry();
        let longest = u64::from(self.mtu) + 14;
        let id = self.flows.insert(Flow {
            number,
            name,
            process,
            user,
            client,
            channel,
            driver,
            template: Template::new(name.protocol, name.local, name.remote),
            connection,
            is_active: false,
            is_fresh: false,
            held: None,
            is_traced: false,
            closing: None,
            ring: false,
            done: (0, 0),
            ring_after: (
                u64::from(geometry.send_records).div_ceil(4),
                // A full channel has more outstanding than it lacks for the longest packet.
                (u64::from(geometry.send_bytes) / 4).min(u64::from(geometry.send_bytes).saturating_sub(longest)).max(1),
            ),
            received_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            receive_ns: 0,
            account: Account::default(),
            _permit: permit,
        });
        if let Err(refusal) = self.scheduler.admit(id.key(), class, User { number: user, weight: user_weight }, now) {
            self.flows.remove(id);
            return Err(NetError::new(NetErrorKind::Full, refusal.to_string()));
        }
        if let Some(Err(error)) = self.sharing.as_ref().map(|sharing| sharing.insert(&name)) {
            self.scheduler.remove(id.key());
            self.flows.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    /// The name of a requested flow, with an own address.
    pub(crate) fn flow_name(
        &self,
        protocol: u8,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<Name, NetError> {
        use crate::routes::Hop;
        let refuse = |text: String| Err(NetError::new(NetErrorKind::Request, text));
        match (protocol, remote) {
            (TCP, None) => return refuse("a flow of TCP has another side; open a listener to wait for it".into()),
            (UDP | TCP, _) => (),
            _ => return refuse(format!("protocol {protocol}: flows are of UDP, protocol {UDP}, or TCP, {TCP}")),
        }
        if let Some(remote) = remote {
            let is_any = local.ip().is_unspecified();
            if !is_any && local.is_ipv4() != remote.is_ipv4() {
                return refuse(format!("{} and {} are of two families; a flow has one", local.ip(), remote.ip()));
            }
            match self.routes.hop(remote.ip()) {
                Hop::Refused => return refuse(format!("{} is no address that a flow sends to", remote.ip())),
                Hop::None => {
                    return refuse(format!("no route of `{}` holds {}; give it a gateway", self.name, remote.ip()));
                }
                Hop::Broadcast if protocol == TCP => {
                    return refuse(format!("{} is for all; TCP has one host on each side", remote.ip()));
                }
                Hop::Own | Hop::Broadcast | Hop::Neighbour(_) => (),
            }
            if remote.port() == 0 {
                return refuse(format!("{remote}: the other side's port is 1 to 65535"));
            }
        }
        let local = SocketAddr::new(self.own_address(local.ip(), remote.map(|remote| remote.ip()))?, local.port());
        Ok(Name { protocol, local, remote })
    }

    /// The own address for 0.0.0.0 or `::` towards `to`; for another address that address, if it is an own one.
    pub(crate) fn own_address(&self, ip: IpAddr, to: Option<IpAddr>) -> Result<IpAddr, NetError> {
        if ip.is_unspecified() {
            let found = to.map_or_else(|| self.routes.first(ip), |to| self.routes.source(to));
            found.ok_or_else(|| {
                let family = if to.unwrap_or(ip).is_ipv4() { 4 } else { 6 };
                let text = format!(
                    "`{0}` has no address of IPv{family} now; add one: streamline net addr add {0} ADDRESS/BITS",
                    self.name
                );
                NetError::new(NetErrorKind::Absent, text)
            })
        } else if self.routes.is_own(ip) {
            Ok(ip)
        } else {
            let own: Vec<_> = self.routes.addresses().iter().map(|(own, _)| own.to_string()).collect();
            let text = format!("{ip} is no address of `{}`; it has {}", self.name, own.join(", "));
            Err(NetError::new(NetErrorKind::Request, text))
        }
    }

    /// Ends a flow. Its application finds this errno; 0: it asked for the end.
    pub(crate) fn close(&mut self, id: FlowId, errno: i32, now: u64) {
        self.rest(id);
        let Some(flow) = self.flows.get_mut(id) else { return };
        if flow.closing.is_none() {
            flow.driver.close(errno);
            self.ended.push(id.number);
        }
        if flow.is_traced {
            self.traces.end(id.number);
        }
        self.unhook(id);
        let Some(flow) = self.flows.remove(id) else { return };
        self.scheduler.remove(id.key());
        if flow.closing.is_none()
            && let Some(sharing) = &self.sharing
        {
            sharing.remove(&flow.name);
        }
        self.counters.event(Event::FlowsClosed);
        if let Some(connection) = &flow.connection {
            self.end_connection(flow.name, flow.user, connection, now);
        }
    }

    /// Tells the client that a flow's state changed, and releases its channel's number.
    pub(crate) fn unhook(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get(id) else { return };
        if let Some(client) = self.clients.get_mut(&flow.client)
            && let Some(channel) = client.channels.get_mut(flow.channel as usize)
            && *channel == Some(Holder::Flow(id))
        {
            *channel = None;
            client.bells.ring(flow.channel as usize);
        }
    }

    /// Gives a flow of this user (`None`: of any user) another share of the wire, within these limits.
    pub(crate) fn change_share(
        &mut self,
        user: Option<u32>,
        number: u64,
        text: &str,
        limits: ShareLimits,
        now: u64,
    ) -> Result<(), NetError> {
        let id = self.flows.numbered(number).filter(|id| {
            let owner = self.flows.get(*id).map(|flow| flow.user);
            user.is_none() || owner == user
        });
        let absent = || NetError::new(NetErrorKind::Absent, format!("there is no flow {number} of yours"));
        let id = id.ok_or_else(absent)?;
        let class = share::read(text, self.wire.is_paced())?;
        let owner = self.flows.get(id).map_or(0, |flow| flow.user);
        self.permits(class, limits, owner, Some(id))?;
        let changed = self.scheduler.change(id.key(), class, now);
        self.slices_from = None;
        changed.map_err(|refusal| NetError::new(NetErrorKind::Full, refusal.to_string()))
    }

    /// The state of a flow, with its share of the wire and its use of it.
    fn flow_state(&self, flow: &Flow) -> FlowState {
        let mut state = flow.state();
        let Some(id) = self.flows.numbered(flow.number) else { return state };
        state.share = self.scheduler.class(id.key()).map_or_else(String::new, share::text);
        if let Some(usage) = self.scheduler.usage(id.key()) {
            let parts = [
                ("slice_ns", usage.slice_ns),
                ("slack_ns", usage.slack_ns),
                ("fair_ns", usage.fair_ns),
                ("background_ns", usage.background_ns),
                ("deficit_ns", usage.deficit_ns),
                ("periods", usage.periods),
                ("periods_missed", usage.periods_missed),
            ];
            state.wire = parts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_string(), n)).collect();
        }
        state
    }

    /// Ends all flows and listeners.
    pub(crate) fn close_all(&mut self, errno: Errno, now: u64) {
        for local in self.flows.listeners.locals() {
            self.close_listener(local, now);
        }
        for id in self.flows.ids() {
            self.close(id, errno.raw_os_error(), now);
        }
    }

    fn all_counters(&self) -> Vec<(String, u64)> {
        let mut counters = self.counters.all();
        counters.extend(self.sharing.iter().flat_map(Sharing::counters));
        counters
    }

    /// The state of the interface. `user`: only this user's flows; `None`: all flows.
    pub(crate) fn state(&self, user: Option<u32>, now: u64) -> InterfaceState {
        let mine = self.flows.all().filter(|flow| user.is_none_or(|user| flow.user == user));
        let mut flows: Vec<_> = mine.map(|flow| self.flow_state(flow)).collect();
        flows.sort_by_key(|flow| flow.flow);
        InterfaceState {
            device: self.name.clone(),
            how: self.how.clone(),
            mac: self.mac,
            mtu: self.mtu,
            addresses: self.routes.addresses().to_vec(),
            rate: self.rate,
            is_shared: self.sharing.is_some(),
            trouble: self.trouble.clone(),
            away: self.away.addresses(),
            lease: self.dhcp.as_ref().map(|dhcp| dhcp.state(now)),
            counters: self.all_counters(),
            flows,
            listeners: self.flows.listeners.state(user),
            neighbours: self.neighbours.state(now),
            routes: self.routes.state(),
        }
    }
}

impl Interface {
    /// Closes a channel of a client. The packets in it are still sent.
    pub(crate) fn close_channel(&mut self, client: u64, channel: u32, now: u64) -> Result<(), NetError> {
        let channels = self.core.clients.get(&client).map(|client| client.channels.as_slice());
        match channels.and_then(|channels| channels.get(channel as usize).copied().flatten()) {
            Some(Holder::Flow(id)) => self.core.finish(id, now),
            Some(Holder::Listener(local)) => self.core.close_listener(local, now),
            None => {
                let text = format!("this connection has no channel {channel}");
                return Err(NetError::new(NetErrorKind::Absent, text));
            }
        }
        Ok(())
    }

    /// A client has gone: ends its flows.
    pub(crate) fn leave(&mut self, client: u64, now: u64) {
        let channels = self.core.clients.get(&client).map(|client| client.channels.clone()).unwrap_or_default();
        for holder in channels.into_iter().flatten() {
            match holder {
                Holder::Flow(id) => self.core.finish(id, now),
                Holder::Listener(local) => self.core.close_listener(local, now),
            }
        }
        if self.core.clients.remove(&client).is_some() {
            self.core.left.push(client);
        }
        self.core.end_traces(client);
    }

    /// The state, with the counters of the device itself.
    pub(crate) fn state(&mut self, user: Option<u32>, now: u64) -> InterfaceState {
        let mut state = self.core.state(user, now);
        // Asking the kernel takes time, in which no packet moves. The limit keeps applications from causing that at will.
        if self.looked.as_ref().is_none_or(|(looked, _)| now.saturating_sub(*looked) >= DEVICE_LOOK) {
            self.looked = Some((now, self.device.counters()));
        }
        state.counters.extend(self.looked.iter().flat_map(|(_, counters)| counters.clone()));
        state
    }
}

impl Device {
    /// The counters of the device and its sockets, by name. Leaves out counters that cannot be read now.
    fn counters(&mut self) -> Vec<(String, u64)> {
        let receiver = self.receive.counters().unwrap_or_default();
        // The daemon reads the device's own counters: this process may not ask for them.
        let own =
            receiver.into_iter().filter(|counter| !["link.", "softnet."].iter().any(|of| counter.name.starts_with(of)));
        let mut all: Vec<_> = own.map(|counter| (counter.name.to_string(), counter.value)).collect();
        if let Ok(sender) = self.transmit.statistics() {
            let sender = [
                ("sender.taken", sender.taken),
                ("sender.sent", sender.sent),
                ("sender.too_long", sender.too_long),
                ("sender.malformed", sender.malformed),
                ("sender.refused", sender.refused),
                ("sender.under_way", sender.under_way),
            ];
            all.extend(sender.map(|(name, value)| (name.to_string(), value)));
        }
        all
    }
}
