//! The kernel space: filter programs as eBPF, loaded and attached by raw bpf(2). No clang, no ELF, no library: the programs
//! touch packet bytes and maps of their own only, so there is nothing to relocate.
//!
//! ```text
//! program::ir::Program ── lower ──┐
//!                                 ├── capture_program ── code ── sys ──▶ a device's TCX hook ──▶ live ring (buffer::live)
//! expressions, one bit each ──────┘
//! ```
//!
//! - [`sys`] — the calls (crate `bpf`), and what of the machine matters to programs.
//! - [`code`] — instructions with labels.
//! - [`lower`] — one filter program, over a copy of the packet's first bytes as they are on the wire.
//! - `cost` — what an expression costs a packet at most.
//! - `wire` — what every program begins with; `decide` — all expressions, asked about one packet.
//! - [`flow`] — a packet's flow: its hash, and its ports where they are sure.
//! - `probe` — frames to try a program with; `trial` — expressions, tried together.
//! - [`socket_filter`] — a packet socket's filter of several expressions.
//! - [`consume_program`] — the program that takes away from the host what any of several expressions wants, and leaves it the
//!   rest.
//! - [`share_program`] — the program that takes the packets of known flows, and leaves the host the rest.
//! - [`capture_program`] — the program that decides who wants a packet and writes it into a live ring. Start reading here.
//!
//! Everything hangs off file descriptors: dropping a [`CaptureProgram`] takes it off its device, whatever happened before.

pub mod capture_program;
pub mod code;
pub mod consume_program;
mod cost;
mod decide;
pub mod flow;
pub mod lower;
mod probe;
pub mod share_program;
pub mod socket_filter;
pub mod sys;
mod trial;
mod wire;

#[cfg(feature = "faults")]
pub use bpf::faults;
pub use bpf::inventory;
pub use capture_program::{CaptureProgram, Expression, Way};
pub use consume_program::{ConsumeProgram, To, Wanted};
pub use cost::cost;
pub use share_program::{FlowKey, ShareProgram};
pub use socket_filter::SocketFilter;
