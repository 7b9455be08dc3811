//! What tests share. A dev-dependency only: nothing a user runs depends on it.
//!
//! - [`chain`] — filters one after the other over blocks in memory, and what came out.
//! - [`space`] — a second space, which refuses or fails at any chosen step.
//! - [`packets`] — frames made by hand: TCP conversations, UDP datagrams.
//! - [`frames`] — real frames, and damaged ones.
//! - [`check_header!`](crate::check_header) — whether a header for C is the one that the sources give.
//! - [`instructions`] — instructions that a test takes, against a golden file.
//! - [`random`] — numbers that look like chance.
//! - [`library`] — the library that unmodified libpcap programs are run with.
//! - [`process`] — what the kernel counts of a process.
//! - [`network`] — namespaces with a pair of devices between them, which go with the test.
//! - [`link`] — a link between two devices that delays and loses frames.
//! - [`script`] — scripted TCP exchanges, for any TCP.

#![forbid(unsafe_code)]

pub mod chain;
pub mod frames;
mod header;
pub mod instructions;
pub mod library;
pub mod link;
pub mod network;
pub mod packets;
pub mod process;
pub mod random;
pub mod script;
pub mod space;

pub use chain::{Chain, Outcome};
pub use space::{FussySpace, Refusals};

/// The system's compiler of tcpdump expressions, which may not be there.
pub use libpcap::Lazy as Compiler;
