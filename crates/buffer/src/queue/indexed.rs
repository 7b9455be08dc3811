//! A queue between two threads or processes that compares two positions, each on a cache line of its own.
//!
//! Each side keeps the other's position as last seen, and looks again only when it cannot go on otherwise. So while the
//! queue is neither full nor empty, the two share only slots. One store publishes a batch.
//!
//! The sender's memory has its position, a word that says that it went, and the slots. The receiver's memory has its
//! position and such a word (`vacancy.rs`). Each word has one writer, so each side may map the other's memory
//! read-only. A peer's position is read once, and an impossible one counts as "no news": a lying peer hurts only
//! itself.

use super::entry::{Entry, Words};
use super::memory::{Heap, LINE_WORDS, Memory, Misfit, Region, check_capacity};
use super::slip::Slip;
use super::vacancy::{self, Progress, Vacancy};
use super::{Closed, Pop, PopError, Push, PushError};
use crate::shared::hints;
use base::atomic::{AtomicU64, Ordering};
use std::marker::PhantomData;

/// Position up to which everything was published.
const TAIL: usize = 0;
/// Not zero once the sender went.
const GONE: usize = LINE_WORDS;
const SLOTS: usize = GONE + LINE_WORDS;

/// A side prefetches a slot this number of words before it needs the slot: four cache lines.
const AHEAD_WORDS: usize = 32;
const CACHE_LINE_WORDS: usize = 8;
/// At most two entries of this number of words or more fit in a cache line.
const FEW_A_LINE: usize = CACHE_LINE_WORDS / 2;

