//! Rings across processes: one writer, many readers. Bytes stay in the ring, and each reader has its own contract.
//!
//! - [`words`] — the words in shared memory: the ABI.
//! - [`layout`] — the four kinds: c (stream), p (slots), v (length inline), d (descriptors).
//! - [`contract`] — what a full ring does for each reader; when a writer signals.
//! - [`writer`], [`reader`] — the two sides. Start reading here.
//! - [`consumers`] — the writer's view of its readers: which ones hold the ring, sleep, or get demoted.
//! - [`doorbell`] — sleeping and waking.
//! - [`active_window`] — how much of the payload is in use.
//! - [`sleeper`] — sleeping in a reader's place, on several bells at once.
//! - [`memory`] — a ring's segment: how it is made, sealed and mapped.
//! - [`map`] — a ring as this process has it mapped.
//! - [`local`] — a ring whose keeper is this process; [`keeper`](crate::keeper) keeps rings between processes.
//!
//! The protocols run under a model checker as they ship (`cargo xtask model`). `CRASH.md` lists each shared store and
//! how its loss is repaired.

pub mod active_window;
pub mod consumers;
pub mod contract;
pub mod doorbell;
pub mod layout;
pub mod local;
pub mod map;
#[cfg(not(loom))]
pub mod memory;
pub mod reader;
pub mod retire;
pub mod sleeper;
pub mod words;
pub mod writer;

pub use active_window::ActiveWindow;
pub use contract::{Hold, OnFull, Signalling};
pub use doorbell::Patience;
pub use layout::{RingKind, Seen};
pub use local::Ring;
pub use reader::{From, Nothing, Overtaken, Reader, ReaderCounters};
pub use writer::{NotWritten, Writer, WriterCounters};
