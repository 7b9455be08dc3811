//! The ends of channels to and from partitions of the flows: one divides, each partition has two ends, and one puts together.
//!
//! - [`Splitter`] — the last sink of the stage before: numbers runs of blocks of one partition.
//! - [`PartitionSource`], [`Outlet`] — the source and the sink of a partition.
//! - [`Join`] — the source of the stage behind: restores the order of one thread.

use super::{NAP, PATIENCE_NS, Part, Receiver, Sender};
use base::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::limits::{BATCH_BLOCKS, PULL_BLOCKS};
use buffer::BlockTable;
use filter::partition::{Division, Partitioner};
use filter::{Batch, Context, Failure, Filter, Made, Moment, Order, Pull, Source, Status};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Divides blocks among partitions: a sink of the stage that gives them. Blocks that follow each other and go to the same
/// partition are one run, and runs are numbered. Each partition learns of every pull, so that all partitions check timers at the
/// same moments.
pub(crate) struct Splitter {
    partitions: Partitioner,
    senders: Vec<Sender>,
    /// Number of edges behind it in each partition. Blocks go along one after the other, as in one thread.
    edges: Arc<AtomicUsize>,
    sequence: u64,
    most: usize,
    /// There were blocks since the partitions were told the time; `told` is that time.
    is_news: bool,
    told: u64,
}

impl Splitter {
    pub(crate) fn new(division: Division, senders: Vec<Sender>, edges: Arc<AtomicUsize>) -> Splitter {
        let partitions = Partitioner::new(division, senders.len());
        Splitter { partitions, senders, edges, sequence: 0, most: 0, is_news: false, told: 0 }
    }

    /// Tells each partition how far this end is.
    fn mark(&mut self, cx: &mut Context<'_>) -> bool {
        self.sequence += 1;
        (self.is_news, self.told) = (false, cx.now);
        let order = Order { sequence: self.sequence, ..Order::default() };
        self.senders.iter_mut().all(|sender| sender.mark(order, cx))
    }

    /// Sends each partition its parcel. All partitions get the same number of parcels, and each parcel ends with a mark.
    fn send(&mut self, cx: &Context<'_>) {
        self.most = 0;
        self.senders.iter_mut().for_each(|sender| sender.send(cx.now));
    }
}

