//! What a keeper does when a ring comes to an end that its writer has not said: nothing will come any more, and nobody may
//! sleep waiting for it.

use super::doorbell;
use super::words::{DIED, REMOVED, RingWords};
use base::atomic::Ordering;

/// Retires a ring whose writer died (or closed it; then nothing changes). Readers take what was published and are done.
/// The ring is never given to another writer: a stopped one that wakes late writes to memory that nobody believes.
pub fn retire(words: &RingWords) {
    say(words, DIED);
}

/// Retires a ring that is removed. Its writer is told with the next change of the epoch that nobody will read any more.
pub fn remove(words: &RingWords) {
    say(words, REMOVED);
}

fn say(words: &RingWords, what: u32) {
    let retired = &words.keeper.0.retired;
    // Release: the keeper knows of it before it says so. Nobody else writes the word.
    retired.store(retired.load(Ordering::Relaxed) | what, Ordering::Release);
    // Whoever is about to sleep on a bell that has changed does not; whoever sleeps is woken.
    words.slots.iter().for_each(|slot| doorbell::ring(&slot.bell));
}
