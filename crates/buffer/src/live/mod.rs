//! Live rings: what a device's packets are captured into. One writer (an eBPF program on every processor at once, or one
//! thread), any number of readers that hold nothing: the writer never waits, and a reader that is overtaken counts what it
//! lost (contract Overwrite, see [`ring::contract`](crate::ring::contract)).
//!
//! Not a [`ring`](crate::ring): there the writer is a process that knows its readers; here it may be the kernel, which can
//! follow no protocol but adding to a word and storing a stamp, and knows only *expressions*: each packet's slot says by a
//! bit which of up to 64 want it.
//!
//! - [`words`] — the layout, an ABI between the kernel's program, this process and its readers.
//! - [`memory`] — the three areas, by the file descriptors of maps or memfds.
//! - [`reader`] — following what is written; start reading here.
//! - [`progress`] — what a reader has lost so far, for others to see.
//! - [`writer`] — the writer of a process, for devices the kernel's program cannot serve, and for tests.

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
