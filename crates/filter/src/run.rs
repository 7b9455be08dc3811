//! What a filter does: the traits behind an [`Instance`].
//!
//! The engine calls, the filter answers and returns. A filter with more blocks than it should hold at once returns
//! [`Status::More`]. It is called again when its blocks have gone through all filters behind it.

use crate::batch::Batch;
use crate::context::Context;
use base::id::Class;
use buffer::BlockTable;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How a successful call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The batch is done.
    Done,
    /// There are more blocks to give: call again with the same batch when the given ones are gone.
    More,
    /// This filter will never want another block (`head` has its ten). Later blocks are dropped, and a source stops
    /// when all its filters have finished.
    Finished,
}

/// Why the run cannot go on, by whose fault it is. Not for bad packets, which are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Input, output or the system failed: one clear line for people, with the remedy.
    System(String),
    /// The request turned out to be wrong once the input was known.
    Request(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Failure::System(text) | Failure::Request(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

/// The answer of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// It may have given blocks; call again.
    Ready,
    /// No block now; ask again after this long. [`Duration::MAX`]: ask after the worker's caller gave it something.
    Idle(Duration),
    /// No block will ever come again.
    End,
}

/// A moment in another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// [`Context::now`] there.
    pub now: u64,
    /// The number of its run of blocks: [`Order::sequence`](crate::Order).
    pub sequence: u64,
    /// The index of the only edge for these blocks. `None`: they go along all edges.
    pub edge: Option<usize>,
    /// More of the same pull of that worker follows: timers are not due yet.
    pub is_within: bool,
}

/// The result of a call.
pub type Made = Result<Status, Box<Failure>>;

/// How much of its input a source has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes in all. `None`: not known, as of a pipe.
    pub all: Option<u64>,
}

impl Progress {
    /// A source without input has read all of it.
    pub const NOTHING: Progress = Progress { done: 0, all: Some(0) };

    /// That of two inputs together.
    #[must_use]
    pub fn with(self, other: Progress) -> Progress {
        let all = self.all.zip(other.all).map(|(one, other)| one.saturating_add(other));
        Progress { done: self.done.saturating_add(other.done), all }
    }
}

/// The beginning of a path, which gives blocks.
pub trait Source: Send {
    /// Gives present blocks into `cx.out`: up to [`PULL_BLOCKS`](base::limits::PULL_BLOCKS) if that is no more work
    /// than one batch. With fewer, filters that read bytes know less about coming blocks (see [`Batch::read`]). The
    /// next call comes after all of them have gone through all filters.
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>>;

    /// How much of its input it has read. `None`: it does not read bytes that somebody waits for, as from a file.
    fn progress(&self) -> Option<Progress> {
        None
    }

    /// Called after [`Pull::Idle`]: a file descriptor to sleep on instead of waiting that long. The caller looks again
    /// when it is readable, and not before.
    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The clock for blocks that may come now, ns since 1970 UTC, if it goes on while no block comes, as for a live
    /// device. Filters' timers then follow it, too.
    fn clock(&self) -> Option<u64> {
        None
    }

    /// The time in another worker when the blocks just pulled came. This worker follows it instead of the blocks'
    /// times. `None`: no other worker keeps the time.
    fn follows(&self) -> Option<Moment> {
        None
    }

    /// Whether another stage of this request gives its blocks. That stage then wakes this one for every event, and counts
    /// the input.
    fn is_of_stage(&self) -> bool {
        false
    }

    /// The runs of the blocks just pulled, if they are one partition of the input. A run is of blocks that followed each
    /// other there. Each entry has the run's end among the blocks, and its [`Order::sequence`](crate::Order).
    fn runs(&self) -> &[(usize, u64)] {
        &[]
    }

    /// Called after [`Pull::Idle`]: does the input pause? `false`: another worker is only slower, and filters keep
    /// holding blocks that they hold for speed.
    fn pauses(&self) -> bool {
        true
    }

    /// Called after each pull. `true`: it has come to where the plan is replaced. It says so once, and gives no block
    /// behind that before the new plan runs. Only ends of channels answer.
    fn at_switch(&mut self) -> bool {
        false
    }

    /// The source is retired, and its worker goes on: drops the memory of other stages that it registered there.
    fn forget(&mut self, _rings: &mut BlockTable) {}

    /// No filter wants a block of it any more: a stage that waits to give it more may stop.
    fn leave(&mut self) {}

    /// Asks the source to end. It gives blocks that are there now and not given yet, and then says [`Pull::End`].
    /// `false`: the next call would find only the input's own end, so it is not called again.
    fn stop(&mut self) -> bool {
        false
    }

    /// The number of the packet that it would give next, if its device numbers packets. All readers of a device have
    /// the same numbers.
    fn position(&self) -> Option<u64> {
        None
    }

    /// Another source of the same device takes over. This one gives the packets before `number`, and then says
    /// [`Pull::End`]. `false`: as for [`stop`](Source::stop), which is called if packets have no numbers.
    fn end_before(&mut self, _number: u64) -> bool {
        self.stop()
    }

    /// It takes over from another source of the same device, which gives the packets before this number.
    fn begin_at(&mut self, _number: u64) {}

