//! Filter programs: code that decides from the bytes of one packet whether the packet passes.
//!
//! ```text
//! tcpdump text -- compile::Compile --> cbpf::Instruction* -- lower --> ir::Program -- interpreter --> verdict
//! typed selectors, and, or, not -- expression::Expression ---------> ir::Program -- emit ---------> cbpf::Instruction*
//! ```
//!
//! [`ir::Program`] is the one form of all programs. All code that runs a program, here or in the kernel, is made from it.
//! This crate does not parse tcpdump text (see the crate `libpcap`), makes no system calls, and has no dependencies.
//!
//! A program means the same as in libpcap when it reads a capture file. A load outside the captured bytes ends the run
//! with 0, and so do a division by zero and too many backward jumps. `len` is the length on the wire. Packet offsets do
//! not wrap around (the kernel's do, in `[x + k]`).
//!
//! ```
//! use program::{Interpreter, cbpf::Instruction};
//! // tcpdump -d 'ip'
//! let text = [
//!     Instruction { code: 0x28, jt: 0, jf: 0, k: 12 },
//!     Instruction { code: 0x15, jt: 0, jf: 1, k: 0x800 },
//!     Instruction { code: 0x06, jt: 0, jf: 0, k: 262_144 },
//!     Instruction { code: 0x06, jt: 0, jf: 0, k: 0 },
//! ];
//! let interpreter = Interpreter::from_cbpf(&text)?;
//! let mut frame = [0u8; 60];
//! frame[12..14].copy_from_slice(&[0x08, 0x00]);
//! assert_eq!(interpreter.run(&frame, 60), 262_144);
//! assert_eq!(interpreter.run(&frame[..13], 60), 0);
//! # Ok::<(), program::LowerError>(())
//! ```
//!
//! Read next: [`ir`], then [`interpreter`].

#![forbid(unsafe_code)]

mod build;
pub mod cbpf;
pub mod compile;
mod draft;
pub mod emit;
pub mod expression;
pub mod interpreter;
pub mod ir;
pub mod joint;
pub mod lower;
mod node;
mod op;
mod pair;
pub mod predicate;
mod symbol;
mod walk;

pub use compile::{Compile, CompileError, CompileErrorKind};
pub use emit::to_cbpf;
pub use expression::{Expression, Passes, any_of};
pub use interpreter::{Frame, Interpreter};
pub use ir::Program;
pub use lower::{LowerError, from_cbpf};
pub use predicate::Predicate;
