//! The doors of a listening socket: where its connections come in. A socket on all addresses has one at each address of
//! each interface, and those of the kernel on the host's loopback; any other socket has one.

use crate::families::{Own, at_one_port};
use crate::interfaces::{Endpoint, Interfaces};
use crate::settings::Settings;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, getpeername, getsockname, ipproto,
};
use socket::net::{Options, TcpListener, TcpStream};
use socket_calls::NOWHERE;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A door.
#[derive(Debug)]
pub(crate) enum Door {
    Flow { device: String, listener: TcpListener },
    Kernel(OwnedFd),
}

/// A connection that came.
#[derive(Debug)]
pub(crate) enum Came {
    Flow(TcpStream),
    /// Its own and its peer's address, as the kernel writes them.
    Kernel {
        socket: OwnedFd,
        own: SocketAddr,
        peer: SocketAddr,
    },
}

/// Why the kernel's loopback may stay without a door: there is none, or its low ports are for others.
const NO_LOOPBACK: [Errno; 4] = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT, Errno::ACCESS, Errno::PERM];

/// Opens all doors of a socket, on one port.
///
/// # Errors
///
/// `AddrInUse`: the port is taken at one of them. Then there is none.
pub(crate) fn open(
    options: &Options,
    interfaces: &mut Interfaces,
    own: Own,
    settings: &Settings,
) -> io::Result<Vec<Door>> {
    let endpoints = interfaces.endpoints(own);
    let mut addresses: Vec<SocketAddr> = endpoints.iter().map(|endpoint| endpoint.address).collect();
    // A program that asked for one interface gets that one, as with SO_BINDTODEVICE.
    if own.is_any() && options.device.is_none() {
        addresses.extend(loopback(own));
    }
    let mut door = |address: SocketAddr| match endpoints.iter().find(|endpoint| endpoint.address.ip() == address.ip()) {
        Some(endpoint) => flow(options, endpoint, address.port(), settings).map(Some),
        None => match kernel(own, address, options.backlog) {
            Ok(door) => Ok(Some(door)),
            Err(errno) if NO_LOOPBACK.contains(&errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        },
    };
    let local = |door: &Option<Door>| door.as_ref().map_or(NOWHERE, Door::local);
    Ok(at_one_port(&addresses, &mut door, &local)?.into_iter().flatten().collect())
}

/// Opens doors at the endpoints that a socket on all addresses has none at yet. An endpoint whose port is taken gets none.
pub(crate) fn join(
    options: &Options,
    interfaces: &mut Interfaces,
    own: Own,
    settings: &Settings,
    doors: &[(u64, Door)],
) -> Vec<Door> {
    let is_missing = |endpoint: &Endpoint| !doors.iter().any(|(_, door)| door.is_at(endpoint));
    let missing = interfaces.endpoints(own).into_iter().filter(is_missing);
    missing.filter_map(|endpoint| flow(options, &endpoint, own.address.port(), settings).ok()).collect()
}

fn flow(options: &Options, endpoint: &Endpoint, port: u16, settings: &Settings) -> io::Result<Door> {
    let device = endpoint.device.clone();
    let marks = settings.marks(endpoint.address.is_ipv4());
    let options = Options { device: Some(device.clone()), marks, ..options.clone() };
    let listener = TcpListener::bind_with(&options, SocketAddr::new(endpoint.address.ip(), port))?;
    listener.set_nonblocking(true)?;
    Ok(Door::Flow { device, listener })
}

/// The addresses of the kernel's doors: what a socket on all addresses has of the host's loopback.
fn loopback(own: Own) -> Vec<SocketAddr> {
    let all = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    all.into_iter().filter(|ip| own.covers(*ip)).map(|ip| SocketAddr::new(ip, own.address.port())).collect()
}

/// A kernel socket that listens on the host's loopback.
fn kernel(own: Own, address: SocketAddr, backlog: u32) -> Result<Door, Errno> {
    // The program gets connections of its socket's own family.
    let (family, address) = match address.ip() {
        IpAddr::V4(ip) if own.address.is_ipv6() => {
            (AddressFamily::INET6, SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()))
        }
        IpAddr::V4(_) => (AddressFamily::INET, address),
        IpAddr::V6(_) => (AddressFamily::INET6, address),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, own.is_v6_only)?;
    }
    bind(&socket, &address)?;
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(Door::Kernel(socket))
}

impl Door {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Flow { listener, .. } => listener.as_fd(),
            Door::Kernel(socket) => socket.as_fd(),
        }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        match self {
            Door::Flow { listener, .. } => listener.local_addr().unwrap_or(NOWHERE),
            Door::Kernel(socket) => address_of(getsockname(socket).ok()),
        }
    }

    fn is_at(&self, endpoint: &Endpoint) -> bool {
        matches!(self, Door::Flow { device, .. } if *device == endpoint.device)
            && self.local().ip() == endpoint.address.ip()
    }

    /// The next connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: there is none now. See [`is_shut`] for the others.
    pub(crate) fn accept(&self) -> io::Result<Came> {
        match self {
            Door::Flow { listener, .. } => listener.accept().map(|(stream, _)| Came::Flow(stream)),
            Door::Kernel(socket) => loop {
                match accept_with(socket, SocketFlags::CLOEXEC) {
                    Ok(socket) => {
                        let (own, peer) =
                            (address_of(getsockname(&socket).ok()), address_of(getpeername(&socket).ok().flatten()));
                        return Ok(Came::Kernel { socket, own, peer });
                    }
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(errno) => return Err(errno.into()),
                }
            },
        }
    }
}

/// Whether this error of [`Door::accept`] ends the door: the interface, its address or the daemon has gone.
pub(crate) fn is_shut(error: &io::Error) -> bool {
    [Errno::NETDOWN, Errno::ADDRNOTAVAIL].into_iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn address_of(address: Option<SocketAddrAny>) -> SocketAddr {
    address.and_then(|address| address.try_into().ok()).unwrap_or(NOWHERE)
}
