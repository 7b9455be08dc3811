//! Peers that do what they may not, or say what is not so: through their file descriptors, and by writing anything at any
//! time to whatever memory they can write.
//!
//! - [`clients`] — what is said to a keeper.
//! - [`keepers`] — what a keeper says.
//! - [`maps`] — the memory of this process, as a hostile peer in it would find it.
//! - [`descriptors`] — what a file descriptor lets its holder do; which ones are taken for a ring's memory.
//! - [`reader_lies`] — a reader's page says anything; the writer goes on.
//! - [`writer_lies`] — everything a writer can write says anything; readers come to no harm.

#![cfg(not(loom))]

mod clients;
mod descriptors;
mod keepers;
mod maps;
mod reader_lies;
mod writer_lies;
