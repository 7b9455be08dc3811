//! The port keeper: a process that holds ports of the host for flows on shared devices, so that the host does not use
//! them. The daemon itself makes no sockets of the host's stack.
//!
//! [`serve`] is the process, [`PortKeeper`] the daemon's end of a SOCK_SEQPACKET socket with 16-byte messages.
//! Requests are answered, releases are not. When the daemon closes its end, the process ends and frees its ports.

use crate::error::{NetError, NetErrorKind};
use crate::template::UDP;
use driver::port::HeldPort;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long the process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A request of the daemon to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Take { protocol: u8, local: SocketAddrV4 },
    Release,
}

type Bytes = [u8; 16];

/// A request about the port with this number, or the answer: an errno (0: done) and the port.
fn put(first: [u8; 2], port: u16, four: [u8; 4], number: u64) -> Bytes {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&first);
    bytes[2..4].copy_from_slice(&port.to_ne_bytes());
    bytes[4..8].copy_from_slice(&four);
    bytes[8..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

fn get([a, b, c, d, e, f, g, h, rest @ ..]: Bytes) -> ([u8; 2], u16, [u8; 4], u64) {
    ([a, b], u16::from_ne_bytes([c, d]), [e, f, g, h], u64::from_ne_bytes(rest))
}

impl Wish {
    fn encode(self, number: u64) -> Bytes {
        match self {
            Wish::Take { protocol, local } => put([1, protocol], local.port(), local.ip().octets(), number),
            Wish::Release => put([2, 0], 0, [0; 4], number),
        }
    }

    fn decode(bytes: Bytes) -> Option<(Wish, u64)> {
        let ([wish, protocol], port, address, number) = get(bytes);
        let wish = match wish {
            1 => Wish::Take { protocol, local: SocketAddrV4::new(address.into(), port) },
            2 => Wish::Release,
            _ => return None,
        };
        Some((wish, number))
    }
}

/// Holds ports of this thread's network namespace for the other end of the socket, until that closes.
///
/// # Errors
///
/// The socket failed, or the other end sent an invalid message.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut held: HashMap<u64, HeldPort> = HashMap::new();
    loop {
        let mut bytes = [0; 17];
        let len = match recv(socket, &mut bytes, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((len, _)) => len,
            Err(Errno::INTR) => continue,
            Err(Errno::CONNRESET) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let wish = bytes[..len].try_into().ok().and_then(Wish::decode);
        match wish.ok_or(io::ErrorKind::InvalidData)? {
            (Wish::Release, number) => drop(held.remove(&number)),
            (Wish::Take { protocol, local }, number) => {
                let (errno, port) = match HeldPort::take(protocol, local) {
                    Ok(port) => {
                        let local = port.local().port();
                        held.insert(number, port);
                        (0, local)
                    }
                    Err(error) => (error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()), 0),
                };
                match send(socket, &put([0; 2], port, errno.to_ne_bytes(), number), SendFlags::NOSIGNAL) {
                    Err(Errno::PIPE) => return Ok(()),
                    sent => drop(sent?),
                }
            }
        }
    }
}

/// The daemon's end.
#[derive(Debug)]
pub struct PortKeeper {
    socket: OwnedFd,
    table: Mutex<Table>,
    /// Releases for which the socket had no room.
    late: Mutex<Vec<Bytes>>,
}

#[derive(Debug, Default)]
struct Table {
    /// The last number in use.
    last: u64,
    /// Held ports. Released ones are removed now and then.
    held: HashMap<(u8, SocketAddrV4), Weak<Reservation>>,
    /// With more ports than this, the table is cleaned.
    sweep: usize,
    /// Why the process is not asked any more.
    trouble: Option<String>,
}

