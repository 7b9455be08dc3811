//! Peers that break the rules or lie: through their file descriptors, and by writing anything at any time to the memory
//! that they can write. A program of its own: the tests look at everything the process has mapped.
//!
//! - [`clients`] — hostile clients of a keeper.
//! - [`keepers`] — hostile keepers.
//! - [`maps`] — finds the memory of this process as a hostile peer would.
//! - [`descriptors`] — the rights that a file descriptor gives, and which ones are accepted as a ring's memory.
//! - [`reader_lies`] — a reader's page may hold anything; the writer goes on.
//! - [`writer_lies`] — everything that a writer can write may hold anything; readers come to no harm.

#![cfg(not(loom))]

mod clients;
mod descriptors;
mod keepers;
mod maps;
mod reader_lies;
mod writer_lies;
