//! The flows of an interface. A packet belongs to the flow with exactly its protocol, addresses and ports, else to the
//! one bound to its local address and port.

use crate::answer::TCP;
use crate::connection::Connection;
use crate::error::{NetError, NetErrorKind};
use crate::flow_id::FlowId;
use crate::listeners::Listeners;
use crate::overload::Account;
use crate::ports::Ports;
use crate::quarantine::Quarantine;
use crate::template::{Header, Template};
use crate::users::Permit;
use buffer::flow::{Driver, Drop, Fault, Outgoing};
use flow::FlowState;
use packet::tcp;
use std::collections::HashMap;
use std::net::SocketAddr;

/// The name of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) protocol: u8,
    pub(crate) local: SocketAddr,
    pub(crate) remote: Option<SocketAddr>,
}

/// A packet that was taken from a channel and waits for its next hop: its place, and its checked header.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) outgoing: Outgoing,
    pub(crate) header: Header,
}

/// A new flow, whose name is already reserved.
#[derive(Debug)]
pub(crate) struct NewFlow {
    pub(crate) number: u64,
    pub(crate) name: Name,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// The user's weight among users of the wire.
    pub(crate) user_weight: u32,
    pub(crate) client: u64,
    pub(crate) channel: u32,
    pub(crate) driver: Driver,
    pub(crate) connection: Option<Connection>,
    pub(crate) permit: Permit,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) number: u64,
    pub(crate) name: Name,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// Its client, and its channel's number there.
    pub(crate) client: u64,
    pub(crate) channel: u32,
    pub(crate) driver: Driver,
    pub(crate) template: Template,
    /// Only for TCP.
    pub(crate) connection: Option<Connection>,
    /// Whether it is in the queue of flows that have packets to send.
    pub(crate) is_active: bool,
    /// It has had no turn since it rang.
    pub(crate) is_fresh: bool,
    pub(crate) held: Option<Held>,
    /// Whether its frames are traced.
    pub(crate) is_traced: bool,
    /// `Some(n)`: its application closed it, and `n` packets of its channel are still to be sent. `None`: it is open.
    pub(crate) closing: Option<u64>,
    /// Whether its application should be woken.
    pub(crate) ring: bool,
    /// Records and bytes that the driver has finished since it last reported them.
    pub(crate) done: (u64, u64),
    /// Report when this many are finished.
    pub(crate) ring_after: (u64, u64),
    pub(crate) received_bytes: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) receive_ns: u64,
    /// Its receive work in the current window.
    pub(crate) account: Account,
    /// Its permit among the flows of its user.
    pub(crate) _permit: Permit,
}

impl Flow {
    /// Notes the effect of a sent packet with this header and length on the flow's connection.
    pub(crate) fn note_sent(&mut self, header: &Header, len: usize) {
        if let Some(connection) = &mut self.connection
            && let Some(bytes) = header.tcp()
            && let Some(segment_bytes) = len.checked_sub(header.len() - bytes.len())
            && let Ok(segment) = tcp::Packet::new_checked(bytes, segment_bytes as u32)
        {
            connection.sent(&segment, segment.payload_wire_len());
        }
    }

    /// The next packet to send. A closing flow sends only the packets that its channel held when it was closed.
    pub(crate) fn take(&mut self) -> Result<Option<Outgoing>, Fault> {
        match &mut self.closing {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None => (),
        }
        self.driver.take()
    }

