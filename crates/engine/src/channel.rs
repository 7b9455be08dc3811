//! A channel carries blocks from one stage to another, in batches, between threads. For the giving stage it is a sink,
//! for the getting stage a source; `walk` and the filters do not know it.
//!
//! - A *parcel* crosses: descriptors, handles of the memory that they name (`buffer::lending`), the facts of their
//!   streams, and the sender's time. Bytes stay where they are.
//! - A channel has a fixed number of parcels. Full ones go along one queue, and free ones come back along another
//!   (`buffer::queue::indexed`); the free ones are the credit. A sender without a free parcel waits, and so does its
//!   source.
//! - Either end may go. When the sender has gone, the receiver finds the end behind the last parcel. When the receiver
//!   has left, the sender wants no more blocks, so its source ends.
//!
//! `channel/partitions` has the ends of channels to and from partitions of the flows.
//!
//! Neither end spins for long: an end that waits says so, and sleeps until the other end rings ([`Bell`]).

mod partitions;

pub(crate) use partitions::{Join, Outlet, PartitionSource, Splitter};

use crate::gauge::ChannelGauge;
use base::id::Class;
use base::limits::{BATCH_BLOCKS, PARCELS, PULL_BLOCKS, SECOND_NS, STREAMS};
use buffer::lending::{Borrower, Lender, Loans};
use buffer::queue::PopError;
pub(crate) use buffer::queue::bell::Bell;
use buffer::queue::credit::{Ends, Giver, Taker, credit};
use buffer::queue::numbers::Queue;
use buffer::{BlockTable, Descriptor};
use filter::{Batch, Context, Failure, Filter, Made, Moment, Order, Pull, Source, Status, StreamFacts};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest sleep, so that a lost signal costs only this time.
const NAP: Duration = Duration::from_millis(50);

/// The sender sends a parcel that is not full after at most this time, by the clock of the blocks.
const PATIENCE_NS: u64 = SECOND_NS / 10;

/// The blocks that the sender sends at a time.
#[derive(Debug, Default)]
struct Parcel {
    blocks: Vec<Descriptor>,
    loans: Loans,
    /// Facts about streams, in the order in which the sender learned them.
    facts: VecDeque<Fact>,
    now: u64,
    /// For partitions: which blocks belong together, in order.
    parts: VecDeque<Part>,
    /// The sender's input pauses behind this parcel.
    is_pause: bool,
    /// The plan is replaced behind this parcel.
    is_switch: bool,
}

/// Blocks that follow each other and belong together. Without blocks, it only says how far the sender is.
#[derive(Clone, Copy, Debug)]
struct Part {
    order: Order,
    blocks: usize,
    /// The index of the edge behind the channel for these blocks.
    edge: usize,
    now: u64,
    /// Another part of the same pull follows.
    is_within: bool,
}

impl Part {
    fn place(&self) -> (u64, u32, u64) {
        (self.order.sequence, self.order.node, self.order.ends)
    }
}

/// The facts about a stream that hold from block `from` of a parcel on.
#[derive(Clone, Debug)]
struct Fact {
    from: usize,
    number: u32,
    epoch: u32,
    facts: StreamFacts,
}

/// The state that both ends of a channel share.
#[derive(Debug)]
pub(crate) struct Shared {
    parcels: Box<[Mutex<Parcel>]>,
    ends: Arc<Ends>,
    gauge: Arc<ChannelGauge>,
}

impl Shared {
    pub(crate) fn gauge(&self) -> &Arc<ChannelGauge> {
        &self.gauge
    }

