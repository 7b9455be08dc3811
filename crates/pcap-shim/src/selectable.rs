//! What pcap_get_selectable_fd() gives: a file descriptor for select(), poll() and epoll.
//!
//! It is an epoll of two: the reader's line, which becomes readable when a packet comes after the reader has said that it
//! sleeps, and an event that is set by hand while packets are left over. So a program that reads one packet for each time
//! it is told so is told until there are none.

use rustix::event::{EventfdFlags, epoll, eventfd};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The file descriptor.
#[derive(Debug)]
pub struct Selectable {
    both: OwnedFd,
    left: OwnedFd,
    readable: bool,
}

impl Selectable {
    /// One that is not readable before the line is.
    pub fn new(line: BorrowedFd<'_>) -> io::Result<Selectable> {
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let left = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&both, line, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&both, &left, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Selectable { both, left, readable: false })
    }

    /// Its number.
    pub fn number(&self) -> c_int {
        self.both.as_raw_fd()
    }

    /// Packets are left over, or not. A system call where that changes.
    pub fn set(&mut self, readable: bool) {
        if readable == self.readable {
            return;
        }
        // Neither can block nor fail: the counter is 0 or 1.
        let _ = match readable {
            true => rustix::io::write(&self.left, &1u64.to_ne_bytes()),
            false => rustix::io::read(&self.left, &mut [0u8; 8]),
        };
        self.readable = readable;
    }
}
