//! Pairs of unix sockets: one end becomes a program's file descriptor, the other stays here.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use std::io;

/// The program's end, which goes to it, and the one that stays.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) theirs: OwnedFd,
    pub(crate) ours: OwnedFd,
    /// Names the program's end, whatever number it has there.
    pub(crate) inode: u64,
}

/// Bytes that an end holds for the other side.
const HELD: usize = 256 << 10;

/// A pair for a stream, or for messages that keep their bounds.
pub(crate) fn pair(is_stream: bool) -> io::Result<Pair> {
    let kind = if is_stream { SocketType::STREAM } else { SocketType::SEQPACKET };
    let (theirs, ours) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    set_socket_send_buffer_size(&ours, HELD)?;
    set_socket_send_buffer_size(&theirs, HELD)?;
    let inode = fstat(&theirs)?.st_ino;
    Ok(Pair { theirs, ours, inode })
}

/// Fills the program's end, so that `poll` does not call it writable: a connection is being made. Says with how many bytes, which
/// [`drain`] takes out.
pub(crate) fn fill(theirs: BorrowedFd<'_>) -> usize {
    let (block, mut bytes) = ([0u8; 4096], 0);
    while let Ok(sent @ 1..) = rustix::net::send(theirs, &block, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        bytes += sent;
    }
    bytes
}

/// Takes out what [`fill`] put in.
/// The program may write as soon as some of it is gone: what comes behind it stays.
pub(crate) fn drain(ours: BorrowedFd<'_>, mut bytes: usize) {
    let mut block = [0u8; 16384];
    while bytes > 0
        && let room = &mut block[..bytes.min(16384)]
        && let Ok(taken @ 1..) = rustix::io::read(ours, room)
    {
        bytes -= taken;
    }
}

/// Has the program closed its end, everywhere?
pub(crate) fn has_hung_up(end: &OwnedFd) -> bool {
    now(end, PollFlags::empty()).intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Has an end room?
pub(crate) fn is_writable(end: &OwnedFd) -> bool {
    now(end, PollFlags::OUT).contains(PollFlags::OUT)
}

/// What `poll` says of an end now.
fn now(end: &OwnedFd, of: PollFlags) -> PollFlags {
    let mut fds = [PollFd::new(end, of)];
    // A call that fails says nothing.
    let _ = poll(&mut fds, Some(&Timespec::default()));
    fds[0].revents()
}

/// Is there no room, or nothing there, now?
pub(crate) fn is_later(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS | Errno::INTR)
}
