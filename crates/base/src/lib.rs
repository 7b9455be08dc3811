//! What every room may use: ids, limits, the door to atomics and text fit for a terminal, the nearest word.
//!
//! Nothing here knows of packets, filters or files, and nothing here depends on another room. A thing belongs here
//! only when at least three rooms need it.

#![forbid(unsafe_code)]

pub mod atomic;
pub mod id;
pub mod limits;
pub mod memory;
mod nearest;
pub mod terminal;

pub use nearest::nearest;
