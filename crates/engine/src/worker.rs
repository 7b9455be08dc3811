//! One thread's loop: pull a batch from each source, walk it through the graph, tend timers, and at the end finish all
//! filters from the sources down.
//!
//! In: a [`Plan`] with its instances. Out: sinks, and a [`Report`].

mod turns;
mod watches;

pub use turns::{Run, Turn};

use crate::affinity::Pinned;
use crate::gauge::{Gauges, ThreadGauge};
use crate::node::{Arrow, Node, Runner, add_recycles};
use crate::plan::Plan;
use crate::replacement::{Fate, Replacement, Switching};
use crate::report::{EdgeReport, NodeReport, Report};
use crate::shape::Shape;
use crate::shared::{Shared, context};
use crate::source_clock::SourceClock;
use crate::stage::Stages;
use crate::team::Team;
use crate::watch::Watch;
use base::atomic::StopFlag;
use base::limits::{BATCH_BLOCKS, NOTICES, SECOND_NS};
use buffer::{BlockTable, Descriptor};
use filter::run::Instance;
use filter::{Context, Failure, Filter, Made, Order, Progress, Pull, Status, StreamTable, Wait};
use std::sync::Arc;
use std::time::Instant;

/// A run of descriptors to work on while another batch of the same blocks goes elsewhere.
pub(crate) type Spare = Box<[Descriptor; BATCH_BLOCKS]>;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every source came to its end.
    Input,
    /// Every sink had enough.
    Enough,
    /// The caller set `stop`.
    Stopped,
}

/// One thread that runs filters.
pub struct Worker {
    pub(crate) nodes: Vec<Node>,
    pub(crate) sources: Vec<usize>,
    /// A clock for each node; only those of sources run.
    pub(crate) clocks: Vec<SourceClock>,
    pulls: u32,
    pub(crate) wait: Wait,
    /// Since when the worker has polled its sources in vain. `None`: it has not.
    idle_since: Option<Instant>,
    pub(crate) shared: Shared,
    pub(crate) watches: Vec<Option<Watch>>,
    /// Descriptors to copy batches into; kept for reuse.
    pub(crate) spares: Vec<Spare>,
    pub(crate) next_wake: u64,
    /// The first failure: the run ends after the batch it came in.
    pub(crate) failure: Option<Box<Failure>>,
    /// The first failure of a source. The worker reads the other sources to their ends, and then the run fails.
    pub(crate) source_failure: Option<Box<Failure>>,
    notices_lost: u64,
    /// The next plan, to begin as soon as the ending sources have ended.
    pub(crate) next: Option<Replacement>,
    /// Reports of plans that were replaced.
    pub(crate) past: Vec<Report>,
    pub(crate) replaced: u64,
    /// The other stages. `None`: the plan has one.
    pub(crate) team: Option<Box<Team>>,
    /// Channel ends to call after each pull.
    pub(crate) ends: Vec<usize>,
    /// For a partition: the run of its input from which each place of the present batch came.
    pub(crate) sequences: [u64; BATCH_BLOCKS],
    /// Set when another stage failed: this stage then ends as if the caller had set `stop`.
    pub(crate) halt: Option<StopFlag>,
    /// The processor that it runs on. `None`: any.
    pub(crate) cpu: Option<u32>,
    /// The step of a replacement. `None`: the plan has one stage.
    pub(crate) switching: Option<Arc<Switching>>,
    /// For each node: its fate in the present replacement.
    pub(crate) fates: Vec<Fate>,
    /// The state of this stage for other threads. `None`: the plan has one stage.
    pub(crate) gauge: Option<Arc<ThreadGauge>>,
}

/// Batches between two checks for held blocks whose memory can be freed.
const HELD_PULLS: u32 = 64;

