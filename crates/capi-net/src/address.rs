//! Addresses as in the kernel's socket calls.

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Reads an address.
///
/// # Safety
///
/// `address` is null, or readable for `length` bytes.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> io::Result<SocketAddr> {
    let length = length as usize;
    let error = |number| Err(io::Error::from_raw_os_error(number));
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return error(libc::EINVAL);
    }
    // SAFETY: there are that many bytes; C promises no alignment.
    let family = i32::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match family {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let is = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(is.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(is.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let is = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(is.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(ip, u16::from_be(is.sin6_port), is.sin6_flowinfo, is.sin6_scope_id).into())
        }
        libc::AF_INET | libc::AF_INET6 => error(libc::EINVAL),
        _ => error(libc::EAFNOSUPPORT),
    }
}

/// Writes an address in C's form: as many bytes as there is room for, and its full length.
///
/// # Safety
///
/// `address` is null, or writable for `*length` bytes; `length` is null, or readable and writable.
pub(crate) unsafe fn write(from: SocketAddr, address: *mut sockaddr, length: *mut socklen_t) {
    if address.is_null() || length.is_null() {
        return;
    }
    let put = |bytes: *const u8, whole: usize| {
        // SAFETY: `bytes` are those of one structure, as long as is said; the caller's word for the rest.
        unsafe {
            let room = length.read_unaligned() as usize;
            std::ptr::copy_nonoverlapping(bytes, address.cast(), room.min(whole));
            length.write_unaligned(whole as socklen_t);
        }
    };
    match from {
        SocketAddr::V4(from) => {
            let inet = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: from.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*from.ip()).to_be() },
                sin_zero: [0; 8],
            };
            put((&raw const inet).cast(), size_of_val(&inet));
        }
        SocketAddr::V6(from) => {
            let inet = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: from.port().to_be(),
                sin6_flowinfo: from.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: from.ip().octets() },
                sin6_scope_id: from.scope_id(),
            };
            put((&raw const inet).cast(), size_of_val(&inet));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_kernel() {
        for text in ["10.0.0.2:4000", "[fe80::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut place = [0xff_u8; 40];
            let (at, mut length) = (place[1..].as_mut_ptr().cast(), 39);
            // SAFETY: there are 39 bytes from there on.
            let read = unsafe {
                write(address, at, &mut length);
                read(at, length)
            };
            assert_eq!(read.unwrap(), address);
            for (length, expected) in [(0, libc::EINVAL), (1, libc::EINVAL), (15, libc::EINVAL)] {
                // SAFETY: as above.
                let error = unsafe { super::read(at, length) }.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(expected), "{length} bytes");
            }
        }
        let (unix, mut room) = ([1_u8, 0, 7, 7], [0xff_u8; 4]);
        let mut length = 3;
        // SAFETY: 4 bytes each; null is permitted.
        unsafe {
            assert_eq!(read(unix.as_ptr().cast(), 4).unwrap_err().raw_os_error(), Some(libc::EAFNOSUPPORT));
            assert_eq!(read(std::ptr::null(), 16).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            write("1.2.3.4:1".parse().unwrap(), room.as_mut_ptr().cast(), &mut length);
            write("1.2.3.4:1".parse().unwrap(), std::ptr::null_mut(), &mut length);
        }
        // The bytes that fit, and the full length.
        assert_eq!((room[3], length), (0xff, 16));
    }
}
