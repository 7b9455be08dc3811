//! What the faces for C share: errors as numbers and as texts, and no panic that crosses into C.

use crate::fault;
use std::ffi::CString;
use std::io::{Error, ErrorKind, Result};

/// The text of an error whose cause is a panic.
pub const FAULT: &str = "the library failed: this is a fault in it";

/// Runs the work of a C function, which `place` names. Returns its result, or the negative number that `errno` gives
/// for its error. A panic is a fault of the library: it becomes EIO, and the work may be half done.
pub fn guarded(place: &str, work: impl FnOnce() -> Result<i64>, errno: impl FnOnce(&Error) -> i32) -> i64 {
    let done = fault::contained(place, work).unwrap_or_else(|| Err(Error::other(FAULT)));
    done.unwrap_or_else(|error| -i64::from(errno(&error)))
}

/// A result as C's `int`.
pub fn int(result: i64) -> i32 {
    i32::try_from(result).unwrap_or(i32::MAX)
}

/// A text for C. Zero bytes, which such texts cannot have, are left out.
pub fn text(text: impl Into<Vec<u8>>) -> CString {
    let mut text = text.into();
    text.retain(|byte| *byte != 0);
    CString::new(text).unwrap_or_default()
}

/// The Linux errno for this error: the system's own if it gave one, else the nearest, else EIO.
pub fn errno_of(error: &Error) -> i32 {
    error.raw_os_error().filter(|errno| *errno > 0).unwrap_or(match error.kind() {
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::InvalidData => libc::EPROTO,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Unsupported => libc::ENOTSUP,
        ErrorKind::StaleNetworkFileHandle => libc::ESTALE,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::Interrupted => libc::EINTR,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_word_goes_first() {
        for (error, expected) in [
            (Error::from_raw_os_error(libc::EMSGSIZE), libc::EMSGSIZE),
            (Error::new(ErrorKind::PermissionDenied, "in words"), libc::EACCES),
            (Error::other("anything"), libc::EIO),
            (Error::from_raw_os_error(0), libc::EIO),
        ] {
            assert_eq!(errno_of(&error), expected, "{error}");
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let guarded = |work: fn() -> Result<i64>| guarded("a test", work, errno_of);
        assert_eq!(guarded(|| panic!("to be caught")), -i64::from(libc::EIO));
        assert_eq!(guarded(|| Err(ErrorKind::BrokenPipe.into())), -i64::from(libc::EPIPE));
        assert_eq!(guarded(|| Ok(7)), 7);
        assert_eq!((int(-5), int(i64::MAX)), (-5, i32::MAX));
    }

    #[test]
    fn texts_have_no_zero_bytes() {
        assert_eq!(text("a\0b").as_c_str(), c"ab");
    }
}
