//! Watches a device's state for an AF_XDP socket, which reports nothing about its device.
//!
//! A netlink socket gets a message when something changes; only then is the state asked for. So a look costs one system
//! call, and its result includes every change made before it.

use crate::af_packet::PacketSocket;
use crate::netlink::Netlink;
use crate::sys::{self, ioctl, name_bytes};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Most messages read in one look; the next look reads more.
const MESSAGES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) there: bool,
    pub(super) up: bool,
    pub(super) mtu: u32,
}

#[derive(Debug)]
pub(super) struct Lookout {
    netlink: Netlink,
    socket: PacketSocket,
    known: Known,
}

impl Lookout {
    /// Starts in this thread's network namespace. `socket` is a packet socket of the device, used for asking.
    pub(super) fn new(socket: PacketSocket) -> io::Result<Lookout> {
        let known = Known { there: true, up: true, mtu: 0 };
        let mut lookout = Lookout { netlink: Netlink::route(libc::RTMGRP_LINK as u32)?, socket, known };
        lookout.ask()?;
        Ok(lookout)
    }

    pub(super) fn look(&mut self) -> io::Result<Known> {
        let mut told = false;
        for _ in 0..MESSAGES {
            match self.netlink.listen(Duration::ZERO, |_, _| {}) {
                Ok(false) => break,
                Ok(true) => told = true,
                // There were more messages than fit: something changed.
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
            // If a device with its number comes back, it is another device.
            None => Known { there: false, up: false, ..self.known },
        };
        Ok(())
    }
}

impl AsFd for Lookout {
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
        // SAFETY: the command filled this field in.
        Ok(()) => Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Joins several file descriptors into one, which is readable when one of them is.
pub(super) fn any_of(fds: &[BorrowedFd<'_>]) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: takes no pointers.
    let epoll = sys::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: just made, without another owner.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: an event that lives for the call.
        sys::check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) })?;
    }
    Ok(epoll)
}
