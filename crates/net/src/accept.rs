//! The Flow Manager's part about listeners: opens and closes them, and hands out the connections that wait. Called between two turns.

use crate::answer::TCP;
use crate::counters::Event;
use crate::error::{NetError, NetErrorKind};
use crate::flows::Name;
use crate::interface::{Core, Holder};
use crate::limits::CLIENT_FLOWS;
use crate::listeners::{Listener, Waiting};
use crate::overload::Account;
use crate::share::ShareLimits;
use crate::sharing::gate;
use crate::sharing::keeper::Reservation;
use crate::users::{Place, Users};
use buffer::flow::Bells;
use flow::{ACCEPTED, BACKLOG, Granted, Listening, OpenListener};
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A listener to open: everything that could be made outside the interface's thread.
#[derive(Debug)]
pub(crate) struct OpeningListener {
    pub(crate) open: OpenListener,
    pub(crate) client: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    pub(crate) limits: ShareLimits,
    pub(crate) number: u64,
    /// With the first flow or listener of a client.
    pub(crate) bells: Option<Bells>,
    pub(crate) place: Place,
    /// On a shared device: the port.
    pub(crate) reservation: Option<Arc<Reservation>>,
    /// Where connections take their places and numbers.
    pub(crate) users: Users,
    pub(crate) numbers: Arc<AtomicU64>,
}

/// Connections that were accepted, each with the segments for its application.
pub(crate) type Accepted = Vec<(Granted, [OwnedFd; 2])>;

/// The name of a listener, for the program of a shared device.
fn bound(local: SocketAddrV4) -> Name {
    Name { protocol: TCP, local, remote: None }
}

impl Core {
    /// Opens a listener.
    pub(crate) fn listen_at(&mut self, opening: OpeningListener) -> Result<Listening, NetError> {
        let listening = self.try_listen_at(opening);
        self.counters.event(if listening.is_ok() { Event::ListenersOpened } else { Event::FlowsRefused });
        listening
    }

    fn try_listen_at(&mut self, opening: OpeningListener) -> Result<Listening, NetError> {
        let OpeningListener { open, client, process, user, limits, number, bells, place, reservation, users, numbers } =
            opening;
        let local = SocketAddrV4::new(self.own_address(*open.local.ip(), None)?, open.local.port());
        if self.sharing.is_some() {
            gate::holds(reservation.as_ref(), local)?;
        }
        let (channel, class) = self.channel_for(client, bells.as_ref(), open.share.as_deref())?;
        self.permits(class, limits, user, None)?;
        let local = self.flows.listener_name(local, user)?;
        if let Some(Err(error)) = self.sharing.as_ref().map(|sharing| sharing.insert(&bound(local))) {
            self.flows.release(local);
            return Err(error);
        }
        let (channel, has_bells) = (channel as u32, bells.is_some());
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
            reservation,
            _place: place,
        };
        self.flows.listeners.insert(local, listener);
        self.hold(client, channel, Holder::Listener(local), bells);
        Ok(Listening { listener: number, channel, device: self.name.clone(), local, has_bells })
    }

    /// Hands out connections that wait, at most `most`, the oldest first.
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
            self.hold(client, channel as u32, Holder::Flow(id), None);
            accepted.push((self.granted(number, channel as u32, name, isn), segments));
        }
        Ok(accepted)
    }

    /// Closes a listener, and resets the connections that wait.
    pub(crate) fn close_listener(&mut self, local: SocketAddrV4, now: u64) {
        let Some(listener) = self.flows.listeners.remove(local) else { return };
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
