//! Why a program could not be made.

use crate::sys::LoadError;
use std::io;

/// Why a program could not be made.
#[derive(Debug)]
pub enum ProgramError {
    /// A system call failed.
    System(&'static str, io::Error),
    /// The verifier refused the program.
    Load(LoadError),
    /// The expression with this bit cannot run in the kernel.
    Expression(u8, crate::lower::Refusal),
    /// The program and the interpreter disagree about this frame.
    Verdict(Vec<u8>),
    /// The expressions together are too large.
    Code(crate::code::CodeError),
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramError::System(what, error) => write!(f, "{what}: {error}"),
            ProgramError::Load(error) => error.fmt(f),
            ProgramError::Expression(_, refusal) => refusal.fmt(f),
            ProgramError::Verdict(_) => f.write_str("the kernel's program and this one's differ on a frame"),
            ProgramError::Code(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProgramError {}
