//! The door to a compiler of tcpdump expressions: a trait and its error. No compiler lives here; the `libpcap` crate has
//! the one that loads the system's libpcap, and the facade hands it in.

use crate::cbpf::Instruction;

/// Turns tcpdump text into a classic BPF program in file mode (no ancillary loads).
///
/// Compiling may resolve host names that stand in the expression, and so may block on the network.
pub trait Compile: Send + Sync {
    /// Compiles `expression` for packets of `link_type` of which at most `snap_len` bytes are kept.
    ///
    /// `link_type` is the number that stands in capture files (LINKTYPE_, draft-ietf-opsawg-pcaplinktype). For a file of
    /// the other byte order with link type 0 (BSD loopback, a word in the writer's order) pass 108 on little-endian
    /// machines: that is the same header in network order. A `snap_len` of 0 means no limit.
    ///
    /// An accepted packet makes the program return `snap_len`. An expression that no packet can match is a program that
    /// returns 0, not an error.
    fn compile(&self, expression: &str, link_type: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError>;

    /// Names the compiler and its version, e.g. `libpcap version 1.10.3`, or says that it is missing.
    fn describe(&self) -> String;
}

/// Why there is no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// For people: what is wrong and, where it helps, what to do.
    pub message: String,
    /// Whose fault it is.
    pub kind: CompileErrorKind,
}

/// Whose fault a [`CompileError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileErrorKind {
    /// The expression is wrong, or cannot be asked of this link type.
    Syntax,
    /// The compiler is not there or does not work; the message says what to install.
    Unavailable,
}

impl CompileError {
    /// An error in the expression.
    pub fn syntax(message: impl Into<String>) -> CompileError {
        CompileError { message: message.into(), kind: CompileErrorKind::Syntax }
    }

    /// An error of the system the compiler should come from.
    pub fn unavailable(message: impl Into<String>) -> CompileError {
        CompileError { message: message.into(), kind: CompileErrorKind::Unavailable }
    }
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for CompileError {}
