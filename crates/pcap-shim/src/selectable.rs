//! The descriptor of pcap_get_selectable_fd(), for select(), poll() and epoll.
//!
//! It is an epoll of two descriptors. The reader's line becomes readable when a packet comes after the reader announced
//! its sleep. An event is set by hand while packets are left over. So a program that reads one packet per wake-up is
//! woken until it has read all.

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
    /// A descriptor that becomes readable with the line.
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

    /// Says whether packets are left over. Makes a system call only on a change.
    pub fn set(&mut self, readable: bool) {
        if readable == self.readable {
            return;
        }
        // The calls cannot block or fail: the counter is 0 or 1.
        let _ = match readable {
            true => rustix::io::write(&self.left, &1u64.to_ne_bytes()),
            false => rustix::io::read(&self.left, &mut [0u8; 8]),
        };
        self.readable = readable;
    }
}
