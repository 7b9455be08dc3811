//! Named rings between processes. A small process, the *keeper*, holds a ring's memory and its access policy, and gives
//! the writer and the readers what they need. No data passes through it.
//!
//! - [`policy`] — which users may read, write, hold, and manage a ring.
//! - [`place`] — where keepers are found: one socket for each name.
//! - [`content`] — what the blocks of a ring contain.
//! - [`message`] — messages with the keeper, and how file descriptors travel.
//! - [`server`] — the keeper itself.
//! - [`client`] — the side of writers and readers. Start reading here.

pub mod client;
pub mod content;
pub mod message;
pub mod place;
pub mod policy;
pub mod server;
