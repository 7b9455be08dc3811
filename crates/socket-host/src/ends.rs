//! Pairs of unix sockets: one end becomes a program's file descriptor, the other one stays here.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use std::io;

/// The program's end, and the end that stays.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) theirs: OwnedFd,
    pub(crate) ours: OwnedFd,
    /// Names the program's end, independent of its number there.
    pub(crate) inode: u64,
}

/// Bytes that an end holds for the other side.
const HELD: usize = 256 << 10;

/// A pair for a stream, or for messages with boundaries.
pub(crate) fn pair(is_stream: bool) -> io::Result<Pair> {
    let kind = if is_stream { SocketType::STREAM } else { SocketType::SEQPACKET };
    let (theirs, ours) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    set_socket_send_buffer_size(&ours, HELD)?;
    set_socket_send_buffer_size(&theirs, HELD)?;
    let inode = fstat(&theirs)?.st_ino;
    Ok(Pair { theirs, ours, inode })
}

/// Fills the program's end while a connection is being made, so that `poll` does not report it as writable. Returns the
/// number of bytes, which [`drain`] removes.
pub(crate) fn fill(theirs: BorrowedFd<'_>) -> usize {
    let (block, mut bytes) = ([0u8; 4096], 0);
    while let Ok(sent @ 1..) = rustix::net::send(theirs, &block, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        bytes += sent;
    }
    bytes
}

/// Removes the bytes of [`fill`]. The program may write as soon as some of them are gone: later bytes stay.
pub(crate) fn drain(ours: BorrowedFd<'_>, mut bytes: usize) {
    let mut block = [0u8; 16384];
    while bytes > 0
        && let room = &mut block[..bytes.min(16384)]
        && let Ok(taken @ 1..) = rustix::io::read(ours, room)
    {
        bytes -= taken;
    }
}

/// Whether the program has closed its end everywhere.
pub(crate) fn has_hung_up(end: &OwnedFd) -> bool {
    now(end, PollFlags::empty()).intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Whether the program has finished writing.
pub(crate) fn has_finished(end: &OwnedFd) -> bool {
    now(end, PollFlags::RDHUP).intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Whether this end has room.
pub(crate) fn is_writable(end: &OwnedFd) -> bool {
    now(end, PollFlags::OUT).contains(PollFlags::OUT)
}

/// The events of an end now.
fn now(end: &OwnedFd, of: PollFlags) -> PollFlags {
    let mut fds = [PollFd::new(end, of)];
    // After a failed call there are no events.
    let _ = poll(&mut fds, Some(&Timespec::default()));
    fds[0].revents()
}

/// Whether this error means: no room, or no data, at the moment.
pub(crate) fn is_later(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOBUFS | Errno::INTR)
}
