//! A channel: what goes from one stage to another, in batches, from thread to thread. To the stage that gives it is a sink, to
//! the stage that gets it is a source: neither `walk` nor a filter knows of it.
//!
//! - What crosses is a *parcel*: descriptors, handles of the memory that they name (`buffer::lending`), the facts of their
//!   streams, and the sender's time. Bytes stay where they are.
//! - A channel has a fixed number of parcels. Which of them are full goes along one queue, which of them are free comes back
//!   along another (`buffer::queue::indexed`): that is the credit. Who finds no free one waits, and so does its source.
//! - Either end may go: behind a sender that finished the receiver finds the end; where a receiver left, the sender wants no
//!   more blocks, and so its source ends.
//!
//! Nothing spins for long: who waits says so and sleeps until the other side rings ([`Bell`]).

use crate::gauge::ChannelGauge;
use base::atomic::{AtomicBool, Ordering, fence, spin_loop};
use base::id::Class;
use base::limits::{BATCH_BLOCKS, PARCELS, PULL_BLOCKS, SECOND_NS, STREAMS};
use buffer::Descriptor;
use buffer::lending::{Borrower, Lender, Loans};
use buffer::queue::{Pop, PopError, Push, indexed};
use filter::share::Shares;
use filter::{Batch, Context, Failure, Filter, Made, Moment, Order, Pull, Source, Status, StreamFacts};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A sender looks so often before it sleeps.
const LOOKS: u32 = 200;

/// Sleeps are no longer, so that no lost signal is for ever.
const NAP: Duration = Duration::from_millis(50);

/// What waits in a parcel that is not full goes after so much time at the latest, by the clock of the blocks.
const PATIENCE_NS: u64 = SECOND_NS / 10;

/// What goes at a time.
#[derive(Debug, Default)]
struct Parcel {
    blocks: Vec<Descriptor>,
    loans: Loans,
    /// What is known of streams, in the order in which it became known.
    facts: VecDeque<Fact>,
    /// The sender's clock.
    now: u64,
    /// Of shares: which blocks belong together, in order.
    parts: VecDeque<Part>,
    /// Behind it the sender's input pauses.
    is_pause: bool,
}

/// Blocks that come one after the other and belong together; none where it only says how far the sender is.
#[derive(Clone, Copy, Debug)]
struct Part {
    order: Order,
    blocks: usize,
    /// Which of the edges behind the channel they go along.
    edge: usize,
    now: u64,
    /// More of what a source gave at once follows.
    is_within: bool,
}

impl Part {
    fn place(&self) -> (u64, u32, u64) {
        (self.order.sequence, self.order.node, self.order.ends)
    }
}

/// What is known of a stream from one block of a parcel on.
#[derive(Clone, Copy, Debug)]
struct Fact {
    from: usize,
    number: u32,
    epoch: u32,
    facts: StreamFacts,
}

/// Wakes one thread.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Arc<Bell>> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Bell { fd, asleep: AtomicBool::new(false) }))
    }

    /// There is something to look at, published before this.
    fn ring(&self) {
        // With the fence in `listen`: either this sees that the other sleeps, or the other sees what was published.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.asleep.store(false, Ordering::Relaxed);
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Wakes the thread now, or when it next wants to sleep: for what is no block.
    pub(crate) fn call(&self) {
        // A count that is full wakes as well.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// From here on it rings. To be followed by one more look.
    fn listen(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Somebody is awake again.
    fn quiet(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        // Nothing to read is what is hoped for.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    fn sleep(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: NAP.as_nanos() as i64 };
        // Every outcome means the same: look again.
        let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout));
    }
}

/// What both ends of a channel share.
#[derive(Debug)]
struct Shared {
    parcels: Box<[Mutex<Parcel>]>,
    /// The receiver wants no more.
    left: AtomicBool,
    /// Rings where there is a full parcel, or the end.
    full: Arc<Bell>,
    /// Rings where there is a free one, or the receiver left.
    free: Arc<Bell>,
    gauge: Arc<ChannelGauge>,
}

