//! A bell wakes one thread that sleeps until another thread has published something. Several threads may ring it.
//!
//! The sleeper announces that it listens, looks once more, and sleeps. A thread that has published looks afterwards
//! whether the sleeper listens: mostly that is one fence and one load. A file descriptor does the waking, so that the
//! sleeper can poll others as well. Under the model checker a futex replaces it (`bell/model.rs`).

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
    /// A bell without a listener.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell { wire: Wire::new()?, asleep: AtomicBool::new(false) })
    }

    /// Wakes the sleeper if it listens. The caller has published something before.
    pub fn ring(&self) {
        // Pairs with the fence in `listen`: either this side sees the sleeper, or the sleeper sees what was published.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            self.wire.pull();
        }
    }

    /// Wakes the thread now, or at its next sleep. The caller need not have published anything.
    pub fn call(&self) {
        self.wire.pull();
    }

    /// Starts listening: from here on rings wake this thread. Look once more before sleeping.
    pub fn listen(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Stops listening: the sleeper is awake again.
    pub fn quiet(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        self.wire.clear();
    }

    /// Sleeps until the bell rings, or for a moment. Look again afterwards in any case.
    pub fn sleep(&self) {
        self.wire.sleep();
    }
}

#[cfg(not(loom))]
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
