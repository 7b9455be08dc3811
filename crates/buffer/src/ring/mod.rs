//! One writer, many readers, across processes: bytes stay in a ring, and each reader has its own contract.
//!
//! - [`words`] — what lies in shared memory: the ABI.
//! - [`layout`] — the four kinds: c (stream), p (slots), v (length inline), d (descriptors).
//! - [`contract`] — what a full ring does, reader by reader; how a writer signals.
//! - [`writer`], [`reader`] — the two sides. Start reading here.
//! - [`consumers`] — the writer's view of its readers: who holds, who sleeps, who is demoted.
//! - [`doorbell`] — sleeping and waking. [`active window`] — how much of the payload is in use.
//! - [`sleeper`] — sleeping in a reader's place, on several bells at once.
//! - [`memory`] — a ring's segment: how it is made, sealed, mapped; [`map`] — a ring as it lies in this process.
//! - [`local`] — a ring whose keeper is this process; rings between processes are kept by [`keeper`](crate::keeper).
//!
//! The protocols run under a model checker as they ship (`cargo xtask model`); `CRASH.md` lists each shared store and what
//! recovers it.

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