    /// Adds blocks that did not come to `cx.counters`, for a report while it runs.
    fn account(&mut self, _cx: &mut Context<'_>) {}

    /// Adds blocks that did not come to `cx.counters`, after the last pull.
    fn finish(&mut self, _cx: &mut Context<'_>) {}
}

/// A filter without state, or with one state for all blocks.
pub trait Filter: Send {
    /// Handles a batch: in place if the kind gives the blocks that it takes, else into `cx.out`.
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;

    /// The time set with [`Context::wake_at`] has come.
    fn timer(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// All blocks of a pull have gone through, and timers have run. Called for ends of channels only.
    fn pulled(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// For the sending end of a channel: the number of parcels that wait in it. 0 for other filters.
    fn backlog(&self) -> u64 {
        0
    }

    /// The plan is replaced here: later blocks belong to the new one. Called for ends of channels only.
    fn switches(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// The input pauses: write out everything that is held only for speed.
    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// No block will come any more: give the rest. Called again while it says [`Status::More`].
    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// The request was replaced, and later blocks come from other filters. Open streams and messages have ended, and
    /// classes have new meanings. The output goes on. Called only for a sink whose kind
    /// [restarts](crate::Kind::restarts).
    fn restart(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// The part of a class that makes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKey {
    /// Each class: one direction of a connection.
    Class,
    /// Both directions of a connection.
    Connection,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Its last block came.
    Ended,
    /// It was idle for too long.
    Idle,
    /// It made room for another session.
    Evicted,
    /// A new session of the same class began.
    Replaced,
    /// The run is over.
    Finished,
}

impl Closed {
    /// Its word in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Closed::Ended => "ended",
            Closed::Idle => "idle",
            Closed::Evicted => "evicted",
            Closed::Replaced => "replaced",
            Closed::Finished => "unfinished",
        }
    }
}

/// A filter with a state for each session. The engine keeps the states, by class, with a cap and an idle timeout.
///
/// A session begins with the first block of its class and ends after the block flagged LAST. If the key is the
/// connection and both directions were seen, it ends after both.
pub trait SessionFilter: Send {
    /// The state of one session.
    type State: Send + 'static;

    /// A new session.
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Self::State;

    /// Handles blocks of one session, like [`Filter::run`].
    fn run(&mut self, state: &mut Self::State, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;

    /// The session is over: give the rest of it, all at once.
    fn close(
        &mut self,
        state: Self::State,
        class: Class,
        why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>>;

    /// The input pauses: write out everything that is held only for speed.
    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// No block will come any more, and all sessions are closed.
    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// A session's index in its filter's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u32);

/// A session filter with its states, for any type of state. The engine decides which sessions exist and when they end.
/// The states are in a slab, so opening one rarely allocates.
pub trait AnySessionFilter: Send {
    /// See [`SessionFilter::open`].
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Slot;
    /// See [`SessionFilter::run`].
    fn run(&mut self, slot: Slot, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;
    /// See [`SessionFilter::close`]. The slot is free then.
    fn close(&mut self, slot: Slot, class: Class, why: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>>;
    /// See [`SessionFilter::flush`].
    fn flush(&mut self, cx: &mut Context<'_>) -> Made;
    /// See [`SessionFilter::finish`].
    fn finish(&mut self, cx: &mut Context<'_>) -> Made;
}

struct Slab<F: SessionFilter> {
    filter: F,
    states: Vec<Option<F::State>>,
    free: Vec<u32>,
}

impl<F: SessionFilter> AnySessionFilter for Slab<F> {
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Slot {
        let state = Some(self.filter.open(class, cx));
        match self.free.pop() {
            Some(slot) => {
                self.states[slot as usize] = state;
                Slot(slot)
            }
            None => {
                self.states.push(state);
                Slot((self.states.len() - 1) as u32)
            }
        }
    }

    fn run(&mut self, slot: Slot, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        match self.states.get_mut(slot.0 as usize).and_then(Option::as_mut) {
            Some(state) => self.filter.run(state, batch, cx),
            None => Ok(Status::Done),
        }
    }

    fn close(&mut self, slot: Slot, class: Class, why: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        let Some(state) = self.states.get_mut(slot.0 as usize).and_then(Option::take) else { return Ok(()) };
        self.free.push(slot.0);
        self.filter.close(state, class, why, cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.filter.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.filter.finish(cx)
    }
}

/// A filter that is ready to run.
pub enum Instance {
    /// A source.
    Source(Box<dyn Source>),
    /// A stateless or serial filter.
    Filter(Box<dyn Filter>),
    /// A session filter.
    Session(SessionKey, Box<dyn AnySessionFilter>),
    /// A session filter whose kind works in place, although this one gives blocks into `cx.out`. It can decide later
    /// that an earlier block passes.
    SessionAnew(SessionKey, Box<dyn AnySessionFilter>),
}

impl Instance {
    /// An instance of a source.
    pub fn source(source: impl Source + 'static) -> Instance {
        Instance::Source(Box::new(source))
    }

    /// An instance of a filter.
    pub fn filter(filter: impl Filter + 'static) -> Instance {
        Instance::Filter(Box::new(filter))
    }

    /// An instance of a session filter.
    pub fn session(key: SessionKey, filter: impl SessionFilter + 'static) -> Instance {
        Instance::Session(key, Box::new(Slab { filter, states: Vec::new(), free: Vec::new() }))
    }

    /// An instance of a session filter that gives blocks into `cx.out`, although its kind works in place.
    pub fn session_anew(key: SessionKey, filter: impl SessionFilter + 'static) -> Instance {
        Instance::SessionAnew(key, Box::new(Slab { filter, states: Vec::new(), free: Vec::new() }))
    }

    /// Whether it gives blocks into `cx.out`, although its kind works in place.
    pub fn gives_anew(&self) -> bool {
        matches!(self, Instance::SessionAnew(..))
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Instance::Source(_) => "Instance::Source",
            Instance::Filter(_) => "Instance::Filter",
            Instance::Session(..) => "Instance::Session",
            Instance::SessionAnew(..) => "Instance::SessionAnew",
        })
    }
}