impl Worker {
    /// Makes a worker for a plan. There is one instance for each filter node, in the plan's order, and `None` for
    /// choices. If the plan has several [stages](crate::stage), this worker runs the first and starts threads for the
    /// others.
    ///
    /// # Panics
    /// When the instances do not fit the plan: the caller made both. When a plan of several stages gets no channels.
    pub fn new(plan: &Plan, instances: Vec<Option<Instance>>) -> Worker {
        Worker::with_copies(plan, instances, Vec::new()).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Makes a worker for a plan with partitions of the flows. `copies` has further instances: for each partition except the
    /// first, one for each node that it has a copy of ([`Stage::threads`](crate::Stage::threads)).
    ///
    /// # Errors
    /// The channels between the threads cannot be made: they need memory and file descriptors.
    ///
    /// # Panics
    /// When the instances do not fit the plan: the caller made both.
    pub fn with_copies(
        plan: &Plan,
        instances: Vec<Option<Instance>>,
        copies: Vec<Vec<Option<Instance>>>,
    ) -> Result<Worker, Box<Failure>> {
        let stages = Stages::of(plan);
        if stages.stages.len() > 1 {
            Team::assemble(plan, &stages, instances, copies)
        } else {
            Ok(Worker::of_stage(plan, instances))
        }
    }

    pub(crate) fn of_stage(plan: &Plan, instances: Vec<Option<Instance>>) -> Worker {
        assert_eq!(plan.nodes.len(), instances.len(), "one instance for each node");
        let mut rings = BlockTable::new();
        let mut shape = Shape::of(plan);
        let mut nodes: Vec<Node> = Vec::with_capacity(plan.nodes.len());
        for (index, (planned, instance)) in plan.nodes.iter().zip(instances).enumerate() {
            let mut node = Node::new(planned, instance, &mut rings);
            node.shape(&mut shape, index);
            nodes.push(node);
        }
        add_recycles(&mut nodes);
        let clocks = vec![SourceClock::default(); nodes.len()];
        let shared = Shared {
            rings,
            streams: StreamTable::new(),
            now: 0,
            began: None,
            notices: Vec::new(),
            order: Order::default(),
            stop: StopFlag::new(),
        };
        let mut worker = Worker {
            nodes,
            sources: Vec::new(),
            clocks,
            pulls: 0,
            wait: plan.wait,
            idle_since: None,
            shared,
            watches: Vec::new(),
            spares: Vec::new(),
            next_wake: u64::MAX,
            failure: None,
            source_failure: None,
            notices_lost: 0,
            next: None,
            past: Vec::new(),
            replaced: 0,
            team: None,
            ends: Vec::new(),
            sequences: [0; BATCH_BLOCKS],
            halt: None,
            cpu: plan.cpus.first().copied(),
            switching: None,
            fates: Vec::new(),
            gauge: None,
        };
        worker.sources = worker.source_nodes();
        worker.reckon_wanted();
        worker
    }

    pub(crate) fn source_nodes(&self) -> Vec<usize> {
        let is_source = |at: &usize| matches!(self.nodes[*at].runner, Runner::Source(_));
        (0..self.nodes.len()).filter(is_source).collect()
    }

    /// Runs until the input ends, all sinks have enough or `stop` is set; then finishes all filters. Calls `look` now
    /// and then, between batches, and at the end.
    ///
    /// A failure ends the run; that of a source ends only its own input. All filters are finished even so, so that
    /// written files are complete.
    pub fn run(&mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Result<End, Box<Failure>> {
        loop {
            let end = if self.team.is_some() { self.run_team(stop, look) } else { self.run_stage(stop, look) };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Runs this stage alone. `None`: it has stopped for a replacement, and will go on.
    pub(crate) fn run_stage(
        &mut self,
        stop: &StopFlag,
        look: &mut dyn FnMut(&mut Worker),
    ) -> Option<Result<End, Box<Failure>>> {
        let pinned = Pinned::to(self.cpu);
        let _pinned = match pinned {
            Ok(pinned) => pinned,
            Err(failure) => return Some(Err(failure)),
        };
        let mut run = self.begin(stop);
        while !run.is_at_switch() {
            match self.turn_stage(&mut run, stop, look) {
                Turn::Ready => {}
                Turn::Idle(nap) => self.rest(&run, nap),
                Turn::End(end) => return Some(end),
            }
        }
        None
    }

    /// Takes one batch from source `at` through all nodes. `None`: no node wants its blocks any more, or the source
    /// failed.
    fn pull(&mut self, at: usize) -> Option<Pull> {
        let Worker { nodes, shared, clocks, .. } = self;
        let node = &mut nodes[at];
        let Runner::Source(source) = &mut node.runner else { return None };
        if !node.wanted {
            source.leave();
            return None;
        }
        let pulled = source.pull(&mut context!(node, shared));
        let (mut is_within, mut edge) = (false, None);
        if let Some(moment) = source.follows() {
            shared.now = shared.now.max(moment.now);
            shared.order.sequence = moment.sequence;
            (is_within, edge) = (moment.is_within, moment.edge);
        } else if let Some((first, last)) = node.out.first().zip(node.out.last()) {
            let began = *shared.began.get_or_insert(first.time);
            // The source that is furthest leads; the times of two that take turns do not add up.
            shared.now = shared.now.max(began.saturating_add(clocks[at].follow(first.time, last.time)));
        } else if let (Ok(Pull::Idle(_)), Some(began), Some(time)) = (&pulled, shared.began, source.clock()) {
            // The clock goes on while no block comes.
            shared.now = shared.now.max(began.saturating_add(clocks[at].follow(time, time)));
        }
        if let Runner::Source(source) = &node.runner {
            node.runs.extend_from_slice(source.runs());
        }
        // Blocks read before a failure still go on.
        match edge {
            None => self.drain(at),
            Some(edge) => self.drain_along(at, edge),
        }
        if !is_within {
            self.tend();
        }
        self.tell_ends(|end, cx| end.pulled(cx));
        match pulled {
            Ok(pulled) => {
                self.nodes[at].ended = pulled == Pull::End;
                Some(pulled)
            }
            Err(failure) => {
                self.nodes[at].ended = true;
                self.source_failure.get_or_insert(failure);
                None
            }
        }
    }

    pub(crate) fn tell_ends(&mut self, mut tell: impl FnMut(&mut dyn Filter, &mut Context<'_>) -> Made) {
        for index in 0..self.ends.len() {
            self.call(self.ends[index], |runner, cx| match runner {
                Runner::Filter(filter) => tell(filter.as_mut(), cx),
                Runner::Source(_) | Runner::Session(..) | Runner::Choice(_) => Ok(Status::Done),
            });
        }
    }

    /// Between batches: runs due timers, closes idle sessions, and frees memory that no block names any more.
    fn tend(&mut self) {
        self.shared.streams.sweep();
        self.bound_notices();
        self.pulls = self.pulls.wrapping_add(1);
        if self.pulls.is_multiple_of(HELD_PULLS) {
            // Counted in pulls, not by the clock: time may stand still in a capture.
            self.shared.rings.recycle_held();
        }
        if self.shared.order.is_partition {
            // All partitions check at the same moments, even without blocks.
            self.next_wake = self.nodes.iter().map(|node| node.wake).min().unwrap_or(u64::MAX);
        }
        if self.shared.now < self.next_wake {
            return;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].wake > self.shared.now {
                continue;
            }
            self.nodes[at].wake = u64::MAX;
            (self.shared.order.node, self.shared.order.ends) = (at as u32, 0);
            self.call(at, |runner, cx| match runner {
                Runner::Filter(filter) => filter.timer(cx),
                Runner::Session(filter, sessions) => {
                    let expired = sessions.expire_one(filter.as_mut(), cx)?;
                    Ok(if expired { Status::More } else { Status::Done })
                }
                Runner::Source(_) | Runner::Choice(_) => Ok(Status::Done),
            });
        }
        (self.shared.order.node, self.shared.order.ends) = (0, 0);
        self.shared.streams.sweep();
        for node in &mut self.nodes {
            if let Runner::Session(_, sessions) = &node.runner {
                node.wake = node.wake.min(sessions.next_expiry());
            }
        }
        // Not more often than every tenth of a second, so that a filter that always wants the next moment costs little.
        let soonest = self.shared.now.saturating_add(SECOND_NS / 10);
        self.next_wake = self.nodes.iter().map(|node| node.wake).min().unwrap_or(u64::MAX).max(soonest);
    }

    fn call(&mut self, at: usize, mut how: impl FnMut(&mut Runner, &mut Context<'_>) -> Result<Status, Box<Failure>>) {
        while self.call_once(at, &mut how) {}
    }

    /// Calls it once. Gives whether it has more to give.
    fn call_once(
        &mut self,
        at: usize,
        how: &mut impl FnMut(&mut Runner, &mut Context<'_>) -> Result<Status, Box<Failure>>,
    ) -> bool {
        let Worker { nodes, shared, .. } = self;
        let node = &mut nodes[at];
        let status = how(&mut node.runner, &mut context!(node, shared));
        self.drain(at);
        let has_more = status == Ok(Status::More);
        self.settle(at, status);
        has_more
    }

    fn pauses(&self, sources: &[usize]) -> bool {
        let pauses = |at: &usize| matches!(&self.nodes[*at].runner, Runner::Source(source) if source.pauses());
        sources.iter().any(pauses)
    }

    /// The input pauses: lets all filters write out everything that they hold for speed.
    fn flush(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].wanted {
                self.call(at, |runner, cx| match runner {
                    Runner::Filter(filter) => filter.flush(cx),
                    Runner::Session(filter, _) => filter.flush(cx),
                    Runner::Source(_) | Runner::Choice(_) => Ok(Status::Done),
                });
            }
        }
    }

    /// Finishes node `at`, which gets no more blocks; its last blocks go on.
    pub(crate) fn finish_node(&mut self, at: usize) {
        while self.finish_some(at) {}
    }

    /// Does one step of that. Gives whether there may be more.
    fn finish_some(&mut self, at: usize) -> bool {
        if self.nodes[at].closed {
            return false;
        }
        let has_more = self.call_once(at, &mut |runner, cx| match runner {
            Runner::Source(source) => {
                source.finish(cx);
                Ok(Status::Done)
            }
            Runner::Filter(filter) => filter.finish(cx),
            Runner::Session(filter, sessions) => {
                if sessions.finish_one(filter.as_mut(), cx)? {
                    return Ok(Status::More);
                }
                filter.finish(cx)
            }
            Runner::Choice(_) => Ok(Status::Done),
        });
        self.nodes[at].closed = !has_more;
        has_more
    }

    /// Restarts sink `at`: other filters give its blocks from now on.
    pub(crate) fn restart_node(&mut self, at: usize) {
        self.call(at, |runner, cx| match runner {
            Runner::Filter(filter) => filter.restart(cx),
            Runner::Source(_) | Runner::Session(..) | Runner::Choice(_) => Ok(Status::Done),
        });
    }

    /// Lets a source that goes on update its counters.
    pub(crate) fn account_for(&mut self, at: usize) {
        self.call(at, |runner, cx| {
            if let Runner::Source(source) = runner {
                source.account(cx);
            }
            Ok(Status::Done)
        });
    }

    /// Notes that a filter wants no more blocks. Nodes that only lead to it then want none either.
    pub(crate) fn finished(&mut self, at: usize) {
        self.nodes[at].finished = true;
        self.reckon_wanted();
    }

    /// Finds out which nodes still want blocks. A sink does until it has finished. Another node does until it has
    /// finished, or until no node below wants its blocks; it always does while a node wants its rejects.
    pub(crate) fn reckon_wanted(&mut self) {
        for index in (0..self.nodes.len()).rev() {
            let node = &self.nodes[index];
            let any_wanted = |edges: &[Arrow]| edges.iter().any(|edge| self.nodes[edge.to].wanted);
            let is_end = node.edges.is_empty() && node.rejects.is_empty();
            let gives = !node.finished && (is_end || any_wanted(&node.edges));
            let wanted = gives || any_wanted(&node.rejects);
            let node = &mut self.nodes[index];
            (node.wanted, node.simple) = (wanted, wanted && node.rejects.is_empty());
        }
    }

    fn bound_notices(&mut self) {
        let extra = self.shared.notices.len().saturating_sub(NOTICES);
        if extra > 0 {
            self.shared.notices.truncate(NOTICES);
            self.notices_lost += extra as u64;
        }
    }

    /// Takes the lines for people that came since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        let mut notices = self.take_stage_notices();
        notices.extend(self.team.iter().flat_map(|team| team.take_notices()));
        notices
    }

    /// Adds a line for people.
    pub fn add_notice(&mut self, notice: String) {
        self.shared.notices.push(notice);
    }

    pub(crate) fn take_stage_notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.shared.notices);
        let lost = std::mem::take(&mut self.notices_lost);
        if lost > 0 {
            notices.push(format!("{lost} further notices not shown"));
        }
        notices
    }

    /// How much all sources have read (`None` unless all of them say so), and the number of blocks.
    pub fn progress(&self) -> (Option<Progress>, u64) {
        let mine = self.stage_progress();
        self.team.as_ref().map_or(mine, |team| team.progress(mine))
    }

    pub(crate) fn stage_progress(&self) -> (Option<Progress>, u64) {
        // The other stage has counted the blocks that it gives to this one.
        let is_input = |node: &&Node| !matches!(&node.runner, Runner::Source(source) if source.is_of_stage());
        let nodes = self.sources.iter().map(|source| &self.nodes[*source]).filter(is_input);
        let bytes = nodes.clone().try_fold(Progress::NOTHING, |sum, node| match &node.runner {
            Runner::Source(source) => source.progress().map(|more| sum.with(more)),
            _ => Some(sum),
        });
        (bytes, nodes.map(|node| node.counters.blocks_made).sum())
    }

    /// The bytes of the blocks. Between two turns, those of held blocks can be read.
    pub fn rings(&self) -> &BlockTable {
        &self.shared.rings
    }

    /// The bytes of the blocks, for a caller that adds blocks.
    pub fn rings_mut(&mut self) -> &mut BlockTable {
        &mut self.shared.rings
    }

    /// The state of its stages, for other threads. `None`: it has one stage.
    pub fn gauges(&self) -> Option<Arc<Gauges>> {
        self.team.as_ref().map(|team| team.gauges())
    }

    /// Bytes of memory that its rings use now. Mapped files are page cache and do not count.
    pub fn memory_bytes(&self) -> usize {
        self.shared.rings.memory_bytes() + self.team.as_ref().map_or(0, |team| team.memory_bytes())
    }

    /// The counters so far. Those of several stages are complete when all stages have ended.
    pub fn report(&self) -> Report {
        let mine = self.stage_report();
        self.team.as_ref().map_or_else(|| mine.clone(), |team| team.report(&mine))
    }

    pub(crate) fn stage_report(&self) -> Report {
        let edge = |edge: &Arrow, rejected: bool| EdgeReport {
            to: edge.to,
            blocks: edge.blocks,
            refused: edge.refused,
            before: edge.before,
            rejected,
        };
        let edges = |node: &Node| {
            let all = node.arrows().map(|(arrow, rejected)| (arrow.place, edge(arrow, rejected)));
            let mut all: Vec<(usize, EdgeReport)> = all.collect();
            all.sort_by_key(|(place, _)| *place);
            all.into_iter().map(|(_, edge)| edge).collect()
        };
        let node = |node: &Node| NodeReport {
            label: node.label.clone(),
            space: node.space.clone(),
            operand: node.operand,
            source: matches!(node.runner, Runner::Source(_)),
            input: node.input,
            writes_to: node.writes_to.clone(),
            counters: node.counters.clone(),
            edges: edges(node),
        };
        let rings = &self.shared.rings;
        Report {
            nodes: self.nodes.iter().map(node).collect(),
            traffic: rings.traffic(),
            link_types: rings.link_types().clone(),
            stages: Vec::new(),
        }
    }
}
