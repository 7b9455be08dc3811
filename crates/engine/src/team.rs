//! Runs the stages of one plan: each in a thread of its own, the first in the caller's. The caller's [`Worker`] answers for all
//! stages (copies of an edge, notices, progress, a report).

use crate::channel::{Bell, Join, Outlet, ShareSource, Splitter, channel};
use crate::gauge::{Between, Gauges};
use crate::plan::{Edge, Node, NodeId, Plan, Task};
use crate::report::{EdgeReport, Report, StageReport};
use crate::stage::Stages;
use crate::watch::{Edges, Watch};
use crate::worker::{End, Shape, Worker};
use base::atomic::{AtomicBool, StopFlag};
use filter::run::Instance;
use filter::{Env, Failure, Kind, ParamError, Params, Parts, Type};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel as results};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The first stage looks around so often while it waits for the others.
const LOOK: Duration = Duration::from_millis(50);

fn never(_: &Params, _: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("a channel is made by the engine"))
}

/// What a channel is to the stage that gives.
static SENDS: Kind = Kind::new("channel", "gives blocks to another stage", never)
    .touches(Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS), Parts::DATA.with(Parts::METADATA))
    .sink();

/// What a channel is to the stage that gets.
static RECEIVES: Kind = Kind::new("channel", "gets blocks from another stage", never).source(Type::Frame);

/// The other stages of a worker.
pub(crate) struct Team {
    /// Behind the first stage; not here while they run.
    others: Vec<Worker>,
    boards: Vec<Arc<Mutex<Board>>>,
    /// By thread: one of the bells that it sleeps on.
    bells: Vec<Option<Arc<Bell>>>,
    layout: Layout,
    halt: StopFlag,
    gauges: Arc<Gauges>,
}

/// Where everything of the plan is.
struct Layout {
    /// By stage, its nodes and its threads.
    stages: Vec<(Vec<NodeId>, Range<usize>)>,
    /// By node of the plan: its threads, and which node it is there.
    places: Vec<Vec<(usize, usize)>>,
    /// By node and edge of the plan.
    edges: Vec<Vec<Place>>,
}

/// Where an edge of the plan is: thread, node and edge there, once for each share.
struct Place {
    /// Behind a channel where it is cut.
    at: Vec<(usize, usize, usize)>,
    /// The edges to the channel, where it is cut.
    sends: Vec<(usize, usize, usize)>,
}

/// What a stage and the first one tell each other.
#[derive(Default)]
struct Board {
    watches: Vec<Watch>,
    notices: Vec<String>,
    progress: Option<(Option<(u64, u64)>, u64)>,
    memory_bytes: usize,
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    // A panic under the lock leaves no value half made.
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Between two batches of the stage.
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

/// The ends of a channel under construction.
struct Ends {
    /// Until they are laid.
    senders: Vec<Instance>,
    /// Thread, and node of it.
    receivers: Vec<(usize, usize)>,
}

/// A thread's part of the plan under construction.
struct Part {
    plan: Plan,
    instances: Vec<Option<Instance>>,
    /// Ends of channels that are told of each pull.
    tells: Vec<usize>,
}

impl Part {
    fn add(&mut self, node: Node, instance: Option<Instance>) -> usize {
        self.plan.nodes.push(node);
        self.instances.push(instance);
        self.plan.nodes.len() - 1
    }

