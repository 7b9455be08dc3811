//! Sockets over flows, for C: one function for each operation.

use crate::address;
use crate::options::{SlNetFacts, SlNetOptions, milliseconds};
use crate::outcome::{guarded, guarded_int};
use crate::pieces::{In, Out, Pieces};
use libc::{iovec, sockaddr, socklen_t};
use socket::net::{Options, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ffi::c_void;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A TCP connection, a TCP listener, or a UDP socket. Threads may share it, except for `sl_net_close`. A child made by
/// `fork` must not use it.
pub struct SlSocket(Kind);

enum Kind {
    Connection(TcpStream),
    Listener(TcpListener),
    Datagrams(UdpSocket),
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// The error for an operation that this kind of socket does not have.
fn not_of_this_kind<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// # Safety
///
/// Null, or from a function that opens a socket and not closed.
unsafe fn kind<'a>(socket: *const SlSocket) -> io::Result<&'a Kind> {
    // SAFETY: the caller's word.
    unsafe { socket.as_ref() }.map(|socket| &socket.0).ok_or_else(invalid)
}

/// # Safety
///
/// As for [`kind`].
unsafe fn connection<'a>(socket: *const SlSocket) -> io::Result<&'a TcpStream> {
    // SAFETY: the caller's word.
    match unsafe { kind(socket) }? {
        Kind::Connection(stream) => Ok(stream),
        _ => not_of_this_kind(),
    }
}

/// Opens a socket by `open`, and writes the handle to `place`.
///
/// # Safety
///
/// `options` is null, or as [`SlNetOptions::read`] needs it; `address` is null, or readable for `length` bytes; `place`
/// is null, or writable.
unsafe fn opened(
    options: *const SlNetOptions,
    address: *const sockaddr,
    length: socklen_t,
    place: *mut *mut SlSocket,
    open: impl FnOnce(&Options, SocketAddr, bool) -> io::Result<Kind>,
) -> i32 {
    guarded_int(|| {
        if place.is_null() {
            return Err(invalid());
        }
        // SAFETY: the caller's word.
        let address = unsafe { address::read(address, length) }?;
        // SAFETY: the caller's word.
        let (options, nonblocking) = match unsafe { options.as_ref() } {
            None => (Options::default(), false),
            // SAFETY: the caller's word.
            Some(options) => (unsafe { options.read() }?, options.nonblocking != 0),
        };
        let socket = open(&options, address, nonblocking)?;
        // SAFETY: not null, and the caller's word.
        unsafe { place.write(Box::into_raw(Box::new(SlSocket(socket)))) };
        Ok(0)
    })
}

/// Connects to `peer`. `options` may be NULL. 0, or a negative errno. With `options->nonblocking` it does not wait;
/// `sl_net_connected` then gives the state of the handshake.
///
/// # Safety
///
/// `options` is null or filled as its fields say; `peer` has `length` bytes; `socket` has room for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_connect(
    options: *const SlNetOptions,
    peer: *const sockaddr,
    length: socklen_t,
    socket: *mut *mut SlSocket,
) -> i32 {
    let open = |options: &Options, peer, nonblocking| {
        let connected = match nonblocking {
            true => TcpStream::start(options, peer),
            false => TcpStream::connect_with(options, peer),
        };
        connected.map(Kind::Connection)
    };
    // SAFETY: the caller's word.
    unsafe { opened(options, peer, length, socket, open) }
}

/// The result of a handshake that `sl_net_connect` did not wait for: 0, -EINPROGRESS while it goes on, or once a
/// negative errno. The file descriptor of `sl_net_writable_fd` becomes readable at its end.
///
/// # Safety
///
/// `socket` is from `sl_net_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_connected(socket: *mut SlSocket) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        match unsafe { connection(socket) }?.handshake() {
            None => Err(io::Error::from_raw_os_error(libc::EINPROGRESS)),
            Some(ended) => ended.map(|()| 0),
        }
    })
}

/// Listens for connections at `local`. Address 0.0.0.0: all of the interface's; port 0: any free one. `options` may be
/// NULL. 0, or a negative errno.
///
/// # Safety
///
/// As for `sl_net_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_listen(
    options: *const SlNetOptions,
    local: *const sockaddr,
    length: socklen_t,
    socket: *mut *mut SlSocket,
) -> i32 {
    let open = |options: &Options, local, nonblocking| {
        let listener = TcpListener::bind_with(options, local)?;
        listener.set_nonblocking(nonblocking)?;
        Ok(Kind::Listener(listener))
    };
    // SAFETY: the caller's word.
    unsafe { opened(options, local, length, socket, open) }
}

