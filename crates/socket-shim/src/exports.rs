//! The functions that replace the C library's. Each behaves as its manual page says.
//!
//! # Safety
//!
//! All functions: pointers and lengths are as C requires them for the function of this name.

use crate::ends::{self, End};
use crate::kernel::{call, errno, fail, has_port, inode, is_unspecified, option, quietly, read_address, write_address};
use crate::{confined, epoll, host, options, replacement};
use libc::{
    c_int, c_uint, c_ulong, c_void, epoll_event, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use socket_calls::{ACCEPTED, Call, ENVELOPE, NOWHERE, address, address_bytes, mark};
use std::net::{IpAddr, SocketAddr};

/// The host's answer if an address stays the kernel's.
const NOT_OURS: c_int = libc::ENOSYS;

/// Whether this is an address to which no interface carries datagrams.
fn is_carried_by_none(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_multicast() || ip.is_unspecified(),
    }
}

/// Whether this is a link-local address, which needs the number of a kernel device.
fn is_of_link(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The address to which a flow may send in place of a kernel socket.
fn of_flow(fd: c_int, end: End, address: SocketAddr) -> Option<SocketAddr> {
    let address = match (end, address.ip()) {
        // IPv6 sockets of udp(7) accept plain IPv4 addresses.
        (End::Kernel { is_stream: false, is_v6: true }, IpAddr::V4(ip)) => {
            SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
        }
        _ => address,
    };
    (has_family(fd, end, address) && !is_carried_by_none(address) && !is_of_link(address)).then_some(address)
}

/// Whether this kernel socket can have this address at all.
fn has_family(fd: c_int, end: End, address: SocketAddr) -> bool {
    let is_mapped = address.is_ipv6() && address.ip().to_canonical().is_ipv4();
    matches!(end, End::Kernel { is_v6, .. } if is_v6 == address.is_ipv6()) && !(is_mapped && ends::is_v6_only(fd))
}

/// Asks for an end in place of `fd`. `Ok(false)`: it stays the kernel's.
fn exchange(fd: c_int, what: Call, about: u64, address: SocketAddr, number: i64) -> Result<bool, c_int> {
    let mark = match what {
        Call::Bind => mark::BOUND,
        Call::Connect => mark::STREAM,
        Call::Peered if address != NOWHERE => mark::DATAGRAMS,
        _ => mark::ENVELOPES,
    };
    let value = match what {
        Call::Connect if about == 0 => quietly(|| options::marks(fd)),
        Call::Connect => 0,
        _ => ends::form(fd),
    };
    let asked = quietly(|| host::ask(what, about, address, number, value));
    let Some((answer, end)) = asked else { return Err(libc::ENETDOWN) };
    if answer.errno == NOT_OURS {
        return Ok(false);
    }
    let is_started = matches!(answer.errno, 0 | libc::EINPROGRESS);
    match end {
        Some(end) => ends::set_mark(end, mark),
        // It was bound before.
        None if what == Call::Connect && is_started => ends::set_mark(fd, mark),
        None => {}
    }
    match end {
        Some(end) if !replacement::replace(fd, end) => Err(libc::EBADF),
        _ if answer.errno != 0 => Err(answer.errno),
        _ => Ok(true),
    }
}

/// connect(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    let kernels = || call(libc::SYS_connect, [fd as usize, to as usize, length as usize]) as c_int;
    // SAFETY: as promised.
    unsafe { connect_flow(fd, to, length) }.unwrap_or_else(kernels)
}