    /// The bell that the receiver's thread sleeps on.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        self.ends.bell()
    }

    /// Whether the receiver has left. Then blocks in the channel have no reader.
    pub(crate) fn has_left(&self) -> bool {
        self.ends.has_left()
    }

    fn parcel(&self, index: u64) -> MutexGuard<'_, Parcel> {
        // A poisoned lock is safe to take: a panic under it does not leave a parcel half made.
        self.parcels[index as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Sender {
    shared: Arc<Shared>,
    places: Giver,
    /// The parcel being filled: its index, and its contents.
    current: Option<u64>,
    parcel: Parcel,
    told_pause: bool,
    lender: Lender,
    /// For each connection number: the facts that the receiver knows.
    known: Vec<Option<(u32, StreamFacts)>>,
}

pub(crate) struct Receiver {
    shared: Arc<Shared>,
    places: Taker,
    borrower: Borrower,
    /// Parcels whose blocks are under way; some of the last one's may not have been given yet.
    current: Vec<u64>,
    /// The rest of the last parcel; its loans stay with the parcel.
    parcel: Parcel,
    /// Number of blocks of the last parcel that were given.
    given: usize,
    /// For each stream number of the sender: its epoch, and its number in this stage. `None`: both stages use the same
    /// numbers.
    numbers: Option<HashMap<u32, (u32, u32)>>,
    asleep: bool,
    ended: bool,
    /// The sender's input pauses, for the parcels read so far.
    is_pause: bool,
    /// The plan is replaced behind the last parcel.
    is_switch: bool,
    now: u64,
}

/// Makes both ends of a channel, whose receiver sleeps on the bell `full`. `renumber`: the receiver's stage gets
/// streams from elsewhere as well, so the streams need numbers of their own there.
pub(crate) fn channel(full: &Arc<Bell>, queue: Queue, renumber: bool) -> std::io::Result<(Sender, Receiver)> {
    let (giver, taker) = credit(PARCELS, queue, full)?;
    let parcels = (0..PARCELS).map(|_| Mutex::default()).collect();
    let shared = Arc::new(Shared { parcels, ends: Arc::clone(giver.ends()), gauge: Arc::default() });
    let numbers = renumber.then(HashMap::new);
    Ok((
        Sender {
            shared: Arc::clone(&shared),
            places: giver,
            current: None,
            parcel: Parcel::default(),
            told_pause: false,
            lender: Lender::default(),
            known: Vec::new(),
        },
        Receiver {
            shared,
            places: taker,
            borrower: Borrower::default(),
            current: Vec::new(),
            parcel: Parcel::default(),
            given: 0,
            numbers,
            asleep: false,
            ended: false,
            is_pause: false,
            is_switch: false,
            now: 0,
        },
    ))
}

impl Sender {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The parcel to fill; waits until there is one. `None`: the receiver has left.
    fn parcel(&mut self, cx: &mut Context<'_>) -> Option<&mut Parcel> {
        if self.current.is_none() {
            let gauge = &self.shared.gauge;
            let index = self.places.place(|is_waiting| gauge.set_waiting(is_waiting))?;
            self.current = Some(index);
            // Fill it without a lock.
            std::mem::swap(&mut self.parcel, &mut *self.shared.parcel(index));
            self.parcel.blocks.clear();
            self.parcel.facts.clear();
            self.parcel.parts.clear();
            (self.parcel.is_pause, self.parcel.is_switch, self.told_pause) = (false, false, false);
            self.lender.begin(cx.rings, &mut self.parcel.loans);
            cx.wake_at(cx.now.saturating_add(PATIENCE_NS));
        }
        Some(&mut self.parcel)
    }

    fn send(&mut self, now: u64) {
        let Some(index) = self.current.take() else { return };
        self.parcel.now = now;
        std::mem::swap(&mut self.parcel, &mut *self.shared.parcel(index));
        self.shared.gauge.sent();
        self.places.give(index);
    }

    /// Sends the parcel being filled, and says that the input pauses. `false`: the receiver has left.
    fn pause(&mut self, cx: &mut Context<'_>) -> bool {
        if self.current.is_some() || !self.told_pause {
            let Some(parcel) = self.parcel(cx) else { return false };
            parcel.is_pause = true;
            self.send(cx.now);
            self.told_pause = true;
        }
        !self.places.has_left()
    }

    /// Sends the parcel being filled, and says that the plan is replaced behind it. `false`: the receiver has left.
    fn switch(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(parcel) = self.parcel(cx) else { return false };
        parcel.is_switch = true;
        self.send(cx.now);
        true
    }

    /// Takes the live blocks of a batch, and sends the parcel once it is full enough. `false`: the receiver has left.
    fn take(&mut self, batch: &Batch<'_>, cx: &mut Context<'_>) -> bool {
        let Some(parcel) = self.parcel(cx) else { return false };
        if parcel.blocks.len() + batch.count() as usize > PULL_BLOCKS {
            self.send(cx.now);
        }
        let Some(count) = self.add(batch, None, cx) else { return false };
        if count + BATCH_BLOCKS > PULL_BLOCKS {
            self.send(cx.now);
        }
        true
    }

    /// Adds the live blocks of a batch to the parcel being filled; `order` says how they belong together. Gives the
    /// number of blocks in the parcel. `None`: the receiver has left.
    fn add(&mut self, batch: &Batch<'_>, order: Option<(Order, usize)>, cx: &mut Context<'_>) -> Option<usize> {
        self.parcel(cx)?;
        let Sender { parcel, lender, known, .. } = self;
        let Parcel { blocks, loans, facts, parts, .. } = parcel;
        if let Some((order, edge)) = order {
            let count = batch.count() as usize;
            match parts.back_mut() {
                Some(last) if last.order == order => last.blocks += count,
                _ => parts.push_back(Part { order, blocks: count, edge, now: cx.now, is_within: true }),
            }
        }
        let knows_streams = cx.streams.changes() > 0;
        let mut last = None;
        for (_, block) in batch.iter() {
            if knows_streams && last != Some(block.class.connection()) {
                last = Some(block.class.connection());
                tell(known, block.class, cx, blocks.len(), facts);
            }
            match lender.lend(cx.rings, block, loans) {
                Some(block) => blocks.push(block),
                // The bytes of this block are gone: the receiver gets an empty block, as this stage has one.
                None => blocks.push(Descriptor {
                    pos: 0,
                    len: 0,
                    ring: cx.own.ring,
                    generation: cx.own.generation,
                    ..*block
                }),
            }
        }
        Some(blocks.len())
    }

    /// Says how far this side is. `false`: the receiver has left.
    fn mark(&mut self, order: Order, cx: &mut Context<'_>) -> bool {
        let Some(parcel) = self.parcel(cx) else { return false };
        parcel.parts.push_back(Part { order, blocks: 0, edge: 0, now: cx.now, is_within: false });
        true
    }
}

/// Adds the facts about a stream to a parcel, unless the receiver knows them.
#[inline]
fn tell(
    known: &mut Vec<Option<(u32, StreamFacts)>>,
    class: Class,
    cx: &Context<'_>,
    from: usize,
    facts: &mut VecDeque<Fact>,
) {
    let number = class.connection();
    let Some(now) = cx.streams.get(class).filter(|_| (number as usize) < STREAMS) else { return };
    let epoch = cx.streams.epoch(class);
    if known.len() <= number as usize {
        known.resize((number as usize + 1).next_power_of_two(), None);
    }
    let known = &mut known[number as usize];
    if known.as_ref().is_none_or(|(before, facts)| *before != epoch || facts != now) {
        *known = Some((epoch, now.clone()));
        facts.push_back(Fact { from, number, epoch, facts: now.clone() });
    }
}

impl Filter for Sender {
    fn backlog(&self) -> u64 {
        self.shared.gauge.full()
    }

    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        Ok(if self.take(batch, cx) { Status::Done } else { Status::Finished })
    }

    /// Time has passed without blocks: tells the receiver.
    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        if self.parcel(cx).is_none() {
            return Ok(Status::Finished);
        }
        self.send(cx.now);
        cx.wake_at(cx.now.saturating_add(PATIENCE_NS));
        Ok(Status::Done)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        Ok(if self.pause(cx) { Status::Done } else { Status::Finished })
    }

    fn switches(&mut self, cx: &mut Context<'_>) -> Made {
        self.switch(cx);
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.send(cx.now);
        self.places.end();
        Ok(Status::Done)
    }
}