impl Shared {
    fn parcel(&self, index: u64) -> MutexGuard<'_, Parcel> {
        // Nothing that panics under it leaves it half made.
        self.parcels[index as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end: a sink of the stage that gives.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    /// None once it has finished: the receiver finds the end.
    full: Option<indexed::Sender<u64>>,
    free: indexed::Receiver<u64>,
    /// The parcel that is being filled: its place, and what will be put there.
    current: Option<u64>,
    parcel: Parcel,
    /// The receiver knows of the pause under way.
    told_pause: bool,
    lender: Lender,
    /// By connection number: what the receiver knows.
    known: Vec<Option<(u32, StreamFacts)>>,
}

/// The receiving end.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    full: indexed::Receiver<u64>,
    free: indexed::Sender<u64>,
    borrower: Borrower,
    /// Parcels whose blocks are under way; of the last some may not have been given yet.
    current: Vec<u64>,
    /// What is left of the last of them; its loans stay in their place.
    parcel: Parcel,
    /// Blocks of the last that were given.
    given: usize,
    /// Numbers of streams in this stage, by that of the sender's; none where they are the same.
    numbers: Option<HashMap<u32, (u32, u32)>>,
    asleep: bool,
    ended: bool,
    /// The sender's input pauses, as far as this side got.
    is_pause: bool,
    now: u64,
}

/// Both ends of a new channel, whose receiver sleeps on this bell. `renumber` says that the receiver's stage gets streams from
/// elsewhere as well, so that they need numbers of their own there.
pub(crate) fn channel(full: &Arc<Bell>, renumber: bool) -> std::io::Result<(Sender, Receiver)> {
    let queue = || indexed::queue::<u64>(PARCELS).map_err(|_| std::io::Error::other("the queue is too long"));
    let shared = Arc::new(Shared {
        parcels: (0..PARCELS).map(|_| Mutex::default()).collect(),
        left: AtomicBool::new(false),
        full: Arc::clone(full),
        free: Bell::new()?,
        gauge: Arc::default(),
    });
    let ((full_sender, full), (mut free_sender, free)) = (queue()?, queue()?);
    free_sender.push_batch(&mut (0..PARCELS as u64)).map_err(|_| std::io::Error::other("the queue is closed"))?;
    let numbers = renumber.then(HashMap::new);
    Ok((
        Sender {
            shared: Arc::clone(&shared),
            full: Some(full_sender),
            free,
            current: None,
            parcel: Parcel::default(),
            told_pause: false,
            lender: Lender::default(),
            known: Vec::new(),
        },
        Receiver {
            shared,
            full,
            free: free_sender,
            borrower: Borrower::default(),
            current: Vec::new(),
            parcel: Parcel::default(),
            given: 0,
            numbers,
            asleep: false,
            ended: false,
            is_pause: false,
            now: 0,
        },
    ))
}

impl Sender {
    pub(crate) fn gauge(&self) -> &Arc<ChannelGauge> {
        &self.shared.gauge
    }

    fn has_left(&self) -> bool {
        self.shared.left.load(Ordering::Acquire)
    }

    /// A parcel to fill; waits where there is none. None where the receiver left.
    fn parcel(&mut self, cx: &mut Context<'_>) -> Option<&mut Parcel> {
        if self.current.is_none() {
            let index = self.wait_for_parcel()?;
            self.current = Some(index);
            // Blocks are put into it without a lock.
            std::mem::swap(&mut self.parcel, &mut *self.shared.parcel(index));
            self.parcel.blocks.clear();
            self.parcel.facts.clear();
            self.parcel.parts.clear();
            (self.parcel.is_pause, self.told_pause) = (false, false);
            self.lender.begin(cx.rings, &mut self.parcel.loans);
            cx.wake_at(cx.now.saturating_add(PATIENCE_NS));
        }
        Some(&mut self.parcel)
    }

    fn wait_for_parcel(&mut self) -> Option<u64> {
        let mut looks = 0;
        loop {
            if self.has_left() {
                return None;
            }
            match self.free.pop() {
                Ok(index) => return Some(index),
                Err(PopError::Closed) => return None,
                Err(PopError::Empty) if looks < LOOKS => {
                    looks += 1;
                    spin_loop();
                }
                Err(PopError::Empty) => {
                    self.shared.free.listen();
                    let found = self.free.pop();
                    if found == Err(PopError::Empty) && !self.has_left() {
                        self.shared.gauge.set_waiting(true);
                        self.shared.free.sleep();
                        self.shared.gauge.set_waiting(false);
                    }
                    self.shared.free.quiet();
                    if let Ok(index) = found {
                        return Some(index);
                    }
                }
            }
        }
    }

    /// Sends what is in the parcel under way.
    fn send(&mut self, now: u64) {
        let (Some(index), Some(full)) = (self.current.take(), &mut self.full) else { return };
        self.parcel.now = now;
        std::mem::swap(&mut self.parcel, &mut *self.shared.parcel(index));
        // There are no more parcels than places; where the receiver went, nobody wants it.
        let _ = full.push(index);
        self.shared.gauge.sent();
        self.shared.full.ring();
    }

