//! One listener: its waiting connections, and the calls that wait for them.

use super::hub::{Hub, Member};
use super::tcp::{Shape, Tcp};
use super::waiters::{Sign, Waiters};
use crate::error::SocketError;
use buffer::flow::Geometry;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most connections taken from the daemon at once: each brings two file descriptors, and a message carries 32.
const MOST: u32 = flow::ACCEPTED as u32;

#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) channel: u32,
    pub(crate) local: SocketAddr,
    geometry: Geometry,
    shape: Shape,
    /// Connections from the daemon that no call took yet.
    ready: Mutex<VecDeque<Arc<Tcp>>>,
    /// How often the driver rang since the daemon was last asked. 0: no connection waits there.
    rings: AtomicU32,
    /// The errno of its end; 0 if it is open.
    ended: AtomicI32,
    pub(crate) waiters: Waiters,
    /// Set while an accept would not block.
    pub(crate) readable: Sign,
}

impl Listening {
    pub(crate) fn new(channel: u32, local: SocketAddr, geometry: Geometry, shape: Shape) -> Listening {
        let (ready, rings, ended, waiters, readable) = Default::default();
        Listening { channel, local, geometry, shape, ready, rings, ended, waiters, readable }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Tcp>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver rang: a connection waits at the daemon.
    pub(crate) fn rang(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    pub(crate) fn end(&self, errno: i32) {
        self.ended.store(errno, Ordering::Relaxed);
        self.tell();
    }

    /// Wakes waiting calls and polling programs.
    pub(crate) fn tell(&self) {
        let ready = self.lock();
        self.readable.set(!ready.is_empty() || self.is_worth_asking());
        drop(ready);
        self.waiters.tell();
    }

    fn is_worth_asking(&self) -> bool {
        self.rings.load(Ordering::Relaxed) > 0 || self.ended.load(Ordering::Relaxed) != 0
    }

    /// The next connection: one that is ready, or else one from the daemon if it may have some.
    pub(crate) fn accept(&self, hub: &Arc<Hub>) -> Option<io::Result<Arc<Tcp>>> {
        loop {
            let ready = self.lock().pop_front();
            if let Some(tcp) = ready {
                self.tell_next();
                return Some(Ok(tcp));
            }
            let errno = self.ended.load(Ordering::Relaxed);
            if errno != 0 {
                return Some(Err(io::Error::from_raw_os_error(errno)));
            }
            // A connection that comes after this line rings again.
            if self.rings.swap(0, Ordering::Relaxed) == 0 {
                return None;
            }
            if let Err(error) = self.ask(hub) {
                // The connection still waits, for a call that comes when there is room.
                self.rings.fetch_add(1, Ordering::Relaxed);
                self.tell_next();
                return Some(Err(error.into()));
            }
            self.tell_next();
        }
    }

    /// Wakes others if anything is left after this call took a connection.
    fn tell_next(&self) {
        let ready = self.lock();
        let is_more = !ready.is_empty() || self.is_worth_asking();
        self.readable.set(is_more);
        drop(ready);
        if is_more {
            self.waiters.tell();
        }
    }

    /// Takes connections from the daemon.
    fn ask(&self, hub: &Arc<Hub>) -> Result<(), SocketError> {
        let flows = hub.connection.accept(self.channel, MOST, self.geometry)?;
        if flows.len() as u32 == MOST {
            self.rings.fetch_add(1, Ordering::Relaxed);
        }
        for flow in flows {
            let channel = flow.granted.channel;
            let tcp = match Tcp::new(flow, &self.shape, true, None) {
                Ok(tcp) => Arc::new(tcp),
                Err(error) => {
                    // No socket will use the flow.
                    hub.connection.close(channel);
                    return Err(error);
                }
            };
            if let Err(error) = hub.add(Member::Tcp(Arc::clone(&tcp))) {
                hub.connection.close(channel);
                return Err(SocketError::Daemon(error));
            }
            self.lock().push_back(tcp);
        }
        Ok(())
    }

    /// Takes all ready connections, for a reset.
    pub(crate) fn drain(&self) -> VecDeque<Arc<Tcp>> {
        std::mem::take(&mut *self.lock())
    }
}
