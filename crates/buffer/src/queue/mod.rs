//! Queues from one sender to one receiver, in two threads or in two processes that share memory.
//!
//! - [`Push`] and [`Pop`] — what both queues can do. Start reading here.
//! - [`indexed`] — full and empty by positions, each side's on a line of its own. What stages of a pipeline use.
//! - [`fast_forward`] — full by a stamp in the slot.
//! - [`credit`] — places that go there and come back, over two queues; [`bell`] — wakes who waits for them.
//! - [`numbers`] — a queue of numbers of either design, by name.
//! - [`entry`] — what travels: fixed numbers of words; [`memory`] — where a queue lives.
//!
//! Nothing but `credit` sleeps here: who finds a queue full or empty decides what to do, and a call that finds little waits a bounded
//! fraction of a microsecond for more (`slip.rs`). Not for several senders or receivers: a side can be sent to another
//! thread, not shared and not cloned.
//!
//! ```
//! use buffer::queue::{Pop, PopError, Push, indexed};
//!
//! let (mut sender, mut receiver) = indexed::queue::<u64>(1024)?;
//! std::thread::spawn(move || sender.push_batch(&mut (0..10)));
//! let mut sum = 0;
//! while receiver.pop_batch(32, |number| sum += number).is_ok() {}
//! assert_eq!(sum, 45);
//! # Ok::<(), buffer::queue::Misfit>(())
//! ```
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>(_: T) {}
//! shared(buffer::queue::indexed::queue::<u64>(2).unwrap().0);
//! ```
//!
//! # Which one
//!
//! Stages of a pipeline move descriptors in batches, so they use [`indexed`]. In `cargo run --release -p bench -- rings` it
//! carried descriptors in batches 1.1 times as fast as rtrb's chunks (numbers: between 0.95 and 1.2) and one by one 4 to 5
//! times as fast as rtrb. [`fast_forward`] is as good one by one, but in batches only 0.3 to 0.9 of rtrb's chunks: its stamps
//! make a slot of 32 bytes one of 40 and both sides handle them one by one. It is for lone entries for which a receiver
//! waits: the entry and its news are one cache line instead of two. It went there and back 1.35 times as fast as rtrb,
//! where [`indexed`] did 1.0 to 1.1. How near the two processors are to each other changes every number fivefold.
//!
//! # Memory orderings
//!
//! Everything is an atomic word, so a missing order is a wrong value, not undefined behaviour. Each of these, made relaxed,
//! fails the models of `tests/queue_models.rs` named beside it (with others, which build on the same order):
//!
//! | where | what | the model |
//! |---|---|---|
//! | both, receiver's position | Release in `Progress::free`, Acquire in `Vacancy::look` | `a_slot_is_free_after_it_was_read` |
//! | indexed, sender's position | Release in `Sender::publish`, Acquire in `Receiver::look` | `entries_come_in_order`, `batches_come_in_order` |
//! | indexed, sender went | Release in `Drop for Sender`, Acquire in `Receiver::look` | `closing_loses_nothing` |
//! | fast-forward, stamp | Release in `Sender::put`, Acquire in `is_full` | `entries_come_in_order`, `batches_come_in_order` |
//! | fast-forward, sender went | Release in `Drop for Sender`, Acquire in `Receiver::look` | `closing_loses_nothing` |
//!
//! Two accesses are relaxed: the words of an entry, which these orders cover, and "the receiver went". The sender reads no
//! data because of the latter.

pub mod bell;
pub mod credit;
pub mod entry;
pub mod fast_forward;
pub mod indexed;
pub mod memory;
pub mod numbers;
mod slip;
mod vacancy;

pub use entry::{Entry, Words};
pub use memory::{Heap, Memory, Misfit};

/// The other side was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The entry was not taken: here it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError<T> {
    /// There is no room now.
    Full(T),
    /// The receiver was dropped.
    Closed(T),
}

/// There is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopError {
    /// Now.
    Empty,
    /// Any more: the sender was dropped and everything was taken.
    Closed,
}

impl From<Closed> for PopError {
    fn from(_: Closed) -> PopError {
        PopError::Closed
    }
}

/// The sending side of a queue. When the receiver goes, the entries that it has not taken are lost.
pub trait Push<T> {
    /// Entries the queue holds at most.
    fn capacity(&self) -> usize;

    /// Was the receiver dropped?
    fn is_closed(&self) -> bool;

    /// Puts an entry at the end.
    fn push(&mut self, entry: T) -> Result<(), PushError<T>>;

    /// Takes as many entries as there is room for and says how many those were; asks for none where there is no room.
    ///
    /// The sender runs the iterator after the receiver is done with the slots. So the iterator may recycle the memory that
    /// their old entries name.
    fn push_batch(&mut self, entries: &mut impl Iterator<Item = T>) -> Result<usize, Closed>;
}

/// The receiving side of a queue.
pub trait Pop<T> {
    /// Entries the queue holds at most.
    fn capacity(&self) -> usize;

    /// Takes the oldest entry.
    fn pop(&mut self) -> Result<T, PopError>;

    /// Hands up to `limit` entries to `each`, oldest first, and says how many those were.
    ///
    /// Their slots are free only afterwards, so the sender cannot reuse what entries name while `each` runs. If `each`
    /// panics, the queue keeps all of them.
    fn pop_batch(&mut self, limit: usize, each: impl FnMut(T)) -> Result<usize, Closed>;
}
