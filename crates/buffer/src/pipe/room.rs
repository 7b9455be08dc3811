//! A file descriptor for poll(2) and epoll(7) that is writable when a ring has room for a block.
//!
//! It is an eventfd: writable (POLLOUT) while it holds 0, not writable while it is full. Its being readable means
//! nothing. A thread empties it ([`watch`](super::watch)). In place of the writer it sleeps on the bell of the reader
//! in the way, and on the word that changes when readers join or leave. The writer reports its state after each call.

use super::sink::{SharedSink, locked};
use super::thread::Watching;
use super::watch::Event;
use super::watch::writing::{Locked, Wanted, Writing};
use crate::ring::Writer;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

impl Locked for SharedSink {
    fn with<T>(&self, look: impl FnOnce(&mut Writer, bool) -> T) -> T {
        let mut sink = locked(self);
        let is_kept = sink.is_kept();
        look(sink.writer(), is_kept)
    }

    fn with_writer<T>(&self, look: impl FnOnce(&mut Writer) -> T) -> T {
        look(locked(self).writer())
    }
}

/// An eventfd: full, or empty when there is room.
struct EventFd(OwnedFd);

/// Most that an eventfd can hold: full.
const FULL: u64 = u64::MAX - 1;

impl Event for EventFd {
    fn raise(&self) {
        // It holds something, so it can be read.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    fn lower(&self) {
        // It holds 0, so there is room for all it can hold.
        let _ = rustix::io::write(&self.0, &FULL.to_ne_bytes());
    }
}

pub(super) struct RoomPoller {
    watcher: Watching<EventFd, Writing<SharedSink>>,
    sink: SharedSink,
}

impl std::fmt::Debug for RoomPoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoomPoller").field("event", &self.fd()).finish_non_exhaustive()
    }
}

impl RoomPoller {
    /// Not writable until [`set`](RoomPoller::set) says what would be written.
    pub fn new(sink: SharedSink) -> io::Result<RoomPoller> {
        let event = EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        event.lower();
        Ok(RoomPoller { watcher: Watching::new("ring-room", event)?, sink })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watcher.event().0.as_fd()
    }

    /// Stores what a write would want now.
    pub fn set(&mut self, wanted: Wanted) {
        if wanted.is_there(&self.sink) {
            self.watcher.set_due();
        } else {
            self.watcher.set_watched(Writing { sink: Arc::clone(&self.sink), wanted });
        }
    }
}
