//! The datagrams of one UDP socket, between a program's end and a flow.
//!
//! The pair is `SOCK_SEQPACKET`: it keeps message boundaries, and unlike `SOCK_DGRAM` it shows when the program has
//! closed its end. An empty message tells the program's library to ask for an error ([`Packets::ended`]).

use crate::ends::{has_hung_up, is_later, is_writable};
use crate::families::{Own, at_one_port, plain};
use crate::proxy::Pumped;
use crate::settings::Settings;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use socket::net::Options;
use socket::{Connection, NoEnv, SocketError, UdpOptions, UdpSocket};
use socket_calls::{ENVELOPE, address, address_bytes};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;

/// Datagrams that one socket moves in each direction before other sockets have their turn.
const TURN: usize = 256;

/// Bytes of datagrams, including the kernel's overhead, that an end accepts once it is writable: a part of the three
/// quarters of its room that are free then.
const ROOM: usize = 64 << 10;

/// The longest message that is read: longer than any UDP datagram with its envelope.
pub(crate) const LONGEST: usize = (64 << 10) + ENVELOPE;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Packets {
    /// At least one. Two of one connection and port if it reaches both families.
    sockets: Vec<UdpSocket>,
    /// The address to which the program bound it.
    pub(crate) own: Own,
    /// The interface chosen for it.
    pub(crate) device: Option<String>,
    /// Its only peer, as flows write addresses. With a peer, datagrams have no envelope.
    pub(crate) peer: Option<SocketAddr>,
    /// Our end of the pair.
    end: OwnedFd,
    /// Read from the program while the flow had no room.
    held: Option<(SocketAddr, Vec<u8>)>,
    /// The program has closed its end everywhere.
    is_closed: bool,
    /// Empty messages sent to the program, about which it has not asked yet.
    markers: u32,
    /// An error that the program has not fetched yet; 0: none.
    errno: i32,
    /// Why the flow ended; 0: it has not.
    broken: i32,
}

/// Opens a flow for datagrams at each address, on its own daemon connection: a connection's flows share one doorbell.
pub(crate) fn open(
    options: &Options,
    device: Option<&str>,
    locals: &[SocketAddr],
    peer: Option<SocketAddr>,
) -> io::Result<Vec<UdpSocket>> {
    let connection = Connection::open(&options.daemon, "streamline net run, UDP").map_err(|error| match error {
        // There is a daemon, which accepts no more clients of this user.
        SocketError::Daemon(error) if error.kind() == ErrorKind::Other => ErrorKind::QuotaExceeded.into(),
        error => io::Error::from(error),
    })?;
    let connection = Arc::new(connection);
    let mut open = |local: SocketAddr| {
        let is_given = |given: &SocketAddr| local.ip().is_unspecified() && given.is_ipv4() == local.is_ipv4();
        let udp = UdpOptions {
            device: device.map(str::to_string).or_else(|| options.device.clone()),
            address: Some(options.local.filter(is_given).unwrap_or(local).ip()),
            port: local.port(),
            peer: peer.map(plain),
            stack: None,
            share: options.share.clone(),
            on_change: None,
        };
        Ok(UdpSocket::open(Arc::clone(&connection), &udp, &mut NoEnv)?)
    };
    at_one_port(locals, &mut open, &UdpSocket::local_addr)
}

impl Packets {
    pub(crate) fn new(
        sockets: Vec<UdpSocket>,
        own: Own,
        device: Option<String>,
        peer: Option<SocketAddr>,
        end: OwnedFd,
    ) -> Packets {
        let peer = peer.map(plain);
        Packets { sockets, own, device, peer, end, held: None, is_closed: false, markers: 0, errno: 0, broken: 0 }
    }

    /// Sets the options of its flows.
    pub(crate) fn apply(&mut self, settings: &Settings) {
        for socket in &mut self.sockets {
            socket.set_marks(settings.marks(socket.local_addr().is_ipv4()));
        }
    }

