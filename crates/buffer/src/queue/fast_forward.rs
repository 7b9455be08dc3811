//! A queue between two threads or processes whose slots are marked as full by a stamp. It is FastForward's idea
//! (Giacomoni, Moseley, Vachharajani, PPoPP 2008): an entry and the news of it come in one cache line.
//!
//! A full slot has its position plus one as stamp beside the entry. So every lap has other stamps, zero is a legal
//! entry, and fresh memory is empty. The original writes a null back into each slot it empties. Here the receiver
//! publishes its position in memory of its own, where the sender looks at best once a lap. So the receiver writes to no
//! line that the sender is about to use. Each word has one writer, so each side may map the other's memory read-only.
//!
//! An entry takes one word more than in [`indexed`](super::indexed); `mod.rs` says when that pays.

use super::entry::{Entry, Words};
use super::memory::{Heap, LINE_WORDS, Memory, Misfit, Region, check_capacity};
use super::slip::Slip;
use super::vacancy::{self, Progress, Vacancy};
use super::{Closed, Pop, PopError, Push, PushError};
use base::atomic::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// Not zero once the sender went.
const GONE: usize = 0;
const SLOTS: usize = GONE + LINE_WORDS;
/// Within a slot: its stamp, then the entry.
const STAMP: usize = 0;
const ENTRY: usize = 1;

const fn slot_words<T: Entry>() -> usize {
    ENTRY + T::Words::COUNT
}

/// Number of words of the sender's memory for a capacity.
pub fn sender_words<T: Entry>(capacity: usize) -> Result<usize, Misfit> {
    check_capacity(capacity)?;
    Ok(SLOTS + capacity * slot_words::<T>())
}

/// Number of words of the receiver's memory.
pub const RECEIVER_WORDS: usize = vacancy::WORDS;

/// Both sides of a new queue in this process. The capacity is a power of two.
pub fn queue<T: Entry>(capacity: usize) -> Result<(Sender<T>, Receiver<T>), Misfit> {
    let (sender, receiver) = (Heap::new(sender_words::<T>(capacity)?), Heap::new(RECEIVER_WORDS));
    let receiving = Receiver::new(sender.clone(), receiver.clone(), capacity)?;
    Ok((Sender::new(sender, receiver, capacity)?, receiving))
}

/// The side that pushes.
pub struct Sender<T, M = Heap> {
    tail: u64,
    own: Region<M>,
    vacancy: Vacancy<M>,
    entries: PhantomData<fn(T)>,
}

impl<T: Entry, M: Memory> Sender<T, M> {
    /// Uses fresh memory of the sender and of the receiver. A second sender on the same memory, or a capacity other
    /// than the receiver's, makes entries come out wrong.
    pub fn new(sender: M, receiver: M, capacity: usize) -> Result<Sender<T, M>, Misfit> {
        let own = Region::new(sender, sender_words::<T>(capacity)?)?;
        let vacancy = Vacancy::new(receiver, capacity, slot_words::<T>())?;
        Ok(Sender { tail: 0, own, vacancy, entries: PhantomData })
    }

    #[inline]
    fn put(&mut self, entry: T) {
        let slot = slot::<T, _>(&self.own, self.tail, self.vacancy.capacity());
        entry.to_words().store(&slot[ENTRY..]);
        self.tail += 1;
        // Pairs with the Acquire in `is_full`: this entry, and those before it, are visible before the stamp.
        slot[STAMP].store(
            self.tail,
            Ordering::Release, // model: entries_come_in_order
        );
    }
}

impl<T: Entry, M: Memory> Push<T> for Sender<T, M> {
    fn capacity(&self) -> usize {
        self.vacancy.capacity() as usize
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.vacancy.is_closed()
    }

    #[inline]
    fn push(&mut self, entry: T) -> Result<(), PushError<T>> {
        if self.vacancy.is_closed() {
            return Err(PushError::Closed(entry));
        }
        if self.vacancy.room(self.tail, 1) == 0 {
            return Err(PushError::Full(entry));
        }
        self.put(entry);
        Ok(())
    }

    /// Publishes each entry as it is written.
    #[inline]
    fn push_batch(&mut self, entries: &mut impl Iterator<Item = T>) -> Result<usize, Closed> {
        if self.vacancy.is_closed() {
            return Err(Closed);
        }
        let wanted = (entries.size_hint().0 as u64).clamp(1, self.vacancy.capacity());
        let room = self.vacancy.room(self.tail, wanted);
        let before = self.tail;
        entries.take(room as usize).for_each(|entry| self.put(entry));
        Ok((self.tail - before) as usize)
    }
}