impl Filter for Splitter {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.is_news = true;
        self.partitions.begin_batch();
        let mut partitions = [0; BATCH_BLOCKS];
        batch.iter().for_each(|(place, block)| partitions[place] = self.partitions.of(cx.rings, block));
        // Relaxed: a replacement changes it only while no stage runs.
        for edge in 0..self.edges.load(Ordering::Relaxed) {
            let mut left = batch.live();
            while left != 0 {
                let partition = partitions[left.trailing_zeros() as usize];
                let is_other = |place: &usize| partitions[*place] != partition;
                let next = filter::batch::places(left).find(is_other);
                let run = left & next.map_or(u64::MAX, filter::batch::full);
                left &= !run;
                self.sequence += 1;
                let order = Order { sequence: self.sequence, ..Order::default() };
                match self.senders[partition].add(&batch.narrowed(run), Some((order, edge)), cx) {
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

    fn switches(&mut self, cx: &mut Context<'_>) -> Made {
        self.mark(cx);
        self.most = 0;
        self.senders.iter_mut().for_each(|sender| _ = sender.switch(cx));
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.mark(cx);
        self.send(cx);
        self.senders.iter_mut().try_for_each(|sender| sender.finish(cx).map(drop))?;
        Ok(Status::Done)
    }
}

/// The source of a partition: gives all runs of one pull that go along the same edge at once, with their numbers. Tells the
/// partition's end (`Outlet`) when a parcel is through.
pub(crate) struct PartitionSource {
    receiver: Receiver,
    moment: Moment,
    /// See [`Source::runs`].
    runs: Vec<(usize, u64)>,
    /// The present part is the last of its parcel.
    is_last: Arc<AtomicBool>,
}

impl PartitionSource {
    pub(crate) fn new(receiver: Receiver, is_last: Arc<AtomicBool>) -> PartitionSource {
        PartitionSource { receiver, moment: Moment::default(), runs: Vec::new(), is_last }
    }
}

impl Source for PartitionSource {
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
                // Take in the mark behind the pull, and blocks of the same pull along the same edge.
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

    fn is_of_stage(&self) -> bool {
        true
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

    fn at_switch(&mut self) -> bool {
        self.receiver.at_switch()
    }

    fn forget(&mut self, rings: &mut BlockTable) {
        self.receiver.forget(rings);
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

/// The end of a partition: notes for each block from which run of the input it came. After each parcel of the partition it
/// sends a mark that says how far the partition is, even if the partition gave no blocks.
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
            // The mark goes behind blocks that the partition's timers gave.
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

    fn switches(&mut self, cx: &mut Context<'_>) -> Made {
        self.sender.switches(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.sender.finish(cx)
    }
}

/// Restores the order of blocks from partitions: a source of the stage behind them. It waits for a partition only until the
/// partition says how far it is.
pub(crate) struct Join {
    partitions: Vec<Receiver>,
    now: u64,
}

impl Join {
    pub(crate) fn new(partitions: Vec<Receiver>) -> Join {
        Join { partitions, now: 0 }
    }

    /// The partition with the next part. `None`: one of the partitions has to be waited for, or all have ended.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<(usize, Part)>, Box<Failure>> {
        let mut next: Option<(usize, Part)> = None;
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let part = loop {
                match partition.part() {
                    Some(part) => break Some(part),
                    None if partition.ended || partition.is_switch => break None,
                    // The blocks of the parcel before have to go through first.
                    None if !cx.out.is_empty() => return Ok(None),
                    None => {
                        partition.give_back(cx);
                        if !partition.open(cx)? && !partition.ended {
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
        for partition in &mut self.partitions {
            partition.wake();
        }
        let mut is_any = false;
        while cx.out.len() < PULL_BLOCKS
            && let Some((index, part)) = self.next(cx)?
        {
            is_any = true;
            let partition = &mut self.partitions[index];
            partition.give(part.blocks, cx);
            partition.pass_part();
            self.now = self.now.max(part.now);
        }
        if is_any {
            return Ok(Pull::Ready);
        }
        Ok(if self.partitions.iter().all(|partition| partition.ended) { Pull::End } else { Pull::Idle(NAP) })
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        // All partitions ring one bell. Only a partition that the receiver waits for keeps it from sleeping: the other partitions may
        // have parcels ready already.
        self.partitions[0].places.bell().listen();
        for partition in &mut self.partitions {
            partition.asleep = true;
            if !partition.ended && partition.part().is_none() {
                partition.places.ring_if_ready();
            }
        }
        Some(self.partitions[0].places.bell().as_fd())
    }

    fn is_of_stage(&self) -> bool {
        true
    }

    fn follows(&self) -> Option<Moment> {
        Some(Moment { now: self.now, ..Moment::default() })
    }

    fn pauses(&self) -> bool {
        self.partitions.iter().all(|partition| partition.is_pause || partition.ended)
    }

    fn at_switch(&mut self) -> bool {
        let is_there = |partition: &Receiver| partition.ended || partition.is_switch && partition.part().is_none();
        let is_so = self.partitions.iter().any(|partition| partition.is_switch) && self.partitions.iter().all(is_there);
        if is_so {
            self.partitions.iter_mut().for_each(|partition| partition.is_switch = false);
        }
        is_so
    }

    fn forget(&mut self, rings: &mut BlockTable) {
        self.partitions.iter_mut().for_each(|partition| partition.forget(rings));
    }

    fn leave(&mut self) {
        self.partitions.iter_mut().for_each(Source::leave);
    }

    fn stop(&mut self) -> bool {
        !self.partitions.iter().all(|partition| partition.ended)
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.partitions.iter_mut().for_each(|partition| partition.finish(cx));
    }
}