/// Waits for a connection of a listener. Writes the address of its other side to `peer`; `*length` is the room there,
/// and becomes the address's length. Both may be NULL. Calls for the connection wait, even if those for the listener do
/// not. 0, or a negative errno.
///
/// # Safety
///
/// `listener` is from `sl_net_listen`; `socket` has room for the handle; `peer` has `*length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_accept(
    listener: *mut SlSocket,
    socket: *mut *mut SlSocket,
    peer: *mut sockaddr,
    length: *mut socklen_t,
) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let Kind::Listener(listener) = unsafe { kind(listener) }? else { return not_of_this_kind() };
        if socket.is_null() {
            return Err(invalid());
        }
        let (stream, from) = listener.accept()?;
        // SAFETY: not null, and the caller's word.
        unsafe {
            address::write(from, peer, length);
            socket.write(Box::into_raw(Box::new(SlSocket(Kind::Connection(stream)))));
        }
        Ok(0)
    })
}

/// Opens a UDP socket at `local`, which is read as by `sl_net_listen`. `options` may be NULL. 0, or a negative errno.
///
/// # Safety
///
/// As for `sl_net_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_udp(
    options: *const SlNetOptions,
    local: *const sockaddr,
    length: socklen_t,
    socket: *mut *mut SlSocket,
) -> i32 {
    let open = |options: &Options, local, nonblocking| {
        let datagrams = UdpSocket::bind_with(options, local)?;
        datagrams.set_nonblocking(nonblocking)?;
        Ok(Kind::Datagrams(datagrams))
    };
    // SAFETY: the caller's word.
    unsafe { opened(options, local, length, socket, open) }
}

/// Makes a UDP socket send to this peer, and receive from it only. 0, or a negative errno.
///
/// # Safety
///
/// `socket` is from `sl_net_udp`; `peer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_peer(socket: *mut SlSocket, peer: *const sockaddr, length: socklen_t) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let Kind::Datagrams(datagrams) = unsafe { kind(socket) }? else { return not_of_this_kind() };
        // SAFETY: the caller's word.
        datagrams.connect(unsafe { address::read(peer, length) }?)?;
        Ok(0)
    })
}

/// # Safety
///
/// `buffer` is null, or has room for `len` bytes without another user meanwhile.
unsafe fn room<'a>(buffer: *mut c_void, len: usize) -> io::Result<&'a mut [u8]> {
    if buffer.is_null() || len > isize::MAX as usize {
        return Err(invalid());
    }
    // SAFETY: the caller's word; written to before it is read, as a system call does.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) })
}

/// # Safety
///
/// `buffer` is null, or has `len` bytes.
unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> io::Result<&'a [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (false, 1..=0x7fff_ffff_ffff_ffff) => {
            // SAFETY: the caller's word.
            Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), len) })
        }
        _ => Err(invalid()),
    }
}

/// Reads the bytes that are there, at most `len`. A UDP socket reads one datagram, and loses the part that does not
/// fit. Gives the bytes read, 0 at the end of a connection, or a negative errno.
///
/// # Safety
///
/// `socket` is open; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_read(socket: *mut SlSocket, buffer: *mut c_void, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, buffer) = unsafe { (kind(socket)?, room(buffer, len)?) };
        let count = match kind {
            Kind::Connection(stream) => (&*stream).read(buffer)?,
            Kind::Datagrams(datagrams) => datagrams.recv(buffer)?,
            Kind::Listener(_) => return not_of_this_kind(),
        };
        Ok(count as i64)
    })
}

/// As `sl_net_read`, but the bytes can be read again.
///
/// # Safety
///
/// As for `sl_net_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_peek(socket: *mut SlSocket, buffer: *mut c_void, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, buffer) = unsafe { (kind(socket)?, room(buffer, len)?) };
        let count = match kind {
            Kind::Connection(stream) => stream.peek(buffer)?,
            Kind::Datagrams(datagrams) => datagrams.peek(buffer)?,
            Kind::Listener(_) => return not_of_this_kind(),
        };
        Ok(count as i64)
    })
}

