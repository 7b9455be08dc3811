//! Packets between processes (SOCK_SEQPACKET), with file descriptors.
//!
//! The protocols ([`keeper::message`](crate::keeper::message) and others) say what the bytes mean.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Most file descriptors with one packet: four for each of 16 connections that a listener hands out. Linux allows 253.
pub const FDS: usize = 64;

/// Sends one packet. Fails with [`io::ErrorKind::WouldBlock`] where a non-blocking socket has no room.
pub fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The buffer is rounded up and might take a few more, for which the receiver has no room.
    if fds.len() > FDS || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more file descriptors than one message takes"));
    }
    // NOSIGNAL: a peer that is gone gives an error, not a signal.
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Tells a client the reason before the socket is closed. Then it shuts the socket down for reading and reads what the
/// client has sent: the kernel resets a socket that is closed with unread packets, and the client would lose the
/// reason. Does not wait.
pub fn send_last(socket: impl AsFd, packet: &[u8]) {
    let _ = send(&socket, packet, &[]);
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Read);
    // This ends: the queue does not grow any more.
    while rustix::net::recv(&socket, &mut [0u8; 1], RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0) {}
}

/// Waits until `deadline` for a packet, for bytes in a pipe, or for the other end to close; false when time is up.
pub fn is_readable(fd: &impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Ok(found) => return Ok(found > 0),
            // The caller looks at its stop flag, not this loop.
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the other side has taken everything that was sent to it. Until then the file descriptors on their way are open, and
/// count against the sender's limit.
pub fn all_taken(socket: impl AsFd) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (which has the number of TIOCOUTQ) writes one int there.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes == 0) }
}

/// Whether the error says that the system is short of files or memory for now, or that too many files are on their way.
pub fn is_short(error: &io::Error) -> bool {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS};
    error.raw_os_error().is_some_and(|errno| [EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS].contains(&errno))
}

/// Socket option: peers may send files to this socket (Linux 6.16). Sockets accepted from a listener inherit it.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes the kernel refuse (EPERM) files that clients send to this socket and to sockets accepted from it. A received
/// file has to be closed, and its maker decides how long that takes (a lingering socket, a file system of its own).
/// Before Linux 6.16 files still arrive, and are closed.
pub fn take_no_files(socket: impl AsFd) {
    pass_rights(socket, 0);
}

/// Allows files to be sent to this socket again, after [`take_no_files`].
pub fn take_files(socket: impl AsFd) {
    pass_rights(socket, 1);
}

fn pass_rights(socket: impl AsFd, passes: libc::c_int) {
    // SAFETY: the option is one int, which is there. An older kernel refuses the option, which changes nothing.
    unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const passes).cast(),
            size_of_val(&passes) as libc::socklen_t,
        );
    }
}

/// A received packet.
#[derive(Debug)]
pub struct Received {
    /// Its length in bytes.
    pub len: usize,
    /// Its file descriptors; empty where there were more than fit, or more than this process may have now.
    pub fds: Vec<OwnedFd>,
}

/// Receives one packet into `packet`. `None` where the other side closed; an error where the packet is longer than
/// `packet`.
pub fn receive(socket: impl AsFd, packet: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(packet)];
    let got = rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    // Taken before anything is refused, so that no file stays open.
    let mut fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if got.bytes == 0 {
        return Ok(None);
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the other side says more than can be heard"));
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        fds.clear();
    }
    Ok(Some(Received { len: got.bytes, fds }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_taken_once_it_was_received() {
        let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert!(all_taken(&here).unwrap());
        for count in 1..4 {
            (0..count).for_each(|_| send(&here, b"word", &[there.as_fd()]).unwrap());
            for left in (0..count).rev() {
                assert!(!all_taken(&here).unwrap());
                assert_eq!(receive(&there, &mut [0; 10]).unwrap().unwrap().len, 4);
                assert_eq!(all_taken(&here).unwrap(), left == 0);
            }
        }
        assert!(all_taken(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn as_many_files_as_there_may_be_arrive_and_one_more_is_refused() {
        let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
        send(&here, b"word", &[there.as_fd(); FDS]).unwrap();
        assert_eq!(receive(&there, &mut [0; 10]).unwrap().unwrap().fds.len(), FDS);
        let error = send(&here, b"word", &[there.as_fd(); FDS + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
