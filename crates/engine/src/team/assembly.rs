//! Puts the workers of a plan together: a part of the plan for each thread, with the ends of channels where edges lead
//! to another stage.

use super::{Before, Board, Ends, Instances, Layout, Line, RECEIVES, SENDS, Team, goes_on, labels, threads_of};
use crate::channel::Bell;
use crate::gauge::{Between, Gauges};
use crate::plan::{Edge, How, Node, NodeId, Plan, Task};
use crate::replacement::{Part, Switching};
use crate::stage::{Channel, Stages};
use crate::worker::Worker;
use base::atomic::{AtomicBool, Ordering, StopFlag};
use filter::run::Instance;
use filter::{Kind, Params};
use std::ops::Range;
use std::sync::Arc;

/// Where a node or an end is: the thread, and the node in it.
type At = (usize, usize);

/// A thread's part of the plan under construction.
struct Partition {
    plan: Plan,
    parts: Vec<Part>,
    /// Channel ends to call after each pull.
    tells: Vec<usize>,
}

impl Partition {
    fn add(&mut self, node: Node, part: Part) -> usize {
        self.plan.nodes.push(node);
        self.parts.push(part);
        self.plan.nodes.len() - 1
    }

    fn add_end(&mut self, kind: &'static Kind, part: Part) -> usize {
        let (task, input) = (Task::Filter { kind, params: Params::new() }, kind.takes);
        let node =
            Node { label: kind.name.into(), task, space: "app".into(), input, how: How::default(), edges: Vec::new() };
        self.add(node, part)
    }
}