/// connect(2) of a socket that is or becomes a flow. `None`: it stays the kernel's.
///
/// # Safety
///
/// See the module.
unsafe fn connect_flow(fd: c_int, to: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let end = ends::of(fd);
    // SAFETY: as promised.
    let mut address = unsafe { read_address(to.cast(), length) };
    if matches!(end, End::Kernel { .. }) {
        address = address.and_then(|address| of_flow(fd, end, address));
    }
    let (what, about) = match (end, address) {
        // It is bound to an address of the kernel.
        (End::Kernel { .. }, _) if has_port(fd) => return None,
        (End::Other, _) | (End::Kernel { .. }, None) => return None,
        (End::Kernel { is_stream: true, .. }, _) => (Call::Connect, 0),
        (End::Kernel { is_stream: false, .. }, _) => (Call::Peered, 0),
        (End::Listener, _) => return Some(fail(libc::EISCONN)),
        (End::Stream | End::Bound, _) => (Call::Connect, inode(fd)),
        // AF_UNSPEC: removes the peer.
        (End::Envelopes | End::Datagrams, _) => (Call::Peered, inode(fd)),
    };
    let address = match address {
        Some(address) => address,
        // SAFETY: as promised.
        None if !end.is_stream() && unsafe { is_unspecified(to.cast(), length) } => NOWHERE,
        None => return Some(fail(libc::EAFNOSUPPORT)),
    };
    match exchange(fd, what, about, address, i64::from(ends::is_nonblocking(fd))) {
        Ok(true) => Some(0),
        Ok(false) => None,
        Err(why) => Some(fail(why)),
    }
}

/// bind(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    let kernels = || call(libc::SYS_bind, [fd as usize, to as usize, length as usize]) as c_int;
    // SAFETY: as promised.
    let address = unsafe { read_address(to.cast(), length) };
    let end = ends::of(fd);
    let is_kernels = |address: SocketAddr| {
        let is_any = address.ip().to_canonical().is_unspecified();
        !has_family(fd, end, address) || is_of_link(address) || is_carried_by_none(address) && !is_any
    };
    match (end, address) {
        (End::Kernel { is_stream, .. }, Some(address)) if !is_kernels(address) => {
            let what = if is_stream { Call::Bind } else { Call::Datagrams };
            match exchange(fd, what, 0, address, 0) {
                Ok(true) => 0,
                Ok(false) => kernels(),
                Err(why) => fail(why),
            }
        }
        (end, _) if end.is_ours() => fail(libc::EINVAL),
        _ => kernels(),
    }
}

/// listen(2).
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match ends::ours(fd) {
        End::Other | End::Kernel { .. } => call(libc::SYS_listen, [fd as usize, backlog as usize]) as c_int,
        End::Bound => {
            let asked = quietly(|| host::ask(Call::Listen, inode(fd), NOWHERE, i64::from(backlog), 0));
            match asked {
                Some((answer, _)) if answer.errno == 0 => {
                    ends::set_mark(fd, mark::LISTENER);
                    0
                }
                Some((answer, _)) => fail(answer.errno),
                None => fail(libc::ENETDOWN),
            }
        }
        End::Listener => 0,
        End::Stream => fail(libc::EINVAL),
        End::Envelopes | End::Datagrams => fail(libc::EOPNOTSUPP),
    }
}

/// accept(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: as promised.
    unsafe { accept4(fd, from, length, 0) }
}

/// accept4(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    match ends::ours(fd) {
        End::Listener => {}
        End::Bound | End::Stream => return fail(libc::EINVAL),
        End::Envelopes | End::Datagrams => return fail(libc::EOPNOTSUPP),
        _ => return call(libc::SYS_accept4, [fd as usize, from as usize, length as usize, flags as usize]) as c_int,
    }
    let mut message = [0; ACCEPTED];
    let on_exec = if flags & libc::SOCK_CLOEXEC != 0 { libc::MSG_CMSG_CLOEXEC } else { 0 };
    let Some((count, accepted)) = host::receive_with_fd(fd, &mut message, on_exec) else { return -1 };
    let Some(accepted) = accepted else {
        // The host closed it, or the process has too many open files: then the kernel drops descriptors.
        return fail(if count == 0 { libc::EINVAL } else { libc::EMFILE });
    };
    // A connection from the host's loopback is the kernel's.
    if quietly(|| option(accepted, libc::SOL_SOCKET, libc::SO_DOMAIN)) == Some(libc::AF_UNIX) {
        ends::set_mark(accepted, mark::STREAM);
    }
    if flags & libc::SOCK_NONBLOCK != 0 {
        let nonblocking = libc::O_NONBLOCK as usize;
        call(libc::SYS_fcntl, [accepted as usize, libc::F_SETFL as usize, nonblocking]);
    }
    let peer = message.last_chunk().map_or(NOWHERE, |bytes| address(*bytes));
    // SAFETY: as promised.
    unsafe { write_address(peer, from.cast(), length) };
    accepted
}

