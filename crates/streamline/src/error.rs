//! Why a request failed, sorted by whose fault it is.

use control::transaction::CarryError;
use filter::Failure;
use request::Diagnostic;

/// An error, sorted by whose fault it is.
#[derive(Clone, Debug)]
pub enum Error {
    /// The request is wrong: the place, and what would be right.
    Request(Diagnostic),
    /// The request turned out to be wrong once the input was known.
    Input(String),
    /// Input, output or the system failed.
    System(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Request(diagnostic) => diagnostic.fmt(f),
            Error::Input(text) | Error::System(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Error {
        Error::Request(diagnostic)
    }
}

impl From<CarryError> for Error {
    fn from(error: CarryError) -> Error {
        match error {
            CarryError::Request(diagnostic) => Error::Request(diagnostic),
            CarryError::System(text) => Error::System(text),
        }
    }
}

impl From<Box<Failure>> for Error {
    fn from(failure: Box<Failure>) -> Error {
        match *failure {
            Failure::Request(text) => Error::Input(text),
            Failure::System(text) => Error::System(text),
        }
    }
}
