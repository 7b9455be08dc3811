//! Options of sockets that the host serves: options of TCP and IP, which a unix socket lacks.

use crate::ends::End;
use crate::host;
use crate::kernel::{call, fail, inode, quietly};
use libc::{c_int, c_void, socklen_t};
use socket_calls::{Answer, Call, NOWHERE, option};

/// Seconds between keep-alive probes if the program does not say (tcp(7): two hours).
pub(crate) const KEEP_ALIVE_SECONDS: i64 = 7200;

/// The congestion control of the stack.
const CONGESTION: &[u8] = b"cubic\0";

/// TCP options that have no effect here. Programs set them and ignore the result.
const HARMLESS: [c_int; 9] = [
    libc::TCP_CORK,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
    libc::TCP_QUICKACK,
    libc::TCP_DEFER_ACCEPT,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_MAXSEG,
    libc::TCP_SYNCNT,
    libc::TCP_NOTSENT_LOWAT,
];

/// The number in an option of this length. `None`: it has none.
///
/// # Safety
///
/// `value` is null, or readable for `length` bytes.
unsafe fn number(value: *const c_void, length: socklen_t) -> Option<c_int> {
    // SAFETY: as promised.
    (!value.is_null() && length >= 4).then(|| unsafe { value.cast::<c_int>().read_unaligned() })
}

/// Tells the host what to do with a closed socket's remaining bytes, by `SO_LINGER` of `fd`.
pub(crate) fn tell_linger(fd: c_int, inode: u64) {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut length = size_of::<libc::linger>() as socklen_t;
    let at = (&raw mut linger as usize, &raw mut length as usize);
    let name = libc::SO_LINGER as usize;
    if call(libc::SYS_getsockopt, [fd as usize, libc::SOL_SOCKET as usize, name, at.0, at.1]) == 0
        && linger.l_onoff != 0
    {
        host::ask(Call::Set, inode, NOWHERE, option::LINGER, i64::from(linger.l_linger) * 1000);
    }
}

/// `setsockopt` of a socket that the host serves.
///
/// # Safety
///
/// `value` is null, or readable for `length` bytes.
pub(crate) unsafe fn set(
    fd: c_int,
    end: End,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let tell = |what: i64, value: i64| {
        quietly(|| host::ask(Call::Set, inode(fd), NOWHERE, what, value));
        0
    };
    // SAFETY: as promised.
    let given = unsafe { number(value, length) };
    match (level, name) {
        // It holds the mark.
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => 0,
        (libc::SOL_SOCKET, _) => {
            let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
            let done = call(libc::SYS_setsockopt, arguments) as c_int;
            if done == 0 && name == libc::SO_LINGER {
                quietly(|| tell_linger(fd, inode(fd)));
            }
            if done == 0 && name == libc::SO_KEEPALIVE && end == End::Stream {
                return tell(option::KEEP_ALIVE, if given == Some(0) { 0 } else { KEEP_ALIVE_SECONDS });
            }
            done
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => match given {
            Some(on) => tell(option::NO_DELAY, i64::from(on != 0)),
            None => fail(libc::EINVAL),
        },
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => match given {
            Some(seconds @ 1..) => tell(option::KEEP_ALIVE, i64::from(seconds)),
            _ => fail(libc::EINVAL),
        },
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let given = match (value.is_null(), length) {
                (false, 1..=16) => {
                    // SAFETY: as promised.
                    unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length as usize) }
                }
                _ => return fail(libc::EINVAL),
            };
            let name = given.split(|byte| *byte == 0).next().unwrap_or(&[]);
            if CONGESTION.starts_with(name) && name.len() + 1 == CONGESTION.len() { 0 } else { fail(libc::ENOENT) }
        }
        (libc::IPPROTO_TCP, name) if HARMLESS.contains(&name) => 0,
        // Too late, as in the kernel: the socket has an address.
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => fail(libc::EINVAL),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => 0,
        _ => fail(libc::ENOPROTOOPT),
    }
}

/// Passes an option's value to C: as much as fits.
///
/// # Safety
///
/// `value` is writable for `*length` bytes, `length` readable and writable; or they are null.
unsafe fn give(bytes: &[u8], value: *mut c_void, length: *mut socklen_t) -> c_int {
    if value.is_null() || length.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: as promised.
    unsafe {
        let count = bytes.len().min(length.read_unaligned() as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count);
        length.write_unaligned(count as socklen_t);
    }
    0
}

/// The host's information about a socket, by the `number` of [`Call::Info`].
fn info(fd: c_int, number: i64) -> Option<Answer> {
    let asked = quietly(|| host::ask(Call::Info, inode(fd), NOWHERE, number, 0));
    asked.map(|(answer, _)| answer).filter(|answer| answer.errno == 0)
}

/// Bytes of a segment on Ethernet.
fn segment(known: Option<Answer>) -> u32 {
    if known.is_some_and(|known| known.address.is_ipv6()) { 1440 } else { 1460 }
}

/// `getsockopt` of a socket that the host serves.
///
/// # Safety
///
/// `value` is writable for `*length` bytes, `length` readable and writable; or they are null.
pub(crate) unsafe fn get(
    fd: c_int,
    end: End,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let is_stream = matches!(end, End::Stream | End::Listener);
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            quietly(|| host::ask_about(Call::Error, inode(fd))).map_or(libc::ENETDOWN, |answer| answer.errno)
        }
        (libc::SOL_SOCKET, libc::SO_DOMAIN) if info(fd, 0).is_some_and(|known| known.address.is_ipv6()) => {
            libc::AF_INET6
        }
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if is_stream => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(end == End::Listener),
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => 0,
        (libc::SOL_SOCKET, libc::SO_TYPE) => {
            if is_stream {
                libc::SOCK_STREAM
            } else {
                libc::SOCK_DGRAM
            }
        }
        (libc::SOL_SOCKET, _) => {
            let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
            return call(libc::SYS_getsockopt, arguments) as c_int;
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            // SAFETY: as promised.
            return unsafe { give(CONGESTION, value, length) };
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            let known = info(fd, 0);
            // CLOSE in the kernel's numbers, if the host does not know it any more.
            let state = known.map_or(7, |known| known.number);
            // SAFETY: all zeros is a value of this structure of numbers.
            let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
            info.tcpi_state = u8::try_from(state).unwrap_or(7);
            info.tcpi_snd_mss = segment(known);
            info.tcpi_rcv_mss = segment(known);
            // SAFETY: a structure of numbers without padding at its end; and as promised.
            return unsafe {
                let bytes = std::slice::from_raw_parts((&raw const info).cast::<u8>(), size_of_val(&info));
                give(bytes, value, length)
            };
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => segment(info(fd, 0)) as c_int,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => KEEP_ALIVE_SECONDS as c_int,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => 0,
        (libc::IPPROTO_TCP, name) if HARMLESS.contains(&name) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => info(fd, 1).map_or(0, |known| known.number as c_int),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => 0,
        _ => return fail(libc::ENOPROTOOPT),
    };
    // SAFETY: as promised.
    unsafe { give(&number.to_ne_bytes(), value, length) }
}
