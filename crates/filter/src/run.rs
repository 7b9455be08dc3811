//! What a filter does: the traits behind an [`Instance`].
//!
//! The engine calls, the filter answers and returns. A filter that has more to give than is good to hold at once returns
//! [`Status::More`] and is called again after what it gave has gone all the way down.

use crate::batch::Batch;
use crate::context::Context;
use base::id::Class;
use buffer::BlockTable;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What an expected end of a call looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The batch is dealt with.
    Done,
    /// There is more to give: call again with the same batch when what was given is gone.
    More,
    /// This filter will never want another block (`head` has its ten). What comes is dropped from now on, and a source
    /// that nobody wants anything of any more stops.
    Finished,
}

/// Why the run cannot go on, by whose fault it is. Not for bad packets: those are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Input, output or the system failed: one clear line for people, with what would help.
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

/// What a source found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// It may have given blocks; call again.
    Ready,
    /// Nothing now; ask again after this long. [`Duration::MAX`]: after the caller of the worker gave it something.
    Idle(Duration),
    /// Nothing ever again.
    End,
}

/// A moment of another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// What [`Context::now`] is there.
    pub now: u64,
    /// Which run of blocks it is: [`Order::sequence`](crate::Order).
    pub sequence: u64,
    /// The only edge that the blocks go along, where not all of them: by its place.
    pub edge: Option<usize>,
    /// More of what that worker pulled at once comes: timers are not due yet.
    pub is_within: bool,
}

/// What a call gives back.
pub type Made = Result<Status, Box<Failure>>;

/// Where blocks begin.
pub trait Source: Send {
    /// Gives blocks that are there into `cx.out`: up to [`PULL_BLOCKS`](base::limits::PULL_BLOCKS), where that is no more
    /// work than one batch; with less than that, filters that read bytes know less of what comes next (see
    /// [`Batch::read`]). All of them have gone all the way down before the next call.
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>>;

    /// How far it is: (bytes read, bytes there are), where that is known.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }

    /// Asked after [`Pull::Idle`]: what to sleep on instead of asking again after that long. Whoever asks will look again
    /// when it is readable, and not before.
    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What time it is for blocks that may come now, where that goes on while none comes: of a live device, ns since 1970
    /// UTC. What waits for a time is told then, too.
    fn clock(&self) -> Option<u64> {
        None
    }

    /// Where another worker keeps the time, as it was there when the blocks just pulled came. The worker follows it instead
    /// of the blocks' times.
    fn follows(&self) -> Option<Moment> {
        None
    }

    /// Another stage of the same request gives its blocks: that stage rings for all that may happen, and counts the input.
    fn is_of_stage(&self) -> bool {
        false
    }

    /// Which of the blocks just pulled came one after the other in the input, where they are one share of it: where each run
    /// of them ends among those blocks, and its [`Order::sequence`](crate::Order).
    fn runs(&self) -> &[(usize, u64)] {
        &[]
    }

    /// Asked after [`Pull::Idle`]: does the input pause? False where another worker is only slower: what filters hold for
    /// speed they go on holding then.
    fn pauses(&self) -> bool {
        true
    }

    /// Asked after each pull: has it come to where the plan is replaced? It says so once, and gives nothing behind that place
    /// before the new plan runs. Only ends of channels answer.
    fn at_switch(&mut self) -> bool {
        false
    }

    /// It is retired from a worker that goes on: lets go of memory of other stages that it made known there.
    fn forget(&mut self, _rings: &mut BlockTable) {}

    /// Nobody wants anything of it any more: whoever waits for it to take more may stop.
    fn leave(&mut self) {}

    /// The run is to end: from now on it gives what is there at this moment and was not given yet, and then says
    /// [`Pull::End`]. False where the next call would find no other end than that of the input: it is not asked again.
    fn stop(&mut self) -> bool {
        false
    }

    /// Number of the packet it would give next, where packets of its device have numbers: all readers of one have the same.
    fn position(&self) -> Option<u64> {
        None
    }

    /// Another source of the same device takes over: from now on it gives the packets before this one, and then says
    /// [`Pull::End`]. False as of [`stop`](Source::stop), which is what it comes to where packets have no numbers.
    fn end_before(&mut self, _number: u64) -> bool {
        self.stop()
    }

