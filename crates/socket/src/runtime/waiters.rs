//! Calls that follow a leader and wait for the same flow or listener, and file descriptors that tell `poll` the same.

use super::seat::Waiter;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Calls that wait for one flow or listener.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Vec<Arc<Waiter>>>);

/// A call among the waiters, until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration<'a> {
    waiters: &'a Waiters,
    pub(crate) waiter: Arc<Waiter>,
}

impl Waiters {
    /// Adds a call. The call then checks for news, and sleeps only if there are none.
    pub(crate) fn add(&self) -> Registration<'_> {
        let waiter = Arc::new(Waiter::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&waiter));
        Registration { waiters: self, waiter }
    }

    /// Wakes all waiting calls.
    pub(crate) fn tell(&self) {
        for waiter in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waiter.tell();
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut waiters = self.waiters.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
    }
}

/// A file descriptor that is readable while a condition holds. Made on first use.
#[derive(Debug, Default)]
pub(crate) struct Sign {
    fd: OnceLock<OwnedFd>,
    is_set: AtomicBool,
}

/// An eventfd, readable from the start if `is_set`.
pub(crate) fn eventfd(is_set: bool) -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(u32::from(is_set), EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

impl Sign {
    /// The file descriptor. After the first call, the caller reports the condition with [`set`](Self::set).
    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(fd) = self.fd.get() {
            return Ok(fd.as_fd());
        }
        let fd = eventfd(false)?;
        Ok(self.fd.get_or_init(|| fd).as_fd())
    }

    /// Reports the condition. Calls never overlap: the flow or listener is locked.
    pub(crate) fn set(&self, is_set: bool) {
        let Some(fd) = self.fd.get() else { return };
        if self.is_set.swap(is_set, Ordering::Relaxed) == is_set {
            return;
        }
        // Writing 1 makes an eventfd of 0 readable; reading one of 1 makes it 0.
        let _ = match is_set {
            true => rustix::io::write(fd, &1_u64.to_ne_bytes()),
            false => rustix::io::read(fd, &mut [0_u8; 8]),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    #[test]
    fn a_sign_is_readable_as_long_as_it_is_set() {
        let sign = Sign::default();
        // No descriptor was asked for yet.
        sign.set(true);
        let is_readable = || {
            let mut fds = [PollFd::from_borrowed_fd(sign.fd().unwrap(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!is_readable());
        for is_set in [true, true, false, false, true] {
            sign.set(is_set);
            assert_eq!((is_readable(), is_readable()), (is_set, is_set));
        }
    }
}
