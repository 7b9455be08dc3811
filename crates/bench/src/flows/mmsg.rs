//! Datagrams of the kernel's sockets, many in one system call: `sendmmsg` and `recvmmsg`, the peers of our flows.

use nix::libc;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Datagrams in a call.
pub const MANY: usize = 64;

/// Buffers for [`MANY`] datagrams.
pub struct Many {
    buffers: Vec<Vec<u8>>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Many {
    /// Buffers of `bytes` bytes each.
    pub fn new(bytes: usize) -> Many {
        let mut buffers = vec![vec![0; bytes]; MANY];
        let vector = |buffer: &mut Vec<u8>| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: bytes };
        let mut vectors: Vec<libc::iovec> = buffers.iter_mut().map(vector).collect();
        let header = |vector: &mut libc::iovec| {
            // SAFETY: all fields are numbers and pointers, and 0 is a value of each.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (vector, 1);
            header
        };
        let headers = vectors.iter_mut().map(header).collect();
        Many { buffers, vectors, headers }
    }

    /// The buffer of one datagram.
    pub fn buffer(&mut self, at: usize) -> &mut [u8] {
        &mut self.buffers[at]
    }

    /// Sends the first `count` datagrams on a connected socket. Gives how many were sent.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        debug_assert_eq!(self.vectors.len(), MANY);
        let count = count.min(MANY) as u32;
        // SAFETY: at least `count` headers exist. Each names one vector of this value, and each vector one of its
        // buffers. While this value lives, these neither move nor change their sizes.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for the first datagram, and receives those that are there. Calls `take` for each.
    pub fn receive(&mut self, socket: &UdpSocket, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        let headers = self.headers.as_mut_ptr();
        let (wait, none) = (libc::MSG_WAITFORONE, std::ptr::null_mut());
        // SAFETY: as above, and the kernel writes into buffers that have no other borrow.
        let came = unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, MANY as u32, wait, none) };
        let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
        for (header, buffer) in self.headers.iter().zip(&self.buffers).take(came) {
            take(&buffer[..(header.msg_len as usize).min(buffer.len())]);
        }
        Ok(came)
    }
}

/// Gives a receiving socket as much room as an ordinary user may have, and a timeout.
pub fn prepare(socket: &UdpSocket, wait: Duration) -> io::Result<()> {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    let most: libc::c_int = text.trim().parse().unwrap_or(212_992);
    let len = size_of_val(&most) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
    // SAFETY: the kernel reads one number, which lives until the call returns.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const most).cast(), len) };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    socket.set_read_timeout(Some(wait))
}

/// Datagrams that the kernel dropped because the socket had no room (`SO_MEMINFO`).
pub fn dropped(socket: &UdpSocket) -> io::Result<u64> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is the last of nine.
    let mut words = [0u32; 9];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
    // SAFETY: the kernel writes at most `len` bytes, which is what `words` holds.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut words).cast(), &raw mut len) };
    if got == 0 { Ok(u64::from(words[8])) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received_and_what_has_no_room_is_counted() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        prepare(&far, Duration::from_millis(10)).unwrap();
        let (mut out, mut into) = (Many::new(1000), Many::new(2000));
        (0..MANY).for_each(|at| out.buffer(at)[0] = at as u8);
        assert_eq!(out.send(&near, 10).unwrap(), 10);
        let mut seen = Vec::new();
        let came = into.receive(&far, |datagram| seen.push((datagram[0], datagram.len()))).unwrap();
        assert_eq!((came, seen), (10, (0..10).map(|number| (number, 1000)).collect()));
        assert_eq!(into.receive(&far, |_| ()).unwrap_err().kind(), io::ErrorKind::WouldBlock);

        let sent: usize = (0..100).map(|_| out.send(&near, MANY).unwrap()).sum();
        let mut received = 0;
        while let Ok(came) = into.receive(&far, |_| ()) {
            received += came;
        }
        assert_eq!((received as u64 + dropped(&far).unwrap(), received < sent), (sent as u64, true));
    }
}