    /// Sends what is in the parcel under way, and that the input pauses; false where the receiver left.
    fn pause(&mut self, cx: &mut Context<'_>) -> bool {
        if self.current.is_some() || !self.told_pause {
            let Some(parcel) = self.parcel(cx) else { return false };
            parcel.is_pause = true;
            self.send(cx.now);
            self.told_pause = true;
        }
        !self.has_left()
    }

    /// Takes the live blocks of a batch, and sends what is enough; false where the receiver left.
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

    /// Adds the live blocks of a batch to the parcel under way, and how they belong together; says how many blocks are in
    /// it, or nothing where the receiver left.
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
                // What it names is gone: as empty as it is here.
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

    /// Says how far this side is; false where the receiver left.
    fn mark(&mut self, order: Order, cx: &mut Context<'_>) -> bool {
        let Some(parcel) = self.parcel(cx) else { return false };
        parcel.parts.push_back(Part { order, blocks: 0, edge: 0, now: cx.now, is_within: false });
        true
    }
}

/// Tells what is known of a stream, where the receiver does not know that.
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
        *known = Some((epoch, *now));
        facts.push_back(Fact { from, number, epoch, facts: *now });
    }
}

impl Filter for Sender {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        Ok(if self.take(batch, cx) { Status::Done } else { Status::Finished })
    }

    /// Time goes on where no block goes along: the receiver learns of it.
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

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.send(cx.now);
        self.full = None;
        self.shared.full.ring();
        Ok(Status::Done)
    }
}

impl Drop for Sender {
    /// Also where its thread panicked.
    fn drop(&mut self) {
        self.full = None;
        self.shared.full.ring();
    }
}

impl Receiver {
    /// Gives back the parcels whose blocks are through.
    fn give_back(&mut self, cx: &mut Context<'_>) {
        if self.current.is_empty() {
            return;
        }
        self.borrower.give_back(cx.rings);
        for index in self.current.drain(..) {
            // There are no more parcels than places.
            let _ = self.free.push(index);
        }
        self.given = 0;
        self.shared.free.ring();
    }

    /// Wakes up, where it slept.
    fn wake(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.shared.full.quiet();
        }
    }

    /// Begins with the next parcel; false where there is none now, or ever.
    fn open(&mut self, cx: &mut Context<'_>) -> Result<bool, Box<Failure>> {
        let index = match self.full.pop() {
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
        (self.is_pause, self.now) = (sent.is_pause, self.now.max(sent.now));
        self.shared.gauge.taken();
        self.current.push(index);
        self.given = 0;
        match self.borrower.take(cx.rings, &mut sent.loans) {
            Some(()) => Ok(true),
            None => Err(Box::new(Failure::System("more captures come to a stage than it can tell apart".into()))),
        }
    }

    /// Gives the next so many blocks of the last parcel.
    fn give(&mut self, count: usize, cx: &mut Context<'_>) {
        let end = self.parcel.blocks.len().min(self.given.saturating_add(count));
        while let Some(fact) = self.parcel.facts.pop_front_if(|fact| fact.from < end) {
            self.learn(fact, cx);
        }
        for block in &self.parcel.blocks[self.given..end] {
            let mut block = self.borrower.name(*block);
            if let Some(numbers) = &self.numbers
                && let Some((_, number)) = numbers.get(&block.class.connection())
            {
                block.class = Class::of_stream(*number, block.class.direction());
            }
            cx.out.push(block);
        }
        self.given = end;
    }

    /// The next part of the last parcel, which stays where it is.
    fn part(&self) -> Option<Part> {
        self.parcel.parts.front().copied()
    }

    /// Goes on behind that part; says whether it was the last of the parcel.
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
        self.shared.full.listen();
        // What came since the last look would not ring again.
        if self.full.is_ready() {
            self.shared.full.ring();
        }
        Some(self.shared.full.fd.as_fd())
    }

    fn follows(&self) -> Option<Moment> {
        Some(Moment { now: self.now, ..Moment::default() })
    }

    fn pauses(&self) -> bool {
        self.is_pause
    }

    fn leave(&mut self) {
        self.shared.left.store(true, Ordering::Release);
        self.shared.free.ring();
    }

    fn stop(&mut self) -> bool {
        // The sender's stage is told to stop as well, and what it still gives is carried through.
        !self.ended
    }

    fn finish(&mut self, _cx: &mut Context<'_>) {
        self.leave();
    }
}

impl Drop for Receiver {
    /// Also where its thread panicked.
    fn drop(&mut self) {
        self.leave();
    }
}

// --- shares of the flows ---------------------------------------------------------------------------------------------

