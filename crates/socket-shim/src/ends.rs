//! The kinds of file descriptors, and the replacement of a kernel socket by an end that the host serves.

use crate::kernel::{call, close, copy_option, inode, option, quietly, set_option};
use crate::{epoll, host};
use libc::c_int;
use socket_calls::{Call, NOWHERE, mark};

/// The kind of a file descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Handled by the kernel alone.
    Other,
    /// A kernel socket for TCP or UDP over IPv4 or IPv6.
    Kernel { is_stream: bool, is_v6: bool },
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
    /// Does the host serve it?
    pub(crate) fn is_ours(self) -> bool {
        !matches!(self, End::Other | End::Kernel { .. })
    }
}

/// The kind of `fd`, if the host serves it. Quick for all other descriptors.
pub(crate) fn ours(fd: c_int) -> End {
    if !host::is_there() {
        return End::Other;
    }
    quietly(|| {
        let end = match option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY) {
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

/// The kind of `fd`, including kernel sockets.
pub(crate) fn of(fd: c_int) -> End {
    let end = ours(fd);
    if end != End::Other || !host::is_there() {
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

/// Does this kernel socket only reach IPv6?
pub(crate) fn is_v6_only(fd: c_int) -> bool {
    quietly(|| option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1))
}

/// Is `fd` non-blocking?
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    quietly(|| call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0]) & libc::O_NONBLOCK as isize != 0)
}

/// Options of a kernel socket that a unix socket also has.
const COMMON: [c_int; 3] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_LINGER];

/// Replaces `fd` by `end`, with the flags and options of `fd`. `false`: the kernel refuses.
pub(crate) fn replace(fd: c_int, end: c_int, is_stream: bool) -> bool {
    quietly(|| {
        let before = inode(fd);
        let fcntl = |command: c_int, of: c_int, value: isize| {
            call(libc::SYS_fcntl, [of as usize, command as usize, value as usize])
        };
        let status = fcntl(libc::F_GETFL, fd, 0);
        if status & libc::O_NONBLOCK as isize != 0 {
            fcntl(libc::F_SETFL, end, status & (libc::O_NONBLOCK | libc::O_ASYNC) as isize);
        }
        let is_kernels = !ours(fd).is_ours();
        COMMON.iter().for_each(|name| copy_option(fd, end, libc::SOL_SOCKET, *name));
        let no_delay = is_kernels && is_stream && option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY) == Some(1);
        let keep_alive = is_kernels && is_stream && option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE) == Some(1);
        let is_closed_on_exec = fcntl(libc::F_GETFD, fd, 0) & libc::FD_CLOEXEC as isize != 0;
        let flags = if is_closed_on_exec { libc::O_CLOEXEC } else { 0 };
        let done = call(libc::SYS_dup3, [end as usize, fd as usize, flags as usize]) >= 0;
        close(end);
        if !done {
            return false;
        }
        let now = inode(fd);
        if no_delay {
            host::ask(Call::Set, now, NOWHERE, socket_calls::option::NO_DELAY, 1);
        }
        if keep_alive {
            host::ask(Call::Set, now, NOWHERE, socket_calls::option::KEEP_ALIVE, crate::options::KEEP_ALIVE_SECONDS);
        }
        crate::options::tell_linger(fd, now);
        epoll::carry_over(fd, before);
        true
    })
}

/// Marks the kind of an end.
pub(crate) fn set_mark(fd: c_int, mark: i32) {
    quietly(|| set_option(fd, libc::SO_PRIORITY, mark));
}
