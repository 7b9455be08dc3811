//! A word that asks a worker to stop.

use std::sync::Arc;
// Not through the door: signal-handling libraries need exactly this type, and it carries no other data.
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop. A signal handler or another thread sets it, and the worker reads it at batch boundaries.
///
/// Cloning gives another handle to the same word.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// A flag that is not set.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// Asks the flag's readers to stop. Safe to call from a signal handler: one store, no lock.
    pub fn stop(&self) {
        // Relaxed: the flag carries no other data; seeing it one batch late is fine.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The word itself, for signal-handling libraries that set an `Arc<AtomicBool>`.
    pub fn word(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