/// Divides frames among shares: a sink of the stage that reads them. Frames that come one after the other and go to the same
/// share are one run, and runs are numbered; each share hears of every pull, so that all look at the same moments.
pub(crate) struct Splitter {
    shares: Shares,
    senders: Vec<Sender>,
    /// Edges behind it in each share: blocks go along one after the other, as they do in one thread.
    edges: usize,
    sequence: u64,
    /// Blocks in the fullest parcel.
    most: usize,
    /// Blocks came since shares were told the time, and what that was.
    is_news: bool,
    told: u64,
}

impl Splitter {
    pub(crate) fn new(senders: Vec<Sender>, edges: usize) -> Splitter {
        let shares = Shares::new(senders.len());
        Splitter { shares, senders, edges, sequence: 0, most: 0, is_news: false, told: 0 }
    }

    /// Tells every share how far this is.
    fn mark(&mut self, cx: &mut Context<'_>) -> bool {
        self.sequence += 1;
        (self.is_news, self.told) = (false, cx.now);
        let order = Order { sequence: self.sequence, ..Order::default() };
        self.senders.iter_mut().all(|sender| sender.mark(order, cx))
    }

    /// Sends what there is to all shares: each gets as many parcels as the others, and each of them ends with a mark.
    fn send(&mut self, cx: &Context<'_>) {
        self.most = 0;
        self.senders.iter_mut().for_each(|sender| sender.send(cx.now));
    }
}

impl Filter for Splitter {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.is_news = true;
        let mut shares = [0; BATCH_BLOCKS];
        batch.iter().for_each(|(place, block)| shares[place] = self.shares.of(cx.rings, block));
        for edge in 0..self.edges {
            let mut left = batch.live();
            while left != 0 {
                let share = shares[left.trailing_zeros() as usize];
                let is_other = |place: &usize| shares[*place] != share;
                let next = filter::batch::places(left).find(is_other);
                let run = left & next.map_or(u64::MAX, filter::batch::full);
                left &= !run;
                self.sequence += 1;
                let order = Order { sequence: self.sequence, ..Order::default() };
                match self.senders[share].add(&batch.narrowed(run), Some((order, edge)), cx) {
                    Some(count) => self.most = self.most.max(count),
                    None => return Ok(Status::Finished),
                }
            }
        }
        Ok(Status::Done)
    }

    fn pulled(&mut self, cx: &mut Context<'_>) -> Made {
        let is_late = cx.now.saturating_sub(self.told) >= PATIENCE_NS;
        if !self.is_news && !is_late {
            return Ok(Status::Done);
        }
        let is_idle = !self.is_news;
        if !self.mark(cx) {
            return Ok(Status::Finished);
        }
        if is_idle || self.most >= PULL_BLOCKS {
            self.send(cx);
        }
        Ok(Status::Done)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        if self.most > 0 && !self.mark(cx) {
            return Ok(Status::Finished);
        }
        self.most = 0;
        let any_left = !self.senders.iter_mut().all(|sender| sender.pause(cx));
        Ok(if any_left { Status::Finished } else { Status::Done })
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.mark(cx);
        self.send(cx);
        self.senders.iter_mut().try_for_each(|sender| sender.finish(cx).map(drop))?;
        Ok(Status::Done)
    }
}

/// Where a share begins: gives all runs of what one pull gave that go along the same edge, and which they are. Says to the ends of the share (`Outlet`) when a parcel is through.
pub(crate) struct ShareSource {
    receiver: Receiver,
    moment: Moment,
    /// See [`Source::runs`].
    runs: Vec<(usize, u64)>,
    /// The part under way is the last of its parcel.
    is_last: Arc<AtomicBool>,
}

impl ShareSource {
    pub(crate) fn new(receiver: Receiver, is_last: Arc<AtomicBool>) -> ShareSource {
        ShareSource { receiver, moment: Moment::default(), runs: Vec::new(), is_last }
    }
}