/// An address of a socket that the host serves.
///
/// # Safety
///
/// See the module.
unsafe fn name(what: Call, fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match quietly(|| host::ask_about(what, inode(fd))) {
        Some(answer) if answer.errno == 0 => {
            // SAFETY: as promised.
            unsafe { write_address(answer.address, to.cast(), length) };
            0
        }
        Some(answer) => fail(answer.errno),
        None => fail(libc::ENETDOWN),
    }
}

/// getsockname(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match ends::ours(fd).is_ours() {
        // SAFETY: as promised.
        true => unsafe { name(Call::Name, fd, to, length) },
        false => call(libc::SYS_getsockname, [fd as usize, to as usize, length as usize]) as c_int,
    }
}

/// getpeername(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    match ends::ours(fd).is_ours() {
        // SAFETY: as promised.
        true => unsafe { name(Call::Peer, fd, to, length) },
        false => call(libc::SYS_getpeername, [fd as usize, to as usize, length as usize]) as c_int,
    }
}

/// getsockopt(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let end = ends::ours(fd);
    if end.is_ours() {
        // SAFETY: as promised.
        return unsafe { options::get(fd, end, level, name, value, length) };
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
    call(libc::SYS_getsockopt, arguments) as c_int
}

/// setsockopt(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let end = ends::ours(fd);
    if end.is_ours() {
        // SAFETY: as promised.
        return unsafe { options::set(fd, end, level, name, value, length) };
    }
    // SAFETY: as promised.
    if unsafe { options::is_ancillary(level, name, value, length) }
        && matches!(ends::of(fd), End::Kernel { .. })
        && !quietly(|| has_port(fd))
    {
        return fail(libc::ENOPROTOOPT);
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
    call(libc::SYS_setsockopt, arguments) as c_int
}

/// prctl(2).
#[unsafe(no_mangle)]
pub extern "C" fn prctl(option: c_int, first: c_ulong, second: c_ulong, third: c_ulong, fourth: c_ulong) -> c_int {
    if option == libc::PR_SET_SECCOMP && host::is_there() {
        quietly(|| confined::begin(ends::is_for_kernel));
    }
    let arguments = [option as usize, first as usize, second as usize, third as usize, fourth as usize];
    call(libc::SYS_prctl, arguments) as c_int
}

/// epoll_ctl(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let arguments = [epoll as usize, operation as usize, fd as usize, event as usize];
    let done = call(libc::SYS_epoll_ctl, arguments) as c_int;
    if done == 0 {
        // SAFETY: as promised; the kernel has just read it.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        epoll::told(epoll, operation, fd, event);
    }
    done
}

/// Why a read got no bytes: the end, an empty datagram, or an error beyond unix sockets. `None`: read again.
fn ended(fd: c_int) -> Option<ssize_t> {
    if !matches!(ends::ours(fd), End::Stream | End::Datagrams | End::Envelopes) {
        return Some(0);
    }
    match quietly(|| host::ask_about(Call::Ended, inode(fd))) {
        Some(answer) if answer.errno == libc::EAGAIN => None,
        Some(answer) if answer.errno != 0 => Some(fail(answer.errno) as ssize_t),
        Some(_) => Some(0),
        // If the host has gone, the stream has not ended properly.
        None => Some(fail(libc::ECONNRESET) as ssize_t),
    }
}

