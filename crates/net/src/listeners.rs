//! Listeners: they open connections for an application, which accepts them later.

use crate::counters::ListenerDrop;
use crate::flow_id::FlowId;
use crate::limits::{ACCEPT_TIME, COOKIE_TIME, SECOND, USER_WAITING};
use crate::numbers::Numbers;
use crate::overload::Account;
use crate::share::ShareLimits;
use crate::users::{Permit, Users};
use buffer::flow::Geometry;
use flow::ListenerState;
use qos::Class;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A connection that waits to be accepted.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: FlowId,
    /// When it is reset, if it was not accepted.
    pub(crate) until: u64,
    /// For its application.
    pub(crate) segments: [OwnedFd; 2],
}

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) number: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// Its client, and its channel's number there.
    pub(crate) client: u64,
    pub(crate) channel: u32,
    pub(crate) backlog: usize,
    /// Announced in answers to SYNs.
    pub(crate) window: u16,
    pub(crate) shift: u8,
    /// For the connections.
    pub(crate) geometry: Geometry,
    pub(crate) class: Class,
    /// The wire shares that its connections may have.
    pub(crate) limits: ShareLimits,
    /// The oldest first.
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) accepted: u64,
    pub(crate) drops: [u64; ListenerDrop::ALL.len()],
    /// Why it last dropped a segment, and until when the peer may send in vain.
    pub(crate) lost: Option<(ListenerDrop, u64)>,
    /// Its receive work in the current window.
    pub(crate) account: Account,
    pub(crate) receive_ns: u64,
    /// Gives connections their permits and numbers.
    pub(crate) users: Users,
    pub(crate) numbers: Arc<Numbers>,
    /// Its own permit among the flows of its user.
    pub(crate) _permit: Permit,
}

impl Listener {
    /// Counts a lost segment or connection.
    pub(crate) fn drop_one(&mut self, why: ListenerDrop, now: u64) {
        self.drops[why as usize] += 1;
        self.lost = Some((why, now + COOKIE_TIME));
    }

    /// Drops a segment without a connection if this listener may have dropped the connection's beginning; returns
    /// whether it did. The peer believes that it is connected, and sends again. A reset would end a connection that
    /// only has to wait.
    pub(crate) fn drop_later(&mut self, now: u64) -> bool {
        let Some((why, _)) = self.lost.filter(|(_, until)| now < *until) else { return false };
        self.drops[why as usize] += 1;
        true
    }

    fn state(&self, local: SocketAddr) -> ListenerState {
        let drops = ListenerDrop::ALL.iter().map(|&why| (why.name().to_string(), self.drops[why as usize]));
        ListenerState {
            listener: self.number,
            local,
            process: self.process,
            user: self.user,
            backlog: self.backlog as u32,
            waiting: self.waiting.len() as u32,
            accepted: self.accepted,
            drops: drops.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// All listeners of an interface, by address and port.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: HashMap<SocketAddr, Listener>,
    /// No connection has waited too long before this. `None`: no connection waits.
    due: Option<u64>,
}

impl Listeners {
    pub(crate) fn get_mut(&mut self, local: SocketAddr) -> Option<&mut Listener> {
        self.all.get_mut(&local)
    }

    pub(crate) fn contains(&self, local: SocketAddr) -> bool {
        self.all.contains_key(&local)
    }

    pub(crate) fn insert(&mut self, local: SocketAddr, listener: Listener) {
        self.all.insert(local, listener);
    }

    pub(crate) fn remove(&mut self, local: SocketAddr) -> Option<Listener> {
        self.all.remove(&local)
    }

    /// All listeners, with their addresses.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SocketAddr, &Listener)> {
        self.all.iter().map(|(local, listener)| (*local, listener))
    }

    /// The addresses of all listeners.
    pub(crate) fn locals(&self) -> Vec<SocketAddr> {
        self.all.keys().copied().collect()
    }

    /// Whether one more connection of this user may wait.
    pub(crate) fn may_wait(&self, user: u32) -> bool {
        let of_user = self.all.values().filter(|listener| listener.user == user);
        of_user.map(|listener| listener.waiting.len()).sum::<usize>() < USER_WAITING
    }

    /// Lets a connection wait from now on.
    pub(crate) fn wait(&mut self, local: SocketAddr, id: FlowId, segments: [OwnedFd; 2], now: u64) {
        let until = now + ACCEPT_TIME;
        if let Some(listener) = self.all.get_mut(&local) {
            listener.waiting.push_back(Waiting { id, until, segments });
            self.due.get_or_insert(until);
        }
    }

    /// When a connection may have waited too long. `None`: no connection waits.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due
    }

    /// Removes the connections that have waited too long.
    pub(crate) fn tick(&mut self, now: u64) -> Vec<FlowId> {
        let mut over = Vec::new();
        if self.due.is_none_or(|due| due > now) {
            return over;
        }
        for listener in self.all.values_mut() {
            while let Some(waiting) = listener.waiting.pop_front_if(|waiting| waiting.until <= now) {
                listener.drop_one(ListenerDrop::NotAccepted, now);
                over.push(waiting.id);
            }
        }
        let next = self.all.values().filter_map(|listener| listener.waiting.front()).map(|waiting| waiting.until).min();
        // Avoids a search through many listeners for each connection.
        self.due = next.map(|next| next.max(now + SECOND));
        over
    }

    /// The states of this user's listeners. `None`: of all listeners.
    pub(crate) fn state(&self, user: Option<u32>) -> Vec<ListenerState> {
        let mine = self.all.iter().filter(|(_, listener)| user.is_none_or(|user| listener.user == user));
        let mut states: Vec<_> = mine.map(|(local, listener)| listener.state(*local)).collect();
        states.sort_by_key(|state| state.listener);
        states
    }
}
