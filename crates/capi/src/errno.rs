//! Errors as numbers: the system's own if it gave one, else the nearest.

use std::io::{Error, ErrorKind};

/// The errno for this error.
pub fn of(error: &Error) -> i32 {
    error.raw_os_error().filter(|errno| *errno > 0).unwrap_or(match error.kind() {
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
            assert_eq!(of(&error), expected, "{error}");
        }
    }
}
