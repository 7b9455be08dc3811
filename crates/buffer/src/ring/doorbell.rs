//! Sleeping and waking without losing a wake-up, and without paying for it while everybody is awake.
//!
//! Whoever goes to sleep says so in its wait word, looks once more, and sleeps on the other side's bell. Whoever makes
//! something to wake up for makes it visible, then looks at the wait word. Between the store and the look of each side
//! stands a fence, so that at least one of them sees the other (Dekker's rule). A writer that signals in batches runs a
//! *light* fence, which only the compiler sees; whoever sleeps then runs a *heavy* one, which the kernel carries to every
//! processor that runs a registered process (membarrier(2), global expedited).

use base::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// How long to look before sleeping, and how long to sleep before saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks before the first sleep; between two looks the processor pauses. 0 where one processor is all there is.
    pub spins: u32,
    /// How late a block of a batch may be noticed: the length of the first, timed sleep.
    pub latency: Duration,
}

/// Looks before sleeping, if nothing else is said: some microseconds.
pub const SPINS: u32 = 200;

/// Latency bound, if nothing else is said.
pub const LATENCY: Duration = Duration::from_micros(100);

impl Default for Patience {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Patience { spins: if processors > 1 { SPINS } else { 0 }, latency: LATENCY }
    }
}

impl Patience {
    /// Sleeps at once.
    pub const NONE: Patience = Patience { spins: 0, latency: LATENCY };
}

/// Rings: changes the bell and wakes who sleeps on it.
#[inline]
pub fn ring(bell: &AtomicU32) {
    // Release: who sees the new value sees what it was rung for.
    bell.fetch_add(1, Ordering::Release);
    crate::shared::futex::wake(bell);
}

/// Between a store of one's own and a look at the other side's wait word, where both sides pay.
#[inline]
pub fn full() {
    fence(Ordering::SeqCst);
}

/// The same on the side that must stay fast, whose other side runs [`heavy`]. Needs [`register`].
#[cfg(not(loom))]
#[inline]
pub fn light() {
    // ordering: models run a full fence here, for they have no heavy one that could be carried to this thread.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A model has no membarrier: both sides are full fences.
#[cfg(loom)]
pub fn light() {
    full();
}

/// The side that is about to sleep: as if every registered process ran a full fence now, this one included. Says whether
/// they did: where this process may not ask for it (a sandbox), a wake-up may be missed, and it must [look](LOOK) again.
#[must_use]
pub fn heavy() -> bool {
    full();
    #[cfg(not(loom))]
    return membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    #[cfg(loom)]
    true
}

/// How often to look where nobody may ring.
pub const LOOK: Duration = Duration::from_millis(5);

/// Lets other processes run fences for this one; `false` where the system cannot, and [`full`] must be used.
#[cfg(not(loom))]
pub fn register() -> bool {
    static REGISTERED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED))
}

/// A model's light fences are full ones.
#[cfg(loom)]
pub fn register() -> bool {
    true
}

#[cfg(not(loom))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
