//! System calls that bypass the C library's functions, which this library replaces.

use libc::{c_int, c_long, c_void, socklen_t};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Makes a system call. Returns its number, or -1 with `errno` set.
pub(crate) fn call<const N: usize>(number: c_long, arguments: [usize; N]) -> isize {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: the caller passes arguments of a C program, which is responsible for them, or its own variables.
    unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) as isize }
}

/// `errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives each thread its place.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`, and returns -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library gives each thread its place.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Does something without changing `errno`.
pub(crate) fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let before = errno();
    let done = act();
    fail(before);
    done
}

/// A numeric option of a socket. `None`: it has no such option, or `fd` is no socket.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (mut value, mut length): (c_int, socklen_t) = (0, 4);
    let (value_at, length_at) = (&raw mut value as usize, &raw mut length as usize);
    let done = call(libc::SYS_getsockopt, [fd as usize, level as usize, name as usize, value_at, length_at]);
    (done == 0 && length == 4).then_some(value)
}

/// Copies an option of any form from one socket to another, if both have it.
pub(crate) fn copy_option(from: c_int, to: c_int, level: c_int, name: c_int) {
    let mut value = [0u64; 4];
    let mut length: socklen_t = 32;
    let (value_at, length_at) = (value.as_mut_ptr() as usize, &raw mut length as usize);
    if call(libc::SYS_getsockopt, [from as usize, level as usize, name as usize, value_at, length_at]) == 0 {
        call(libc::SYS_setsockopt, [to as usize, level as usize, name as usize, value_at, length as usize]);
    }
}

/// Sets a numeric option.
pub(crate) fn set_option(fd: c_int, name: c_int, value: c_int) {
    let value_at = &raw const value as usize;
    call(libc::SYS_setsockopt, [fd as usize, libc::SOL_SOCKET as usize, name as usize, value_at, 4]);
}

/// The inode of a file descriptor, which identifies a socket.
pub(crate) fn inode(fd: c_int) -> u64 {
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    match call(libc::SYS_fstat, [fd as usize, &raw mut stat as usize]) {
        0 => stat.st_ino,
        _ => 0,
    }
}

/// Closes a file descriptor.
pub(crate) fn close(fd: c_int) {
    call(libc::SYS_close, [fd as usize]);
}

/// Reads an IPv4 or IPv6 address in C's form. `None`: another family.
///
/// # Safety
///
/// `address` is null, or readable for `length` bytes.
pub(crate) unsafe fn read_address(address: *const c_void, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: that many bytes are readable; C guarantees no alignment.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    if family == libc::AF_INET && length >= size_of::<libc::sockaddr_in>() {
        // SAFETY: as above.
        let inet = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
        let ip = Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr));
        return Some(SocketAddr::new(ip.into(), u16::from_be(inet.sin_port)));
    }
    if family == libc::AF_INET6 && length >= size_of::<libc::sockaddr_in6>() {
        // SAFETY: as above.
        let inet = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
        let ip = Ipv6Addr::from(inet.sin6_addr.s6_addr);
        return Some(SocketAddr::new(ip.into(), u16::from_be(inet.sin6_port)));
    }
    None
}

/// Whether this is an address without a family, which removes a socket's peer.
///
/// # Safety
///
/// `address` is null, or readable for `length` bytes.
pub(crate) unsafe fn is_unspecified(address: *const c_void, length: socklen_t) -> bool {
    let is_there = !address.is_null() && length as usize >= size_of::<libc::sa_family_t>();
    // SAFETY: that many bytes are readable; C guarantees no alignment.
    is_there && c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) == libc::AF_UNSPEC
}

/// Whether this kernel socket has a port: it was bound, or has sent.
pub(crate) fn has_port(fd: c_int) -> bool {
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&address) as socklen_t;
    let (address_at, length_at) = (&raw mut address as usize, &raw mut length as usize);
    // The port has the same offset in an IPv4 address.
    call(libc::SYS_getsockname, [fd as usize, address_at, length_at]) == 0 && address.sin6_port != 0
}

/// Writes an address in C's form: as much as fits, and its full length.
///
/// # Safety
///
/// `address` is null, or writable for `*length` bytes; `length` is null, or readable and writable.
pub(crate) unsafe fn write_address(from: SocketAddr, address: *mut c_void, length: *mut socklen_t) {
    if address.is_null() || length.is_null() {
        return;
    }
    let give = |bytes: *const u8, whole: usize| {
        // SAFETY: as promised; and `whole` bytes exist.
        unsafe {
            let room = length.read_unaligned() as usize;
            std::ptr::copy_nonoverlapping(bytes, address.cast(), room.min(whole));
            length.write_unaligned(whole as socklen_t);
        }
    };
    match from {
        SocketAddr::V4(from) => {
            let inet = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: from.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*from.ip()).to_be() },
                sin_zero: [0; 8],
            };
            give((&raw const inet).cast(), size_of_val(&inet));
        }
        SocketAddr::V6(from) => {
            let inet = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: from.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: from.ip().octets() },
                sin6_scope_id: 0,
            };
            give((&raw const inet).cast(), size_of_val(&inet));
        }
    }
}
