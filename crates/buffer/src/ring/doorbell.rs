//! Sleeping and waking: loses no wake-up, and costs nothing while all sides are awake.
//!
//! A side that wants to sleep stores its wait word, looks once more, and sleeps on the other side's bell. The other
//! side publishes first and then looks at the wait word. Each side has a fence between its store and its look, so that
//! at least one of them sees the other's store (Dekker's rule).
//!
//! A writer that signals in batches runs a *light* fence, which only the compiler sees. Its readers then run a *heavy*
//! fence, which the kernel carries to every processor that runs a registered process (membarrier(2), global expedited).
//!
//! Moves of a reader's wait word:
//!
//! | from | to | when | fence after the store |
//! |---|---|---|---|
//! | `AWAKE` | `TIMED` | first sleep of a wait, at most the latency bound; not if every block is signalled | full |
//! | `AWAKE` | `ASLEEP` | any other sleep, until the bell rings | heavy; full is enough if every block is signalled |
//! | `TIMED`, `ASLEEP` | `AWAKE` | the last look found something, the bell rang, or time is up | none |
//!
//! Two things must not happen:
//!
//! - A sleep without a look after the store. The writer may have read the wait word before the store; it will not ring.
//! - `ASLEEP` behind a full fence alone while the writer's fence is light. Each side could miss the other's store.

use base::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// How long a side looks before it sleeps, and how long its first sleep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks before the first sleep, with a pause of the processor between two; 0 with a single processor.
    pub spins: u32,
    /// How late a block of a batch may be noticed: the length of the first, timed sleep.
    pub latency: Duration,
}

/// Default number of looks before sleeping: some microseconds.
pub const SPINS: u32 = 200;

/// Default latency bound.
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

/// Rings: changes the bell and wakes the sleepers on it.
#[inline]
pub fn ring(bell: &AtomicU32) {
    // Release: a side that sees the new value sees what it was rung for.
    bell.fetch_add(1, Ordering::Release);
    crate::shared::futex::wake(bell);
}

/// The fence between a side's own store and its look at the other side's wait word, where both sides pay.
#[inline]
pub fn full() {
    fence(Ordering::SeqCst);
}

/// The same for a side that must stay fast, while the other side runs [`heavy`]. Needs [`register`].
#[cfg(not(loom))]
#[inline]
pub fn light() {
    // ordering: models run a full fence here, because they have no heavy one that could be carried to this thread.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A model has no membarrier: both sides run full fences.
#[cfg(loom)]
pub fn light() {
    full();
}

/// The fence of a side that is about to sleep: every registered process, this one included, runs a full fence now.
/// False where a sandbox forbids that: a wake-up may be missed then, and the side must [look](LOOK) again.
#[must_use]
pub fn heavy() -> bool {
    full();
    #[cfg(not(loom))]
    return membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    #[cfg(loom)]
    true
}

/// Longest sleep where a wake-up may be missed.
pub const LOOK: Duration = Duration::from_millis(5);

/// Lets other processes run fences for this one. False where the system cannot do it: use [`full`] then.
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
