//! The ends of channels to and from shares of the flows: one divides, each share has two ends, and one puts together.
//!
//! - [`Splitter`] — the last sink of the stage before: numbers runs of blocks of one share.
//! - [`ShareSource`], [`Outlet`] — the source and the sink of a share.
//! - [`Join`] — the source of the stage behind: restores the order of one thread.

use super::{NAP, PATIENCE_NS, Part, Receiver, Sender};
use base::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::limits::{BATCH_BLOCKS, PULL_BLOCKS};
use buffer::BlockTable;
use filter::share::{Division, Shares};
use filter::{Batch, Context, Failure, Filter, Made, Moment, Order, Pull, Source, Status};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Divides blocks among shares: a sink of the stage that gives them. Blocks that follow each other and go to the same
/// share are one run, and runs are numbered. Each share learns of every pull, so that all shares check timers at the
/// same moments.
pub(crate) struct Splitter {
    shares: Shares,
    senders: Vec<Sender>,
    /// Number of edges behind it in each share. Blocks go along one after the other, as in one thread.
    edges: Arc<AtomicUsize>,
    sequence: u64,
    most: usize,
    /// There were blocks since the shares were told the time; `told` is that time.
    is_news: bool,
    told: u64,
}

impl Splitter {
    pub(crate) fn new(division: Division, senders: Vec<Sender>, edges: Arc<AtomicUsize>) -> Splitter {
        let shares = Shares::new(division, senders.len());
        Splitter { shares, senders, edges, sequence: 0, most: 0, is_news: false, told: 0 }
    }

    /// Tells each share how far this end is.
    fn mark(&mut self, cx: &mut Context<'_>) -> bool {
        self.sequence += 1;
        (self.is_news, self.told) = (false, cx.now);
        let order = Order { sequence: self.sequence, ..Order::default() };
        self.senders.iter_mut().all(|sender| sender.mark(order, cx))
    }

    /// Sends each share its parcel. All shares get the same number of parcels, and each parcel ends with a mark.
    fn send(&mut self, cx: &Context<'_>) {
        self.most = 0;
        self.senders.iter_mut().for_each(|sender| sender.send(cx.now));
    }
}

impl Filter for Splitter {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.is_news = true;
        self.shares.begin_batch();
        let mut shares = [0; BATCH_BLOCKS];
        batch.iter().for_each(|(place, block)| shares[place] = self.shares.of(cx.rings, block));
        // Relaxed: a replacement changes it only while no stage runs.
        for edge in 0..self.edges.load(Ordering::Relaxed) {
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

/// The source of a share: gives all runs of one pull that go along the same edge at once, with their numbers. Tells the
/// share's end (`Outlet`) when a parcel is through.
pub(crate) struct ShareSource {
    receiver: Receiver,
    moment: Moment,
    /// See [`Source::runs`].
    runs: Vec<(usize, u64)>,
    /// The present part is the last of its parcel.
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

/// The end of a share: notes for each block from which run of the input it came. After each parcel of the share it
/// sends a mark that says how far the share is, even if the share gave no blocks.
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
            // The mark goes behind blocks that the share's timers gave.
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

/// Restores the order of blocks from shares: a source of the stage behind them. It waits for a share only until the
/// share says how far it is.
pub(crate) struct Join {
    shares: Vec<Receiver>,
    now: u64,
}

impl Join {
    pub(crate) fn new(shares: Vec<Receiver>) -> Join {
        Join { shares, now: 0 }
    }

    /// The share with the next part. `None`: one of the shares has to be waited for, or all have ended.
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<(usize, Part)>, Box<Failure>> {
        let mut next: Option<(usize, Part)> = None;
        for (index, share) in self.shares.iter_mut().enumerate() {
            let part = loop {
                match share.part() {
                    Some(part) => break Some(part),
                    None if share.ended || share.is_switch => break None,
                    // The blocks of the parcel before have to go through first.
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
        // All shares ring one bell. Only a share that the receiver waits for keeps it from sleeping: the other shares may
        // have parcels ready already.
        self.shares[0].places.bell().listen();
        for share in &mut self.shares {
            share.asleep = true;
            if !share.ended && share.part().is_none() {
                share.places.ring_if_ready();
            }
        }
        Some(self.shares[0].places.bell().as_fd())
    }

    fn is_of_stage(&self) -> bool {
        true
    }

    fn follows(&self) -> Option<Moment> {
        Some(Moment { now: self.now, ..Moment::default() })
    }

    fn pauses(&self) -> bool {
        self.shares.iter().all(|share| share.is_pause || share.ended)
    }

    fn at_switch(&mut self) -> bool {
        let is_there = |share: &Receiver| share.ended || share.is_switch && share.part().is_none();
        let is_so = self.shares.iter().any(|share| share.is_switch) && self.shares.iter().all(is_there);
        if is_so {
            self.shares.iter_mut().for_each(|share| share.is_switch = false);
        }
        is_so
    }

    fn forget(&mut self, rings: &mut BlockTable) {
        self.shares.iter_mut().for_each(|share| share.forget(rings));
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
