//! Live rings: a device's packets are captured into them. One writer (an eBPF program on all processors at once, or one
//! thread) serves any number of readers. The writer never waits. An overtaken reader counts what it lost (contract
//! Overwrite, see [`ring::contract`](crate::ring::contract)).
//!
//! Not a [`ring`](crate::ring): there the writer is a process that knows its readers. Here it may be the kernel, which
//! can only add to a word and store a stamp, and knows *expressions* instead of readers. Each packet's slot has one bit
//! for each of up to 64 expressions that want it.
//!
//! - [`words`] — the layout, an ABI between the kernel's program, this process and its readers.
//! - [`memory`] — the three areas, by the file descriptors of maps or memfds.
//! - [`reader`] — following the writer; start reading here.
//! - [`progress`] — publishes what a reader has lost so far.
//! - [`writer`] — a process's writer, for devices that the kernel's program cannot serve, and for tests.

pub mod memory;
pub mod progress;
pub mod reader;
pub mod words;
pub mod writer;

pub use memory::{Areas, Geometry, LiveMemory};
pub use progress::Progress;
pub use reader::{LiveReader, Look, Packet};
pub use words::{EXPRESSIONS, Facts, SlotFlags};
pub use writer::LiveWriter;
