//! The Flow Manager of an interface: opens and closes flows, and says what there is. Called between two turns.

use crate::counters::Event;
use crate::error::{NetError, NetErrorKind};
use crate::flows::{Flow, FlowId, Name};
use crate::interface::{Client, Core, Device, Interface};
use crate::limits::{CLIENT_FLOWS, DEVICE_LOOK, LAST_PACKETS, SLOTS};
use crate::overload::Account;
use crate::share;
use crate::template::{Template, UDP};
use crate::users::Place;
use buffer::flow::{Bells, Driver};
use flow::{FlowState, Granted, InterfaceState, OpenFlow};
use rustix::io::Errno;
use std::net::SocketAddrV4;

/// A flow to open: everything that could be made outside the interface's thread.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) open: OpenFlow,
    pub(crate) client: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    pub(crate) number: u64,
    pub(crate) driver: Driver,
    /// With the first flow of a client.
    pub(crate) bells: Option<Bells>,
    pub(crate) place: Place,
}

impl Core {
    /// Opens a flow.
    pub(crate) fn open(&mut self, opening: Opening, now: u64) -> Result<Granted, NetError> {
        let granted = self.try_open(opening, now);
        self.counters.event(if granted.is_ok() { Event::FlowsOpened } else { Event::FlowsRefused });
        granted
    }

    fn try_open(&mut self, opening: Opening, now: u64) -> Result<Granted, NetError> {
        let Opening { open, client, process, user, number, driver, bells, place } = opening;
        if self.is_gone {
            let trouble = self.trouble.clone().unwrap_or_default();
            return Err(NetError::new(NetErrorKind::Absent, format!("{trouble}; it takes a new `up`")));
        }
        let name = self.flow_name(&open)?;
        let class = share::read(open.share.as_deref().unwrap_or("fair"), self.wire.is_paced())?;
        let has_bells = bells.is_some();
        let channels = match (&bells, self.clients.get(&client)) {
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
        let prefix = self.routes.prefix(*name.local.ip()).unwrap_or(32);
        let name = self.flows.name(name, user)?;
        let longest = u64::from(self.mtu) + 14;
        let id = self.flows.insert(Flow {
            number,
            name,
            process,
            user,
            client,
            channel: channel as u32,
            driver,
            template: Template::udp(self.mac, name.local, name.remote),
            is_active: false,
            is_fresh: false,
            held: None,
            ring: false,
            done: (0, 0),
            ring_after: (
                u64::from(open.send_records).div_ceil(4),
                // A full channel has more outstanding than it lacks for the longest packet.
                (u64::from(open.send_bytes) / 4).min(u64::from(open.send_bytes).saturating_sub(longest)).max(1),
            ),
            received_bytes: 0,
            sent: 0,
            sent_bytes: 0,
            receive_ns: 0,
            account: Account::default(),
            _place: place,
        });
        if let Err(refusal) = self.scheduler.admit(id.key(), class, now) {
            self.flows.remove(id);
            return Err(NetError::new(NetErrorKind::Full, refusal.to_string()));
        }
        if let Some(bells) = bells {
            self.clients.entry(client).or_insert(Client { bells, channels: Vec::new() });
        }
        if let Some(client) = self.clients.get_mut(&client) {
            match client.channels.get_mut(channel) {
                Some(free) => *free = Some(id),
                None => client.channels.push(Some(id)),
            }
        }
        Ok(Granted {
            flow: number,
            channel: channel as u32,
            device: self.name.clone(),
            mac: self.mac,
            prefix,
            mtu: self.mtu,
            local: name.local,
            remote: name.remote,
            unfinished_checksums: self.unfinished_checksums,
            has_bells,
        })
    }

    /// The name that a flow asks for, with an own address.
    fn flow_name(&self, open: &OpenFlow) -> Result<Name, NetError> {
        let refuse = |text: String| Err(NetError::new(NetErrorKind::Request, text));
        if open.protocol != UDP {
            return refuse(format!("protocol {}: flows are of UDP, protocol {UDP}", open.protocol));
        }
        let to = open.remote.map(|remote| *remote.ip());
        if let Some(remote) = open.remote {
            use crate::routes::Hop;
            match self.routes.hop(*remote.ip()) {
                Hop::Refused => return refuse(format!("{} is no address that a flow sends to", remote.ip())),
                Hop::None => {
                    return refuse(format!("no route of `{}` holds {}; give it a gateway", self.name, remote.ip()));
                }
                Hop::Own | Hop::Broadcast | Hop::Neighbour(_) => (),
            }
            if remote.port() == 0 {
                return refuse(format!("{remote}: the other side's port is 1 to 65535"));
            }
        }
        let local = match open.local.ip() {
            ip if ip.is_unspecified() => self.routes.source(to).0,
            ip if self.routes.is_own(*ip) => *ip,
            ip => {
                let own: Vec<_> = self.routes.addresses().iter().map(|(own, _)| own.to_string()).collect();
                return refuse(format!("{ip} is no address of `{}`; it has {}", self.name, own.join(", ")));
            }
        };
        let local = SocketAddrV4::new(local, open.local.port());
        Ok(Name { protocol: open.protocol, local, remote: open.remote })
    }

    /// Ends a flow. Its application finds the errno; 0: it asked for it.
    pub(crate) fn close(&mut self, id: FlowId, errno: i32) {
        self.rest(id);
        let Some(mut flow) = self.flows.remove(id) else { return };
        self.scheduler.remove(id.key());
        flow.driver.close(errno);
        self.counters.event(Event::FlowsClosed);
        if let Some(client) = self.clients.get_mut(&flow.client) {
            client.bells.ring(flow.channel as usize);
            if let Some(channel) = client.channels.get_mut(flow.channel as usize) {
                *channel = None;
            }
        }
    }

    /// Gives a flow of this user (none: of any) another share of the wire.
    pub(crate) fn change_share(
        &mut self,
        user: Option<u32>,
        number: u64,
        text: &str,
        now: u64,
    ) -> Result<(), NetError> {
        let id = self.flows.numbered(number).filter(|id| {
            let owner = self.flows.get(*id).map(|flow| flow.user);
            user.is_none() || owner == user
        });
        let absent = || NetError::new(NetErrorKind::Absent, format!("there is no flow {number} of yours"));
        let id = id.ok_or_else(absent)?;
        let class = share::read(text, self.wire.is_paced())?;
        let changed = self.scheduler.change(id.key(), class, now);
        self.slices_from = None;
        changed.map_err(|refusal| NetError::new(NetErrorKind::Full, refusal.to_string()))
    }

    /// The state of a flow, with its share of the wire and what it got of it.
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

    /// Ends all flows.
    pub(crate) fn close_all(&mut self, errno: Errno) {
        for id in self.flows.ids() {
            self.close(id, errno.raw_os_error());
        }
    }

    /// The state of the interface. `user`: only flows of this user; none: all flows.
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
            trouble: self.trouble.clone(),
            counters: self.counters.all(),
            flows,
            neighbours: self.neighbours.state(now),
            routes: self.routes.state(),
        }
    }
}

