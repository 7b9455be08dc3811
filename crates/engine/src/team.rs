//! Runs the stages of one plan: each in a thread of its own, the first in the caller's. The caller's [`Worker`] answers
//! for all stages (copies of an edge, notices, progress, a report). `team/assembly` puts them together, `team/threads`
//! runs them, `team/switch` replaces the plan.

mod assembly;
mod switch;
mod threads;

pub use switch::stages_fit;

use crate::channel::{Bell, Join, Outlet, PartitionSource, Shared, Splitter, channel};
use crate::gauge::Gauges;
use crate::plan::{NodeId, Plan, Task};
use crate::replacement::{Part, Switching};
use crate::report::{EdgeReport, Report, StageReport};
use crate::shape::Shape;
use crate::stage::{Stage, Stages};
use crate::watch::{Edges, Watch};
use crate::worker::{End, Worker};
use assembly::Assembly;
use base::atomic::{AtomicBool, AtomicUsize, StopFlag};
use buffer::queue::numbers::Queue;
use filter::partition::Division;
use filter::run::Instance;
use filter::{Env, Failure, Kind, ParamError, Params, Parts, Progress, Type};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

fn never(_: &Params, _: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("a channel is made by the engine"))
}

static SENDS: Kind = Kind::new("channel", "gives blocks to another stage", never)
    .touches(Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS), Parts::DATA.with(Parts::METADATA))
    .sink();

static RECEIVES: Kind = Kind::new("channel", "gets blocks from another stage", never).source(Type::Frame);

pub(crate) struct Team {
    /// The stages behind the first one. `None`: the stage is in its thread.
    others: Vec<Option<Worker>>,
    running: Vec<(usize, JoinHandle<Ran>)>,
    /// For each thread: how it ended. `None`: it goes on.
    ends: Vec<Option<Result<End, Box<Failure>>>>,
    boards: Vec<Arc<Mutex<Board>>>,
    layout: Layout,
    halt: StopFlag,
    switching: Arc<Switching>,
    gauges: Arc<Gauges>,
    /// The channels of the plan that replaces this one, from the step *retire* on.
    next: Option<Channels>,
}

/// A stage that a thread ran, and how it ended. `None`: it has stopped for a replacement.
type Ran = (Worker, Option<Result<End, Box<Failure>>>);

#[derive(Default)]
struct Layout {
    /// For each stage: its nodes and its threads.
    stages: Vec<(Stage, Range<usize>)>,
    places: Vec<Vec<(usize, usize)>>,
    edges: Vec<Vec<Instances>>,
    lines: Vec<Line>,
    /// For each thread: the flag between `PartitionSource` and `Outlet`.
    lasts: Vec<Arc<AtomicBool>>,
}

struct Line {
    from: NodeId,
    rejected: bool,
    between: (usize, usize),
    /// For each thread: the thread, and the node in it.
    senders: Vec<(usize, usize)>,
    receivers: Vec<(usize, usize)>,
    /// Each from thread to thread.
    channels: Vec<(usize, usize, Arc<Shared>)>,
    edges: Arc<AtomicUsize>,
    /// Its streams get numbers of their own in the getting stage.
    renumber: bool,
}

/// The channels of a plan, made before anything of it is taken apart or put together: only this can fail.
struct Channels {
    /// For each thread: see [`Layout`].
    lasts: Vec<Arc<AtomicBool>>,
    /// One for each channel of the plan, also for one that goes on: its receiver may leave until then.
    ends: Vec<Ends>,
}

struct Ends {
    senders: Vec<Instance>,
    receivers: Vec<Instance>,
    channels: Vec<(usize, usize, Arc<Shared>)>,
    edges: Arc<AtomicUsize>,
    renumber: bool,
}

impl Channels {
    fn new(plan: &Plan, stages: &Stages, before: Option<&Before>) -> Result<Channels, Box<Failure>> {
        let threads = threads_of(stages);
        let last = |old: &Option<usize>| match (old, before) {
            (Some(old), Some(before)) => Arc::clone(&before.layout.lasts[*old]),
            _ => Arc::default(),
        };
        let lasts: Vec<Arc<AtomicBool>> = goes_on(&threads, before).iter().map(last).collect();
        let ends = stages.channels.iter().map(|channel| {
            // A stage that goes on has renumbered the streams of its other channels, and goes on doing so.
            let renumber =
                needs_numbers(plan, stages, channel.to) || before.is_some_and(|before| before.numbers(channel.to));
            let (from, to) = (threads[channel.from.0].clone(), threads[channel.to].clone());
            let division = stages.stages[channel.to].division;
            let edges = Arc::new(AtomicUsize::new(channel.edges.len()));
            let mut channels = Vec::new();
            let made = ends_of(from, to, (&edges, division), (plan.queue, renumber), &lasts, &mut channels);
            let (senders, receivers) = made?;
            Ok(Ends { senders, receivers, channels, edges, renumber })
        });
        let ends: io::Result<Vec<Ends>> = ends.collect();
        let ends = ends
            .map_err(|error| Box::new(Failure::System(format!("no channel between threads can be made: {error}"))))?;
        Ok(Channels { lasts, ends })
    }
}

