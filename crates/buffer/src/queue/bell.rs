//! A bell wakes one thread that sleeps until another thread has published something. Several threads may ring it.
//!
//! The sleeper says that it listens, looks once more, and sleeps. Who publishes looks afterwards whether anybody listens: in
//! steady state that is one fence and one load. What wakes is a file descriptor, so that the sleeper can poll others beside it.
//! Under the model checker a futex stands for it (`bell/model.rs`).

#[cfg(not(loom))]
mod eventfd;
#[cfg(loom)]
mod model;

#[cfg(not(loom))]
use eventfd::Wire;
#[cfg(loom)]
use model::Wire;

use base::atomic::{AtomicBool, Ordering, fence};
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};

/// Wakes one thread.
#[derive(Debug)]
pub struct Bell {
    wire: Wire,
    asleep: AtomicBool,
}

impl Bell {
    /// Nobody listens yet.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell { wire: Wire::new()?, asleep: AtomicBool::new(false) })
    }

    /// There is something to look at, published before this.
    pub fn ring(&self) {
        // With the fence in `listen`: either this sees that the other sleeps, or the other sees what was published.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wire.pull();
        }
    }

    /// Wakes the thread now, or when it next wants to sleep. The caller has published nothing.
    pub fn call(&self) {
        self.wire.pull();
    }

    /// From here on it rings. To be followed by one more look.
    pub fn listen(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake again.
    pub fn quiet(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        self.wire.clear();
    }

    /// Sleeps until it rings, or for a moment. Look again afterwards, whatever woke it.
    pub fn sleep(&self) {
        self.wire.sleep();
    }
}

#[cfg(not(loom))]
impl AsFd for Bell {
    /// Readable when it has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
