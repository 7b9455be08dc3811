//! What every room may use: ids, limits and the door to atomics.
//!
//! Nothing here knows of packets, filters or files, and nothing here depends on another room. A thing belongs here
//! only when at least three rooms need it.

#![forbid(unsafe_code)]

pub mod atomic;
pub mod id;
pub mod limits;