impl<T, M> Drop for Sender<T, M> {
    fn drop(&mut self) {
        // Pairs with the Acquire in `Receiver::look`: a receiver that sees this word sees every earlier entry.
        self.own.words()[GONE].store(
            1,
            Ordering::Release, // model: closing_loses_nothing
        );
    }
}

/// The side that pops.
pub struct Receiver<T, M = Heap> {
    head: u64,
    /// Slots are known to be full up to this position: never less than `head`.
    limit: u64,
    capacity: u64,
    slip: Slip,
    sender: Region<M>,
    progress: Progress<M>,
    entries: PhantomData<fn() -> T>,
}

impl<T: Entry, M: Memory> Receiver<T, M> {
    /// Uses fresh memory of the sender and of the receiver. A second receiver on the same memory, or a capacity other
    /// than the sender's, makes entries come out wrong.
    pub fn new(sender: M, receiver: M, capacity: usize) -> Result<Receiver<T, M>, Misfit> {
        let sender = Region::new(sender, sender_words::<T>(capacity)?)?;
        let (progress, capacity) = (Progress::new(receiver)?, capacity as u64);
        let slip = Slip::new(slot_words::<T>(), capacity);
        Ok(Receiver { head: 0, limit: 0, capacity, slip, sender, progress, entries: PhantomData })
    }

    /// Whether [`pop`](Pop::pop) would find an entry, or the end.
    pub fn is_ready(&mut self) -> bool {
        self.ready(1) != Ok(0)
    }

    #[inline]
    fn read(&self, position: u64) -> T {
        T::from_words(T::Words::load(&slot::<T, _>(&self.sender, position, self.capacity)[ENTRY..]))
    }

    #[inline]
    fn free(&mut self, head: u64) {
        self.head = head;
        self.progress.free(head);
    }

    /// Number of full slots from `head` on, as far as it is quickly seen; 0 only if there are none.
    #[inline]
    fn ready(&mut self, wanted: u64) -> Result<u64, Closed> {
        let known = self.limit - self.head;
        if known > 0 { Ok(known) } else { self.look(wanted) }
    }

    #[inline(never)]
    fn look(&mut self, wanted: u64) -> Result<u64, Closed> {
        let Receiver { head, capacity, slip, sender, .. } = self;
        // Slots are filled in order: if a far one is full, so are all before it, and need no look.
        let full_to = |distance: u64| is_full::<T, M>(sender, *head + distance - 1, *capacity);
        let mut ready = u64::from(full_to(1));
        if ready > 0 {
            // A look at a far slot that is not full yet does not disturb the sender, which writes before it.
            let goal = slip.goal().max(1);
            let far = |distance| if full_to(distance) { distance } else { 1 };
            ready = slip.wait(far(goal), || far(goal));
            if ready >= goal && wanted > goal {
                ready = ready.max(far(wanted));
            }
            while ready < wanted.min(goal) && full_to(ready + 1) {
                ready += 1;
            }
        }
        if ready == 0 {
            // Pairs with the Release in `Drop for Sender`.
            let gone = sender.words()[GONE].load(
                Ordering::Acquire, // model: closing_loses_nothing
            );
            if gone != 0 {
                ready = u64::from(full_to(1));
                if ready == 0 {
                    return Err(Closed);
                }
            }
        }
        self.limit = self.head + ready;
        Ok(ready)
    }
}

impl<T: Entry, M: Memory> Pop<T> for Receiver<T, M> {
    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    #[inline]
    fn pop(&mut self) -> Result<T, PopError> {
        if self.ready(1)? == 0 {
            return Err(PopError::Empty);
        }
        let entry = self.read(self.head);
        self.free(self.head + 1);
        Ok(entry)
    }

    /// Frees all slots together, after the last entry.
    #[inline]
    fn pop_batch(&mut self, limit: usize, mut each: impl FnMut(T)) -> Result<usize, Closed> {
        let limit = (limit as u64).min(self.capacity);
        if limit == 0 {
            return Ok(0);
        }
        let count = self.ready(limit)?.min(limit);
        for position in self.head..self.head + count {
            each(self.read(position));
        }
        if count > 0 {
            self.free(self.head + count);
        }
        Ok(count as usize)
    }
}

/// Whether the slot of a position was filled in this lap.
#[inline]
fn is_full<T: Entry, M>(sender: &Region<M>, position: u64, capacity: u64) -> bool {
    // Pairs with the Release in `Sender::put`.
    let stamp = slot::<T, _>(sender, position, capacity)[STAMP].load(
        Ordering::Acquire, // model: entries_come_in_order
    );
    stamp == position + 1
}

#[inline]
fn slot<T: Entry, M>(memory: &Region<M>, position: u64, capacity: u64) -> &[AtomicU64] {
    let start = SLOTS + (position & (capacity - 1)) as usize * slot_words::<T>();
    &memory.words()[start..start + slot_words::<T>()]
}