/// A held port of the host. Dropping it releases the port.
#[derive(Debug)]
pub(crate) struct Reservation {
    keeper: Arc<PortKeeper>,
    number: u64,
    pub(crate) local: SocketAddrV4,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.keeper.tell(Wish::Release.encode(self.number));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before a panic can happen.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PortKeeper {
    /// The daemon's end, and the socket for the process.
    ///
    /// # Errors
    ///
    /// The kernel gave no sockets.
    pub fn pair() -> io::Result<(Arc<PortKeeper>, OwnedFd)> {
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER))?;
        set_socket_timeout(&socket, Timeout::Send, Some(ANSWER))?;
        let (table, late) = (Mutex::default(), Mutex::default());
        Ok((Arc::new(PortKeeper { socket, table, late }), other))
    }

    /// Holds a port; 0: one that the host chooses. Several holders of one port share the reservation. Waits for the process.
    pub(crate) fn take(self: &Arc<Self>, protocol: u8, local: SocketAddrV4) -> Result<Arc<Reservation>, NetError> {
        let mut table = lock(&self.table);
        if let Some(held) = table.held.get(&(protocol, local)).and_then(Weak::upgrade) {
            return Ok(held);
        }
        if let Some(trouble) = &table.trouble {
            return Err(gone(trouble));
        }
        if table.held.len() >= table.sweep {
            table.held.retain(|_, held| held.strong_count() > 0);
            table.sweep = 2 * table.held.len() + 64;
        }
        table.last += 1;
        let number = table.last;
        let (errno, port) = self.ask(Wish::Take { protocol, local }.encode(number), number).map_err(|error| {
            // Its later messages are about something else.
            gone(table.trouble.insert(error.to_string()))
        })?;
        if errno != 0 {
            return Err(refused(Errno::from_raw_os_error(errno), protocol, local));
        }
        let local = SocketAddrV4::new(*local.ip(), port);
        let held = Arc::new(Reservation { keeper: Arc::clone(self), number, local });
        table.held.insert((protocol, local), Arc::downgrade(&held));
        Ok(held)
    }

    fn ask(&self, wish: Bytes, number: u64) -> io::Result<(i32, u16)> {
        self.flush();
        send(&self.socket, &wish, SendFlags::NOSIGNAL)?;
        let mut answer = [0; 16];
        let (len, _) = rustix::io::retry_on_intr(|| recv(&self.socket, &mut answer, RecvFlags::empty()))?;
        match (len, get(answer)) {
            (0, _) => Err(io::Error::other("it ended")),
            (16, (_, port, errno, about)) if about == number => Ok((i32::from_ne_bytes(errno), port)),
            _ => Err(io::Error::other("it said something else")),
        }
    }

    /// Sends a message without waiting, since the caller is an interface's thread.
    fn tell(&self, wish: Bytes) {
        lock(&self.late).push(wish);
        self.flush();
    }

    /// Sends queued messages in order, as far as there is room now.
    fn flush(&self) {
        let mut late = lock(&self.late);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = late.iter().take_while(|wish| match send(&self.socket, *wish, flags) {
            // A process that is gone cannot be told.
            Err(error) => error != Errno::AGAIN,
            Ok(_) => true,
        });
        let sent = sent.count();
        late.drain(..sent);
    }
}

impl AsFd for PortKeeper {
    /// Hangs up when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn gone(trouble: &str) -> NetError {
    let text = format!(
        "the process that holds ports of the host does not answer ({trouble}); shared devices take no new flows until the daemon \
         is started again"
    );
    NetError::new(NetErrorKind::System, text)
}