/// Number of words of the sender's memory for a capacity.
pub fn sender_words<T: Entry>(capacity: usize) -> Result<usize, Misfit> {
    check_capacity(capacity)?;
    Ok(SLOTS + capacity * T::Words::COUNT)
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
        let vacancy = Vacancy::new(receiver, capacity, T::Words::COUNT)?;
        Ok(Sender { tail: 0, own, vacancy, entries: PhantomData })
    }

    #[inline]
    fn write(&self, position: u64, entry: T) {
        self.expect_slots(position);
        let slot = slot::<T>(position, self.vacancy.capacity());
        entry.to_words().store(&self.own.words()[slot..slot + T::Words::COUNT]);
    }

    /// Prefetches a later slot, once a cache line. A store that waits for its line holds up all later stores, the
    /// publishing one included. Entries one by one take a fifth less time if the processors are near to each other.
    /// Batches take 5 % more there, and 7 % less if the processors are far apart.
    #[inline]
    fn expect_slots(&self, position: u64) {
        if let Some(ahead) = to_ask_for::<T>(position)
            && self.vacancy.is_free(ahead)
        {
            let word = &self.own.words()[slot::<T>(ahead, self.vacancy.capacity())];
            hints::will_write(std::ptr::from_ref(word).cast());
        }
    }

    #[inline]
    fn publish(&mut self, tail: u64) {
        self.tail = tail;
        // Pairs with the Acquire of the position in `Receiver::look`: entries are visible before the position.
        self.own.words()[TAIL].store(
            tail,
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
        self.write(self.tail, entry);
        self.publish(self.tail + 1);
        Ok(())
    }

    /// Publishes all entries together, after the last one.
    #[inline]
    fn push_batch(&mut self, entries: &mut impl Iterator<Item = T>) -> Result<usize, Closed> {
        if self.vacancy.is_closed() {
            return Err(Closed);
        }
        let wanted = (entries.size_hint().0 as u64).clamp(1, self.vacancy.capacity());
        let room = self.vacancy.room(self.tail, wanted);
        let mut count = 0;
        for run in runs::<T>(self.own.words(), self.tail, room, self.vacancy.capacity()) {
            for (cells, entry) in run.chunks_exact(T::Words::COUNT).zip(&mut *entries) {
                entry.to_words().store(cells);
                count += 1;
            }
        }
        if count > 0 {
            self.publish(self.tail + count);
        }
        Ok(count as usize)
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
    /// Entries are known to be published up to this position: never less than `head`.
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
        let slip = Slip::new(T::Words::COUNT, capacity);
        Ok(Receiver { head: 0, limit: 0, capacity, slip, sender, progress, entries: PhantomData })
    }

    /// Whether [`pop`](Pop::pop) would find an entry, or the end.
    pub fn is_ready(&mut self) -> bool {
        self.ready(1) != Ok(0)
    }

    #[inline]
    fn read(&self, position: u64) -> T {
        self.expect_slots(position);
        let slot = slot::<T>(position, self.capacity);
        T::from_words(T::Words::load(&self.sender.words()[slot..slot + T::Words::COUNT]))
    }

    /// Prefetches a later slot, once a cache line: the line comes from the sender's processor while earlier ones are
    /// read. Only a published slot: otherwise the sender, which still writes there, would lose the line. Not for
    /// entries shorter than `FEW_A_LINE`: a line holds many of them, and the prefetch costs more than it saves.
    #[inline]
    fn expect_slots(&self, position: u64) {
        if T::Words::COUNT < FEW_A_LINE {
            return;
        }
        if let Some(ahead) = to_ask_for::<T>(position)
            && ahead < self.limit
        {
            let word = &self.sender.words()[slot::<T>(ahead, self.capacity)];
            hints::will_read(std::ptr::from_ref(word).cast());
        }
    }

    #[inline]
    fn free(&mut self, head: u64) {
        self.head = head;
        self.progress.free(head);
    }

    /// Number of entries that can be taken. Looks for more if fewer are known than wanted.
    #[inline]
    fn ready(&mut self, wanted: u64) -> Result<u64, Closed> {
        let known = self.limit - self.head;
        if known >= wanted { Ok(known) } else { self.look() }
    }

    #[inline(never)]
    fn look(&mut self) -> Result<u64, Closed> {
        let Receiver { head, capacity, slip, sender, .. } = self;
        let published = || {
            // Pairs with the Release in `Sender::publish`.
            let tail = sender.words()[TAIL].load(
                Ordering::Acquire, // model: entries_come_in_order
            );
            let ready = tail.wrapping_sub(*head);
            // A sender that states an impossible position lies: the receiver takes no entry.
            if ready <= *capacity { ready } else { 0 }
        };
        let mut ready = slip.wait(published(), published);
        if ready == 0 {
            // Pairs with the Release in `Drop for Sender`.
            let gone = sender.words()[GONE].load(
                Ordering::Acquire, // model: closing_loses_nothing
            );
            if gone != 0 {
                ready = published();
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
        for run in runs::<T>(self.sender.words(), self.head, count, self.capacity) {
            if T::Words::COUNT >= FEW_A_LINE {
                // Prefetches all lines that the loop below reads, as `expect_slots` does for one.
                for line in run.iter().step_by(CACHE_LINE_WORDS) {
                    hints::will_read(std::ptr::from_ref(line).cast());
                }
            }
            for cells in run.chunks_exact(T::Words::COUNT) {
                each(T::from_words(T::Words::load(cells)));
            }
        }
        if count > 0 {
            self.free(self.head + count);
        }
        Ok(count as usize)
    }
}

/// The words of `count` slots (at most all) from `position` on, in two runs: up to the ring's end, and from its begin.
#[inline]
fn runs<T: Entry>(words: &[AtomicU64], position: u64, count: u64, capacity: u64) -> [&[AtomicU64]; 2] {
    let start = position & (capacity - 1);
    let first = count.min(capacity - start);
    let run = |from: u64, slots: u64| {
        let from = SLOTS + from as usize * T::Words::COUNT;
        &words[from..from + slots as usize * T::Words::COUNT]
    };
    [run(start, first), run(0, count - first)]
}

/// The position of the slot to prefetch when a side is at `position`; `Some` once for each cache line.
#[inline]
fn to_ask_for<T: Entry>(position: u64) -> Option<u64> {
    let begins_line = position as usize * T::Words::COUNT % CACHE_LINE_WORDS < T::Words::COUNT;
    begins_line.then_some(position + (AHEAD_WORDS / T::Words::COUNT) as u64)
}

#[inline]
fn slot<T: Entry>(position: u64, capacity: u64) -> usize {
    SLOTS + (position & (capacity - 1)) as usize * T::Words::COUNT
}
