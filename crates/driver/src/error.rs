//! Errors of devices, in words for users, with advice.
//!
//! A device that is down for a while is no error: see [`Turn`](crate::Turn).

use std::fmt;
use std::io;

/// Why a device cannot be used, or not any more.
#[derive(Debug)]
pub enum Error {
    /// There is no device of this name.
    Absent(String),
    /// The device is gone.
    Removed(String),
    /// The kernel refused it to this user.
    NotPermitted {
        /// The attempted action.
        doing: String,
        /// Advice.
        help: &'static str,
    },
    /// Neither kernel nor device can do this.
    Unsupported(String),
    /// The request contradicts itself or a limit.
    Invalid(String),
    /// Something else in the system failed.
    System {
        /// The attempted action.
        doing: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Error {
    /// Sorts `error`, which came while `doing` something with a device.
    pub(crate) fn of(doing: impl Into<String>, error: io::Error) -> Error {
        let doing = doing.into();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted {
                doing,
                help: "it takes root, or CAP_NET_RAW and CAP_NET_ADMIN in the device's network namespace",
            },
            io::ErrorKind::Unsupported => Error::Unsupported(doing),
            _ => Error::System { doing, error },
        }
    }

    /// The same, for `map_err`.
    pub(crate) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::of(doing, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Absent(name) => write!(f, "there is no device `{name}`"),
            Error::Removed(name) => write!(f, "the device `{name}` was removed"),
            Error::NotPermitted { doing, help } => write!(f, "cannot {doing}: not permitted; {help}"),
            Error::Unsupported(doing) => write!(f, "cannot {doing}: neither kernel nor device offers it"),
            Error::Invalid(what) => f.write_str(what),
            Error::System { doing, error } => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
