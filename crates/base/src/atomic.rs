//! The one door to atomics.
//!
//! Every room takes its atomics, fences and hints from here: built with `--cfg loom` the same names are those of a model
//! checker, so that the code that ships is the code that is checked. Not a place for protocols: those live where the
//! shared words live.

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

mod stop;

pub use stop::StopFlag;