    /// It takes over from another source of the same device: packets before this one it leaves to that one.
    fn begin_at(&mut self, _number: u64) {}

    /// A report is to be made while it goes on: what it knows about blocks that did not come goes to `cx.counters`.
    fn account(&mut self, _cx: &mut Context<'_>) {}

    /// It will not be asked again: what it knows about blocks that did not come goes to `cx.counters`.
    fn finish(&mut self, _cx: &mut Context<'_>) {}
}

/// A filter without state, or with one state for all blocks.
pub trait Filter: Send {
    /// Deals with a batch: in place where the kind gives what it takes, into `cx.out` where it gives something else.
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;

    /// The time set with [`Context::wake_at`] has come.
    fn timer(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// All that a source gave at once has gone through, and timers were told. Only ends of channels are told so.
    fn pulled(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// The number of parcels that wait in the channel of which this is the sending end; 0 for every other filter.
    fn backlog(&self) -> u64 {
        0
    }

    /// Here the plan is replaced: what follows belongs to the new one. Only ends of channels are told.
    fn switches(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// The input pauses: write out what is only held for speed.
    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// No block will come any more: give what is left. Called again for as long as it says [`Status::More`].
    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// The request was replaced, and what comes from now on comes from other filters: streams and messages that are open
    /// have ended, and their classes name others. What is written goes on. Only a sink whose kind
    /// [restarts](crate::Kind::restarts) is told.
    fn restart(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// What of a class makes a session.
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
    /// Nothing came for too long.
    Idle,
    /// It made room for others.
    Evicted,
    /// A new session of the same class began.
    Replaced,
    /// The run is over.
    Finished,
}

impl Closed {
    /// The word counters use.
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

/// A filter with a state for each session: the engine keeps the states, by class, with a cap and an idle timeout.
///
/// A session begins with the first block of its class and ends after the block flagged LAST (of both directions, where
/// the key is the connection and both were seen).
pub trait SessionFilter: Send {
    /// What is kept of one session.
    type State: Send + 'static;

    /// A new session.
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Self::State;

    /// Deals with blocks of one session. As [`Filter::run`].
    fn run(&mut self, state: &mut Self::State, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;

    /// The session is over: give what is left of it, in one go.
    fn close(
        &mut self,
        state: Self::State,
        class: Class,
        why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>>;

    /// The input pauses: write out what is only held for speed.
    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    /// No block will come any more, and every session is closed.
    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// A session's place in its filter's slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u32);

/// A session filter with its states, whose type is forgotten: what the engine keeps. The engine decides which sessions
/// there are and when one ends; the states lie in a slab, so that opening one does not allocate in the long run.
pub trait AnySessionFilter: Send {
    /// See [`SessionFilter::open`].
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Slot;
    /// See [`SessionFilter::run`].
    fn run(&mut self, slot: Slot, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made;
    /// See [`SessionFilter::close`]. The slot is free afterwards.
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

/// A filter ready to run.
pub enum Instance {
    /// Where blocks begin.
    Source(Box<dyn Source>),
    /// Stateless or serial.
    Filter(Box<dyn Filter>),
    /// By session.
    Session(SessionKey, Box<dyn AnySessionFilter>),
    /// By session, of a kind that works in place, where this one does not: it gives what is to pass into `cx.out`, as a
    /// filter has to that can say only later that an earlier block passes.
    SessionAnew(SessionKey, Box<dyn AnySessionFilter>),
}

impl Instance {
    /// Of a source.
    pub fn source(source: impl Source + 'static) -> Instance {
        Instance::Source(Box::new(source))
    }

    /// Of a filter.
    pub fn filter(filter: impl Filter + 'static) -> Instance {
        Instance::Filter(Box::new(filter))
    }

    /// Of a session filter.
    pub fn session(key: SessionKey, filter: impl SessionFilter + 'static) -> Instance {
        Instance::Session(key, Box::new(Slab { filter, states: Vec::new(), free: Vec::new() }))
    }

    /// Of a session filter that gives blocks into `cx.out`, though its kind works in place.
    pub fn session_anew(key: SessionKey, filter: impl SessionFilter + 'static) -> Instance {
        Instance::SessionAnew(key, Box::new(Slab { filter, states: Vec::new(), free: Vec::new() }))
    }

    /// Does it give blocks into `cx.out`, whatever its kind does?
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