    /// The state, without the scheduler's part.
    pub(crate) fn state(&self) -> FlowState {
        let drops = Drop::ALL.iter().map(|&why| (why.name().to_string(), self.driver.dropped(why)));
        FlowState {
            flow: self.number,
            protocol: self.name.protocol,
            local: self.name.local,
            remote: self.name.remote,
            process: self.process,
            user: self.user,
            received: self.driver.delivered(),
            received_bytes: self.received_bytes,
            sent: self.sent,
            sent_bytes: self.sent_bytes,
            receive_ns: self.receive_ns,
            share: String::new(),
            wire: Vec::new(),
            drops: drops.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

type Exact = (u8, SocketAddr, SocketAddr);

#[derive(Debug, Default)]
pub(crate) struct Flows {
    table: Vec<Option<Flow>>,
    free: Vec<usize>,
    exact: HashMap<Exact, usize>,
    bound: HashMap<(u8, SocketAddr), usize>,
    by_number: HashMap<u64, usize>,
    ports: Ports,
    pub(crate) listeners: Listeners,
    pub(crate) quarantine: Quarantine,
}

impl Flows {
    /// Reserves a name for a flow of this user. Chooses a port if it is 0.
    pub(crate) fn name(&mut self, mut name: Name, user: u32, now: u64) -> Result<Name, NetError> {
        let ended = |local| {
            let remote = name.remote.filter(|_| name.protocol == TCP);
            remote.and_then(|remote| self.quarantine.get([local, remote], now))
        };
        name.local = self.ports.take(name.protocol, name.local, user, |local| ended(local).is_none())?;
        if ended(name.local).is_some_and(|ended| ended.user != user) {
            self.ports.release(name.protocol, name.local);
            let text = format!(
                "address in use: a connection of another user with this address and port {} ended less than a minute ago; choose \
                 another port",
                name.local.port()
            );
            return Err(NetError::new(NetErrorKind::InUse, text));
        }
        let taken = match name.remote {
            Some(remote) => self.exact.contains_key(&(name.protocol, name.local, remote)),
            None => self.bound.contains_key(&(name.protocol, name.local)),
        };
        if taken {
            self.ports.release(name.protocol, name.local);
            let port = name.local.port();
            let text = match name.remote {
                Some(remote) => format!("address in use: port {port} has a flow with {remote}; choose another port"),
                None => format!("address in use: port {port} of {} is bound; choose another", name.local.ip()),
            };
            return Err(NetError::new(NetErrorKind::InUse, text));
        }
        if let Some(remote) = name.remote.filter(|_| name.protocol == TCP) {
            self.quarantine.take([name.local, remote]);
        }
        Ok(name)
    }

    /// Reserves an address and port for a listener of this user. Chooses a port if it is 0.
    pub(crate) fn listener_name(&mut self, local: SocketAddr, user: u32) -> Result<SocketAddr, NetError> {
        let local = self.ports.take(TCP, local, user, |_| true)?;
        if self.listeners.contains(local) {
            self.release(local);
            let text =
                format!("address in use: port {} of {} has a listener; choose another", local.port(), local.ip());
            return Err(NetError::new(NetErrorKind::InUse, text));
        }
        Ok(local)
    }

    /// Releases the port of a listener.
    pub(crate) fn release(&mut self, local: SocketAddr) {
        self.ports.release(TCP, local);
    }

    /// Adds a flow whose name was reserved.
    pub(crate) fn insert(&mut self, flow: Flow) -> FlowId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() - 1
        });
        let (name, number) = (flow.name, flow.number);
        match name.remote {
            Some(remote) => self.exact.insert((name.protocol, name.local, remote), at),
            None => self.bound.insert((name.protocol, name.local), at),
        };
        self.by_number.insert(number, at);
        self.table[at] = Some(flow);
        FlowId { at, number }
    }

    /// Stops a flow's reception. Its user may give the name to another flow. Other users do not get its port yet,
    /// because its last packets still come from there.
    pub(crate) fn unbind(&mut self, id: FlowId) {
        let Some(name) = self.get(id).map(|flow| flow.name) else { return };
        // The name may already belong to another flow.
        if let Some(remote) = name.remote {
            let key = (name.protocol, name.local, remote);
            if self.exact.get(&key) == Some(&id.at) {
                self.exact.remove(&key);
            }
        } else if self.bound.get(&(name.protocol, name.local)) == Some(&id.at) {
            self.bound.remove(&(name.protocol, name.local));
        }
    }

    /// Removes a flow, and releases its name.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Flow> {
        self.unbind(id);
        self.get(id)?;
        let flow = self.table.get_mut(id.at)?.take()?;
        let name = flow.name;
        self.by_number.remove(&flow.number);
        self.ports.release(name.protocol, name.local);
        self.free.push(id.at);
        Some(flow)
    }

    /// The flow for a packet from `remote` to `local`.
    pub(crate) fn find(&self, protocol: u8, local: SocketAddr, remote: SocketAddr) -> Option<FlowId> {
        let at = self.exact.get(&(protocol, local, remote)).or_else(|| self.bound.get(&(protocol, local)))?;
        self.id(*at)
    }

    /// The flow with exactly this name.
    pub(crate) fn find_exact(&self, protocol: u8, local: SocketAddr, remote: SocketAddr) -> Option<FlowId> {
        self.id(*self.exact.get(&(protocol, local, remote))?)
    }

    fn id(&self, at: usize) -> Option<FlowId> {
        let number = self.table.get(at)?.as_ref()?.number;
        Some(FlowId { at, number })
    }

    pub(crate) fn numbered(&self, number: u64) -> Option<FlowId> {
        Some(FlowId { at: *self.by_number.get(&number)?, number })
    }

    /// The flow at a place of the table.
    pub(crate) fn at(&self, at: usize) -> Option<FlowId> {
        let flow = self.table.get(at)?.as_ref()?;
        Some(FlowId { at, number: flow.number })
    }

    /// A flow, if it still exists.
    pub(crate) fn get(&self, id: FlowId) -> Option<&Flow> {
        self.table.get(id.at)?.as_ref().filter(|flow| flow.number == id.number)
    }

    /// Like [`get`](Self::get), but mutable.
    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        self.table.get_mut(id.at)?.as_mut().filter(|flow| flow.number == id.number)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Flow> {
        self.table.iter().flatten()
    }

    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.table
            .iter()
            .enumerate()
            .filter_map(|(at, flow)| flow.as_ref().map(|flow| FlowId { at, number: flow.number }))
            .collect()
    }
}
