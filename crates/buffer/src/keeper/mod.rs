//! Named rings between processes: one small process, the *keeper*, holds a ring's memory and its access policy, and hands
//! both sides what they need; no byte passes through it.
//!
//! - [`policy`] — who may read, write, hold, and manage a ring.
//! - [`place`] — where keepers are found: one socket for each name.
//! - [`content`] — what the blocks of a ring are.
//! - [`message`] — what is said over it, and how file descriptors travel.
//! - [`server`] — the keeper itself.
//! - [`client`] — what writers and readers do with it. Start reading here.

pub mod client;
pub mod content;
pub mod message;
pub mod place;
pub mod policy;
pub mod server;
