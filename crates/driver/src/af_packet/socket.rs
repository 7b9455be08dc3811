//! A packet socket: what receiving and sending share. Opening, binding, memberships, whether its device is still there.
//!
//! It is made for no protocol and thereby deaf; only [`bind`](PacketSocket::bind) lets frames in, when filter and ring are
//! set up: nothing arrives that nobody asked for.

use crate::error::Error;
use crate::sys::{check, socket};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A packet socket (packet(7)) of one device, which gives and takes whole frames.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    index: u32,
}

impl PacketSocket {
    /// A socket for the device with this number in this thread's network namespace. Nothing arrives yet.
    pub fn new(index: u32) -> Result<PacketSocket, Error> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(Error::doing("open a packet socket"))?;
        Ok(PacketSocket { fd, index })
    }

    /// Number of its device.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Binds it to its device; frames of `protocol` (in network byte order, 0 for none) arrive from now on.
    pub(crate) fn bind(&self, protocol: u16) -> io::Result<()> {
        let address = address(self.index, protocol);
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: an address of that many bytes.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })?;
        Ok(())
    }

    /// Binds it for sending alone.
    pub fn bind_to_send(&self) -> Result<(), Error> {
        self.bind(0).map_err(Error::doing("bind a packet socket"))
    }

    /// Sends one frame, as it is; blocks until the kernel took it. For a few frames.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let address = address(self.index, 0);
        let length = size_of::<libc::sockaddr_ll>() as u32;
        let (fd, bytes) = (self.fd.as_raw_fd(), frame.as_ptr().cast());
        // SAFETY: as many bytes as the frame has, and an address.
        let sent = unsafe { libc::sendto(fd, bytes, frame.len(), 0, std::ptr::from_ref(&address).cast(), length) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
