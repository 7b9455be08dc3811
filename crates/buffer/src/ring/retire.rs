//! What a keeper does when a ring's writer is gone: nothing will come any more, and nobody may sleep waiting for it.

use super::doorbell;
use super::words::RingWords;
use base::atomic::Ordering;

/// Retires a ring whose writer died (or closed it; then nothing changes). Readers take what was published and are done.
/// The ring is never given to another writer: a stopped one that wakes late writes to memory that nobody believes.
pub fn retire(words: &RingWords) {
    // Release: the keeper knows of the death before it says so.
    words.keeper.0.retired.store(1, Ordering::Release);
    // Whoever is about to sleep sees the word; whoever sleeps is woken.
    doorbell::full();
    words.slots.iter().for_each(|slot| doorbell::ring(&slot.bell));
}
