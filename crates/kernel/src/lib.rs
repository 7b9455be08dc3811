//! Filter programs as eBPF, loaded and attached with the plain bpf(2) system call. No clang, ELF or library is needed:
//! the programs only use packet bytes and maps of their own, so they need no relocation.
//!
//! ```text
//! program::ir::Program ── lower ──┐
//!                                 ├── capture_program ── code ── sys ──▶ a device's TCX hook ──▶ live ring (buffer::live)
//! expressions, one bit each ──────┘
//! ```
//!
//! - [`sys`] — system calls (crate `bpf`), and properties of the machine
//! - [`code`] — instructions with labels
//! - [`lower`] — one filter program, over a copy of the packet's first bytes as they were on the wire
//! - `cost` — the most instructions that an expression costs a packet
//! - `wire` — the common beginning of every program; `decide` — all expressions, asked about one packet
//! - [`flow`] — a packet's flow: its hash, and its ports where they are certain
//! - `probe` — frames to try a program with; `trial` — expressions, tried together
//! - [`socket_filter`] — a packet socket's filter of several expressions
//! - [`consume_program`] — takes frames that any expression wants away from the host
//! - [`share_program`] — takes the packets of known flows away from the host
//! - [`capture_program`] — asks the expressions, and writes wanted packets into a live ring. Start reading here
//!
//! Descriptors own everything: dropping a [`CaptureProgram`] removes it from its device, whatever happened before.

pub mod capture_program;
pub mod code;
pub mod consume_program;
mod cost;
mod decide;
mod expression;
pub mod flow;
pub mod lower;
mod probe;
pub mod program_error;
pub mod share_program;
pub mod socket_filter;
pub mod sys;
mod tally;
mod wire;

pub use crate::expression::Expression;
#[cfg(debug_assertions)]
pub use bpf::faults;
pub use bpf::inventory;
pub use capture_program::{CaptureProgram, Way};
pub use consume_program::{ConsumeProgram, To, Wanted};
pub use cost::cost;
pub use share_program::{FlowKey, ShareProgram};
pub use socket_filter::SocketFilter;
