//! pcap_breakloop(): a flag, and a bell that wakes a sleeping reader. Signal handlers and other threads may set it.

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
    /// A flag that is not set.
    pub fn new() -> io::Result<Stop> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { wanted: AtomicBool::new(false), bell })
    }

    /// Asks the reading thread to stop. Safe in signal handlers.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
        let one = 1u64.to_ne_bytes();
        // SAFETY: write(2) of eight valid bytes to a descriptor that is open as long as this object. errno is restored
        // for the interrupted code.
        unsafe {
            let number = libc::__errno_location();
            let before = *number;
            libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len());
            *number = before;
        }
    }

    /// Whether a stop is wanted.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether a stop was wanted. Resets the flag.
    pub fn take(&self) -> bool {
        self.wanted.swap(false, Ordering::Acquire)
    }

    /// Readable after [`Self::want`], until [`hush`](Self::hush).
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Silences the bell. The flag stays.
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
