//! One thread's loop: pull a batch from each source, walk it through the graph, tend timers, and at the end finish all
//! filters from the sources down.
//!
//! In: a [`Plan`] with its instances. Out: sinks, and a [`Report`].

mod turns;

pub use turns::{Run, Turn};

use crate::affinity::Pinned;
use crate::gauge::{Gauges, ThreadGauge};
use crate::plan::{Choice, NodeId, Plan, Task};
use crate::replace::{Fate, Replacement, Switching};
use crate::report::{EdgeReport, NodeReport, Report};
use crate::session::Sessions;
use crate::stage::Stages;
use crate::team::Team;
use crate::walk::{Arrow, Spare, context};
use crate::watch::Watch;
use crate::witness::Witness;
use base::atomic::StopFlag;
use base::limits::{BATCH_BLOCKS, CLOCK_STEP_NS, NOTICES, SECOND_NS};
use buffer::{BlockTable, Descriptor, Interface, SegmentId, ViewId};
use filter::run::{AnySessionFilter, Instance};
use filter::{
    Batch, Context, Counters, Failure, Filter, Gives, Made, Marks, Order, Parts, Pull, Source, Status, StreamTable,
    Types, Wait,
};
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Node {
    label: String,
    space: String,
    pub(crate) runner: Runner,
    /// Works on the batch itself; else it gives new blocks or is a sink.
    pub(crate) in_place: bool,
    /// A node below, or the filter itself, still wants blocks.
    pub(crate) wanted: bool,
    /// It is wanted, and no node wants its rejects.
    pub(crate) simple: bool,
    pub(crate) finished: bool,
    pub(crate) ended: bool,
    pub(crate) closed: bool,
    pub(crate) operand: bool,
    pub(crate) exclusive: bool,
    pub(crate) bodies_are_read: bool,
    /// Each block that it passes goes along one of its edges.
    pub(crate) splits: bool,
    writes: Parts,
    input: Types,
    writes_to: Option<String>,
    pub(crate) edges: Vec<Arrow>,
    pub(crate) rejects: Vec<Arrow>,
    /// The watches of its edges, one bit for each index in the worker's list.
    pub(crate) watches: u64,
    pub(crate) counters: Counters,
    pub(crate) marks: Marks,
    pub(crate) out: Vec<Descriptor>,
    /// For a partition: the runs of its input from which `out` came, with each run's end in it. See [`Source::runs`].
    pub(crate) runs: Vec<(usize, u64)>,
    pub(crate) own: ViewId,
    /// Rings whose memory is free when this node's blocks have gone through all nodes below: its own, and those of
    /// filters in place below it.
    pub(crate) recycles: Vec<SegmentId>,
    pub(crate) wake: u64,
}

pub(crate) enum Runner {
    Source(Box<dyn Source>),
    Filter(Box<dyn Filter>),
    Session(Box<dyn AnySessionFilter>, Sessions),
    Choice(Arc<Choice>),
}

