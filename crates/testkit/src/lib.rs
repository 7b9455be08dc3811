//! Tools that tests share. A dev-dependency only: no shipped program depends on it.
//!
//! - [`chain`] — filters one after the other over blocks in memory.
//! - [`space`] — a second space, which refuses or fails at any chosen step.
//! - [`packets`] — frames made by hand: TCP conversations, UDP datagrams.
//! - [`frames`] — real frames, and damaged ones.
//! - [`check_header!`](crate::check_header) — compares a header for C with its sources.
//! - [`instructions`] — compares the instructions of a test with a golden file.
//! - [`random`] — numbers that look random.
//! - [`library`] — the libraries for unmodified programs and for C.
//! - [`process`] — the kernel's counters of a process.
//! - [`network`] — namespaces with a pair of devices between them, removed after the test.
//! - [`link`] — a link between two devices that delays and loses frames.
//! - [`script`] — scripted TCP exchanges, for any TCP.
//! - [`shared`] — captures and rules with the results of other programs.

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
pub mod shared;
pub mod space;

pub use chain::{Chain, Outcome};
pub use space::{FussySpace, Refusals};

/// The system's compiler of tcpdump expressions, which may be missing.
pub use libpcap::Lazy as Compiler;