/// As `sl_net_read`, into `count` pieces one after the other, at most 1024.
///
/// # Safety
///
/// `socket` is open; `pieces` has `count` elements, each with room for as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_readv(socket: *mut SlSocket, pieces: *const iovec, count: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, mut pieces) = unsafe { (kind(socket)?, Pieces::<In>::new(pieces, count)?) };
        let read = match kind {
            Kind::Connection(_) if pieces.is_empty() => 0,
            Kind::Connection(stream) => stream.read_with(&mut |bytes| pieces.copy_in(bytes))?,
            Kind::Datagrams(datagrams) => {
                let mut datagram = vec![0; pieces.len().min(LONGEST)];
                let len = datagrams.recv(&mut datagram)?;
                pieces.copy_in(&datagram[..len])
            }
            Kind::Listener(_) => return not_of_this_kind(),
        };
        Ok(read as i64)
    })
}

/// No datagram is longer than this number of bytes.
const LONGEST: usize = 1 << 16;

/// Calls `write` with the number of bytes done so far, until it has written `total` bytes. If it may not wait any
/// longer, gives how many it has written.
fn written(total: usize, write: &mut dyn FnMut(usize) -> io::Result<usize>) -> io::Result<i64> {
    let mut done = 0;
    while done < total {
        match write(done) {
            Ok(count) => done += count,
            Err(error) if done > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done as i64)
}

/// Writes all bytes, or those that there is room for if calls do not wait. A UDP socket sends one datagram to its peer.
/// Gives the bytes written, or a negative errno: -EPIPE after the end (without a signal), -EMSGSIZE for a datagram
/// longer than the MTU allows.
///
/// # Safety
///
/// `socket` is open; `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_write(socket: *mut SlSocket, buffer: *const c_void, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, bytes) = unsafe { (kind(socket)?, bytes(buffer, len)?) };
        match kind {
            Kind::Connection(stream) => written(len, &mut |done| (&*stream).write(&bytes[done..])),
            Kind::Datagrams(datagrams) => Ok(datagrams.send(bytes)? as i64),
            Kind::Listener(_) => not_of_this_kind(),
        }
    })
}

/// As `sl_net_write`, from `count` pieces one after the other, at most 1024.
///
/// # Safety
///
/// `socket` is open; `pieces` has `count` elements, each with as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_writev(socket: *mut SlSocket, pieces: *const iovec, count: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, mut pieces) = unsafe { (kind(socket)?, Pieces::<Out>::new(pieces, count)?) };
        match kind {
            Kind::Connection(stream) => {
                written(pieces.len(), &mut |_| stream.write_with(&mut |room| pieces.copy_out(room)))
            }
            Kind::Datagrams(datagrams) => {
                // One byte more than can be sent is enough to be refused.
                let mut datagram = vec![0; pieces.len().min(LONGEST)];
                pieces.copy_out(&mut datagram);
                Ok(datagrams.send(&datagram)? as i64)
            }
            Kind::Listener(_) => not_of_this_kind(),
        }
    })
}

/// As `sl_net_read` for a UDP socket. Writes the sender's address to `from`; `*length` is the room there, and becomes
/// the address's length. Both may be NULL.
///
/// # Safety
///
/// `socket` is from `sl_net_udp`; `buffer` has room for `len` bytes, `from` for `*length`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_receive_from(
    socket: *mut SlSocket,
    buffer: *mut c_void,
    len: usize,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, buffer) = unsafe { (kind(socket)?, room(buffer, len)?) };
        let Kind::Datagrams(datagrams) = kind else { return not_of_this_kind() };
        let (count, sender) = datagrams.recv_from(buffer)?;
        // SAFETY: the caller's word.
        unsafe { address::write(sender, from, length) };
        Ok(count as i64)
    })
}

/// Sends one datagram to `to`. Gives the bytes sent, or a negative errno, which may be about an earlier datagram.
///
/// # Safety
///
/// `socket` is from `sl_net_udp`; `buffer` has `len` bytes, `to` has `length`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_send_to(
    socket: *mut SlSocket,
    buffer: *const c_void,
    len: usize,
    to: *const sockaddr,
    length: socklen_t,
) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (kind, bytes, to) = unsafe { (kind(socket)?, bytes(buffer, len)?, address::read(to, length)?) };
        let Kind::Datagrams(datagrams) = kind else { return not_of_this_kind() };
        Ok(datagrams.send_to(bytes, to)? as i64)
    })
}

/// Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) of a connection. Bytes written before still go out. 0,
/// or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_shutdown(socket: *mut SlSocket, how: i32) -> i32 {
    guarded_int(|| {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(invalid()),
        };
        // SAFETY: the caller's word.
        unsafe { connection(socket) }?.shutdown(how)?;
        Ok(0)
    })
}