/// Why a socket of this kind cannot receive with these flags at all.
fn refusal(end: End, flags: c_int) -> Option<c_int> {
    match end {
        End::Other | End::Kernel { .. } => None,
        // There is no queue of errors (IP_RECVERR is refused), and a read of it never waits.
        _ if flags & libc::MSG_ERRQUEUE != 0 => Some(libc::EAGAIN),
        End::Bound | End::Listener => Some(libc::ENOTCONN),
        End::Stream | End::Datagrams | End::Envelopes => None,
    }
}

/// Receives with `act`, and repeats that if there was nothing after all. `room`: bytes that fit.
fn receiving(fd: c_int, room: usize, mut act: impl FnMut() -> isize) -> ssize_t {
    loop {
        match act() {
            0 if room > 0 => {}
            count => return count,
        }
        if let Some(done) = ended(fd) {
            return done;
        }
    }
}

/// read(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    let end = ends::ours(fd);
    if let Some(why) = refusal(end, 0) {
        return fail(why) as ssize_t;
    }
    if end == End::Envelopes {
        // SAFETY: as promised.
        return unsafe { recv(fd, to, count, 0) };
    }
    receiving(fd, count, || call(libc::SYS_read, [fd as usize, to as usize, count]))
}

/// read(2), as called by programs that are built with checks.
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, count: size_t, room: size_t) -> ssize_t {
    check(count, room);
    // SAFETY: as promised.
    unsafe { read(fd, to, count) }
}

/// Ends the process if `count` bytes do not fit, as the C library does.
fn check(count: size_t, room: size_t) {
    if count > room {
        std::process::abort();
    }
}

/// readv(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    let end = ends::ours(fd);
    if let Some(why) = refusal(end, 0) {
        return fail(why) as ssize_t;
    }
    if end == End::Envelopes {
        // SAFETY: as promised; all zeros is a value of this structure.
        return unsafe {
            let mut message: msghdr = std::mem::zeroed();
            message.msg_iov = pieces.cast_mut();
            message.msg_iovlen = usize::try_from(count).unwrap_or(0);
            recvmsg(fd, &raw mut message, 0)
        };
    }
    // A read into no room also gives no bytes. The host knows that the stream has not ended.
    receiving(fd, 1, || call(libc::SYS_readv, [fd as usize, pieces as usize, count as usize]))
}

/// recv(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as promised.
    unsafe { recvfrom(fd, to, count, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// recv(2), as called by programs that are built with checks.
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(fd: c_int, to: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t {
    check(count, room);
    // SAFETY: as promised.
    unsafe { recv(fd, to, count, flags) }
}

/// recvfrom(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    let end = ends::ours(fd);
    if let Some(why) = refusal(end, flags) {
        return fail(why) as ssize_t;
    }
    if end == End::Envelopes {
        let mut piece = iovec { iov_base: to, iov_len: count };
        // SAFETY: as promised; all zeros is a value of this structure.
        return unsafe {
            let mut message: msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            receive_envelope(fd, &mut message, flags, from.cast(), length)
        };
    }
    let arguments = [fd as usize, to as usize, count, flags as usize, from as usize, length as usize];
    // SAFETY: as promised.
    let room = if length.is_null() { 0 } else { unsafe { length.read_unaligned() } };
    let got = receiving(fd, count, || call(libc::SYS_recvfrom, arguments));
    if end == End::Datagrams && got >= 0 && !from.is_null() && !length.is_null() {
        // SAFETY: as promised. The kernel set the length to 0, because a unix socket has no name.
        quietly(|| unsafe {
            length.write_unaligned(room);
            name(Call::Peer, fd, from, length)
        });
    }
    got
}

/// recvfrom(2), as called by programs that are built with checks.
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    check(count, room);
    // SAFETY: as promised.
    unsafe { recvfrom(fd, to, count, flags, from, length) }
}

/// recvmsg(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let kernels = || call(libc::SYS_recvmsg, [fd as usize, message as usize, flags as usize]);
    let end = ends::ours(fd);
    if let Some(why) = refusal(end, flags) {
        return fail(why) as ssize_t;
    }
    if message.is_null() || end != End::Envelopes {
        // SAFETY: as promised.
        let room = if message.is_null() { 0 } else { unsafe { (*message).msg_namelen } };
        let got = receiving(fd, 1, kernels);
        // SAFETY: as promised.
        unsafe {
            if end == End::Datagrams && got >= 0 && !message.is_null() && !(*message).msg_name.is_null() {
                (*message).msg_namelen = room;
                quietly(|| name(Call::Peer, fd, (*message).msg_name.cast(), &raw mut (*message).msg_namelen));
            }
        }
        return got;
    }
    // SAFETY: as promised.
    unsafe {
        let mut length = (*message).msg_namelen;
        let got = receive_envelope(fd, &mut *message, flags, (*message).msg_name, &raw mut length);
        (*message).msg_namelen = if (*message).msg_name.is_null() { 0 } else { length };
        (*message).msg_controllen = 0;
        got
    }
}

