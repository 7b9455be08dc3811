//! The host's sleep: watches every descriptor under its socket's number, edge-triggered (`EPOLLET`).

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The most events of one wait.
const NEWS: usize = 256;

/// File descriptors by number.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(NEWS) })
    }

    /// Reports each change of `fd` as `key`, until `fd` is closed.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(key), flags)?)
    }

    /// Sleeps until a descriptor changes, for at most `timeout`. Puts the numbers into `keys`.
    pub(crate) fn wait(&mut self, keys: &mut Vec<u64>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        keys.extend(self.events.drain(..).map(|event| event.data.u64()));
        Ok(())
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}