/// All threads' parts of a plan under construction.
pub(super) struct Assembly<'a> {
    plan: &'a Plan,
    stages: &'a Stages,
    /// The threads of each stage.
    threads: Vec<Range<usize>>,
    /// For each thread: the old thread that it goes on from.
    goes_on: Vec<Option<usize>>,
    partitions: Vec<Partition>,
    /// For each thread: what wakes it when blocks come.
    bells: Vec<Option<Arc<Bell>>>,
    lines: Vec<Line>,
    /// For each node of the plan: where it is, once for each thread of its stage.
    places: Vec<Vec<At>>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(plan: &'a Plan, stages: &'a Stages, before: Option<&Before>) -> Assembly<'a> {
        let threads = threads_of(stages);
        let partition =
            |_| Partition { plan: Plan { nodes: Vec::new(), ..plan.clone() }, parts: Vec::new(), tells: Vec::new() };
        let partitions: Vec<Partition> = (0..stages.threads()).map(partition).collect();
        let (goes_on, bells) = (goes_on(&threads, before), vec![None; partitions.len()]);
        Assembly { plan, stages, threads, goes_on, partitions, bells, lines: Vec::new(), places: Vec::new() }
    }

    /// Adds the sources at the ends of all channels. Gives the sinks of each channel, until its edges are laid.
    pub(super) fn add_channels(&mut self, ends: Vec<Ends>, parts: &[Part], before: Option<&Before>) -> Vec<Vec<Part>> {
        let channels = self.stages.channels.iter().zip(ends);
        channels.map(|(channel, made)| self.add_channel(channel, made, parts, before)).collect()
    }

    fn add_channel(&mut self, channel: &Channel, made: Ends, parts: &[Part], before: Option<&Before>) -> Vec<Part> {
        let (from, to) = (self.threads[channel.from.0].clone(), self.threads[channel.to].clone());
        let renumber = made.renumber;
        let (senders, receivers, channels, edges) = match before.and_then(|before| before.line_of(channel, parts)) {
            Some(old) => {
                old.edges.store(channel.edges.len(), Ordering::Relaxed);
                let kept = |places: &[At]| places.iter().map(|(_, node)| Part::Kept(*node)).collect();
                let (senders, receivers): (Vec<Part>, Vec<Part>) = (kept(&old.senders), kept(&old.receivers));
                let pairs = from.flat_map(|from| to.clone().map(move |to| (from, to)));
                let channels = pairs.zip(&old.channels);
                let channels = channels.map(|((from, to), (_, _, shared))| (from, to, Arc::clone(shared)));
                (senders, receivers, channels.collect(), Arc::clone(&old.edges))
            }
            None => {
                let new = |ends: Vec<Instance>| ends.into_iter().map(|end| Part::New(Some(end))).collect();
                (new(made.senders), new(made.receivers), made.channels, made.edges)
            }
        };
        for (_, to, shared) in &channels {
            self.bells[*to] = Some(Arc::clone(shared.bell()));
        }
        let add = |(thread, receiver): (usize, Part)| (thread, self.partitions[thread].add_end(&RECEIVES, receiver));
        let receivers = to.zip(receivers).map(add).collect();
        let (between, from, rejected) = ((channel.from.0, channel.to), channel.from.1, channel.rejected);
        let senders_at = Vec::new();
        self.lines.push(Line { from, rejected, between, senders: senders_at, receivers, channels, edges, renumber });
        senders
    }

    /// Adds each node of the plan to the threads of its stage. `copies`: the further instances of each node.
    pub(super) fn add_nodes(
        &mut self,
        parts: Vec<Part>,
        copies: Vec<Vec<Option<Instance>>>,
        before: &mut Option<Before>,
    ) {
        let mut more: Vec<_> = copies.into_iter().map(Vec::into_iter).collect();
        for (index, (node, part)) in self.plan.nodes.iter().zip(parts).enumerate() {
            let stage = self.threads[self.stages.of_node(NodeId(index as u32))].clone();
            let copies: Vec<Option<Instance>> = more.iter_mut().map(|copy| copy.next().flatten()).collect();
            let here: Vec<Part> = match (part, &mut *before) {
                (Part::New(instance), _) => {
                    std::iter::once(Part::New(instance)).chain(copies.into_iter().map(Part::New)).collect()
                }
                (part, Some(before)) => before.parts_of(part, &stage, &self.goes_on),
                (_, None) => panic!("nothing runs that could go on"),
            };
            assert!(here.len() >= stage.len(), "a copy for each partition");
            let add = |(thread, part): (usize, Part)| {
                (thread, self.partitions[thread].add(Node { edges: Vec::new(), ..node.clone() }, part))
            };
            let here = stage.zip(here).map(add).collect();
            self.places.push(here);
        }
        let places = &self.places;
        for node in self.partitions.iter_mut().flat_map(|partition| &mut partition.plan.nodes) {
            if let Task::Choose(choice) = &mut node.task {
                choice.renumber(&|id| in_partition(places, id));
            }
        }
    }

    /// Lays an edge from each of these nodes. Gives where it is in each thread.
    fn lay(&mut self, from: &[At], edge: &Edge) -> Vec<(usize, usize, usize)> {
        let lay = |&(thread, node): &At| {
            let edges = &mut self.partitions[thread].plan.nodes[node].edges;
            edges.push(edge.clone());
            (thread, node, edges.len() - 1)
        };
        from.iter().map(lay).collect()
    }

    /// Lays all edges of the plan: those between two stages from a channel's source on, and to its sink. Gives where
    /// each edge of each node is.
    pub(super) fn lay_edges(&mut self, mut sinks: Vec<Vec<Part>>) -> Vec<Vec<Instances>> {
        let mut edges: Vec<Vec<Instances>> = Vec::new();
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let mut here: Vec<Instances> = Vec::new();
            for (place, edge) in node.edges.iter().enumerate() {
                let to = in_partition(&self.places, edge.to);
                let is_it = |channel: &Channel| {
                    channel.from.1.index() == index
                        && channel.rejected == edge.rejected
                        && channel.edges.contains(&place)
                };
                let from = self.places[index].clone();
                let Some(number) = self.stages.channels.iter().position(is_it) else {
                    let at = self.lay(&from, &Edge { to, cut: false, ..edge.clone() });
                    here.push(Instances { at, sends: Vec::new() });
                    continue;
                };
                let receivers = self.lines[number].receivers.clone();
                let at = self.lay(&receivers, &Edge { to, cut: false, rejected: false, ..edge.clone() });
                let senders = std::mem::take(&mut sinks[number]);
                let sends = if senders.is_empty() {
                    // The first edge of a channel leads to its end.
                    here[self.stages.channels[number].edges[0]].sends.clone()
                } else {
                    let pairs = from.iter().zip(senders);
                    pairs.flat_map(|(at, sender)| self.lay_to_end(number, *at, edge.rejected, sender)).collect()
                };
                here.push(Instances { at, sends });
            }
            edges.push(here);
        }
        edges
    }

    /// Adds a sink at the end of a channel behind this node, and lays the edge to it.
    fn lay_to_end(
        &mut self,
        line: usize,
        (thread, node): At,
        rejected: bool,
        sender: Part,
    ) -> Vec<(usize, usize, usize)> {
        let partition = &mut self.partitions[thread];
        let end = partition.add_end(&SENDS, sender);
        partition.tells.push(end);
        self.lines[line].senders.push((thread, end));
        self.lay(&[(thread, node)], &Edge { rejected, ..Edge::plain(NodeId(end as u32)) })
    }

    /// Makes the workers: the first, which has the others in its team.
    pub(super) fn into_worker(
        self,
        edges: Vec<Vec<Instances>>,
        lasts: Vec<Arc<AtomicBool>>,
        mut before: Option<Before>,
    ) -> Worker {
        let Assembly { plan, stages, threads, goes_on, partitions, bells, lines, places } = self;
        let between = lines.iter().flat_map(|line| &line.channels).map(|(from, to, shared)| Between {
            from: *from,
            to: *to,
            gauge: Arc::clone(shared.gauge()),
        });
        let gauges = Arc::new(Gauges::new(labels(plan, stages), between.collect()));
        let (halt, switching) = (StopFlag::new(), Arc::<Switching>::default());
        let is_partition = |thread: usize| threads.iter().any(|threads| threads.len() > 1 && threads.contains(&thread));
        let is_alone = partitions.len() == 1;
        let cpus = &plan.cpus;
        let mut workers = partitions.into_iter().enumerate().map(|(thread, Partition { plan, parts, tells })| {
            let old = goes_on[thread].and_then(|old| before.as_mut()?.workers[old].take());
            let mut worker = match old {
                Some(mut worker) => {
                    worker.adopt(&plan, parts);
                    worker
                }
                None => Worker::of_stage(&plan, parts.into_iter().map(Part::into_new).collect()),
            };
            // The stages behind these ends may want blocks again.
            tells.iter().for_each(|end| worker.nodes[*end].finished = false);
            worker.reckon_wanted();
            worker.ends = tells;
            worker.shared.order.is_partition = is_partition(thread);
            worker.halt = (!is_alone).then(|| halt.clone());
            worker.cpu = (!cpus.is_empty()).then(|| cpus[thread % cpus.len()]);
            worker.switching = (!is_alone).then(|| Arc::clone(&switching));
            worker.gauge = (!is_alone).then(|| Arc::clone(gauges.thread(thread)));
            // Blocks of the old plan have been shown before.
            worker.gauge.iter().for_each(|gauge| gauge.begin_at(worker.blocks_given()));
            worker
        });
        let mut first = workers.next().expect("a plan has a stage");
        let others: Vec<Option<Worker>> = workers.map(Some).collect();
        if others.is_empty() {
            return first;
        }
        let boards = bells.into_iter().skip(1).map(Board::new).collect();
        let stages = stages.stages.iter().cloned().zip(threads).collect();
        let layout = Layout { stages, places, edges, lines, lasts };
        let ends = vec![None; others.len() + 1];
        let team = Team { others, running: Vec::new(), ends, boards, layout, halt, switching, gauges, next: None };
        first.team = Some(Box::new(team));
        first
    }
}

/// A node's number in each thread of its stage: copies of a node have the same.
fn in_partition(places: &[Vec<At>], id: NodeId) -> NodeId {
    NodeId(places[id.index()][0].1 as u32)
}
