//! The system's libpcap, loaded at run time for one purpose: to compile tcpdump expressions.
//!
//! It captures nothing and reads no files. It is never linked, because Streamline has a library of its own that exports
//! the same names. Loaded at run time, apart from the process's names, the two do not meet. It is loaded when [`Lazy`]
//! is first asked. Without libpcap only filters given as tcpdump text are missing.
//!
//! Facts about libpcap:
//! - It resolves host, network and service names in expressions, so compiling may block on the network.
//! - Its optimiser takes time cubic in the expression's length: a list of 1,000 ports would take minutes. Beyond
//!   [`MAX_OPTIMISED_BYTES`] it is left out.
//! - It walks its graph by recursion, so it gets a thread with a stack of its own.
//! - Several threads can use it only since version 1.8, so one expression is compiled at a time.
//!
//! tcpdump refuses an expression that no packet can match (`expression rejects all packets`). Here it is a program that
//! returns 0: in a request made by a script, matching no packet is a valid answer. A caller that wants to warn can ask
//! `program::Program::always`.

mod library;
mod link_type;

pub use library::Libpcap;

use program::cbpf::Instruction;
use program::{Compile, CompileError};
use std::sync::OnceLock;

/// The longest expression that is compiled; in the worst case (1,300 ports) that takes up to a quarter of a minute.
pub const MAX_EXPRESSION_BYTES: usize = 16 * 1024;

/// The longest expression that is optimised. In the worst case that takes up to six seconds, and a tenth of a second
/// for a kilobyte.
pub const MAX_OPTIMISED_BYTES: usize = 4 * 1024;

/// The system's libpcap, loaded when first needed. If loading fails, the error is kept and given again.
#[derive(Debug, Default)]
pub struct Lazy {
    loaded: OnceLock<Result<Libpcap, CompileError>>,
}

impl Lazy {
    /// Loads nothing yet.
    pub const fn new() -> Lazy {
        Lazy { loaded: OnceLock::new() }
    }

    fn library(&self) -> Result<&Libpcap, CompileError> {
        self.loaded.get_or_init(Libpcap::load).as_ref().map_err(CompileError::clone)
    }
}

impl Compile for Lazy {
    fn compile(&self, expression: &str, link_type: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError> {
        self.library()?.compile(expression, link_type, snap_len)
    }

    fn describe(&self) -> String {
        self.library().map_or_else(|error| error.message, Compile::describe)
    }
}
