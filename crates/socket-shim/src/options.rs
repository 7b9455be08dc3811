//! Options of sockets that the host serves. An option is one of these, or ENOPROTOOPT: a program that is refused does
//! without, and a program that is granted something wrongly does not.
//!
//! - the host keeps it, acts on it and says it again ([`KEPT`])
//! - the program's end has it, as every unix socket ([`OF_THE_END`])
//! - it has one value here: `TCP_CONGESTION`, `IP_MTU_DISCOVER`, `IP_OPTIONS`

use crate::ends::End;
use crate::host;
use crate::kernel::{call, fail, inode, option, quietly};
use libc::{c_int, c_void, socklen_t};
use socket_calls::{Answer, Call, NOWHERE, Setting};
use std::ops::RangeInclusive;

/// The congestion control of the stack.
const CONGESTION: &[u8] = b"cubic\0";

/// An option that the host keeps.
struct Kept {
    level: c_int,
    name: c_int,
    setting: Setting,
    form: Form,
}

/// The values of an option.
enum Form {
    /// 0, or anything else.
    Switch,
    /// Seconds, from 1.
    Seconds,
    /// The type of service or traffic class. TCP keeps its two lowest bits for itself.
    Class,
    /// A number of hops.
    Hops,
}

const KEPT: [Kept; 9] = [
    Kept { level: libc::SOL_SOCKET, name: libc::SO_KEEPALIVE, setting: Setting::KeepAlive, form: Form::Switch },
    Kept { level: libc::SOL_SOCKET, name: libc::SO_REUSEPORT, setting: Setting::SharesPort, form: Form::Switch },
    Kept { level: libc::IPPROTO_TCP, name: libc::TCP_NODELAY, setting: Setting::NoDelay, form: Form::Switch },
    Kept { level: libc::IPPROTO_TCP, name: libc::TCP_CORK, setting: Setting::Cork, form: Form::Switch },
    Kept { level: libc::IPPROTO_TCP, name: libc::TCP_KEEPIDLE, setting: Setting::KeepIdle, form: Form::Seconds },
    Kept { level: libc::IPPROTO_IP, name: libc::IP_TOS, setting: Setting::Service, form: Form::Class },
    Kept { level: libc::IPPROTO_IP, name: libc::IP_TTL, setting: Setting::Ttl, form: Form::Hops },
    Kept { level: libc::IPPROTO_IPV6, name: libc::IPV6_TCLASS, setting: Setting::Class, form: Form::Class },
    Kept { level: libc::IPPROTO_IPV6, name: libc::IPV6_UNICAST_HOPS, setting: Setting::Hops, form: Form::Hops },
];

/// Options of `SOL_SOCKET` that the program's end has: buffers and time limits, and switches that only programs read.
const OF_THE_END: [c_int; 13] = [
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_SNDBUFFORCE,
    libc::SO_RCVBUFFORCE,
    libc::SO_SNDTIMEO,
    libc::SO_RCVTIMEO,
    SO_SNDTIMEO_NEW,
    SO_RCVTIMEO_NEW,
    libc::SO_LINGER,
    libc::SO_REUSEADDR,
    libc::SO_BROADCAST,
    libc::SO_OOBINLINE,
    libc::SO_COOKIE,
];

/// Time stamps and time limits with 64 bits of seconds (socket(7)).
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// Options that add ancillary data to datagrams, or need it. No flow does. A program sets most of them before its socket
/// has an address, so a kernel socket that may become a flow does not get them either.
const ANCILLARY: [(c_int, &[c_int]); 5] = [
    (libc::SOL_SOCKET, &[libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, libc::SO_TIMESTAMPING]),
    (libc::SOL_SOCKET, &[SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW, SO_TIMESTAMPING_NEW]),
    (libc::IPPROTO_IP, &[libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS, libc::IP_RECVERR]),
    (libc::IPPROTO_IPV6, &[libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS, libc::IPV6_RECVERR]),
    (libc::IPPROTO_UDP, &[libc::UDP_SEGMENT, libc::UDP_GRO]),
];

/// Whether the option, with this value, adds ancillary data to datagrams.
///
/// # Safety
///
/// `value` is null, or readable for `length` bytes.
pub(crate) unsafe fn is_ancillary(level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> bool {
    let is_named = ANCILLARY.iter().any(|(of, names)| *of == level && names.contains(&name));
    // SAFETY: as promised.
    is_named && unsafe { number(value, length) } != Some(0)
}

impl Kept {
    fn of(level: c_int, name: c_int) -> Option<&'static Kept> {
        KEPT.iter().find(|kept| kept.level == level && kept.name == name)
    }

    /// The value that the host keeps for one that a program gives. `None`: EINVAL.
    fn value(&self, given: c_int, is_stream: bool) -> Option<i64> {
        let within = |range: RangeInclusive<c_int>| range.contains(&given).then_some(i64::from(given));
        match self.form {
            Form::Switch => Some(i64::from(given != 0)),
            Form::Seconds => within(1..=32767),
            Form::Class | Form::Hops if given == -1 && self.name != libc::IP_TOS => Some(self.setting.usual()),
            Form::Class if self.level == libc::IPPROTO_IPV6 && within(0..=255).is_none() => None,
            Form::Class => Some(i64::from(given & if is_stream { 0xfc } else { 0xff })),
            Form::Hops => within(1..=255),
        }
    }
}

