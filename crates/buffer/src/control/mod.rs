//! Control sockets of the daemon, the keepers, the parser process and running requests. A message is one packet
//! (SOCK_SEQPACKET), sent with file descriptors if it needs them.
//!
//! - [`codec`]: how messages are encoded and checked.
//! - [`name`]: how a process claims a socket's path by a lock beside it, also after its last owner was killed.
//! - [`packets`]: packets with file descriptors.
//! - [`peer`]: the process at the other end, as the kernel knows it.
//!
//! Each protocol defines its messages: [`keeper::message`](crate::keeper::message), and `protocol` in the crates above.

pub mod codec;
pub mod name;
pub mod packets;
pub mod peer;

use codec::{In, Out, Wire};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// A message of one of the protocols.
pub trait Message: Wire {
    /// Longest packet in bytes.
    const BYTES: usize;

    /// Encodes the message as a packet.
    fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        self.put(&mut out);
        out.0
    }

    /// Decodes a packet. `None`: it is not such a message, or has more bytes than one.
    fn decode(packet: &[u8]) -> Option<Self> {
        let mut fields = In(packet);
        Self::get(&mut fields).filter(|_| fields.0.is_empty())
    }
}

/// Sends a message. Fails with [`io::ErrorKind::WouldBlock`] where a non-blocking socket has no room, and with
/// [`io::ErrorKind::InvalidInput`] where the message is longer than its protocol allows.
pub fn send<M: Message>(socket: impl AsFd, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let packet = message.encode();
    if packet.len() > M::BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is too long"));
    }
    packets::send(socket, &packet, fds)
}

/// Like [`send`], but a peer that has closed its end is no error: its last answer can still be received.
pub fn ask<M: Message>(socket: impl AsFd, question: &M) -> io::Result<()> {
    ask_with(socket, question, &[])
}

/// Like [`ask`], with file descriptors.
pub fn ask_with<M: Message>(socket: impl AsFd, question: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    match send(socket, question, fds) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent,
    }
}

/// Refuses a client before the socket is closed: see [`packets::send_last`].
pub fn send_last<M: Message>(socket: impl AsFd, message: &M) {
    packets::send_last(socket, &message.encode());
}

thread_local! {
    /// Buffer for a message, as long as the longest that this thread has waited for.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Receives a message and its file descriptors (all of them or none). `None`: the other side closed.
pub fn receive<M: Message>(socket: impl AsFd) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    // A thread that ends, or exits the process, may have dropped its buffer already.
    let mut packet = ROOM.try_with(Cell::take).unwrap_or_default();
    packet.resize(packet.len().max(M::BYTES), 0);
    let received = packets::receive(socket, &mut packet[..M::BYTES]);
    let message = received.map(|received| received.map(|received| (M::decode(&packet[..received.len]), received.fds)));
    let _ = ROOM.try_with(|room| room.set(packet));
    match message? {
        None => Ok(None),
        Some((Some(message), fds)) => Ok(Some((message, fds))),
        Some((None, _)) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the other side says what cannot be understood"))
        }
    }
}

/// Connects to the socket at `path`. With `owner` it must belong to that user ([`peer::connect_to`]). Fails with
/// [`io::ErrorKind::TimedOut`] where the listener accepts nothing for `patience`; a later send waits as long.
pub fn connect(path: &Path, owner: Option<u32>, flags: SocketFlags, patience: Duration) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    let connected = match owner {
        Some(user) => peer::connect_to(&socket, path, user),
        None => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(io::Error::from),
    };
    match connected {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
        Ok(()) => Ok(socket),
    }
}

/// Accepts a connection; gives its socket and its peer. [`packets::is_short`] tells whether an error will pass.
pub fn accept(listener: impl AsFd, flags: SocketFlags) -> io::Result<(OwnedFd, peer::Peer)> {
    let socket = rustix::net::accept_with(listener, flags | SocketFlags::CLOEXEC)?;
    let peer = peer::of(socket.as_fd())?;
    Ok((socket, peer))
}
