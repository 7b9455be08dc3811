//! Packets between processes (SOCK_SEQPACKET), with file descriptors beside them.
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

/// Most file descriptors beside one packet: four for each of 16 connections that a listener hands out. Linux takes 253.
pub const FDS: usize = 64;

/// Sends one packet. A socket that does not block says [`io::ErrorKind::WouldBlock`] where there is no room.
pub fn send(socket: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // Alignment leaves room for a few more, which the other side need not have.
    if fds.len() > FDS || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more file descriptors than one message takes"));
    }
    // A peer that is gone is an error, not a signal.
    rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Tells a client the reason before the socket is closed. Reads what the client has sent by then, and takes no more: the kernel
/// resets a socket that is closed with unread packets, and the client would never get the reason. Does not wait.
pub fn send_last(socket: impl AsFd, packet: &[u8]) {
    // A client that has gone needs no reason.
    let _ = send(&socket, packet, &[]);
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Read);
    // As many as there can be in a queue, for it does not grow any more.
    while rustix::net::recv(&socket, &mut [0u8; 1], RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0) {}
}

/// Is there something to read before this time, of packets or a pipe? The other end's closing is.
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

/// Has the other side taken everything that was sent to it? File descriptors on their way are open until then, and count
/// against who sent them.
pub fn all_taken(socket: impl AsFd) -> io::Result<bool> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (which has the number of TIOCOUTQ) writes one int there.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes == 0) }
}

/// Is this what a system says that has nothing more to give for now: files, memory, or files on their way?
pub fn is_short(error: &io::Error) -> bool {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS};
    error.raw_os_error().is_some_and(|errno| [EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS].contains(&errno))
}

/// Whether files may be sent to a socket (Linux 6.16); those that a listening socket accepts are as it is.
const SO_PASSRIGHTS: libc::c_int = 83;

/// From here on the kernel refuses files that clients send to this socket and to those it accepts (EPERM). A file that came
/// has to be closed, and its maker decides how long that takes (a socket that lingers, a file system of its own). Before Linux
/// 6.16 files still come, and are closed.
pub fn take_no_files(socket: impl AsFd) {
    pass_rights(socket, 0);
}

/// From here on files may be sent to this socket, in spite of [`take_no_files`].
pub fn take_files(socket: impl AsFd) {
    pass_rights(socket, 1);
}

fn pass_rights(socket: impl AsFd, passes: libc::c_int) {
    // SAFETY: the option is one int, which is there. What an older kernel says to it changes nothing.
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

/// A packet as it came.
#[derive(Debug)]
pub struct Received {
    /// Bytes of it.
    pub len: usize,
    /// The file descriptors beside it; none where there were more than can be heard, or than this process may have now.
    pub fds: Vec<OwnedFd>,
}

/// Receives one packet into `packet`. `None` where the other side closed; an error where the packet was longer than `packet`.
pub fn receive(socket: impl AsFd, packet: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(packet)];
    let got = rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    // Taken before anything is refused, so that none stays open.
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
