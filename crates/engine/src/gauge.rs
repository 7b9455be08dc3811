//! Gauges: the state of running stages, for other threads. One thread writes each gauge, a few times for each batch. A
//! gauge does not order other memory accesses: a reader gets numbers that were true a moment ago.

use base::atomic::{AtomicBool, AtomicU64, Ordering};
use base::limits::PARCELS;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The activity of a thread of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs filters, or looks for blocks.
    Awake,
    /// It sleeps until blocks come.
    Asleep,
    /// It sleeps until the stage behind it has room.
    Waiting,
    /// It has ended.
    Ended,
}

/// The fill of a channel between two threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelState {
    /// The thread that gives, from 0.
    pub from: usize,
    /// Parcels that wait for the getting thread.
    pub full: u64,
    /// Parcels that the channel has.
    pub room: u64,
}

/// The state of a thread of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// The thread's present activity.
    pub doing: Doing,
    /// Blocks that it has read, or got from other stages.
    pub blocks: u64,
    /// The channels that bring it blocks.
    pub channels: Vec<ChannelState>,
}

/// The state of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageState {
    /// Its filters, for people.
    pub filters: Vec<String>,
    /// Its threads; several if the flows are shared out among them.
    pub threads: Vec<ThreadState>,
}

/// The gauges of one worker with several stages.
#[derive(Debug)]
pub struct Gauges {
    began: Instant,
    /// For each stage: its filters, and its number of threads.
    stages: Vec<(Vec<String>, usize)>,
    threads: Vec<Arc<ThreadGauge>>,
    channels: Vec<Between>,
}

#[derive(Debug)]
pub(crate) struct Between {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) gauge: Arc<ChannelGauge>,
}

#[derive(Debug, Default)]
pub(crate) struct ThreadGauge {
    asleep: AtomicBool,
    ended: AtomicBool,
    blocks: AtomicU64,
    before: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct ChannelGauge {
    /// Parcels sent; written by the sender.
    sent: AtomicU64,
    /// Parcels taken; written by the receiver.
    taken: AtomicU64,
    /// The sender sleeps until there is room.
    waiting: AtomicBool,
}

// Relaxed throughout: each gauge has one writer, and no other memory access depends on its order.

impl ThreadGauge {
    pub(crate) fn set_asleep(&self, is_so: bool) {
        self.asleep.store(is_so, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Starts counting at this number of blocks.
    pub(crate) fn begin_at(&self, blocks: u64) {
        self.before.store(blocks, Ordering::Relaxed);
    }

    pub(crate) fn set_blocks(&self, blocks: u64) {
        self.blocks.store(blocks.saturating_sub(self.before.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

impl ChannelGauge {
    pub(crate) fn sent(&self) {
        self.sent.store(self.sent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Parcels that wait for the getting thread.
    pub(crate) fn full(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    pub(crate) fn set_waiting(&self, is_so: bool) {
        self.waiting.store(is_so, Ordering::Relaxed);
    }
}

impl Gauges {
    pub(crate) fn new(stages: Vec<(Vec<String>, usize)>, channels: Vec<Between>) -> Gauges {
        let threads = stages.iter().map(|(_, threads)| threads).sum();
        let threads = (0..threads).map(|_| Arc::default()).collect();
        Gauges { began: Instant::now(), stages, threads, channels }
    }

    pub(crate) fn thread(&self, number: usize) -> &Arc<ThreadGauge> {
        &self.threads[number]
    }

    /// How long the stages have run.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The stages, in the order of their threads.
    pub fn read(&self) -> Vec<StageState> {
        let mut next = 0..;
        let stage = |(filters, threads): &(Vec<String>, usize)| StageState {
            filters: filters.clone(),
            threads: next.by_ref().take(*threads).map(|number| self.read_thread(number)).collect(),
        };
        self.stages.iter().map(stage).collect()
    }

    fn read_thread(&self, number: usize) -> ThreadState {
        let gauge = &self.threads[number];
        let waits = |between: &Between| between.from == number && between.gauge.waiting.load(Ordering::Relaxed);
        let doing = if gauge.ended.load(Ordering::Relaxed) {
            Doing::Ended
        } else if gauge.asleep.load(Ordering::Relaxed) {
            Doing::Asleep
        } else if self.channels.iter().any(waits) {
            Doing::Waiting
        } else {
            Doing::Awake
        };
        let channel = |between: &Between| {
            let taken = between.gauge.taken.load(Ordering::Relaxed);
            let full = between.gauge.sent.load(Ordering::Relaxed).saturating_sub(taken).min(PARCELS as u64);
            ChannelState { from: between.from, full, room: PARCELS as u64 }
        };
        let channels = self.channels.iter().filter(|between| between.to == number).map(channel).collect();
        ThreadState { doing, blocks: gauge.blocks.load(Ordering::Relaxed), channels }
    }
}
