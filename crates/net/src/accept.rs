//! The Flow Manager's part about listeners: opens and closes them, and hands out waiting connections. Called between two turns.

use crate::answer::TCP;
use crate::counters::Event;
use crate::error::{NetError, NetErrorKind};
use crate::flows::Name;
use crate::interface::{Core, Holder};
use crate::limits::CLIENT_FLOWS;
use crate::listeners::{Listener, Waiting};
use crate::numbers::Numbers;
use crate::overload::Account;
use crate::process::message::Owner;
use crate::users::{Permit, Users};
use buffer::flow::Bells;
use flow::{ACCEPTED, BACKLOG, Granted, Listening, OpenListener};
use qos::Class;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A listener to open: everything that can be made outside the interface's thread.
#[derive(Debug)]
pub(crate) struct OpeningListener {
    pub(crate) open: OpenListener,
    pub(crate) owner: Owner,
    pub(crate) number: u64,
    /// Only for the first flow or listener of a client.
    pub(crate) bells: Option<Bells>,
    pub(crate) permit: Permit,
    /// Gives connections their permits and numbers.
    pub(crate) users: Users,
    pub(crate) numbers: Arc<Numbers>,
}

/// Connections that were accepted, each with the segments for its application.
pub(crate) type Accepted = Vec<(Granted, [OwnedFd; 2])>;

/// The name of a listener, for the program of a shared device.
fn bound(local: SocketAddr) -> Name {
    Name { protocol: TCP, local, remote: None }
}

impl Core {
    pub(crate) fn listen_at(&mut self, opening: OpeningListener) -> Result<Listening, NetError> {
        let listening = self.try_listen_at(opening);
        self.counters.event(if listening.is_ok() { Event::ListenersOpened } else { Event::FlowsRefused });
        listening
    }

    fn try_listen_at(&mut self, mut opening: OpeningListener) -> Result<Listening, NetError> {
        let OpeningListener { open, owner, number, bells, .. } = &mut opening;
        open.local.set_ip(self.own_address(open.local.ip(), None)?);
        self.has_port(owner)?;
        let (channel, class) = self.channel_for(owner.client, bells.as_ref(), open.share.as_deref())?;
        self.permits(class, owner.limits, owner.user, None)?;
        let (listener, channel, has_bells) = (*number, channel as u32, bells.is_some());
        let local = self.put_listener(opening, channel, class)?;
        Ok(Listening { listener, channel, device: self.name.clone(), local, has_bells })
    }

    /// Adds a listener at a channel of its client. Returns its address and port.
    pub(crate) fn put_listener(
        &mut self,
        opening: OpeningListener,
        channel: u32,
        class: Class,
    ) -> Result<SocketAddr, NetError> {
        let OpeningListener { open, owner, number, bells, permit, users, numbers } = opening;
        let Owner { client, process, user, limits, .. } = owner;
        let local = self.flows.listener_name(open.local, user)?;
        if let Some(Err(error)) = self.sharing.as_ref().map(|sharing| sharing.insert(&bound(local))) {
            self.flows.release(local);
            return Err(error);
        }
        self.give_bells(client, process, user, bells);
        let listener = Listener {
            number,
            process,
            user,
            client,
            channel,
            backlog: open.backlog.clamp(1, BACKLOG) as usize,
            window: open.window,
            shift: open.window_shift,
            geometry: open.geometry(),
            class,
            limits,
            waiting: VecDeque::new(),
            accepted: 0,
            drops: Default::default(),
            lost: None,
            account: Account::default(),
            receive_ns: 0,
            users,
            numbers,
            _permit: permit,
        };
        self.flows.listeners.insert(local, listener);
        self.hold(client, channel, Holder::Listener(local));
        Ok(local)
    }

    /// Hands out at most `most` waiting connections, the oldest first.
    pub(crate) fn accept(&mut self, client: u64, channel: u32, most: u32) -> Result<Accepted, NetError> {
        let channels = self.clients.get(&client).map(|client| client.channels.as_slice()).unwrap_or_default();
        let Some(Some(Holder::Listener(local))) = channels.get(channel as usize).copied() else {
            let text = format!("this connection has no listener with channel {channel}");
            return Err(NetError::new(NetErrorKind::Absent, text));
        };
        let mut accepted = Accepted::new();
        while accepted.len() < ACCEPTED.min(most as usize) {
            let channels = self.clients.get(&client).map(|client| client.channels.as_slice()).unwrap_or_default();
            let channel = channels.iter().position(Option::is_none).unwrap_or(channels.len());
            let Some(listener) = self.flows.listeners.get_mut(local) else { break };
            if channel >= CLIENT_FLOWS && !listener.waiting.is_empty() {
                if accepted.is_empty() {
                    let text = format!("this connection has {CLIENT_FLOWS} flows, the most it may have; close some");
                    return Err(NetError::new(NetErrorKind::Full, text));
                }
                break;
            }
            let Some(Waiting { id, segments, .. }) = listener.waiting.pop_front() else { break };
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.channel = channel as u32;
            let (number, name) = (flow.number, flow.name);
            let isn = flow.connection.map_or(0, |connection| connection.isn);
            if let Some(listener) = self.flows.listeners.get_mut(local) {
                listener.accepted += 1;
            }
            self.hold(client, channel as u32, Holder::Flow(id));
            accepted.push((self.granted(number, channel as u32, name, isn), segments));
        }
        Ok(accepted)
    }

    /// Closes a listener, and resets its waiting connections.
    pub(crate) fn close_listener(&mut self, local: SocketAddr, now: u64) {
        let Some(listener) = self.flows.listeners.remove(local) else { return };
        self.ended.push(listener.number);
        for waiting in listener.waiting {
            self.close(waiting.id, 0, now);
        }
        if let Some(sharing) = &self.sharing {
            sharing.remove(&bound(local));
        }
        self.flows.release(local);
        self.counters.event(Event::ListenersClosed);
        if let Some(client) = self.clients.get_mut(&listener.client) {
            client.bells.ring(listener.channel as usize);
            if let Some(channel) = client.channels.get_mut(listener.channel as usize) {
                *channel = None;
            }
        }
    }
}