    fn add_end(&mut self, kind: &'static Kind, instance: Instance) -> usize {
        let (task, input) = (Task::Filter { kind, params: Params::new() }, kind.takes);
        let node = Node { label: kind.name.into(), task, space: "app".into(), input, edges: Vec::new() };
        self.add(node, Some(instance))
    }
}

impl Team {
    /// A worker for a plan of several stages.
    ///
    /// # Panics
    /// When the instances do not fit the plan: the caller made both.
    pub(crate) fn assemble(
        plan: &Plan,
        stages: &Stages,
        instances: Vec<Option<Instance>>,
        copies: Vec<Vec<Option<Instance>>>,
    ) -> Worker {
        assert!(copies.iter().all(|copy| copy.len() == instances.len()), "one instance for each node");
        assert_eq!(plan.nodes.len(), instances.len(), "one instance for each node");
        assert!(stages.stages.iter().all(|stage| stage.threads <= copies.len() + 1), "a copy for each share");
        // By stage, its threads.
        let mut threads = Vec::new();
        for stage in &stages.stages {
            let first = threads.last().map_or(0, |last: &Range<usize>| last.end);
            threads.push(first..first + stage.threads);
        }
        let mut parts: Vec<Part> = (0..stages.threads())
            .map(|_| Part {
                plan: Plan { wait: plan.wait, ..Plan::default() },
                instances: Vec::new(),
                tells: Vec::new(),
            })
            .collect();
        let lasts: Vec<Arc<AtomicBool>> = parts.iter().map(|_| Arc::default()).collect();
        // Sources stand first, for nodes stand in topological order.
        let mut bells: Vec<Option<Arc<Bell>>> = parts.iter().map(|_| None).collect();
        let mut ends: Vec<Ends> = Vec::new();
        let mut between: Vec<Between> = Vec::new();
        for channel in &stages.channels {
            let (from, to) = (threads[channel.from.0].clone(), threads[channel.to].clone());
            let renumber = needs_numbers(plan, stages, channel.to);
            let (senders, receivers) =
                ends_of(from, to.clone(), channel.edges.len(), renumber, &lasts, &mut between, &mut bells);
            let add = |(thread, receiver): (usize, Instance)| (thread, parts[thread].add_end(&RECEIVES, receiver));
            ends.push(Ends { senders, receivers: to.zip(receivers).map(add).collect() });
        }
        let mut places: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut more: Vec<_> = copies.into_iter().map(Vec::into_iter).collect();
        for (index, (node, instance)) in plan.nodes.iter().zip(instances).enumerate() {
            let stage = threads[stages.of_node(NodeId(index as u32))].clone();
            let mut instances = vec![instance];
            instances.extend(more.iter_mut().map(|copy| copy.next().flatten()));
            let add = |(thread, instance): (usize, Option<Instance>)| {
                (thread, parts[thread].add(Node { edges: Vec::new(), ..node.clone() }, instance))
            };
            places.push(stage.zip(instances).map(add).collect());
        }
        // Copies of a node are in the same place of each share.
        let moved = |id: NodeId| NodeId(places[id.index()][0].1 as u32);
        for part in &mut parts {
            for node in &mut part.plan.nodes {
                if let Task::Choose(choice) = &mut node.task {
                    choice.renumber(&moved);
                }
            }
        }
        let mut edges: Vec<Vec<Place>> = Vec::new();
        for (index, node) in plan.nodes.iter().enumerate() {
            let mut here: Vec<Place> = Vec::new();
            for (place, edge) in node.edges.iter().enumerate() {
                let to = moved(edge.to);
                let is_it = |channel: &crate::stage::Channel| {
                    channel.from.1.index() == index
                        && channel.rejected == edge.rejected
                        && channel.edges.contains(&place)
                };
                let mut lay_all = |from: &[(usize, usize)], edge: &Edge| -> Vec<(usize, usize, usize)> {
                    let lay = |&(thread, node): &(usize, usize)| {
                        let edges = &mut parts[thread].plan.nodes[node].edges;
                        edges.push(edge.clone());
                        (thread, node, edges.len() - 1)
                    };
                    from.iter().map(lay).collect()
                };
                let Some(number) = stages.channels.iter().position(is_it) else {
                    let at = lay_all(&places[index], &Edge { to, cut: false, ..edge.clone() });
                    here.push(Place { at, sends: Vec::new() });
                    continue;
                };
                let at = lay_all(&ends[number].receivers, &Edge { to, cut: false, rejected: false, ..edge.clone() });
                let senders = std::mem::take(&mut ends[number].senders);
                let sends = if senders.is_empty() {
                    // The first edge of a channel leads to its end.
                    here[stages.channels[number].edges[0]].sends.clone()
                } else {
                    let lay = |(&(thread, node), sender): (&(usize, usize), Instance)| {
                        let end = parts[thread].add_end(&SENDS, sender);
                        parts[thread].tells.push(end);
                        let edges = &mut parts[thread].plan.nodes[node].edges;
                        edges.push(Edge { rejected: edge.rejected, ..Edge::plain(NodeId(end as u32)) });
                        (thread, node, edges.len() - 1)
                    };
                    places[index].iter().zip(senders).map(lay).collect()
                };
                here.push(Place { at, sends });
            }
            edges.push(here);
        }
        let halt = StopFlag::new();
        let gauges = Arc::new(Gauges::new(labels(plan, stages), between));
        let is_share = |thread: usize| threads.iter().any(|threads| threads.len() > 1 && threads.contains(&thread));
        let mut workers = parts.into_iter().enumerate().map(|(thread, part)| {
            let mut worker = Worker::of_stage(&part.plan, part.instances);
            worker.halt = Some(halt.clone());
            worker.gauge = Some(Arc::clone(gauges.thread(thread)));
            worker.ends = part.tells;
            worker.shared.order.is_shared = is_share(thread);
            worker
        });
        let mut first = workers.next().expect("a plan has a stage");
        let others: Vec<Worker> = workers.collect();
        let boards = others.iter().map(|_| Arc::default()).collect();
        let stages = stages.stages.iter().map(|stage| stage.nodes.clone()).zip(threads).collect();
        let layout = Layout { stages, places, edges };
        first.team = Some(Box::new(Team { others, boards, bells, layout, halt, gauges }));
        first
    }