/// A file descriptor to poll for POLLIN: readable while a call to read or accept would not wait. For a UDP socket it is
/// readable if there was news since a call returned -EAGAIN, so call until it does. It belongs to the socket: do not
/// read, write or close it. Gives the descriptor, or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_poll_fd(socket: *mut SlSocket) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let fd = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.as_fd().as_raw_fd(),
            Kind::Listener(listener) => listener.as_fd().as_raw_fd(),
            Kind::Datagrams(datagrams) => datagrams.as_fd().as_raw_fd(),
        };
        Ok(fd.into())
    })
}

/// A file descriptor to poll for POLLIN, not POLLOUT: readable while a call to write would not wait. For a UDP socket
/// it is that of `sl_net_poll_fd`. It belongs to the socket, as that one does.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_writable_fd(socket: *mut SlSocket) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let fd = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.writable_fd().as_raw_fd(),
            Kind::Datagrams(datagrams) => datagrams.as_fd().as_raw_fd(),
            Kind::Listener(_) => return not_of_this_kind(),
        };
        Ok(fd.into())
    })
}

/// Makes calls return -EAGAIN instead of waiting (not 0), or wait (0). 0, or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_nonblocking(socket: *mut SlSocket, on: i32) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.set_nonblocking(on != 0)?,
            Kind::Listener(listener) => listener.set_nonblocking(on != 0)?,
            Kind::Datagrams(datagrams) => datagrams.set_nonblocking(on != 0)?,
        }
        Ok(0)
    })
}

/// Sets how many milliseconds a call to read or to write waits before it returns -EAGAIN. 0, as at first: no limit. 0,
/// or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_timeouts(socket: *mut SlSocket, read_ms: u32, write_ms: u32) -> i32 {
    guarded_int(|| {
        let (read, write) = (milliseconds(read_ms), milliseconds(write_ms));
        // SAFETY: the caller's word.
        match unsafe { kind(socket) }? {
            Kind::Connection(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)?;
            }
            Kind::Datagrams(datagrams) => {
                datagrams.set_read_timeout(read)?;
                datagrams.set_write_timeout(write)?;
            }
            Kind::Listener(_) => return not_of_this_kind(),
        }
        Ok(0)
    })
}

/// Makes a connection send small writes at once (not 0), or wait for an acknowledgement of earlier ones (0, as at
/// first). 0, or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_nodelay(socket: *mut SlSocket, on: i32) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        unsafe { connection(socket) }?.set_nodelay(on != 0)?;
        Ok(0)
    })
}

/// Sets how many milliseconds `sl_net_close` waits until the other side of a connection has acknowledged everything.
/// Negative, as at first: it does not wait, and the rest goes out afterwards. 0: it resets the connection. 0, or a
/// negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_linger(socket: *mut SlSocket, ms: i32) -> i32 {
    guarded_int(|| {
        let linger = u64::try_from(ms).ok().map(Duration::from_millis);
        // SAFETY: the caller's word.
        unsafe { connection(socket) }?.set_linger(linger)?;
        Ok(0)
    })
}

/// Probes a quiet connection at this interval of milliseconds. After ten intervals without an answer it ends with
/// -ETIMEDOUT. 0, as at first: no probes. 0, or a negative errno.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_set_keepalive(socket: *mut SlSocket, ms: u32) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        unsafe { connection(socket) }?.set_keepalive(milliseconds(ms))?;
        Ok(0)
    })
}

/// The error at a connection's end, or the last report about a datagram, as a negative errno, once. 0: there is none.
///
/// # Safety
///
/// `socket` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_take_error(socket: *mut SlSocket) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let error = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.take_error()?,
            Kind::Listener(listener) => listener.take_error()?,
            Kind::Datagrams(datagrams) => datagrams.take_error()?,
        };
        error.map_or(Ok(0), Err)
    })
}

/// Address and port of this side. `*length` is the room at `address`, and becomes the address's length. 0, or a
/// negative errno.
///
/// # Safety
///
/// `socket` is open; `address` has room for `*length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_local(socket: *mut SlSocket, address: *mut sockaddr, length: *mut socklen_t) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let is = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.local_addr()?,
            Kind::Listener(listener) => listener.local_addr()?,
            Kind::Datagrams(datagrams) => datagrams.local_addr()?,
        };
        // SAFETY: the caller's word.
        unsafe { address::write(is, address, length) };
        Ok(0)
    })
}

