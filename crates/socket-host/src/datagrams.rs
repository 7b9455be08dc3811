//! The datagrams of one UDP socket: from a program's end to a flow and back.
//!
//! The pair is one of `SOCK_SEQPACKET`: it keeps the bounds of messages, and unlike one of `SOCK_DGRAM` says when the program has
//! closed its end. A message without bytes tells the program's library to ask for an error ([`Packets::ended`]).

use crate::ends::{has_hung_up, is_later, is_writable};
use crate::proxy::Pumped;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket::net::Options;
use socket::{Connection, NoEnv, SocketError, UdpOptions, UdpSocket};
use socket_calls::{ENVELOPE, address, address_bytes};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Datagrams that one socket moves each way before the others have their turn.
const TURN: usize = 256;

/// Bytes of datagrams that an end takes once the kernel calls it writable, with what the kernel adds: a part of the three quarters
/// of its room that are free then.
const ROOM: usize = 64 << 10;

/// The longest message that is read: a datagram of UDP over IPv4 with its envelope is shorter.
pub(crate) const LONGEST: usize = 64 << 10;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Packets {
    pub(crate) socket: UdpSocket,
    /// The only one it sends to and receives from: datagrams have no envelope then.
    pub(crate) peer: Option<SocketAddrV4>,
    /// Our end of the pair.
    end: OwnedFd,
    /// Read from the program, while the flow had no room.
    held: Option<(SocketAddrV4, Vec<u8>)>,
    /// The program closed its end, everywhere.
    is_closed: bool,
    /// Messages without bytes that the program was sent, and has not asked about.
    markers: u32,
    /// An error that the program has not asked for; 0: none.
    errno: i32,
    /// Why the flow ended; 0: it did not.
    broken: i32,
}

/// Opens a flow for datagrams, at a daemon connection of its own: the doorbell of a connection is that of all its flows.
pub(crate) fn open(
    options: &Options,
    device: Option<String>,
    local: SocketAddrV4,
    peer: Option<SocketAddrV4>,
) -> io::Result<UdpSocket> {
    let given = options.local.map(|local| *local.ip()).filter(|_| local.ip().is_unspecified());
    let udp = UdpOptions {
        device: device.or_else(|| options.device.clone()),
        address: given.or(Some(*local.ip())).filter(|address| !address.is_unspecified()),
        port: local.port(),
        peer,
        stack: None,
        share: options.share.clone(),
        on_change: None,
    };
    let connection = Connection::open(&options.daemon, "streamline net run, UDP").map_err(|error| match error {
        // There is a daemon, which serves this user no further client.
        SocketError::Daemon(error) if error.kind() == ErrorKind::Other => ErrorKind::QuotaExceeded.into(),
        error => io::Error::from(error),
    })?;
    Ok(UdpSocket::open(Arc::new(connection), &udp, &mut NoEnv)?)
}

impl Packets {
    pub(crate) fn new(socket: UdpSocket, peer: Option<SocketAddrV4>, end: OwnedFd) -> Packets {
        Packets { socket, peer, end, held: None, is_closed: false, markers: 0, errno: 0, broken: 0 }
    }

    /// Our end.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// The error that the program has not asked for.
    pub(crate) fn take_error(&mut self) -> i32 {
        std::mem::take(&mut self.errno)
    }

    /// Why the flow ended; 0: it did not.
    pub(crate) fn broken(&self) -> i32 {
        self.broken
    }

    /// The program read a message without bytes: an error, EAGAIN where it has asked for that error by other means, or 0 where it is
    /// a datagram without bytes.
    pub(crate) fn ended(&mut self) -> i32 {
        // Which of several such messages it was does not matter: they have nothing in them.
        let was_marker = self.markers > 0;
        self.markers = self.markers.saturating_sub(1);
        match (self.take_error(), was_marker) {
            (0, true) => Errno::AGAIN.raw_os_error(),
            (errno, _) => errno,
        }
    }

    /// Moves what can move. `space` has room for [`LONGEST`] bytes.
    pub(crate) fn pump(&mut self, space: &mut [u8]) -> Pumped {
        self.socket.awake();
        let (mut up, mut down) = (0, 0);
        loop {
            let moved = (self.pump_up(space), self.pump_down());
            (up, down) = (up + moved.0, down + moved.1);
            let is_sent = self.is_closed && self.held.is_none() && self.socket.outstanding() == 0;
            if is_sent || self.broken != 0 {
                return Pumped::Over;
            }
            if up >= TURN || down >= TURN {
                return Pumped::More;
            }
            if moved != (0, 0) {
                continue;
            }
            if self.socket.has_gone() {
                self.breaks(Errno::NETDOWN.raw_os_error());
                return Pumped::Over;
            }
            if self.socket.fall_asleep() {
                return Pumped::Rests;
            }
            // It rang just now. A driver that never stops lets the others have their turn.
            self.socket.awake();
            up += 1;
        }
    }

