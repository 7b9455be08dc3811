//! The one door to atomics.
//!
//! Every room takes its atomics from here, so that a model checker can stand behind the same names. Not a place for
//! protocols: those live where the shared words live.

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use std::sync::Arc;

/// A request to stop, set by whoever asks (a signal, another thread) and read by the worker at batch boundaries.
///
/// Cloning gives another handle to the same word.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// A flag that nobody has set yet.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// Asks whoever reads this flag to stop. Safe to call from a signal handler: one store, no lock.
    pub fn stop(&self) {
        // Relaxed: the flag carries no other data; seeing it one batch late is fine.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Has somebody asked?
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The word itself, for signal-handling libraries that set an `Arc<AtomicBool>`.
    pub fn word(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