/// Address and port of the other side; arguments as for `sl_net_local`. -ENOTCONN if there is none.
///
/// # Safety
///
/// As for `sl_net_local`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_peer(socket: *mut SlSocket, address: *mut sockaddr, length: *mut socklen_t) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let is = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.peer_addr()?,
            Kind::Listener(_) => return Err(io::ErrorKind::NotConnected.into()),
            Kind::Datagrams(datagrams) => datagrams.peer_addr()?,
        };
        // SAFETY: the caller's word.
        unsafe { address::write(is, address, length) };
        Ok(0)
    })
}

/// The present facts about a connection or a UDP socket. 0, or a negative errno.
///
/// # Safety
///
/// `socket` is open; `facts` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_facts_of(socket: *mut SlSocket, facts: *mut SlNetFacts) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let is = match unsafe { kind(socket) }? {
            Kind::Connection(stream) => stream.facts(),
            Kind::Datagrams(datagrams) => datagrams.facts(),
            Kind::Listener(_) => return not_of_this_kind(),
        };
        if facts.is_null() {
            return Err(invalid());
        }
        // SAFETY: not null, and the caller's word.
        unsafe { facts.write(SlNetFacts::of(is)) };
        Ok(0)
    })
}

/// Closes a socket. Bytes written to a connection still go out, for at most a minute, even after the program's `exit`;
/// unread bytes reset it. The handle is gone, whatever the result. 0, or a negative errno.
///
/// # Safety
///
/// `socket` is null, or open; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_net_close(socket: *mut SlSocket) -> i32 {
    guarded_int(|| {
        if !socket.is_null() {
            // SAFETY: the caller's word: it was made by `Box::into_raw` here.
            drop(unsafe { Box::from_raw(socket) });
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::sl_net_error;
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    #[test]
    fn null_is_an_error() {
        let (none, mut length) = (null_mut(), 0);
        // SAFETY: null is permitted everywhere.
        unsafe {
            let mut socket = none;
            for open in [sl_net_connect, sl_net_listen, sl_net_udp] {
                assert_eq!(open(null(), null(), 16, &mut socket), -libc::EINVAL);
                assert_eq!(open(null(), null(), 0, null_mut()), -libc::EINVAL);
            }
            assert!(socket.is_null());
            assert_eq!(sl_net_accept(none, &mut socket, null_mut(), null_mut()), -libc::EINVAL);
            for refused in [
                sl_net_connected(none),
                sl_net_set_peer(none, null(), 0),
                sl_net_shutdown(none, libc::SHUT_RD),
                sl_net_poll_fd(none),
                sl_net_writable_fd(none),
                sl_net_set_nonblocking(none, 1),
                sl_net_set_timeouts(none, 1, 1),
                sl_net_set_linger(none, 1),
                sl_net_take_error(none),
                sl_net_facts_of(none, null_mut()),
                sl_net_local(none, null_mut(), &mut length),
                sl_net_peer(none, null_mut(), &mut length),
            ] {
                assert_eq!(refused, -libc::EINVAL);
            }
            for refused in [
                sl_net_read(none, null_mut(), 1),
                sl_net_write(none, null(), 1),
                sl_net_readv(none, null(), 1),
                sl_net_writev(none, null(), 1),
                sl_net_receive_from(none, null_mut(), 1, null_mut(), null_mut()),
                sl_net_send_to(none, null(), 1, null(), 0),
            ] {
                assert_eq!(refused, -i64::from(libc::EINVAL));
            }
            assert_eq!(sl_net_close(none), 0);
        }
    }

    #[test]
    fn without_a_daemon_the_text_says_where_it_should_be() {
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 1,
            sin_addr: libc::in_addr { s_addr: 1 },
            sin_zero: [0; 8],
        };
        // SAFETY: zeros are a value of each of its fields.
        let mut options: SlNetOptions = unsafe { std::mem::zeroed() };
        options.daemon = c"/nowhere/control".as_ptr();
        let (mut socket, length) = (null_mut(), size_of_val(&address) as socklen_t);
        let at: *const sockaddr = (&raw const address).cast();
        // SAFETY: an address, options, and a place.
        unsafe {
            assert_eq!(sl_net_connect(&options, at, length, &mut socket), -libc::ENETUNREACH);
            assert!(CStr::from_ptr(sl_net_error()).to_str().unwrap().contains("/nowhere/control"));
            options.share = c"\xff".as_ptr();
            assert_eq!(sl_net_udp(&options, at, length, &mut socket), -libc::EINVAL);
        }
    }
}