/// The most pieces of a datagram with its envelope.
const PIECES: usize = 64;

/// Receives a datagram into the message's pieces, and writes the sender's address. Sets the message's flags.
///
/// # Safety
///
/// The message's pieces are writable; `from` and `length` as for `recvfrom`.
unsafe fn receive_envelope(
    fd: c_int,
    message: &mut msghdr,
    flags: c_int,
    from: *mut c_void,
    length: *mut socklen_t,
) -> ssize_t {
    let mut envelope = [0u8; ENVELOPE];
    // SAFETY: as promised.
    let Some((mut pieces, count)) = (unsafe { with_envelope(message, envelope.as_mut_ptr().cast()) }) else {
        return fail(libc::EMSGSIZE) as ssize_t;
    };
    // SAFETY: all zeros is a value of this structure.
    let mut whole: msghdr = unsafe { std::mem::zeroed() };
    whole.msg_iov = pieces.as_mut_ptr();
    whole.msg_iovlen = count;
    let got =
        receiving(fd, ENVELOPE, || call(libc::SYS_recvmsg, [fd as usize, &raw mut whole as usize, flags as usize]));
    let got = match usize::try_from(got) {
        Ok(0) => return 0,
        Ok(got) => got,
        Err(_) => return -1,
    };
    message.msg_flags = whole.msg_flags;
    // SAFETY: as promised.
    unsafe { write_address(address(envelope), from, length) };
    got.saturating_sub(ENVELOPE) as ssize_t
}

/// The pieces of a message behind an envelope. `None`: there are too many.
///
/// # Safety
///
/// The message's pieces are readable.
unsafe fn with_envelope(message: &msghdr, envelope: *mut c_void) -> Option<([iovec; PIECES], usize)> {
    let mut pieces = [iovec { iov_base: envelope, iov_len: ENVELOPE }; PIECES];
    let count = message.msg_iovlen;
    if count >= PIECES {
        return None;
    }
    for (at, piece) in pieces.iter_mut().skip(1).take(count).enumerate() {
        // SAFETY: as promised.
        *piece = unsafe { message.msg_iov.add(at).read_unaligned() };
    }
    Some((pieces, count + 1))
}

/// Prepares a datagram to `to`: a kernel socket without a port is replaced, if the host routes there.
fn before_sending(fd: c_int, to: Option<SocketAddr>) -> Result<End, c_int> {
    let Some(to) = to else { return Ok(ends::ours(fd)) };
    let end = ends::of(fd);
    match (end, of_flow(fd, end, to)) {
        (End::Kernel { is_stream: false, .. }, Some(to)) if !has_port(fd) => {
            match exchange(fd, Call::Datagrams, 0, to, 1) {
                Ok(true) => Ok(End::Envelopes),
                Ok(false) => Ok(End::Other),
                Err(why) => Err(why),
            }
        }
        // Its flow is on an interface, which does not carry these.
        (End::Envelopes, _) if is_carried_by_none(to) => Err(libc::ENETUNREACH),
        (end, _) => Ok(end),
    }
}

