//! What tests share. A dev-dependency only: nothing a user runs depends on it.
//!
//! - [`chain`] — filters one after the other over blocks in memory, and what came out.
//! - [`packets`] — frames made by hand: TCP conversations, UDP datagrams.

#![forbid(unsafe_code)]

pub mod chain;
pub mod packets;

pub use chain::{Chain, Outcome};