pub(crate) struct Shared {
    pub(crate) rings: BlockTable,
    pub(crate) streams: StreamTable,
    pub(crate) now: u64,
    /// Time of the first block of the run.
    began: Option<u64>,
    pub(crate) notices: Vec<String>,
    pub(crate) order: Order,
    pub(crate) stop: StopFlag,
}

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
        let shape = Shape::of(plan);
        let mut nodes: Vec<Node> = Vec::with_capacity(plan.nodes.len());
        for (index, (planned, instance)) in plan.nodes.iter().zip(instances).enumerate() {
            let mut node = Node::new(planned, instance, &mut rings);
            node.shape(&shape, index);
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

    /// Bytes read and total bytes of all sources (`None` unless all of them know), and blocks read.
    pub fn progress(&self) -> (Option<(u64, u64)>, u64) {
        let mine = self.stage_progress();
        self.team.as_ref().map_or(mine, |team| team.progress(mine))
    }

    pub(crate) fn stage_progress(&self) -> (Option<(u64, u64)>, u64) {
        // The other stage has counted the blocks that it gives to this one.
        let is_input = |node: &&Node| !matches!(&node.runner, Runner::Source(source) if source.is_of_stage());
        let nodes = self.sources.iter().map(|source| &self.nodes[*source]).filter(is_input);
        let bytes = nodes.clone().try_fold((0, 0), |(done, all), node| match &node.runner {
            Runner::Source(source) => source.progress().map(|(more, of)| (done + more, all + of)),
            _ => Some((done, all)),
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

/// Properties of a node that follow from the whole plan.
pub(crate) struct Shape {
    /// For each node: it is an operand of a choice.
    pub(crate) operands: Vec<bool>,
    /// For each node: no other node sees the blocks that it gets, or it is the last to see them.
    pub(crate) exclusive: Vec<bool>,
    /// For each node: a node behind it reads more of messages than META records.
    pub(crate) bodies_are_read: Vec<bool>,
}

impl Shape {
    pub(crate) fn of(plan: &Plan) -> Shape {
        let above = plan.sources_of();
        let mut operands = vec![false; plan.nodes.len()];
        let mut exclusive = vec![true; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate() {
            if let Task::Choose(choice) = &node.task {
                mark_operands(choice, &mut operands);
            }
            // A batch goes along the last edge when all nodes behind the other edges have returned.
            let comes_last = |from: &NodeId| {
                let edges = &plan.nodes[from.index()].edges;
                let edge = edges.iter().find(|edge| edge.to.index() == index);
                let last = edge.and_then(|edge| edges.iter().rfind(|other| other.rejected == edge.rejected));
                last.is_some_and(|last| last.to.index() == index)
            };
            let is_shared =
                above[index].len() > 1 || above[index].iter().any(|from| !exclusive[from.index()] || !comes_last(from));
            exclusive[index] = !is_shared;
        }
        let mut bodies_are_read = vec![false; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate().rev() {
            bodies_are_read[index] = node.edges.iter().any(|edge| match &plan.nodes[edge.to.index()].task {
                Task::Filter { kind, .. } if kind.reads_heads => {
                    kind.gives == Gives::Same && bodies_are_read[edge.to.index()]
                }
                _ => true,
            });
        }
        Shape { operands, exclusive, bodies_are_read }
    }
}

impl Node {
    /// Makes a node of a plan. The properties that follow from the whole plan are filled in later.
    ///
    /// # Panics
    /// When a filter has no instance.
    pub(crate) fn new(planned: &crate::plan::Node, instance: Option<Instance>, rings: &mut BlockTable) -> Node {
        let (runner, in_place, writes) = match (&planned.task, instance) {
            // Its operands state for themselves what they change.
            (Task::Choose(choice), _) => (Runner::Choice(Arc::new(choice.clone())), true, Parts::METADATA),
            (Task::Filter { kind, .. }, Some(instance)) => {
                let in_place = kind.gives == Gives::Same && !instance.gives_anew();
                (Runner::new(instance), in_place, kind.writes)
            }
            (Task::Filter { kind, .. }, None) => panic!("no instance of {}", kind.name),
        };
        let own_segment = rings.add_append_ring();
        let own = rings.add_view(own_segment, Interface::default()).expect("a plan has fewer nodes than rings");
        let mut node = Node {
            label: planned.label.clone(),
            space: planned.space.clone(),
            runner,
            in_place,
            wanted: true,
            simple: true,
            finished: false,
            ended: false,
            closed: false,
            operand: false,
            exclusive: true,
            bodies_are_read: true,
            splits: splits(&planned.task),
            writes,
            input: planned.input,
            writes_to: planned.writes_to().map(String::from),
            edges: Vec::new(),
            rejects: Vec::new(),
            watches: 0,
            counters: Counters::default(),
            marks: Marks::default(),
            out: Vec::new(),
            runs: Vec::new(),
            own,
            recycles: vec![own_segment],
            wake: u64::MAX,
        };
        for (place, edge) in planned.edges.iter().enumerate() {
            node.lay(edge.rejected, Arrow::new(edge, place, 0));
        }
        node
    }

    /// Sets the properties that follow from the whole plan, in which it is the node at `index`.
    pub(crate) fn shape(&mut self, shape: &Shape, index: usize) {
        (self.operand, self.exclusive) = (shape.operands[index], shape.exclusive[index]);
        self.bodies_are_read = shape.bodies_are_read[index];
    }

    /// Adds an edge for the blocks that the node gives or, with `rejected`, for those that it rejects.
    pub(crate) fn lay(&mut self, rejected: bool, arrow: Arrow) {
        if rejected { &mut self.rejects } else { &mut self.edges }.push(arrow);
    }

    /// All edges; `true`: it carries the rejected blocks.
    pub(crate) fn arrows(&self) -> impl Iterator<Item = (&Arrow, bool)> {
        self.edges.iter().map(|arrow| (arrow, false)).chain(self.rejects.iter().map(|arrow| (arrow, true)))
    }

    /// In debug builds: checks that its filter changed only what its kind says.
    #[inline]
    pub(crate) fn check(&self, before: Option<Witness>, batch: &Batch<'_>, shared: &Shared) {
        if let Some(before) = before {
            before.check(batch, shared, self.writes, &self.label);
        }
    }

    /// Makes this node stand for node `planned` of another plan. Only names and the indexes of operands differ.
    pub(crate) fn rename(&mut self, planned: &crate::plan::Node) {
        self.label.clone_from(&planned.label);
        self.space.clone_from(&planned.space);
        if let Task::Choose(choice) = &planned.task {
            self.runner = Runner::Choice(Arc::new(choice.clone()));
        }
    }
}

impl Runner {
    pub(crate) fn new(instance: Instance) -> Runner {
        match instance {
            Instance::Source(source) => Runner::Source(source),
            Instance::Filter(filter) => Runner::Filter(filter),
            Instance::Session(key, filter) | Instance::SessionAnew(key, filter) => {
                Runner::Session(filter, Sessions::new(key))
            }
        }
    }
}

/// The time that has passed by one source's blocks: see [`Context::now`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceClock {
    /// The source's present time. After a step back by less than a leap, the clock waits until the source has caught
    /// up.
    time: Option<u64>,
    passed: u64,
}

impl SourceClock {
    /// Follows a batch whose first and last blocks have these times. Gives the time since the source began.
    fn follow(&mut self, first: u64, last: u64) -> u64 {
        let before = *self.time.get_or_insert(first);
        self.passed += last.saturating_sub(before).min(CLOCK_STEP_NS);
        if last > before || before - last > CLOCK_STEP_NS {
            self.time = Some(last);
        }
        self.passed
    }
}

/// Lists for each node that gives blocks its own ring first. Then come the rings of the filters in place that its blocks
/// pass before another filter makes new blocks of them.
pub(crate) fn add_recycles(nodes: &mut [Node]) {
    nodes.iter_mut().for_each(|node| node.recycles.truncate(1));
    for index in 0..nodes.len() {
        if nodes[index].in_place {
            continue;
        }
        let mut seen = vec![false; nodes.len()];
        let mut next: Vec<usize> = nodes[index].edges.iter().map(|edge| edge.to).collect();
        while let Some(at) = next.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            // Its rejects are still blocks of the same node.
            next.extend(nodes[at].rejects.iter().map(|edge| edge.to));
            if nodes[at].in_place {
                next.extend(nodes[at].edges.iter().map(|edge| edge.to));
                let own = nodes[at].recycles.clone();
                nodes[index].recycles.extend(own);
            }
        }
    }
}

/// Whether this filter sends each block along one of the edges behind it.
pub(crate) fn splits(task: &Task) -> bool {
    matches!(task, Task::Filter { kind, .. } if kind.splits)
}

fn mark_operands(choice: &Choice, operands: &mut [bool]) {
    match choice {
        Choice::Filter(id) => operands[id.index()] = true,
        Choice::Class(_) => {}
        Choice::All(parts) | Choice::Any(parts) => parts.iter().for_each(|part| mark_operands(part, operands)),
        Choice::Not(part) | Choice::KeepClass(part) => mark_operands(part, operands),
    }
}