fn refused(error: Errno, protocol: u8, local: SocketAddrV4) -> NetError {
    let (port, ip) = (local.port(), local.ip());
    let (name, option) = if protocol == UDP { ("UDP", 'u') } else { ("TCP", 't') };
    match error {
        Errno::ADDRINUSE if port == 0 => {
            let text = format!("the host has no free {name} port for {ip}; close flows or sockets, or name a port");
            NetError::new(NetErrorKind::Full, text)
        }
        Errno::ADDRINUSE => {
            let text = format!(
                "address in use: the host has {name} port {port} of {ip}; choose another, or look who has it: ss -{option}anp \
                 'sport = {port}'"
            );
            NetError::new(NetErrorKind::InUse, text)
        }
        Errno::ADDRNOTAVAIL => {
            let text = format!("the host has the address {ip} no more; take the device down and up again");
            NetError::new(NetErrorKind::Absent, text)
        }
        Errno::ACCESS => {
            let text =
                format!("port {port}: the daemon was started without CAP_NET_BIND_SERVICE; choose one from 1024 on");
            NetError::new(NetErrorKind::Denied, text)
        }
        Errno::MFILE | Errno::NFILE => {
            let text = "the process that holds ports has no more files; close flows, or raise its limit (LimitNOFILE=)";
            NetError::new(NetErrorKind::Full, text)
        }
        error => NetError::system(&format!("hold {name} port {port} of {ip}"), error),
    }
}

/// A keeper whose process is a thread in this one's network namespace, for tests.
#[cfg(test)]
pub(crate) fn in_a_thread() -> Arc<PortKeeper> {
    let (keeper, socket) = PortKeeper::pair().expect("the kernel has sockets");
    std::thread::spawn(move || serve(socket.as_fd()).expect("nothing strange is said"));
    keeper
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

    #[test]
    fn wishes_come_back_as_they_were_said() {
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
        for wish in [Wish::Take { protocol: 6, local }, Wish::Release] {
            assert_eq!(Wish::decode(wish.encode(u64::MAX - 1)), Some((wish, u64::MAX - 1)));
        }
        assert_eq!(Wish::decode([3; 16]), None);
    }

    #[test]
    fn a_port_is_held_until_its_last_reservation_goes() {
        let keeper = in_a_thread();
        let first = keeper.take(UDP, ANY).expect("there is a free port");
        let second = keeper.take(UDP, first.local).expect("it is held already");
        assert_eq!((second.local, second.number), (first.local, first.number));
        let local = first.local;
        drop(first);
        assert!(UdpSocket::bind(local).is_err(), "the second holds it");
        drop(second);
        // The process answers in order, so it has released the port before.
        keeper.take(UDP, ANY).expect("there is a free port");
        let host = UdpSocket::bind(local).expect("it is free");
        let error = keeper.take(UDP, local).expect_err("the host has it");
        assert_eq!(error.kind, NetErrorKind::InUse);
        assert!(error.text.contains("the host has UDP port"), "{error}");
        drop(host);
        keeper.take(UDP, local).expect("it is free");
    }

    #[test]
    fn a_process_that_ended_is_said_and_its_ports_are_still_known() {
        let (keeper, socket) = PortKeeper::pair().expect("the kernel has sockets");
        let process = std::thread::spawn(move || {
            let mut wish = [0; 16];
            recv(&socket, &mut wish, RecvFlags::empty()).expect("a wish");
            let (.., number) = get(wish);
            send(&socket, &put([0; 2], 4000, [0; 4], number), SendFlags::empty()).expect("it is heard");
        });
        let held = keeper.take(UDP, ANY).expect("it is answered");
        process.join().expect("no panic");
        for _ in 0..2 {
            let error = keeper.take(UDP, ANY).expect_err("nobody answers");
            assert!(error.kind == NetErrorKind::System && error.text.contains("started again"), "{error}");
        }
        assert_eq!(keeper.take(UDP, held.local).expect("it is held").number, held.number);
    }

    #[test]
    fn the_process_ends_with_the_daemons_end_and_refuses_nonsense() {
        let (keeper, socket) = PortKeeper::pair().expect("the kernel has sockets");
        drop(keeper);
        assert!(serve(socket.as_fd()).is_ok());
        let (keeper, socket) = PortKeeper::pair().expect("the kernel has sockets");
        for nonsense in [&[1; 15][..], &[1; 17], &[9; 16]] {
            send(&keeper.socket, nonsense, SendFlags::empty()).expect("there is room");
            assert_eq!(serve(socket.as_fd()).expect_err("nonsense").kind(), io::ErrorKind::InvalidData);
        }
    }
}
