//! Holds ports of the host's own stack without using them: a socket that is bound and receives nothing.

use crate::af_packet::socket::attach_filter;
use crate::filter;
use crate::sys::{check, socket};
use std::io;
use std::mem::size_of;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A port of the host that no other program can have while this value lives.
#[derive(Debug)]
pub struct HeldPort {
    _socket: OwnedFd,
    local: SocketAddrV4,
}

impl HeldPort {
    /// Takes a port in this thread's network namespace; 0: one that the host chooses. `protocol` is 6 (TCP) or 17
    /// (UDP). A port below 1024 takes CAP_NET_BIND_SERVICE. No packets queue up: a filter keeps them out of a UDP
    /// socket, and a TCP socket does not listen.
    ///
    /// # Errors
    ///
    /// `AddrInUse`: the port is in use. `AddrNotAvailable`: not an address of the host. Others of socket(2), bind(2).
    pub fn take(protocol: u8, local: SocketAddrV4) -> io::Result<HeldPort> {
        let kind = match protocol {
            TCP => libc::SOCK_STREAM,
            UDP => libc::SOCK_DGRAM,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("protocol {protocol} has no ports"))),
        };
        let socket = socket(libc::AF_INET, kind, 0)?;
        // A TCP socket that does not listen receives nothing. A filter on it would take CAP_NET_RAW.
        if protocol == UDP {
            let nothing = filter::for_kernel(&filter::nothing()).map_err(io::Error::other)?;
            attach_filter(socket.as_fd(), &nothing)?;
        }
        let mut address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: local.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*local.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let mut bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        // SAFETY: an address of that many bytes.
        check(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), bytes) })?;
        // SAFETY: an address with room for that many bytes.
        check(unsafe {
            libc::getsockname(socket.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &raw mut bytes)
        })?;
        let local = SocketAddrV4::new(u32::from_be(address.sin_addr.s_addr).into(), u16::from_be(address.sin_port));
        Ok(HeldPort { _socket: socket, local })
    }

    /// Its address and port.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    #[test]
    fn the_host_does_not_have_a_port_that_is_held() {
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        for protocol in [TCP, UDP] {
            let held = HeldPort::take(protocol, any).expect("there is a free port");
            let bind = || match protocol {
                TCP => TcpListener::bind(held.local()).map(drop),
                _ => UdpSocket::bind(held.local()).map(drop),
            };
            assert_ne!(held.local().port(), 0);
            assert_eq!(bind().expect_err("it is held").kind(), io::ErrorKind::AddrInUse);
            let again = HeldPort::take(protocol, held.local()).expect_err("it is held");
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
            let local = held.local();
            drop(held);
            HeldPort::take(protocol, local).expect("it is free");
        }
        assert_eq!(HeldPort::take(1, any).expect_err("no ports").kind(), io::ErrorKind::InvalidInput);
    }
}