    /// Address and port of its first flow.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.sockets.first().map(UdpSocket::local_addr)
    }

    /// The descriptors of its doorbell and its daemon connection. All its flows share the connection.
    pub(crate) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.first().into_iter().flat_map(|socket| [socket.fd(), socket.line()])
    }

    /// Our end.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// Takes the error that the program has not fetched yet.
    pub(crate) fn take_error(&mut self) -> i32 {
        std::mem::take(&mut self.errno)
    }

    /// Why the flow ended; 0: it has not.
    pub(crate) fn broken(&self) -> i32 {
        self.broken
    }

    /// The program read an empty message. Returns an error; EAGAIN if already fetched; 0 if it was an empty datagram.
    pub(crate) fn ended(&mut self) -> i32 {
        // It does not matter which of several empty messages it was.
        let was_marker = self.markers > 0;
        self.markers = self.markers.saturating_sub(1);
        match (self.take_error(), was_marker) {
            (0, true) => Errno::AGAIN.raw_os_error(),
            (errno, _) => errno,
        }
    }

    /// Moves as many datagrams as possible. `space` has room for [`LONGEST`] bytes.
    pub(crate) fn pump(&mut self, space: &mut [u8]) -> Pumped {
        self.sockets.iter().for_each(UdpSocket::awake);
        let (mut up, mut down) = (0, 0);
        loop {
            let moved = (self.pump_up(space), self.pump_down());
            (up, down) = (up + moved.0, down + moved.1);
            let is_sent = self.is_closed && self.held.is_none() && self.outstanding() == 0;
            if is_sent || self.broken != 0 {
                return Pumped::Over;
            }
            if up >= TURN || down >= TURN {
                return Pumped::More;
            }
            if moved != (0, 0) {
                continue;
            }
            if self.sockets.iter().any(UdpSocket::has_gone) {
                self.breaks(Errno::NETDOWN.raw_os_error());
                return Pumped::Over;
            }
            if self.sockets.iter().all(UdpSocket::fall_asleep) {
                return Pumped::Rests;
            }
            // The driver has just rung. A busy driver must let other sockets have their turn.
            self.sockets.iter().for_each(UdpSocket::awake);
            up += 1;
        }
    }

    fn outstanding(&mut self) -> u64 {
        self.sockets.iter_mut().map(UdpSocket::outstanding).sum()
    }

    /// Moves datagrams of the program to the flow. Returns their number.
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
                // The program closed its end with unread datagrams. Earlier datagrams from it are still here.
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
                // Datagrams from `send` and `write` have no envelope.
                (None, Some((envelope, bytes))) if address_bytes(address(*envelope)) == *envelope => {
                    (plain(address(*envelope)), bytes)
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

    /// After an empty message: whether it was the end.
    fn has_closed(&self) -> bool {
        has_hung_up(&self.end) && matches!(rustix::io::ioctl_fionread(&self.end), Ok(0) | Err(_))
    }

    /// Sends a datagram, or drops one that cannot be sent. `false`: there is no room.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        loop {
            let is_its = |socket: &&mut UdpSocket| socket.local_addr().is_ipv4() == to.is_ipv4();
            let Some(socket) = self.sockets.iter_mut().find(is_its) else {
                self.fails(Errno::NETUNREACH.raw_os_error());
                return true;
            };
            match socket.send(Some(to), bytes) {
                Ok(()) => return true,
                Err(SocketError::Full) => return false,
                // The report was about an earlier datagram.
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

    /// Moves datagrams of the flow to the program. Returns their number. Without room they stay in the flow. If the
    /// flow has no room, its driver drops and counts them.
    fn pump_down(&mut self) -> usize {
        if self.is_closed {
            return 0;
        }
        (0..self.sockets.len()).map(|at| self.pump_down_from(at)).sum()
    }

    fn pump_down_from(&mut self, at: usize) -> usize {
        let Packets { sockets, own, peer, end, .. } = self;
        let Some(socket) = sockets.get_mut(at).filter(|_| is_writable(end)) else { return 0 };
        let most = (ROOM / socket.mtu().max(1)).clamp(1, 32);
        let looked = socket.receive(most, &mut |datagram| {
            let envelope = address_bytes(own.form(datagram.from));
            let pieces = [IoSlice::new(&envelope), IoSlice::new(datagram.payload)];
            let pieces = match peer {
                None => &pieces[..],
                Some(peer) if *peer == datagram.from => &pieces[1..],
                Some(_) => return,
            };
            // There is room. If the program has gone, the next read notices.
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

    /// Handles a report from the network: only a socket with a peer gets it, as in the kernel (udp(7), IP_RECVERR).
    fn reported(&mut self, errno: i32) {
        if self.peer.is_some() {
            self.fails(errno);
        }
    }

    /// Tells the program of an error.
    fn fails(&mut self, errno: i32) {
        self.errno = errno;
        // If it has not read an earlier empty message, or its end is full, it is awake or will be.
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
