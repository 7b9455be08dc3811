//! BUFFERING PLANE: every byte once, in a ring; what travels is a [`Descriptor`].
//!
//! - [`descriptor`] — 32 bytes that name a block and say what is known of it.
//! - [`block_table`] — the dense table of one process: descriptor in, bytes out, checked. Start reading here.
//! - [`lookup`] — the same for many blocks, one after the other.
//! - [`mapped_file`] — a capture file as a zero-copy data ring.
//! - [`lending`] — blocks of one table, read by way of another, in another thread.
//! - [`append_ring`] — what sources read and filters make, in memory that is used again.
//! - [`ring`] — one writer, many readers, between processes; [`keeper`] — such rings by name.
//! - [`live`] — what a device's packets are captured into, by the kernel or a thread, for any number of readers.
//! - [`pipe`] — such rings in the manner of pipes: read, write, peek, forward, poll.
//! - [`flow`] — packets of one flow, between an application and the driver of its device.
//! - [`queue`] — descriptors from one thread or process to one other.
//! - `control` — control sockets: packets, codec, who is at the other end, whose a name is.
//! - [`shared`] — memory that several processes see: segments, words, bytes, futexes.
//!
//! This crate moves no meaning: it knows of no packet, filter or request. It is one of the few that may use `unsafe`.

pub mod append_ring;
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
pub mod lookup;
pub mod mapped_file;
#[cfg(not(loom))]
pub mod pipe;
/// Of the module of this name, what is a protocol between threads.
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
pub use block_table::{BlockTable, EditError, Interface, Room, SegmentId, ViewId};
pub use descriptor::{Descriptor, Flags, WIRE_MAX};
pub use lookup::Lookup;
pub use mapped_file::MappedFile;
