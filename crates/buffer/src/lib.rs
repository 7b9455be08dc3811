//! BUFFERING PLANE: every byte lies once, in a ring; a [`Descriptor`] travels in its place.
//!
//! - [`descriptor`] — 32 bytes that name a block and say what is known of it.
//! - [`block_table`] — the rings of one process: turns a descriptor into checked bytes. Start reading here.
//! - [`block_table::lookup`] — the same for many blocks, one after the other.
//! - [`mapped_file`] — a capture file as a zero-copy data ring.
//! - [`lending`] — lets another thread read the blocks of a table through a table of its own.
//! - [`append_ring`] — bytes that sources read and filters make, in memory that is used again.
//! - [`ring`] — one writer, many readers, between processes; [`keeper`] — such rings by name.
//! - [`live`] — the ring into which the kernel or a thread captures a device's packets, for any number of readers.
//! - [`pipe`] — rings used like pipes: read, write, peek, forward, poll.
//! - [`flow`] — packets of one flow, between an application and the driver of its device.
//! - [`queue`] — descriptors from one thread or process to one other.
//! - `control` — control sockets: packets, codec, credentials of the peer, owners of names.
//! - [`shared`] — memory that several processes map: segments, words, bytes, futexes.
//!
//! This crate does not interpret bytes: it knows no packet, filter or request. It is one of the few that may use
//! `unsafe`.

pub mod append_ring;
mod borrowed_ring;
#[cfg(not(loom))]
pub mod control;
pub mod descriptor;
pub mod flow;
mod held_blocks;
#[cfg(not(loom))]
pub mod keeper;
pub mod lending;
#[cfg(not(loom))]
pub mod live;
pub mod mapped_file;
#[cfg(not(loom))]
pub mod pipe;
/// The part of the module that is a protocol between threads.
#[cfg(loom)]
pub mod pipe {
    pub mod watch;
}
pub mod block_table;
pub mod queue;
pub mod ring;
pub mod shared;
mod sigbus;

pub use append_ring::AppendRing;
pub use block_table::lookup::Lookup;
pub use block_table::{BlockTable, EditError, Interface, Room, SegmentId, ViewId};
pub use descriptor::{Descriptor, Flags, WIRE_MAX};
pub use mapped_file::MappedFile;
