//! Errors of sockets.

use capture::{CaptureError, CaptureErrorKind};
use rustix::io::Errno;
use std::fmt;
use std::io;

/// ENETDOWN on Linux: the flow has ended with its interface or daemon.
pub(crate) const ENETDOWN: i32 = 100;

/// Why a socket call failed.
#[derive(Debug)]
pub enum SocketError {
    /// No daemon answers, or its answer makes no sense.
    Daemon(io::Error),
    /// The daemon refuses; its text says why and what to do.
    Refused(CaptureErrorKind, String),
    /// The text of the stack is wrong.
    Stack {
        /// The error, and its place in the text.
        error: stack::StackError,
        /// The text.
        text: String,
    },
    /// The text of the stack contradicts the flow; the string says how.
    Mismatch(String),
    /// The stack did not send the packet.
    NotSent(stack::SendError),
    /// The channel has no room now: wait, then try again.
    Full,
    /// The payload does not fit one packet of the interface.
    TooLong,
    /// The socket has no peer, and the call names no address.
    NoDestination,
    /// The driver closed the flow; this errno says why.
    Closed(i32),
    /// The driver reported an error about an earlier packet, as an errno: ECONNREFUSED if the port is closed.
    Reported(i32),
}

impl SocketError {
    /// The daemon has gone with its flows (ENETDOWN).
    pub const GONE: SocketError = SocketError::Closed(ENETDOWN);

    pub(crate) fn stack(error: stack::StackError, text: &str) -> SocketError {
        SocketError::Stack { error, text: text.to_string() }
    }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// The Linux errno for a socket error: the error's own, else the nearest one, else EIO.
pub fn errno_of(error: &io::Error) -> i32 {
    use io::ErrorKind;
    let nearest = match error.kind() {
        _ if error.raw_os_error().is_some_and(|number| number > 0) => None,
        ErrorKind::NetworkUnreachable | ErrorKind::NotFound => Some(Errno::NETUNREACH),
        ErrorKind::QuotaExceeded => Some(Errno::NOBUFS),
        ErrorKind::Unsupported => Some(Errno::AFNOSUPPORT),
        _ => None,
    };
    nearest.map_or_else(|| base::c_face::errno_of(error), Errno::raw_os_error)
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::Daemon(error) => write!(f, "{error}"),
            SocketError::Refused(_, text) => f.write_str(text),
            SocketError::Stack { error, text } => {
                let at = text.get(error.span.start..error.span.end).unwrap_or_default();
                write!(f, "`{at}`: {}", error.message)?;
                error.help.iter().try_for_each(|help| write!(f, "; {help}"))
            }
            SocketError::Mismatch(text) => f.write_str(text),
            SocketError::NotSent(error) => write!(f, "{error}"),
            SocketError::Full => f.write_str("the channel to the driver is full"),
            SocketError::TooLong => f.write_str("the payload is longer than a packet of the interface can carry"),
            SocketError::NoDestination => f.write_str("the socket has no peer, and no address was given"),
            SocketError::Closed(number) => write!(f, "the flow was closed: {}", errno(*number)),
            SocketError::Reported(number) => write!(f, "{}", errno(*number)),
        }
    }
}

impl std::error::Error for SocketError {}

impl From<CaptureError> for SocketError {
    fn from(error: CaptureError) -> SocketError {
        SocketError::Refused(error.kind, error.text)
    }
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> io::Error {
        match error {
            SocketError::Daemon(error) => error,
            SocketError::Full => io::ErrorKind::WouldBlock.into(),
            SocketError::Closed(number) | SocketError::Reported(number) => errno(number),
            SocketError::Refused(kind, text) => io::Error::new(
                match kind {
                    CaptureErrorKind::Denied => io::ErrorKind::PermissionDenied,
                    CaptureErrorKind::Cannot => io::ErrorKind::AddrInUse,
                    CaptureErrorKind::Absent => io::ErrorKind::AddrNotAvailable,
                    CaptureErrorKind::Full => io::ErrorKind::QuotaExceeded,
                    CaptureErrorKind::System => io::ErrorKind::Other,
                    _ => io::ErrorKind::InvalidInput,
                },
                text,
            ),
            other => io::Error::new(io::ErrorKind::InvalidInput, other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_number_goes_first() {
        for (error, expected) in [
            (errno(90), 90),
            (errno(0), 5),
            (io::Error::new(io::ErrorKind::PermissionDenied, "in words"), 13),
            (SocketError::Full.into(), 11),
            (SocketError::GONE.into(), ENETDOWN),
            (SocketError::Refused(CaptureErrorKind::Absent, "no such interface".into()).into(), 99),
            (io::Error::other("anything"), 5),
        ] {
            assert_eq!(errno_of(&error), expected, "{error}");
        }
    }
}
