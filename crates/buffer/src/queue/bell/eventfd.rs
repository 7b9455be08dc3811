//! The wire of a bell: eventfd(2).

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Longest sleep, so that a lost signal delays only.
const NAP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Wire(OwnedFd);

impl Wire {
    pub(super) fn new() -> io::Result<Wire> {
        Ok(Wire(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(super) fn pull(&self) {
        // A full count wakes as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // The read fails where the count is 0.
        let _ = rustix::io::read(&self.0, &mut count);
    }

    pub(super) fn sleep(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
        // Every outcome means the same: look again.
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout));
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