impl Receiver {
    /// Gives back the parcels whose blocks have gone through.
    fn give_back(&mut self, cx: &mut Context<'_>) {
        if self.current.is_empty() {
            return;
        }
        self.borrower.give_back(cx.rings);
        self.places.give_back(self.current.drain(..));
        self.given = 0;
    }

    /// Ends the sleep, if there was one.
    fn wake(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.places.bell().quiet();
        }
    }

    /// Opens the next parcel. `false`: there is none now, or the channel has ended.
    fn open(&mut self, cx: &mut Context<'_>) -> Result<bool, Box<Failure>> {
        let index = match self.places.take() {
            Ok(index) => index,
            Err(PopError::Empty) => return Ok(false),
            Err(PopError::Closed) => {
                self.ended = true;
                return Ok(false);
            }
        };
        let mut sent = self.shared.parcel(index);
        let Parcel { blocks, facts, parts, .. } = &mut self.parcel;
        std::mem::swap(blocks, &mut sent.blocks);
        std::mem::swap(facts, &mut sent.facts);
        std::mem::swap(parts, &mut sent.parts);
        (self.is_pause, self.is_switch) = (sent.is_pause, sent.is_switch);
        self.now = self.now.max(sent.now);
        self.shared.gauge.taken();
        self.current.push(index);
        self.given = 0;
        match self.borrower.take(cx.rings, &mut sent.loans) {
            Some(()) => Ok(true),
            None => Err(Box::new(Failure::System("more captures come to a stage than it can tell apart".into()))),
        }
    }

    fn give(&mut self, count: usize, cx: &mut Context<'_>) {
        let end = self.parcel.blocks.len().min(self.given.saturating_add(count));
        while let Some(fact) = self.parcel.facts.pop_front_if(|fact| fact.from < end) {
            self.learn(fact, cx);
        }
        for block in &self.parcel.blocks[self.given..end] {
            let mut block = self.borrower.name(cx.rings, *block);
            if let Some(numbers) = &self.numbers
                && let Some((_, number)) = numbers.get(&block.class.connection())
            {
                block.class = Class::of_stream(*number, block.class.direction());
            }
            cx.out.push(block);
        }
        self.given = end;
    }

    fn part(&self) -> Option<Part> {
        self.parcel.parts.front().copied()
    }

    /// Takes that part. Gives whether it was the last of the parcel.
    fn pass_part(&mut self) -> bool {
        self.parcel.parts.pop_front();
        self.parcel.parts.is_empty()
    }

    fn learn(&mut self, fact: Fact, cx: &mut Context<'_>) {
        let Fact { number, epoch, facts, .. } = fact;
        let Some(numbers) = &mut self.numbers else {
            return cx.streams.mirror(Class::of_stream(number, 0), facts, epoch);
        };
        match numbers.get(&number) {
            Some(&(known, ours)) if known == epoch => {
                if let Some(there) = cx.streams.get_mut(Class::of_stream(ours, 0)) {
                    *there = facts;
                }
            }
            before => {
                if let Some((_, ours)) = before {
                    cx.streams.close(*ours);
                }
                match cx.streams.open(facts) {
                    Some(ours) => _ = numbers.insert(number, (epoch, ours)),
                    None => _ = numbers.remove(&number),
                }
            }
        }
    }
}

