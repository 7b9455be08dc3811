//! Why an interface or a flow was refused, with a remedy in the text.

use std::fmt;

/// The kind of a refusal, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetErrorKind {
    /// There is no such interface, device or channel.
    Absent,
    /// The address, the port or the device is in use.
    InUse,
    /// This user has no permission.
    Denied,
    /// A limit is reached.
    Full,
    /// The request contradicts itself or the interface.
    Request,
    /// Something in the system failed.
    System,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetError {
    /// For programs.
    pub kind: NetErrorKind,
    /// For people: the error, and a remedy.
    pub text: String,
}

impl NetError {
    /// A refusal.
    pub fn new(kind: NetErrorKind, text: impl Into<String>) -> NetError {
        NetError { kind, text: text.into() }
    }

    pub(crate) fn system(doing: &str, error: impl fmt::Display) -> NetError {
        NetError::new(NetErrorKind::System, format!("cannot {doing}: {error}"))
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NetError {}

impl From<driver::Error> for NetError {
    fn from(error: driver::Error) -> NetError {
        let kind = match &error {
            driver::Error::Absent(_) | driver::Error::Removed(_) => NetErrorKind::Absent,
            driver::Error::NotPermitted { .. } => NetErrorKind::Denied,
            driver::Error::Unsupported(_) | driver::Error::Invalid(_) => NetErrorKind::Request,
            driver::Error::System { .. } => NetErrorKind::System,
        };
        NetError::new(kind, error.to_string())
    }
}