/// The value that a kernel socket has for a setting. `None`: it has no such option, or the usual value.
fn of_kernel(fd: c_int, setting: Setting) -> Option<i64> {
    let kept = KEPT.iter().find(|kept| kept.setting == setting)?;
    option(fd, kept.level, kept.name).map(i64::from).filter(|value| *value != setting.usual())
}

/// The options of a kernel socket that its flow is to have, apart from the usual values.
pub(crate) fn all_of_kernel(fd: c_int) -> [Option<i64>; Setting::ALL.len()] {
    Setting::ALL.map(|setting| of_kernel(fd, setting))
}

/// The fields of the IP header of a kernel socket: see [`socket_calls::marks`].
pub(crate) fn marks(fd: c_int) -> i64 {
    let value = |setting: Setting| of_kernel(fd, setting).unwrap_or(setting.usual());
    socket_calls::marks(Setting::MARKS.map(|setting| u8::try_from(value(setting)).unwrap_or(0)))
}

/// Tells the host an option of a socket. Returns the error, or 0.
pub(crate) fn tell(inode: u64, setting: Setting, value: i64) -> c_int {
    let asked = quietly(|| host::ask(Call::Set, inode, NOWHERE, setting as i64, value));
    asked.map_or(libc::ENETDOWN, |(answer, _)| answer.errno)
}

/// The number in an option's value, also in its short form (ip(7)). `None`: it has none.
///
/// # Safety
///
/// `value` is null, or readable for `length` bytes.
unsafe fn number(value: *const c_void, length: socklen_t) -> Option<c_int> {
    match length {
        _ if value.is_null() => None,
        0 => None,
        // SAFETY: as promised.
        1..4 => Some(c_int::from(unsafe { value.cast::<u8>().read() })),
        // SAFETY: as promised.
        _ => Some(unsafe { value.cast::<c_int>().read_unaligned() }),
    }
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
        tell(inode, Setting::Linger, i64::from(linger.l_linger) * 1000);
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
    let done = |errno: c_int| if errno == 0 { 0 } else { fail(errno) };
    // SAFETY: as promised.
    let given = unsafe { number(value, length) };
    if let Some(kept) = Kept::of(level, name).filter(|_| end.has(level)) {
        // Only options of IPv4 have a short form.
        let given = given.filter(|_| length >= 4 || level == libc::IPPROTO_IP);
        let value = given.and_then(|given| kept.value(given, end.is_stream()));
        return done(value.map_or(libc::EINVAL, |value| tell(inode(fd), kept.setting, value)));
    }
    match (level, name) {
        (libc::SOL_SOCKET, name) if OF_THE_END.contains(&name) => {
            let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
            let done = call(libc::SYS_setsockopt, arguments) as c_int;
            if done == 0 && name == libc::SO_LINGER {
                quietly(|| tell_linger(fd, inode(fd)));
            }
            done
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) if end.is_stream() => {
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
        // Too late, as in the kernel: the socket has an address.
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if is_v6(fd) => fail(libc::EINVAL),
        // A flow sends no options of IP.
        (libc::IPPROTO_IP, libc::IP_OPTIONS) if length == 0 => 0,
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) if given == Some(libc::IP_PMTUDISC_DO) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) if given == Some(libc::IP_PMTUDISC_DO) && is_v6(fd) => 0,
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

/// Whether the socket has IPv6 addresses.
fn is_v6(fd: c_int) -> bool {
    info(fd, 0).is_some_and(|known| known.address.is_ipv6())
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
    if let Some(kept) = Kept::of(level, name).filter(|_| end.has(level)) {
        let asked = quietly(|| host::ask(Call::Get, inode(fd), NOWHERE, kept.setting as i64, 0));
        return match asked {
            // SAFETY: as promised.
            Some((answer, _)) if answer.errno == 0 => unsafe {
                give(&(answer.number as c_int).to_ne_bytes(), value, length)
            },
            Some((answer, _)) => fail(answer.errno),
            None => fail(libc::ENETDOWN),
        };
    }
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            quietly(|| host::ask_about(Call::Error, inode(fd))).map_or(libc::ENETDOWN, |answer| answer.errno)
        }
        (libc::SOL_SOCKET, libc::SO_DOMAIN) if is_v6(fd) => libc::AF_INET6,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if end.is_stream() => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => c_int::from(end == End::Listener),
        // The end's own holds the mark.
        (libc::SOL_SOCKET, libc::SO_PRIORITY) => 0,
        (libc::SOL_SOCKET, libc::SO_TYPE) if end.is_stream() => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
        (libc::SOL_SOCKET, name) if OF_THE_END.contains(&name) => {
            let arguments = [fd as usize, level as usize, name as usize, value as usize, length as usize];
            return call(libc::SYS_getsockopt, arguments) as c_int;
        }
        (libc::IPPROTO_TCP, _) if !end.is_stream() => return fail(libc::ENOPROTOOPT),
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
        (libc::IPPROTO_IP, libc::IP_OPTIONS) => {
            // SAFETY: as promised.
            return unsafe { give(&[], value, length) };
        }
        // Every packet prohibits fragments, and what is too long is EMSGSIZE.
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => libc::IP_PMTUDISC_DO,
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) if is_v6(fd) => libc::IP_PMTUDISC_DO,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if is_v6(fd) => info(fd, 1).map_or(0, |known| known.number as c_int),
        _ => return fail(libc::ENOPROTOOPT),
    };
    // SAFETY: as promised.
    unsafe { give(&number.to_ne_bytes(), value, length) }
}
