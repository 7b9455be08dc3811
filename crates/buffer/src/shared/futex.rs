//! Sleeping until a word changes, and waking sleepers: futex(2), between threads and between processes.
//!
//! Both work through read-only maps, because the kernel compares the word and does not write it. Under the model
//! checker `futex/model.rs` plays the kernel's part.

#[cfg(not(loom))]
mod kernel;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub use kernel::{wait, wait_any, wake};
#[cfg(loom)]
pub use model::{wait, wait_any, wake};
