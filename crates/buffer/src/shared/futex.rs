//! Sleeping until a word changes, and waking who sleeps: futex(2), between threads and between processes.
//!
//! Both work through maps that can only be read: the kernel compares the word, it does not write it. Under the model
//! checker the kernel's part is played by `futex/model.rs`.

#[cfg(not(loom))]
mod kernel;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
pub use kernel::{wait, wait_any, wake};
#[cfg(loom)]
pub use model::{wait, wait_any, wake};
