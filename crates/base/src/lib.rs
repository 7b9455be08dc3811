//! Basics for every room: ids, limits, the door to atomics, text fit for a terminal, aligned columns, the nearest word, and what the
//! faces for C share.
//!
//! Nothing here depends on another room, or knows packets, filters or files. A thing belongs here only when at least
//! three rooms need it.

#![forbid(unsafe_code)]

pub mod atomic;
pub mod c_face;
pub mod columns;
pub mod fault;
pub mod id;
pub mod limits;
pub mod memory;
mod nearest;
pub mod terminal;

pub use nearest::nearest;