impl Interface {
    /// Closes a channel of a client; what lies in it and can go is sent before.
    pub(crate) fn close_channel(&mut self, client: u64, channel: u32, now: u64) -> Result<(), NetError> {
        let channels = self.core.clients.get(&client).map(|client| client.channels.as_slice());
        let id = channels.and_then(|channels| channels.get(channel as usize).copied().flatten());
        let absent = || NetError::new(NetErrorKind::Absent, format!("this connection has no channel {channel}"));
        self.finish(id.ok_or_else(absent)?, &mut (LAST_PACKETS / SLOTS), now);
        Ok(())
    }

    /// Sends what a flow still has, as far as there is room, and closes it. A few packets wait on for their neighbour.
    /// `rounds` of packets are left for all that ends at once: a client with many flows does not stop the interface. On a wire with a
    /// rate, last packets wait for nobody else's slice, and are dropped where others have something to send.
    fn finish(&mut self, id: FlowId, rounds: &mut usize, now: u64) {
        let others = self.core.ready > usize::from(self.core.flows.get(id).is_some_and(|flow| flow.is_active));
        while *rounds > 0 && !(self.core.wire.is_paced() && others) {
            *rounds -= 1;
            self.core.send_last(id, now);
            if self.core.outbox.has_room() {
                break;
            }
            self.transmit(now);
        }
        self.core.park(id, now);
        self.core.close(id, 0);
    }

    /// A client is gone: its flows end.
    pub(crate) fn leave(&mut self, client: u64, now: u64) {
        let channels = self.core.clients.get(&client).map(|client| client.channels.clone()).unwrap_or_default();
        let mut rounds = LAST_PACKETS / SLOTS;
        for id in channels.into_iter().flatten() {
            self.finish(id, &mut rounds, now);
        }
        self.core.clients.remove(&client);
    }

    /// State with the counters of the device itself.
    pub(crate) fn state(&mut self, user: Option<u32>, now: u64) -> InterfaceState {
        let mut state = self.core.state(user, now);
        // Asking the kernel takes its time, in which no packet moves: no application can cause that at will.
        if self.looked.as_ref().is_none_or(|(looked, _)| now.saturating_sub(*looked) >= DEVICE_LOOK) {
            self.looked = Some((now, self.device.counters()));
        }
        state.counters.extend(self.looked.iter().flat_map(|(_, counters)| counters.clone()));
        state
    }
}

impl Device {
    /// The counters of the device and its sockets, by name. A counter that cannot be asked for now is left out.
    fn counters(&mut self) -> Vec<(String, u64)> {
        let receiver = self.receive.counters().unwrap_or_default();
        let mut all: Vec<_> = receiver.into_iter().map(|counter| (counter.name.to_string(), counter.value)).collect();
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