/// Connects a socket that sends to a peer before it is connected (`MSG_FASTOPEN`). `None`: it does not, or it stays the
/// kernel's.
///
/// # Safety
///
/// As for `connect`.
unsafe fn open_fast(fd: c_int, flags: c_int, to: *const sockaddr, length: socklen_t) -> Option<c_int> {
    let is_asked = flags & libc::MSG_FASTOPEN != 0;
    if is_asked && matches!(ends::of(fd), End::Kernel { is_stream: true, .. } | End::Bound | End::Stream) {
        // SAFETY: as promised.
        return unsafe { connect_flow(fd, to, length) };
    }
    None
}

/// sendto(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    count: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    let kernels = |to: usize, length: usize| {
        call(libc::SYS_sendto, [fd as usize, bytes as usize, count, flags as usize, to, length])
    };
    if to.is_null() {
        return match ends::ours(fd) {
            End::Envelopes => fail(libc::EDESTADDRREQ) as ssize_t,
            End::Bound | End::Listener => fail(libc::EPIPE) as ssize_t,
            _ => kernels(0, 0),
        };
    }
    // SAFETY: as promised.
    match unsafe { open_fast(fd, flags, to, length) } {
        Some(0) => {
            let flags = flags & !libc::MSG_FASTOPEN;
            return call(libc::SYS_sendto, [fd as usize, bytes as usize, count, flags as usize, 0, 0]);
        }
        Some(failed) => return failed as ssize_t,
        None => {}
    }
    // SAFETY: as promised.
    let address = unsafe { read_address(to.cast(), length) };
    match before_sending(fd, address) {
        Err(why) => fail(why) as ssize_t,
        Ok(End::Envelopes) => {
            let mut piece = iovec { iov_base: bytes.cast_mut(), iov_len: count };
            // SAFETY: as promised; all zeros is a value of this structure.
            unsafe {
                let mut message: msghdr = std::mem::zeroed();
                message.msg_iov = &raw mut piece;
                message.msg_iovlen = 1;
                send_envelope(fd, &message, flags, address)
            }
        }
        // The end has the peer already.
        Ok(End::Stream | End::Datagrams) => kernels(0, 0),
        Ok(End::Bound | End::Listener) => fail(libc::EPIPE) as ssize_t,
        Ok(_) => kernels(to as usize, length as usize),
    }
}

/// sendmsg(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let kernels = |message: *const msghdr| call(libc::SYS_sendmsg, [fd as usize, message as usize, flags as usize]);
    if message.is_null() {
        return kernels(message);
    }
    // SAFETY: as promised.
    let given = unsafe { &*message };
    if given.msg_name.is_null() {
        return match ends::ours(fd) {
            End::Envelopes => fail(libc::EDESTADDRREQ) as ssize_t,
            End::Datagrams if has_orders(given) => fail(libc::EINVAL) as ssize_t,
            End::Bound | End::Listener => fail(libc::EPIPE) as ssize_t,
            _ => kernels(message),
        };
    }
    // SAFETY: as promised.
    match unsafe { open_fast(fd, flags, given.msg_name.cast(), given.msg_namelen) } {
        Some(0) => {
            // SAFETY: copies a structure of numbers and pointers.
            let mut bare: msghdr = unsafe { message.read() };
            (bare.msg_name, bare.msg_namelen) = (std::ptr::null_mut(), 0);
            let flags = flags & !libc::MSG_FASTOPEN;
            return call(libc::SYS_sendmsg, [fd as usize, &raw const bare as usize, flags as usize]);
        }
        Some(failed) => return failed as ssize_t,
        None => {}
    }
    // SAFETY: as promised.
    let address = unsafe { read_address(given.msg_name, given.msg_namelen) };
    match before_sending(fd, address) {
        Err(why) => fail(why) as ssize_t,
        Ok(End::Envelopes | End::Datagrams) if has_orders(given) => fail(libc::EINVAL) as ssize_t,
        Ok(End::Bound | End::Listener) => fail(libc::EPIPE) as ssize_t,
        // SAFETY: as promised.
        Ok(End::Envelopes) => unsafe { send_envelope(fd, given, flags, address) },
        Ok(End::Stream | End::Datagrams) => {
            // SAFETY: copies a structure of numbers and pointers.
            let mut bare: msghdr = unsafe { message.read() };
            (bare.msg_name, bare.msg_namelen) = (std::ptr::null_mut(), 0);
            kernels(&raw const bare)
        }
        Ok(_) => kernels(message),
    }
}