    pub(crate) fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    /// Where these edges are: by thread.
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

    /// With that of the first stage.
    pub(crate) fn progress(&self, mine: (Option<(u64, u64)>, u64)) -> (Option<(u64, u64)>, u64) {
        self.boards.iter().fold(mine, |(bytes, blocks), board| match lock(board).progress {
            None => (bytes, blocks),
            Some((more, of)) => (bytes.zip(more).map(|((done, all), (more, of))| (done + more, all + of)), blocks + of),
        })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.boards.iter().map(|board| lock(board).memory_bytes).sum()
    }

    /// The counts of all stages, as if one stage had done everything.
    pub(crate) fn report(&self, mine: &Report) -> Report {
        let reports: Vec<Report> =
            std::iter::once(mine.clone()).chain(self.others.iter().map(Worker::stage_report)).collect();
        let mut all = Report::default();
        for report in &reports {
            all.traffic.add(&report.traffic);
            all.link_types.extend(&report.link_types);
        }
        // While the others run their reports are not here.
        if reports.len() <= self.boards.len() {
            return mine.clone();
        }
        let came = |report: &Report| -> u64 {
            report.nodes.iter().filter(|node| node.source).map(|node| node.counters.blocks_made).sum()
        };
        for (nodes, threads) in &self.layout.stages {
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
                    let left = sent.saturating_sub(sum.blocks + sum.refused);
                    sum.blocks += left;
                    (sum.before, sum.rejected) = (edge(first).before, edge(first).rejected);
                    all.nodes[sum.to].counters.blocks_in += left;
                    all.nodes[sum.to].counters.blocks_rejected += left;
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

/// By stage: its filters, as people know them, and how many threads it has.
fn labels(plan: &Plan, stages: &Stages) -> Vec<(Vec<String>, usize)> {
    let operands = Shape::of(plan).operands;
    let label = |id: &NodeId| plan.nodes[id.index()].label.clone();
    let labels = |nodes: &[NodeId]| nodes.iter().filter(|id| !operands[id.index()]).map(label).collect::<Vec<String>>();
    stages.stages.iter().map(|stage| (labels(&stage.nodes), stage.threads)).collect()
}

/// Does a stage get streams from several places, so that it numbers them itself?
fn needs_numbers(plan: &Plan, stages: &Stages, stage: usize) -> bool {
    let mut from: Vec<usize> =
        stages.channels.iter().filter(|channel| channel.to == stage).map(|channel| channel.from.0).collect();
    from.sort_unstable();
    from.dedup();
    let makes_streams = |id: &NodeId| {
        let node = &plan.nodes[id.index()];
        matches!(&node.task, Task::Filter { kind, .. } if kind.is_source() || kind.writes.has(Parts::STREAMS))
    };
    let from_shares = from.iter().any(|from| stages.stages[*from].threads > 1);
    from.len() > 1 || from_shares || stages.stages[stage].nodes.iter().any(makes_streams)
}

/// The ends of a channel: a sink for each thread that gives, a source for each that gets.
fn ends_of(
    from: Range<usize>,
    to: Range<usize>,
    edges: usize,
    renumber: bool,
    lasts: &[Arc<AtomicBool>],
    between: &mut Vec<Between>,
    bells: &mut [Option<Arc<Bell>>],
) -> (Vec<Instance>, Vec<Instance>) {
    let mut pair = |bell: &Arc<Bell>, from: usize, to: usize| {
        let pair = channel(bell, renumber);
        let pair = pair.unwrap_or_else(|error| panic!("no channel between threads can be made: {error}"));
        between.push(Between { from, to, gauge: Arc::clone(pair.0.gauge()) });
        pair
    };
    let mut bell = |thread: usize| {
        let bell = Bell::new().unwrap_or_else(|error| panic!("no channel between threads can be made: {error}"));
        bells[thread] = Some(Arc::clone(&bell));
        bell
    };
    match (from.len(), to.len()) {
        (1, 1) => {
            let (sender, receiver) = pair(&bell(to.start), from.start, to.start);
            (vec![Instance::filter(sender)], vec![Instance::source(receiver)])
        }
        (1, _) => {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                to.clone().map(|thread| pair(&bell(thread), from.start, thread)).unzip();
            let shares =
                to.zip(receivers).map(|(thread, receiver)| ShareSource::new(receiver, Arc::clone(&lasts[thread])));
            (vec![Instance::filter(Splitter::new(senders, edges))], shares.map(Instance::source).collect())
        }
        _ => {
            let bell = bell(to.start);
            let (senders, receivers): (Vec<_>, Vec<_>) = from.clone().map(|from| pair(&bell, from, to.start)).unzip();
            let outlets = from.zip(senders).map(|(thread, sender)| Outlet::new(sender, Arc::clone(&lasts[thread])));
            (outlets.map(Instance::filter).collect(), vec![Instance::source(Join::new(receivers))])
        }
    }
}

impl Worker {
    /// From now on, to be called between batches: copies for who watches these edges. False where there are as many watches as
    /// can be, or the worker has no such edges: then the ring ends.
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
                        Some(worker) => worker.watch_stage(watch),
                        None => {
                            lock(&team.boards[other]).watches.push(watch);
                            team.bells[thread].iter().for_each(|bell| bell.call());
                            true
                        }
                    }
                }
            };
        }
        is_any
    }

    /// Runs all stages, each in a thread of its own.
    pub(crate) fn run_team(&mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Result<End, Box<Failure>> {
        let team = self.team.as_mut().expect("the caller looked");
        let (halt, boards) = (team.halt.clone(), team.boards.clone());
        let mut others = std::mem::take(&mut team.others);
        let (results, ended) = results();
        let ends = std::thread::scope(|scope| {
            let mut starts = Vec::new();
            for (index, (worker, board)) in others.iter_mut().zip(&boards).enumerate() {
                let (results, halt) = (results.clone(), halt.clone());
                let (start, started) = std::sync::mpsc::channel::<()>();
                let run = move || {
                    if started.recv().is_err() {
                        return;
                    }
                    let end = worker
                        .run_whole(&halt, |worker| worker.run_stage(stop, &mut |worker| lock(board).look(worker)));
                    // Who waits for it is there until all have ended.
                    let _ = results.send((index + 1, end));
                };
                let stage = std::thread::Builder::new().name(format!("thread {}", index + 2));
                if let Err(error) = stage.spawn_scoped(scope, run) {
                    // Those that wait for their start hear that there is none.
                    let text = format!("cannot start a thread for a stage: {error}");
                    return vec![(0, Err(Box::new(Failure::System(text))))];
                }
                starts.push(start);
            }
            drop(results);
            starts.iter().for_each(|start| _ = start.send(()));
            let mine = self.run_whole(&halt, |worker| worker.run_stage(stop, &mut *look));
            let mut ends = vec![(0, mine)];
            loop {
                match ended.recv_timeout(LOOK) {
                    Ok(end) => ends.push(end),
                    Err(RecvTimeoutError::Timeout) => look(self),
                    Err(RecvTimeoutError::Disconnected) => break ends,
                }
            }
        });
        look(self);
        let team = self.team.as_mut().expect("nobody took it");
        team.others = others;
        let mut ends = ends;
        ends.sort_by_key(|(stage, _)| *stage);
        let ends: Vec<(usize, End)> =
            ends.into_iter().map(|(stage, end)| end.map(|end| (stage, end))).collect::<Result<_, _>>()?;
        let is = |wanted: End| ends.iter().any(|(_, end)| *end == wanted);
        Ok(if is(End::Stopped) {
            End::Stopped
        } else if is(End::Enough) {
            End::Enough
        } else {
            End::Input
        })
    }

    /// Runs this stage. Where it fails, the others are told to stop; where it panics, its channels end first, so that they do.
    fn run_whole(
        &mut self,
        halt: &StopFlag,
        run: impl FnOnce(&mut Worker) -> Result<End, Box<Failure>>,
    ) -> Result<End, Box<Failure>> {
        // Of a worker that panicked only its channels are touched.
        match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(end) => {
                if end.is_err() {
                    halt.stop();
                }
                end
            }
            Err(panic) => {
                halt.stop();
                self.nodes.clear();
                resume_unwind(panic)
            }
        }
    }
}