/// The threads of each stage.
fn threads_of(stages: &Stages) -> Vec<Range<usize>> {
    let mut threads: Vec<Range<usize>> = Vec::new();
    for stage in &stages.stages {
        let first = threads.last().map_or(0, |last: &Range<usize>| last.end);
        threads.push(first..first + stage.threads);
    }
    threads
}

/// For each thread: the old thread that it goes on from.
fn goes_on(threads: &[Range<usize>], before: Option<&Before>) -> Vec<Option<usize>> {
    let mut goes_on = vec![None; threads.last().map_or(0, |last| last.end)];
    for (stage, threads) in threads.iter().enumerate() {
        if let Some((before, old)) = before.and_then(|before| Some((before, before.pairs[stage]?))) {
            let olds = before.layout.stages[old].1.clone();
            threads.clone().zip(olds).for_each(|(thread, old)| goes_on[thread] = Some(old));
        }
    }
    goes_on
}

struct Before {
    layout: Layout,
    workers: Vec<Option<Worker>>,
    /// For each new stage: the old stage that it goes on from.
    pairs: Vec<Option<usize>>,
}

/// The instances of an edge of the plan: thread, node and edge there, once for each thread of its stage.
struct Instances {
    /// If it is cut: the edges behind the channel.
    at: Vec<(usize, usize, usize)>,
    /// If it is cut: the edges to the channel.
    sends: Vec<(usize, usize, usize)>,
}

#[derive(Default)]
struct Board {
    bell: Option<Arc<Bell>>,
    watches: Vec<Watch>,
    notices: Vec<String>,
    progress: Option<(Option<Progress>, u64)>,
    memory_bytes: usize,
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    // A panic under this lock leaves no half-made value.
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    fn new(bell: Option<Arc<Bell>>) -> Arc<Mutex<Board>> {
        Arc::new(Mutex::new(Board { bell, ..Board::default() }))
    }

    fn look(&mut self, worker: &mut Worker) {
        for watch in self.watches.drain(..) {
            // A watch that finds no place ends its ring, and so its reader.
            worker.watch_stage(watch);
        }
        worker.tend_watches();
        self.notices.extend(worker.take_stage_notices());
        self.progress = Some(worker.stage_progress());
        self.memory_bytes = worker.memory_bytes();
    }
}

impl Team {
    /// Makes a worker for a plan of several stages.
    ///
    /// # Errors
    /// The channels between the threads cannot be made: they need memory and file descriptors.
    ///
    /// # Panics
    /// When the instances do not fit the plan: the caller made both.
    pub(crate) fn assemble(
        plan: &Plan,
        stages: &Stages,
        instances: Vec<Option<Instance>>,
        copies: Vec<Vec<Option<Instance>>>,
    ) -> Result<Worker, Box<Failure>> {
        assert_eq!(plan.nodes.len(), instances.len(), "one instance for each node");
        let channels = Channels::new(plan, stages, None)?;
        Ok(Team::assemble_beside(plan, stages, instances.into_iter().map(Part::New).collect(), copies, channels, None))
    }

    /// Does the same for a plan in which some nodes go on from a stopped plan.
    fn assemble_beside(
        plan: &Plan,
        stages: &Stages,
        parts: Vec<Part>,
        copies: Vec<Vec<Option<Instance>>>,
        Channels { lasts, ends }: Channels,
        mut before: Option<Before>,
    ) -> Worker {
        assert!(copies.iter().all(|copy| copy.len() == parts.len()), "one instance for each node");
        let mut assembly = Assembly::new(plan, stages, before.as_ref());
        // Sources come first, since nodes are in topological order.
        let sinks = assembly.add_channels(ends, &parts, before.as_ref());
        assembly.add_nodes(parts, copies, &mut before);
        let edges = assembly.lay_edges(sinks);
        assembly.into_worker(edges, lasts, before)
    }