    /// Moves datagrams of the program to the flow; says how many.
    fn pump_up(&mut self, space: &mut [u8]) -> usize {
        let mut moved = 0;
        while moved < TURN {
            if let Some((to, bytes)) = self.held.take() {
                if !self.send(to, &bytes) {
                    self.held = Some((to, bytes));
                    return moved;
                }
                moved += 1;
                continue;
            }
            if self.is_closed {
                return moved;
            }
            let length = match recv(&self.end, &mut *space, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, length)) => length,
                // It closed its end with datagrams in it; what it sent before is still here.
                Err(Errno::CONNRESET | Errno::INTR) => continue,
                Err(error) if is_later(error) => return moved,
                Err(_) => {
                    self.is_closed = true;
                    return moved;
                }
            };
            if length == 0 && self.has_closed() {
                self.is_closed = true;
                return moved;
            }
            moved += 1;
            let Some(message) = space.get(..length) else {
                self.fails(Errno::MSGSIZE.raw_os_error());
                continue;
            };
            let (to, bytes) = match (self.peer, message.split_first_chunk::<ENVELOPE>()) {
                (Some(peer), _) => (peer, message),
                // What `send` and `write` bring has no envelope.
                (None, Some((envelope, bytes))) if address_bytes(address(*envelope)) == *envelope => {
                    (address(*envelope), bytes)
                }
                (None, _) => {
                    self.fails(Errno::DESTADDRREQ.raw_os_error());
                    continue;
                }
            };
            if !self.send(to, bytes) {
                self.held = Some((to, bytes.to_vec()));
                return moved;
            }
        }
        moved
    }

    /// After a message without bytes: was it the end?
    fn has_closed(&self) -> bool {
        has_hung_up(&self.end) && matches!(rustix::io::ioctl_fionread(&self.end), Ok(0) | Err(_))
    }

    /// Sends a datagram, or drops one that cannot be sent. `false`: there is no room.
    fn send(&mut self, to: SocketAddrV4, bytes: &[u8]) -> bool {
        loop {
            match self.socket.send(Some(to), bytes) {
                Ok(()) => return true,
                Err(SocketError::Full) => return false,
                // It was about an earlier one.
                Err(SocketError::Reported(errno)) => self.reported(errno),
                Err(SocketError::Closed(errno)) => {
                    self.breaks(errno);
                    return true;
                }
                Err(SocketError::TooLong) => {
                    self.fails(Errno::MSGSIZE.raw_os_error());
                    return true;
                }
                Err(_) => {
                    self.fails(Errno::INVAL.raw_os_error());
                    return true;
                }
            }
        }
    }

    /// Moves datagrams of the flow to the program; says how many. What finds no room stays in the flow, whose driver drops and
    /// counts what finds no room there.
    fn pump_down(&mut self) -> usize {
        if self.is_closed || !is_writable(&self.end) {
            return 0;
        }
        let Packets { socket, peer, end, .. } = self;
        let most = (ROOM / socket.mtu().max(1)).clamp(1, 32);
        let looked = socket.receive(most, &mut |datagram| {
            let envelope = address_bytes(datagram.from);
            let pieces = [IoSlice::new(&envelope), IoSlice::new(datagram.payload)];
            let pieces = match peer {
                None => &pieces[..],
                Some(peer) if *peer == datagram.from => &pieces[1..],
                Some(_) => return,
            };
            // There is room; a program that has gone is noticed by the next read.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = sendmsg(&*end, pieces, &mut SendAncillaryBuffer::default(), flags);
        });
        match looked {
            Ok(looked) => return looked,
            Err(SocketError::Closed(errno)) => self.breaks(errno),
            Err(SocketError::Reported(errno)) => self.reported(errno),
            Err(_) => {}
        }
        0
    }

    /// A report from the network: of interest to a socket with a peer, as with the kernel (udp(7), IP_RECVERR).
    fn reported(&mut self, errno: i32) {
        if self.peer.is_some() {
            self.fails(errno);
        }
    }

    /// Has the program told of an error.
    fn fails(&mut self, errno: i32) {
        self.errno = errno;
        // Where it has not read an earlier one, or has no room, it is awake or will be.
        if self.markers == 0 && send(&self.end, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {
            self.markers = 1;
        }
    }

    /// The flow ended.
    fn breaks(&mut self, errno: i32) {
        self.broken = if errno == 0 { Errno::NETDOWN.raw_os_error() } else { errno };
        self.fails(self.broken);
    }
}
