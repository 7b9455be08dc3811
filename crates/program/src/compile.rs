//! The interface of a compiler for tcpdump expressions: a trait and its error. The `libpcap` crate has a compiler,
//! which loads the system's libpcap; the facade passes it in.

use crate::cbpf::Instruction;

/// Turns tcpdump text into a classic BPF program in file mode (no ancillary loads).
///
/// Compiling may resolve host names in the expression, and so may block on the network.
pub trait Compile: Send + Sync {
    /// Compiles `expression` for packets of `link_type`, of which at most `snap_len` bytes are kept.
    ///
    /// `link_type` is the number in capture files (LINKTYPE_, draft-ietf-opsawg-pcaplinktype). A file of the other byte
    /// order with link type 0 (BSD loopback, a word in the writer's order) needs 108 on little-endian machines: that is
    /// the same header in network order. A `snap_len` of 0 means no limit.
    ///
    /// The program returns `snap_len` for an accepted packet. An expression that no packet can match compiles to a
    /// program that returns 0, and is no error.
    fn compile(&self, expression: &str, link_type: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError>;

    /// Names the compiler and its version, e.g. `libpcap version 1.10.3`, or says that it is missing.
    fn describe(&self) -> String;
}

/// Why an expression could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// Says what is wrong and, if possible, what to do.
    pub message: String,
    /// Whether the expression or the system is at fault.
    pub kind: CompileErrorKind,
}

/// The cause of a [`CompileError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileErrorKind {
    /// The expression is wrong, or does not apply to this link type.
    Syntax,
    /// The compiler is missing or broken. The message says what to install.
    Unavailable,
}

impl CompileError {
    /// An error in the expression.
    pub fn syntax(message: impl Into<String>) -> CompileError {
        CompileError { message: message.into(), kind: CompileErrorKind::Syntax }
    }

    /// An error of the system, which lacks the compiler.
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