impl Source for Receiver {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.wake();
        self.give_back(cx);
        match self.open(cx)? {
            true => {
                self.give(usize::MAX, cx);
                Ok(Pull::Ready)
            }
            false if self.ended => Ok(Pull::End),
            false => Ok(Pull::Idle(NAP)),
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.asleep = true;
        self.places.bell().listen();
        self.places.ring_if_ready();
        Some(self.places.bell().as_fd())
    }

    fn is_of_stage(&self) -> bool {
        true
    }

    fn follows(&self) -> Option<Moment> {
        Some(Moment { now: self.now, ..Moment::default() })
    }

    fn pauses(&self) -> bool {
        self.is_pause
    }

    fn at_switch(&mut self) -> bool {
        // In a partition, parts of the last parcel may not have been given yet.
        self.parcel.parts.is_empty() && std::mem::take(&mut self.is_switch)
    }

    fn forget(&mut self, rings: &mut BlockTable) {
        self.borrower.leave(rings);
    }

    fn leave(&mut self) {
        self.places.leave();
    }

    fn stop(&mut self) -> bool {
        // The sender's stage is told to stop as well; its last blocks are still carried through.
        !self.ended
    }

    fn finish(&mut self, _cx: &mut Context<'_>) {
        self.leave();
    }
}
