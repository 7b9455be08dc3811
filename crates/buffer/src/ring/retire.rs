//! How a keeper ends a ring whose writer has not ended it: it says that nothing more will come, and wakes all sleepers.

use super::doorbell;
use super::words::{DIED, REMOVED, RingWords};
use base::atomic::Ordering;

/// Retires a ring whose writer died (or closed it; then nothing changes). Readers take what was published and are done.
/// No other writer ever gets the ring: a stopped writer that wakes late then writes to memory that no reader believes.
pub fn retire(words: &RingWords) {
    say(words, DIED);
}

/// Retires a ring that is removed. The next change of the epoch tells its writer that it has no readers any more.
pub fn remove(words: &RingWords) {
    say(words, REMOVED);
}

fn say(words: &RingWords, what: u32) {
    let retired = &words.keeper.0.retired;
    // Release: orders the keeper's knowledge before the word. Only the keeper writes the word.
    retired.store(retired.load(Ordering::Relaxed) | what, Ordering::Release);
    // A changed bell keeps readers that are about to sleep awake, and wakes those that sleep.
    words.slots.iter().for_each(|slot| doorbell::ring(&slot.bell));
}
