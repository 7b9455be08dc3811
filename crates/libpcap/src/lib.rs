//! The system's libpcap, loaded at run time for one purpose: to compile tcpdump expressions.
//!
//! It captures nothing and reads no files. It is never linked, for Streamline has a library of its own that exports the
//! same names; loaded by hand, apart from the names of the process, the two do not meet. Nothing is loaded before
//! [`Lazy`] is first asked, and without libpcap only filters given as tcpdump text are missing.
//!
//! What libpcap does that one should know:
//! - it resolves host, network and service names in expressions, so compiling may block on the network;
//! - its optimiser takes time with the cube of the expression's length: a list of 1,000 ports would take minutes. Beyond
//!   [`MAX_OPTIMISED_BYTES`] it is left out;
//! - it walks its graph by recursion, so it gets a thread with a stack of its own;
//! - it can be used by several threads since version 1.8 only, so one expression is compiled at a time.
//!
//! tcpdump refuses an expression that no packet can match (`expression rejects all packets`). Here it is a program that
//! returns 0: in a request that is made by a script, "nothing passes" is an answer. Whoever wants to warn asks
//! `program::Program::always`.

mod library;
mod link_type;

pub use library::Libpcap;

use program::cbpf::Instruction;
use program::{Compile, CompileError};
use std::sync::OnceLock;

/// The longest expression taken; compiling takes up to a quarter of a minute in the worst case (1,300 ports).
pub const MAX_EXPRESSION_BYTES: usize = 16 * 1024;

/// The longest expression optimised: up to six seconds in the worst case, a tenth of a second for a kilobyte.
pub const MAX_OPTIMISED_BYTES: usize = 4 * 1024;

/// The system's libpcap, loaded when it is first asked for something. A failure to load it is kept and given again.
#[derive(Debug, Default)]
pub struct Lazy {
    loaded: OnceLock<Result<Libpcap, CompileError>>,
}

impl Lazy {
    /// Nothing is loaded yet.
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
