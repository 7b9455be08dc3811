//! What is wrong with a file of rules, and where.

use std::fmt;

/// A mistake, or something that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line in the file; the first is 1.
    pub line: u32,
    /// Column in bytes; the first is 1.
    pub column: u32,
    /// What is wrong, without a full stop.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

/// A mistake at a byte of the text of one rule, before lines are counted.
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

/// A result whose error says where in the rule.
pub(crate) type Read<T> = Result<T, Wrong>;
