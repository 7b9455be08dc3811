//! pcap_breakloop(): a flag, and a bell for who sleeps. From signal handlers and other threads.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag and the bell.
#[derive(Debug)]
pub struct Stop {
    wanted: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    /// Nobody wants to stop.
    pub fn new() -> io::Result<Stop> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { wanted: AtomicBool::new(false), bell })
    }

    /// Whoever reads packets is to stop. Does nothing that a signal handler may not do.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: write(2) of eight bytes that are there, to a file descriptor that is open as long as this. What was
        // interrupted finds the error number that it had.
        unsafe {
            let number = libc::__errno_location();
            let before = *number;
            libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len());
            *number = before;
        }
    }

    /// Is it wanted?
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Was it wanted? From now on it is not.
    pub fn take(&self) -> bool {
        self.wanted.swap(false, Ordering::Acquire)
    }

    /// Readable once it was wanted, until [`hush`](Self::hush).
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Makes the bell quiet; the flag stays.
    pub fn hush(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_wanted_once() {
        let stop = Stop::new().unwrap();
        assert!(!stop.is_wanted() && !stop.take());
        stop.want();
        stop.want();
        assert!(stop.is_wanted() && stop.take() && !stop.take());
        stop.hush();
        assert!(rustix::io::read(stop.bell(), &mut [0u8; 8]).is_err(), "quiet again");
    }
}