impl Source for ShareSource {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.receiver.wake();
        self.runs.clear();
        let first = loop {
            if let Some(part) = self.receiver.part() {
                break part;
            }
            self.receiver.give_back(cx);
            if !self.receiver.open(cx)? {
                self.is_last.store(false, Ordering::Relaxed);
                self.moment.is_within = true;
                return Ok(if self.receiver.ended { Pull::End } else { Pull::Idle(NAP) });
            }
        };
        let mut last = first;
        let is_last = loop {
            self.receiver.give(last.blocks, cx);
            self.runs.push((cx.out.len(), last.order.sequence));
            if self.receiver.pass_part() {
                break true;
            }
            match self.receiver.part() {
                // The mark behind all that was pulled at once; blocks of the same moment.
                Some(part) if last.is_within && (!part.is_within || part.edge == first.edge) => last = part,
                _ => break false,
            }
        };
        // Relaxed: one thread reads and writes it.
        self.is_last.store(is_last, Ordering::Relaxed);
        let (now, sequence, edge) = (last.now, last.order.sequence, Some(first.edge));
        self.moment = Moment { now, sequence, edge, is_within: last.is_within };
        Ok(Pull::Ready)
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.receiver.bell()
    }

    fn follows(&self) -> Option<Moment> {
        Some(self.moment)
    }

    fn runs(&self) -> &[(usize, u64)] {
        &self.runs
    }

    fn pauses(&self) -> bool {
        self.receiver.is_pause
    }

    fn leave(&mut self) {
        self.receiver.leave();
    }

    fn stop(&mut self) -> bool {
        self.receiver.stop()
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.receiver.finish(cx);
    }
}

/// Where a share ends: says of all that it gives which run it came of. Behind each parcel that the share got it says how far
/// it is, whether it gave anything or not.
pub(crate) struct Outlet {
    sender: Sender,
    is_last: Arc<AtomicBool>,
}

impl Outlet {
    pub(crate) fn new(sender: Sender, is_last: Arc<AtomicBool>) -> Outlet {
        Outlet { sender, is_last }
    }
}

impl Filter for Outlet {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let order = *cx.order;
        let Some(count) = self.sender.add(batch, Some((order, 0)), cx) else { return Ok(Status::Finished) };
        if count >= PULL_BLOCKS {
            self.sender.send(cx.now);
        }
        Ok(Status::Done)
    }

    fn pulled(&mut self, cx: &mut Context<'_>) -> Made {
        if self.is_last.load(Ordering::Relaxed) {
            // Behind all that its timers gave.
            let order = Order { node: u32::MAX, ..*cx.order };
            if !self.sender.mark(order, cx) {
                return Ok(Status::Finished);
            }
            self.sender.send(cx.now);
        }
        Ok(Status::Done)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.sender.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.sender.finish(cx)
    }
}

/// Puts what shares give in order: a source of the stage behind them. It waits for a share only until that says how far it is.
pub(crate) struct Join {
    shares: Vec<Receiver>,
    now: u64,
}

impl Join {
    pub(crate) fn new(shares: Vec<Receiver>) -> Join {
        Join { shares, now: 0 }
    }

    /// The share whose part comes next: nothing where one of them has to be waited for, or where all have ended.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<(usize, Part)>, Box<Failure>> {
        let mut next: Option<(usize, Part)> = None;
        for (index, share) in self.shares.iter_mut().enumerate() {
            let part = loop {
                match share.part() {
                    Some(part) => break Some(part),
                    None if share.ended => break None,
                    // What was given of the parcel before has to be through first.
                    None if !cx.out.is_empty() => return Ok(None),
                    None => {
                        share.give_back(cx);
                        if !share.open(cx)? && !share.ended {
                            return Ok(None);
                        }
                    }
                }
            };
            if let Some(part) = part
                && next.is_none_or(|(_, before)| part.place() < before.place())
            {
                next = Some((index, part));
            }
        }
        Ok(next)
    }
}

impl Source for Join {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        for share in &mut self.shares {
            share.wake();
        }
        let mut is_any = false;
        while cx.out.len() < PULL_BLOCKS
            && let Some((index, part)) = self.next(cx)?
        {
            is_any = true;
            let share = &mut self.shares[index];
            share.give(part.blocks, cx);
            share.pass_part();
            self.now = self.now.max(part.now);
        }
        if is_any {
            return Ok(Pull::Ready);
        }
        Ok(if self.shares.iter().all(|share| share.ended) { Pull::End } else { Pull::Idle(NAP) })
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        // All sleep on one bell, and only who is waited for keeps from sleeping: of the others there may be more already.
        self.shares[0].shared.full.listen();
        for share in &mut self.shares {
            share.asleep = true;
            if !share.ended && share.part().is_none() && share.full.is_ready() {
                share.shared.full.ring();
            }
        }
        Some(self.shares[0].shared.full.fd.as_fd())
    }

    fn follows(&self) -> Option<Moment> {
        Some(Moment { now: self.now, ..Moment::default() })
    }

    fn pauses(&self) -> bool {
        self.shares.iter().all(|share| share.is_pause || share.ended)
    }

    fn leave(&mut self) {
        self.shares.iter_mut().for_each(Source::leave);
    }

    fn stop(&mut self) -> bool {
        !self.shares.iter().all(|share| share.ended)
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.shares.iter_mut().for_each(|share| share.finish(cx));
    }
}
