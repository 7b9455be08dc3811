//! The one door to atomics.
//!
//! All rooms take atomics, fences, hints, and locks that order atomics from here. With `--cfg loom` the same names are
//! those of a model checker, so that the shipped code is the checked code. With the feature `kill-points` atomics count
//! their stores, so that a test can end a process at each of them (`kill_points`). Not a place for protocols: those are
//! beside the shared words.

#[cfg(feature = "kill-points")]
pub mod kill_points;
mod stop;

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
};

#[cfg(all(not(loom), feature = "kill-points"))]
pub use kill_points::{AtomicU32, AtomicU64};
#[cfg(all(not(loom), not(feature = "kill-points")))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

pub use stop::StopFlag;
