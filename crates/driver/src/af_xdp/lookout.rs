//! Looking out for what happens to the device: an AF_XDP socket itself says nothing of it.
//!
//! A netlink socket is told when something changes; only then is it asked what. So a look costs one system call, and the
//! state is never older than the last change that was made before it.

use crate::af_packet::PacketSocket;
use crate::netlink::Netlink;
use crate::sys::{self, ioctl, name_bytes};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Messages read in one go; more are read at the next look.
const MESSAGES: usize = 64;

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) there: bool,
    pub(super) up: bool,
    pub(super) mtu: u32,
}

/// Looks out for one device.
#[derive(Debug)]
pub(super) struct Lookout {
    netlink: Netlink,
    socket: PacketSocket,
    known: Known,
}

impl Lookout {
    /// Begins in this thread's network namespace. `socket` is a packet socket of the device, by which it is asked.
    pub(super) fn new(socket: PacketSocket) -> io::Result<Lookout> {
        let known = Known { there: true, up: true, mtu: 0 };
        let mut lookout = Lookout { netlink: Netlink::route(libc::RTMGRP_LINK as u32)?, socket, known };
        lookout.ask()?;
        Ok(lookout)
    }

    /// What is so now.
    pub(super) fn look(&mut self) -> io::Result<Known> {
        let mut told = false;
        for _ in 0..MESSAGES {
            match self.netlink.listen(Duration::ZERO, |_, _| {}) {
                Ok(false) => break,
                Ok(true) => told = true,
                // More was said than there was room for: something changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => told = true,
                Err(error) => return Err(error),
            }
        }
        if told {
            self.ask()?;
        }
        Ok(self.known)
    }

    fn ask(&mut self) -> io::Result<()> {
        let found = match self.socket.look_up()? {
            Some((name, flags)) => mtu(&self.socket, &name)?.map(|mtu| (flags, mtu)),
            None => None,
        };
        self.known = match found {
            Some((flags, mtu)) => Known { there: self.known.there, up: flags & libc::IFF_UP != 0, mtu },
            // Should one with its number come back, it is another.
            None => Known { there: false, up: false, ..self.known },
        };
        Ok(())
    }
}

impl AsFd for Lookout {
    /// Can be read when there is reason to look.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

fn mtu(socket: &PacketSocket, name: &str) -> io::Result<Option<u32>> {
    // SAFETY: integers; zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name_bytes(name).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: takes an ifreq.
    match unsafe { ioctl(socket.as_fd(), libc::SIOCGIFMTU as libc::c_ulong, &mut request) } {
        // SAFETY: what the command fills in.
        Ok(()) => Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Several file descriptors by one: it can be read when one of them can.
pub(super) fn any_of(fds: &[BorrowedFd<'_>]) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: takes no pointers.
    let epoll = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: just made, and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: an event that lives for the call.
        sys::check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) })?;
    }
    Ok(epoll)
}
