//! Queues from one sender to one receiver, in two threads or in two processes that share memory.
//!
//! - [`Push`] and [`Pop`] — the calls of both queues. Start reading here.
//! - [`indexed`] — compares two positions, each on a cache line of its own. Stages of a pipeline use it.
//! - [`fast_forward`] — marks a full slot by a stamp in the slot.
//! - [`credit`] — places that go to the other side and come back, over two queues; [`bell`] — wakes a waiting side.
//! - [`numbers`] — a queue of numbers of either design, chosen by name.
//! - [`entry`] — entries: values of a fixed number of words; [`memory`] — the memory of a queue.
//!
//! Only `credit` sleeps. A caller that finds a queue full or empty decides what to do; a call that finds little waits a
//! bounded fraction of a microsecond for more (`slip.rs`). Not for several senders or receivers: a side can move to
//! another thread, but cannot be shared or cloned.
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
//! Stages of a pipeline move descriptors in batches, so they use [`indexed`]. Measured with `cargo run --release -p
//! bench -- rings`, relative to rtrb:
//!
//! | design | batches, against rtrb's chunks | one by one | one entry there and back |
//! |---|---|---|---|
//! | [`indexed`] | 1.1 (numbers: 0.95 to 1.2) | 4 to 5 | 1.0 to 1.1 |
//! | [`fast_forward`] | 0.3 to 0.9 | 4 to 5 | 1.35 |
//!
//! In batches the stamps of [`fast_forward`] cost: a slot of 32 bytes takes 40, and both sides handle slots one by one.
//! It is for single entries that a receiver waits for: entry and stamp share one cache line instead of two. The
//! distance between the two processors changes every number fivefold.
//!
//! # Memory orderings
//!
//! Everything is an atomic word, so a missing order is a wrong value, not undefined behaviour. Each order below, made
//! relaxed, fails the named models of `tests/models/queue.rs` (and other models that build on the same order):
//!
//! | where | what | the model |
//! |---|---|---|
//! | both, receiver's position | Release in `Progress::free`, Acquire in `Vacancy::look` | `a_slot_is_free_after_it_was_read` |
//! | indexed, sender's position | Release in `Sender::publish`, Acquire in `Receiver::look` | `entries_come_in_order`, `batches_come_in_order` |
//! | indexed, sender went | Release in `Drop for Sender`, Acquire in `Receiver::look` | `closing_loses_nothing` |
//! | fast-forward, stamp | Release in `Sender::put`, Acquire in `is_full` | `entries_come_in_order`, `batches_come_in_order` |
//! | fast-forward, sender went | Release in `Drop for Sender`, Acquire in `Receiver::look` | `closing_loses_nothing` |
//!
//! Two accesses are relaxed: the words of an entry, which these orders cover, and "the receiver went", which guards no
//! data.

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

/// The entry was not accepted: here it is.
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
    /// There is none now.
    Empty,
    /// There will be none: the sender was dropped and everything was taken.
    Closed,
}

impl From<Closed> for PopError {
    fn from(_: Closed) -> PopError {
        PopError::Closed
    }
}

/// The sending side of a queue. When the receiver goes, entries that it has not taken are lost.
pub trait Push<T> {
    /// Most entries in the queue.
    fn capacity(&self) -> usize;

    /// Whether the receiver was dropped.
    fn is_closed(&self) -> bool;

    /// Puts an entry at the end.
    fn push(&mut self, entry: T) -> Result<(), PushError<T>>;

    /// Takes as many entries from the iterator as there is room for; returns their number. Without room it takes none.
    ///
    /// The iterator runs after the receiver is done with the slots: it may recycle the memory of their old entries.
    fn push_batch(&mut self, entries: &mut impl Iterator<Item = T>) -> Result<usize, Closed>;
}

/// The receiving side of a queue.
pub trait Pop<T> {
    /// Most entries in the queue.
    fn capacity(&self) -> usize;

    /// Takes the oldest entry.
    fn pop(&mut self) -> Result<T, PopError>;

    /// Gives up to `limit` entries to `each`, oldest first; returns their number.
    ///
    /// The slots become free only afterwards, so the sender cannot reuse what entries name while `each` runs. If `each`
    /// panics, the queue keeps all of them.
    fn pop_batch(&mut self, limit: usize, each: impl FnMut(T)) -> Result<usize, Closed>;
}
