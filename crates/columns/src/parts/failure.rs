//! What went wrong with a file, for people.

use arrow_schema::ArrowError;
use base::terminal;
use filter::Failure;
use filters::parts::system::{is_full, reason};
use parquet::errors::ParquetError;
use std::io;
use std::path::Path;

/// Why a table was not written.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The system failed.
    Io(io::Error),
    /// The encoder refused the table.
    Table(String),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
        Wrong::Io(error)
    }
}

impl From<ArrowError> for Wrong {
    fn from(error: ArrowError) -> Wrong {
        match error {
            ArrowError::IoError(_, error) => Wrong::Io(error),
            error => Wrong::Table(error.to_string()),
        }
    }
}

impl From<ParquetError> for Wrong {
    fn from(error: ParquetError) -> Wrong {
        match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => Wrong::Io(*error),
                Err(error) => Wrong::Table(error.to_string()),
            },
            error => Wrong::Table(error.to_string()),
        }
    }
}

impl Wrong {
    /// The failure of the run. `left`: what of the output is there.
    pub(crate) fn failure(&self, what: &Path, left: &str) -> Box<Failure> {
        let (why, hint) = match self {
            Wrong::Io(error) if is_full(error) => (reason(error), "make room; "),
            Wrong::Io(error) => (reason(error), ""),
            Wrong::Table(error) => (error.clone(), ""),
        };
        Box::new(Failure::System(format!("cannot write `{}`: {why}; {hint}{left}", terminal::name(what))))
    }
}