/// Whether the message carries ancillary data that say how to send it (`IP_PKTINFO`, `UDP_SEGMENT`). Flows take none.
fn has_orders(message: &msghdr) -> bool {
    !message.msg_control.is_null() && message.msg_controllen > 0
}

/// Sends a datagram in an envelope.
///
/// # Safety
///
/// The message's pieces are readable.
unsafe fn send_envelope(fd: c_int, message: &msghdr, flags: c_int, to: Option<SocketAddr>) -> ssize_t {
    let Some(to) = to else { return fail(libc::EAFNOSUPPORT) as ssize_t };
    let mut envelope = address_bytes(to);
    // SAFETY: as promised.
    let Some((mut pieces, count)) = (unsafe { with_envelope(message, envelope.as_mut_ptr().cast()) }) else {
        return fail(libc::EMSGSIZE) as ssize_t;
    };
    // SAFETY: all zeros is a value of this structure.
    let mut whole: msghdr = unsafe { std::mem::zeroed() };
    whole.msg_iov = pieces.as_mut_ptr();
    whole.msg_iovlen = count;
    match call(libc::SYS_sendmsg, [fd as usize, &raw const whole as usize, flags as usize]) {
        sent if sent < 0 => -1,
        sent => sent - ENVELOPE as ssize_t,
    }
}

/// sendmmsg(2).
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: as promised.
    let with_orders = || (0..count as usize).any(|at| has_orders(unsafe { &(*messages.add(at)).msg_hdr }));
    let is_single = match ends::of(fd) {
        End::Envelopes | End::Kernel { is_stream: false, .. } => true,
        End::Datagrams => with_orders(),
        _ => false,
    };
    if !is_single {
        let arguments = [fd as usize, messages as usize, count as usize, flags as usize];
        return call(libc::SYS_sendmmsg, arguments) as c_int;
    }
    let mut done = 0;
    for at in 0..count as usize {
        // SAFETY: as promised.
        unsafe {
            let message = messages.add(at);
            match usize::try_from(sendmsg(fd, &raw const (*message).msg_hdr, flags)) {
                Ok(sent) => (*message).msg_len = sent as c_uint,
                Err(_) => break,
            }
        }
        done += 1;
    }
    if done == 0 && count > 0 { -1 } else { done }
}

/// recvmmsg(2). For an unconnected UDP socket of the host, the time limit is ignored: the first datagram ends it.
///
/// # Safety
///
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let end = ends::ours(fd);
    if let Some(why) = refusal(end, flags) {
        return fail(why);
    }
    if end != End::Envelopes {
        let arguments = [fd as usize, messages as usize, count as usize, flags as usize, timeout as usize];
        return call(libc::SYS_recvmmsg, arguments) as c_int;
    }
    let mut done = 0;
    for at in 0..count as usize {
        let wait = if done > 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: as promised.
        unsafe {
            let message = messages.add(at);
            match usize::try_from(recvmsg(fd, &raw mut (*message).msg_hdr, (flags & !libc::MSG_WAITFORONE) | wait)) {
                Ok(received) => (*message).msg_len = received as c_uint,
                Err(_) => break,
            }
        }
        done += 1;
    }
    match done {
        0 if count > 0 => fail(errno()),
        done => done,
    }
}
