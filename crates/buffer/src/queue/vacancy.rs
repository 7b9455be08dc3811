//! The sender's view of its receiver: its position, and whether it is still there. The same for both queues.
//!
//! The receiver's memory has its position in the first line and a word that says that it went in the second. The sender
//! keeps the position it saw last, and looks again only when the queue is full by that: MCRingBuffer's cached index.

use super::memory::{LINE_WORDS, Memory, Misfit, Region};
use super::slip::Slip;
use base::atomic::Ordering;

/// Position up to which the receiver has taken everything.
const HEAD: usize = 0;
/// Not zero once the receiver went.
const GONE: usize = LINE_WORDS;
pub(super) const WORDS: usize = GONE + LINE_WORDS;

pub(super) struct Vacancy<M> {
    receiver: Region<M>,
    capacity: u64,
    /// Slots are known to be free up to this position: never less than the sender's own.
    limit: u64,
    slip: Slip,
}

impl<M: Memory> Vacancy<M> {
    pub(super) fn new(receiver: M, capacity: usize, slot_words: usize) -> Result<Vacancy<M>, Misfit> {
        let receiver = Region::new(receiver, WORDS)?;
        let capacity = capacity as u64;
        Ok(Vacancy { receiver, capacity, limit: 0, slip: Slip::new(slot_words, capacity) })
    }
}

impl<M> Vacancy<M> {
    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: the sender reads no other data because of this word.
        self.receiver.words()[GONE].load(Ordering::Relaxed) != 0
    }

    /// Whether a position at or after the sender's own is known to be free.
    #[inline]
    pub(super) fn is_free(&self, position: u64) -> bool {
        position < self.limit
    }

    /// Free slots from `tail` on, the sender's position. Looks for more if fewer are known than wanted.
    #[inline]
    pub(super) fn room(&mut self, tail: u64, wanted: u64) -> u64 {
        let known = self.limit - tail;
        if known >= wanted { known } else { self.look(tail) }
    }

    #[inline(never)]
    fn look(&mut self, tail: u64) -> u64 {
        let Vacancy { receiver, capacity, limit, slip } = self;
        let room = || {
            // Pairs with the Release in `Progress::free`: a slot, and its entry's memory, is written only after it was
            // read.
            let head = receiver.words()[HEAD].load(
                Ordering::Acquire, // model: a_slot_is_free_after_it_was_read
            );
            // A receiver that states an impossible position lies: it gets no more entries.
            capacity.saturating_sub(tail.wrapping_sub(head))
        };
        let room = slip.wait(room(), room);
        *limit = tail + room;
        room
    }
}

pub(super) struct Progress<M> {
    own: Region<M>,
}

impl<M: Memory> Progress<M> {
    pub(super) fn new(own: M) -> Result<Progress<M>, Misfit> {
        Ok(Progress { own: Region::new(own, WORDS)? })
    }
}

impl<M> Progress<M> {
    /// Says that all slots before `head` may be written again.
    #[inline]
    pub(super) fn free(&self, head: u64) {
        // Pairs with the Acquire in `Vacancy::look`.
        self.own.words()[HEAD].store(
            head,
            Ordering::Release, // model: a_slot_is_free_after_it_was_read
        );
    }
}

impl<M> Drop for Progress<M> {
    fn drop(&mut self) {
        self.own.words()[GONE].store(1, Ordering::Relaxed);
    }
}
