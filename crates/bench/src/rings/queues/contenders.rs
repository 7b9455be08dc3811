//! The queues behind one trait. Each is used as its authors intend: features that they offer directly are not wrapped.

use buffer::queue::{Entry, Pop, Push, fast_forward, indexed};
use crossbeam_queue::ArrayQueue;
use rtrb::chunks::ChunkError;
use std::ops::Range;
use std::sync::Arc;

/// A queue of `T`.
pub trait Queue<T>: 'static {
    /// The side that pushes.
    type Sender: Send;
    /// The side that pops.
    type Receiver: Send;

    /// Both sides of a queue with `slots` slots.
    fn new(slots: usize) -> Result<(Self::Sender, Self::Receiver), String>;
    /// Pushes an entry; `false`: there was no room.
    fn push(sender: &mut Self::Sender, entry: T) -> bool;
    /// Pops the oldest entry.
    fn pop(receiver: &mut Self::Receiver) -> Option<T>;
    /// Pushes entries made from these numbers while there is room. Gives how many were pushed.
    fn push_batch(sender: &mut Self::Sender, numbers: Range<u64>, make: impl Fn(u64) -> T) -> u64;
    /// Pops up to `limit` entries.
    fn pop_batch(receiver: &mut Self::Receiver, limit: usize, each: impl FnMut(T));
}

/// `buffer::queue::indexed`.
pub struct Indexed;

impl<T: Entry> Queue<T> for Indexed {
    type Sender = indexed::Sender<T>;
    type Receiver = indexed::Receiver<T>;

    fn new(slots: usize) -> Result<(Self::Sender, Self::Receiver), String> {
        indexed::queue(slots).map_err(|misfit| misfit.to_string())
    }

    #[inline]
    fn push(sender: &mut Self::Sender, entry: T) -> bool {
        sender.push(entry).is_ok()
    }

    #[inline]
    fn pop(receiver: &mut Self::Receiver) -> Option<T> {
        receiver.pop().ok()
    }

    #[inline]
    fn push_batch(sender: &mut Self::Sender, numbers: Range<u64>, make: impl Fn(u64) -> T) -> u64 {
        sender.push_batch(&mut numbers.map(make)).unwrap_or(0) as u64
    }

    #[inline]
    fn pop_batch(receiver: &mut Self::Receiver, limit: usize, each: impl FnMut(T)) {
        // The count of entries shows that a sender has gone.
        let _ = receiver.pop_batch(limit, each);
    }
}

/// `buffer::queue::fast_forward`.
pub struct FastForward;

impl<T: Entry> Queue<T> for FastForward {
    type Sender = fast_forward::Sender<T>;
    type Receiver = fast_forward::Receiver<T>;

    fn new(slots: usize) -> Result<(Self::Sender, Self::Receiver), String> {
        fast_forward::queue(slots).map_err(|misfit| misfit.to_string())
    }

    #[inline]
    fn push(sender: &mut Self::Sender, entry: T) -> bool {
        sender.push(entry).is_ok()
    }

    #[inline]
    fn pop(receiver: &mut Self::Receiver) -> Option<T> {
        receiver.pop().ok()
    }

    #[inline]
    fn push_batch(sender: &mut Self::Sender, numbers: Range<u64>, make: impl Fn(u64) -> T) -> u64 {
        sender.push_batch(&mut numbers.map(make)).unwrap_or(0) as u64
    }

    #[inline]
    fn pop_batch(receiver: &mut Self::Receiver, limit: usize, each: impl FnMut(T)) {
        // The count of entries shows that a sender has gone.
        let _ = receiver.pop_batch(limit, each);
    }
}

/// `rtrb`.
pub struct Rtrb;

impl<T: Copy + Send + 'static> Queue<T> for Rtrb {
    type Sender = rtrb::Producer<T>;
    type Receiver = rtrb::Consumer<T>;

    fn new(slots: usize) -> Result<(Self::Sender, Self::Receiver), String> {
        Ok(rtrb::RingBuffer::new(slots))
    }

    #[inline]
    fn push(sender: &mut Self::Sender, entry: T) -> bool {
        sender.push(entry).is_ok()
    }

    #[inline]
    fn pop(receiver: &mut Self::Receiver) -> Option<T> {
        receiver.pop().ok()
    }

    #[inline]
    fn push_batch(sender: &mut Self::Sender, numbers: Range<u64>, make: impl Fn(u64) -> T) -> u64 {
        // Ask for all slots first: that reads the other side's position only if fewer are known to be free.
        let wanted = (numbers.end - numbers.start) as usize;
        let chunk = match sender.write_chunk_uninit(wanted) {
            Err(ChunkError::TooFewSlots(slots)) => sender.write_chunk_uninit(slots),
            chunk => chunk,
        };
        match chunk {
            Ok(chunk) => chunk.fill_from_iter(numbers.map(make)) as u64,
            Err(_) => 0,
        }
    }

    #[inline]
    fn pop_batch(receiver: &mut Self::Receiver, limit: usize, each: impl FnMut(T)) {
        let chunk = match receiver.read_chunk(limit) {
            Err(ChunkError::TooFewSlots(slots)) => receiver.read_chunk(slots),
            chunk => chunk,
        };
        if let Ok(chunk) = chunk {
            chunk.into_iter().for_each(each);
        }
    }
}

/// `crossbeam_queue::ArrayQueue`, which has no batches.
pub struct CrossbeamArray;

impl<T: Send + 'static> Queue<T> for CrossbeamArray {
    type Sender = Arc<ArrayQueue<T>>;
    type Receiver = Arc<ArrayQueue<T>>;

    fn new(slots: usize) -> Result<(Self::Sender, Self::Receiver), String> {
        let queue = Arc::new(ArrayQueue::new(slots));
        Ok((queue.clone(), queue))
    }

    #[inline]
    fn push(sender: &mut Self::Sender, entry: T) -> bool {
        sender.as_ref().push(entry).is_ok()
    }

    #[inline]
    fn pop(receiver: &mut Self::Receiver) -> Option<T> {
        receiver.as_ref().pop()
    }

    #[inline]
    fn push_batch(sender: &mut Self::Sender, numbers: Range<u64>, make: impl Fn(u64) -> T) -> u64 {
        numbers.map(make).map_while(|entry| sender.as_ref().push(entry).ok()).count() as u64
    }

    #[inline]
    fn pop_batch(receiver: &mut Self::Receiver, limit: usize, each: impl FnMut(T)) {
        (0..limit).map_while(|_| receiver.as_ref().pop()).for_each(each);
    }
}