    pub(crate) fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    fn find(&self, edges: &[Edges]) -> Option<Vec<(usize, Vec<Edges>)>> {
        let mut found: Vec<(usize, Vec<Edges>)> = Vec::new();
        for one in edges {
            let places: Vec<(usize, Edges)> = match one.edge {
                None => {
                    let places = self.layout.places.get(one.from)?.iter();
                    places.map(|(thread, from)| (*thread, Edges { from: *from, edge: None })).collect()
                }
                Some(edge) => {
                    let places = self.layout.edges.get(one.from)?.get(edge)?.at.iter();
                    places.map(|(thread, from, edge)| (*thread, Edges { from: *from, edge: Some(*edge) })).collect()
                }
            };
            for (thread, place) in places {
                match found.iter_mut().find(|(known, _)| *known == thread) {
                    Some((_, edges)) => edges.push(place),
                    None => found.push((thread, vec![place])),
                }
            }
        }
        Some(found)
    }

    pub(crate) fn take_notices(&self) -> Vec<String> {
        self.boards.iter().flat_map(|board| std::mem::take(&mut lock(board).notices)).collect()
    }

    /// The progress of all stages; `mine` is that of the first.
    pub(crate) fn progress(&self, mine: (Option<Progress>, u64)) -> (Option<Progress>, u64) {
        self.boards.iter().fold(mine, |(bytes, blocks), board| match lock(board).progress {
            None => (bytes, blocks),
            Some((more, of)) => (bytes.zip(more).map(|(bytes, more)| bytes.with(more)), blocks + of),
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.boards.iter().map(|board| lock(board).memory_bytes).sum()
    }

    pub(crate) fn report(&self, mine: &Report) -> Report {
        let reports: Vec<Report> =
            std::iter::once(mine.clone()).chain(self.others.iter().flatten().map(Worker::stage_report)).collect();
        let mut all = Report::default();
        for report in &reports {
            all.traffic.add(&report.traffic);
            all.link_types.extend(&report.link_types);
        }
        // While other stages run, their reports are not here.
        if reports.len() <= self.boards.len() {
            return mine.clone();
        }
        let came = |report: &Report| -> u64 {
            report.nodes.iter().filter(|node| node.source).map(|node| node.counters.blocks_made).sum()
        };
        for (Stage { nodes, .. }, threads) in self.layout.stages.iter().filter(|_| reports.len() > 1) {
            let blocks = reports[threads.clone()].iter().map(came).collect();
            all.stages.push(StageReport { nodes: nodes.iter().map(|id| id.index()).collect(), blocks });
        }
        for places in &self.layout.places {
            let (thread, node) = places[0];
            let mut node = reports[thread].nodes[node].clone();
            for (thread, copy) in &places[1..] {
                node.counters.add(&reports[*thread].nodes[*copy].counters);
            }
            node.edges.clear();
            all.nodes.push(node);
        }
        for (index, edges) in self.layout.edges.iter().enumerate() {
            for place in edges {
                let edge = |(thread, node, edge): &(usize, usize, usize)| reports[*thread].nodes[*node].edges[*edge];
                let (thread, _, _) = place.at[0];
                let mut sum = EdgeReport { to: self.node_at(thread, edge(&place.at[0]).to), ..edge(&place.at[0]) };
                for more in place.at[1..].iter().map(edge) {
                    sum.blocks += more.blocks;
                    sum.refused += more.refused;
                    sum.before += more.before;
                }
                if let Some(first) = place.sends.first() {
                    let sent: u64 = place.sends.iter().map(|place| edge(place).blocks).sum();
                    // Blocks that the next stage no longer took end at the filter that wanted no more.
                    let left = sent.saturating_sub(sum.before + sum.blocks + sum.refused);
                    sum.blocks += left;
                    // For a splitting node: blocks that went along its other edges.
                    sum.refused += place.sends.iter().map(|place| edge(place).refused).sum::<u64>();
                    sum.before += place.sends.iter().map(|place| edge(place).before).sum::<u64>();
                    sum.rejected = edge(first).rejected;
                    all.nodes[sum.to].counters.blocks_in += left;
                    let counters = &mut all.nodes[sum.to].counters;
                    counters.come_late(left, counters.loses);
                }
                all.nodes[index].edges.push(sum);
            }
        }
        all
    }

    fn node_at(&self, thread: usize, node: usize) -> usize {
        let is_it = |places: &Vec<(usize, usize)>| places.contains(&(thread, node));
        self.layout.places.iter().position(is_it).expect("every edge leads to a node of the plan")
    }
}

/// For each stage: its filters' labels, and its number of threads.
fn labels(plan: &Plan, stages: &Stages) -> Vec<(Vec<String>, usize)> {
    let operands = Shape::of(plan).operands;
    let label = |id: &NodeId| plan.nodes[id.index()].label.clone();
    let labels = |nodes: &[NodeId]| nodes.iter().filter(|id| !operands[id.index()]).map(label).collect::<Vec<String>>();
    stages.stages.iter().map(|stage| (labels(&stage.nodes), stage.threads)).collect()
}

/// Whether a stage gets streams from several places, so that it has to number them itself.
fn needs_numbers(plan: &Plan, stages: &Stages, stage: usize) -> bool {
    let mut from: Vec<usize> =
        stages.channels.iter().filter(|channel| channel.to == stage).map(|channel| channel.from.0).collect();
    from.sort_unstable();
    from.dedup();
    let makes_streams = |id: &NodeId| {
        let node = &plan.nodes[id.index()];
        matches!(&node.task, Task::Filter { kind, .. } if kind.is_source() || kind.writes.has(Parts::STREAMS))
    };
    // Partitions that make no streams of their own use the numbers of the stage before them.
    let from_partitions =
        from.iter().any(|from| stages.stages[*from].threads > 1 && needs_numbers(plan, stages, *from));
    from.len() > 1 || from_partitions || stages.stages[stage].nodes.iter().any(makes_streams)
}

/// The ends of a channel: a sink for each giving thread, a source for each getting thread.
fn ends_of(
    from: Range<usize>,
    to: Range<usize>,
    (edges, division): (&Arc<AtomicUsize>, Division),
    (queue, renumber): (Queue, bool),
    lasts: &[Arc<AtomicBool>],
    channels: &mut Vec<(usize, usize, Arc<Shared>)>,
) -> io::Result<(Vec<Instance>, Vec<Instance>)> {
    let mut pair = |bell: &Arc<Bell>, from: usize, to: usize| {
        let pair = channel(bell, queue, renumber)?;
        channels.push((from, to, Arc::clone(pair.0.shared())));
        Ok::<_, io::Error>(pair)
    };
    let bell = || Bell::new().map(Arc::new);
    Ok(match (from.len(), to.len()) {
        (1, 1) => {
            let (sender, receiver) = pair(&bell()?, from.start, to.start)?;
            (vec![Instance::filter(sender)], vec![Instance::source(receiver)])
        }
        (1, _) => {
            let pairs: io::Result<Vec<_>> = to.clone().map(|thread| pair(&bell()?, from.start, thread)).collect();
            let (senders, receivers): (Vec<_>, Vec<_>) = pairs?.into_iter().unzip();
            let partitions =
                to.zip(receivers).map(|(thread, receiver)| PartitionSource::new(receiver, Arc::clone(&lasts[thread])));
            (
                vec![Instance::filter(Splitter::new(division, senders, Arc::clone(edges)))],
                partitions.map(Instance::source).collect(),
            )
        }
        _ => {
            let bell = bell()?;
            let pairs: io::Result<Vec<_>> = from.clone().map(|from| pair(&bell, from, to.start)).collect();
            let (senders, receivers): (Vec<_>, Vec<_>) = pairs?.into_iter().unzip();
            let outlets = from.zip(senders).map(|(thread, sender)| Outlet::new(sender, Arc::clone(&lasts[thread])));
            (outlets.map(Instance::filter).collect(), vec![Instance::source(Join::new(receivers))])
        }
    })
}

impl Worker {
    /// Adds a watch, between two batches: from now on the worker copies the blocks of its edges. `false`: the worker
    /// has no room for another watch, or no such edge. The ring ends then.
    pub fn watch(&mut self, watch: Watch) -> bool {
        let Some(team) = &mut self.team else { return self.watch_stage(watch) };
        let Some(found) = team.find(watch.edges()) else { return false };
        let mut is_any = false;
        for (thread, edges) in found {
            let watch = watch.of_thread(edges);
            is_any |= match thread.checked_sub(1) {
                None => self.watch_stage(watch),
                Some(other) => {
                    let Some(team) = &mut self.team else { continue };
                    match team.others.get_mut(other) {
                        Some(Some(worker)) => worker.watch_stage(watch),
                        _ => {
                            let mut board = lock(&team.boards[other]);
                            board.watches.push(watch);
                            board.bell.iter().for_each(|bell| bell.call());
                            true
                        }
                    }
                }
            };
        }
        is_any
    }
}
