//! The kinds of file descriptors.

use crate::kernel::{call, option, quietly, set_option};
use crate::{confined, host};
use libc::c_int;
use socket_calls::{form, mark};

/// The kind of a file descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Handled by the kernel alone.
    Other,
    /// A kernel socket for TCP or UDP over IPv4 or IPv6.
    Kernel { is_stream: bool, is_v6: bool },
    /// A TCP socket that has an address; it neither listens nor connects yet.
    Bound,
    /// The bytes of one connection.
    Stream,
    /// Passes accepted connections.
    Listener,
    /// Datagrams with envelopes.
    Envelopes,
    /// Datagrams to and from one peer.
    Datagrams,
}

impl End {
    /// Whether the host serves it.
    pub(crate) fn is_ours(self) -> bool {
        !matches!(self, End::Other | End::Kernel { .. })
    }

    /// Whether it is one of TCP.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, End::Bound | End::Stream | End::Listener | End::Kernel { is_stream: true, .. })
    }

    /// Whether it has options of this level. `false`: it is not one of TCP.
    pub(crate) fn has(self, level: c_int) -> bool {
        level != libc::IPPROTO_TCP || self.is_stream()
    }
}

/// The kind of `fd`, if the host serves it. Quick for all other descriptors.
pub(crate) fn ours(fd: c_int) -> End {
    if !host::is_there() || confined::leaves(fd) {
        return End::Other;
    }
    quietly(|| {
        let end = match option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY) {
            Some(mark::BOUND) => End::Bound,
            Some(mark::STREAM) => End::Stream,
            Some(mark::LISTENER) => End::Listener,
            Some(mark::ENVELOPES) => End::Envelopes,
            Some(mark::DATAGRAMS) => End::Datagrams,
            _ => return End::Other,
        };
        // IP sockets have priorities of their own.
        match option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
            Some(libc::AF_UNIX) => end,
            _ => End::Other,
        }
    })
}

/// Whether a process that confines itself has to leave `fd` to the kernel: it moves bytes, or the host does not serve it.
pub(crate) fn is_for_kernel(fd: c_int) -> bool {
    matches!(ours(fd), End::Stream | End::Other)
}

/// The kind of `fd`, including kernel sockets.
pub(crate) fn of(fd: c_int) -> End {
    let end = ours(fd);
    if end != End::Other || !host::is_there() || confined::leaves(fd) {
        return end;
    }
    quietly(|| {
        let domain = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
        if !matches!(domain, Some(libc::AF_INET | libc::AF_INET6)) {
            return End::Other;
        }
        let is_v6 = domain == Some(libc::AF_INET6);
        match (option(fd, libc::SOL_SOCKET, libc::SO_TYPE), option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)) {
            (Some(libc::SOCK_STREAM), Some(libc::IPPROTO_TCP)) => End::Kernel { is_stream: true, is_v6 },
            (Some(libc::SOCK_DGRAM), Some(libc::IPPROTO_UDP)) => End::Kernel { is_stream: false, is_v6 },
            _ => End::Other,
        }
    })
}

/// How a kernel socket is to be bound: see [`socket_calls::form`].
pub(crate) fn form(fd: c_int) -> i64 {
    let shares = quietly(|| option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT) == Some(1));
    let bit = |is_set: bool, bit: i64| if is_set { bit } else { 0 };
    bit(is_v6_only(fd), form::V6_ONLY) | bit(shares, form::SHARES_PORT)
}

/// Whether this kernel socket only reaches IPv6.
pub(crate) fn is_v6_only(fd: c_int) -> bool {
    quietly(|| option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1))
}

/// Whether `fd` is non-blocking.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    quietly(|| call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0]) & libc::O_NONBLOCK as isize != 0)
}

/// Marks the kind of an end.
pub(crate) fn set_mark(fd: c_int, mark: i32) {
    quietly(|| set_option(fd, libc::SO_PRIORITY, mark));
}
