//! Mistakes in a file of rules, with their position.

use std::fmt;

/// A mistake, or an unsupported feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line in the file, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// The number of the rule, if its text shows one.
    pub sid: Option<u32>,
    /// The reason, without a full stop.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

/// A mistake at a byte of one rule, before it becomes line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub at: usize,
    pub reason: String,
}

impl Wrong {
    pub fn new(at: usize, reason: impl Into<String>) -> Wrong {
        Wrong { at, reason: reason.into() }
    }
}

pub(crate) type Read<T> = Result<T, Wrong>;
