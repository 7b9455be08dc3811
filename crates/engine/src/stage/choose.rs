//! Chooses threads by the costs of filters, for `workers=pipeline` and `workers=auto`.
//!
//! Costs come from a profile of an earlier run, or from the kind; other filters count as cheap. All decisions are
//! estimates for one block of the input. Only cuts that keep the output the same to the byte are considered: one edge
//! leads across, and no node behind it branches.

use super::Stages;
use super::partitions::Partitions;
use crate::plan::{NodeId, Plan, Task, Workers};
use base::limits::WORKERS;
use filter::partition::Partitioning;

/// Time of a block through a channel, on both sides together, in ns.
const HOP_NS: f64 = 80.0;

/// Time of a block through a splitter and an ordered join.
const PARTITION_NS: f64 = 250.0;

/// `auto` uses threads if the expected time is at most this part of the time on one thread.
const WORTH: f64 = 0.8;

/// A pipeline gets another stage if that lowers the slowest stage's time to at most this part.
const ANOTHER: f64 = 0.9;

/// `auto` uses threads only if they save at least this time for each block, in ns. Threads that wait for each other
/// lose a smaller gain.
const SAVES_NS: f64 = 150.0;

/// Expected ns a block of filters without a known cost: a source, a filter in place, one that gives new blocks, one
/// that parses payload.
const CHEAP_NS: [f64; 4] = [40.0, 20.0, 80.0, 150.0];

/// The space of this process.
const APP: &str = "app";

/// The cost of each node for one block of the input, in ns.
struct Load {
    of: Vec<f64>,
    /// Blocks that come to each node, for each block of the input.
    blocks: Vec<f64>,
    /// The cost of at least one node was measured, or is known from its parameters.
    is_known: bool,
    is_measured: bool,
}

impl Load {
    fn of(plan: &Plan) -> Load {
        let above = plan.sources_of();
        let mut load = Load { of: Vec::new(), blocks: Vec::new(), is_known: false, is_measured: false };
        for (index, node) in plan.nodes.iter().enumerate() {
            let given = |from: &NodeId| {
                let source = &plan.nodes[from.index()];
                let gives =
                    source.how.cost.filter(|_| source.space == APP).map_or(1.0, |cost| f64::from(cost.gives) / 1000.0);
                let edges = source.edges.iter().filter(|edge| edge.to.index() == index);
                let along = edges.map(|edge| if edge.rejected { (1.0 - gives).max(0.0) } else { gives });
                load.blocks[from.index()] * along.sum::<f64>()
            };
            // A node without edges into it is a source, or an operand whose blocks the choice counts.
            let blocks = if above[index].is_empty() { 1.0 } else { above[index].iter().map(given).sum() };
            let ns = match (node.how.cost, &node.task) {
                _ if node.space != APP => 0.0,
                (Some(cost), _) => f64::from(cost.ns),
                (None, Task::Choose(_)) => CHEAP_NS[1],
                (None, Task::Filter { kind, .. }) if kind.is_source() => CHEAP_NS[0],
                (None, Task::Filter { kind, .. }) if kind.parses => CHEAP_NS[3],
                (None, Task::Filter { kind, .. }) if kind.gives == filter::Gives::Same => CHEAP_NS[1],
                (None, Task::Filter { .. }) => CHEAP_NS[2],
            };
            if let Some(cost) = node.how.cost {
                load.is_known = true;
                load.is_measured |= cost.is_measured;
            }
            load.of.push(ns * blocks);
            load.blocks.push(blocks);
        }
        load
    }

    fn total(&self) -> f64 {
        self.of.iter().sum()
    }

    fn percent(&self, part: f64) -> u32 {
        (100.0 * part / self.total().max(1.0)).round() as u32
    }

    fn origin(&self) -> &'static str {
        if self.is_measured { "measured" } else { "expected" }
    }
}

/// Stages in a row: the nodes before which they begin, and the time of the slowest.
struct Row {
    begins: Vec<usize>,
    slowest: f64,
}

impl Row {
    /// For each node: the first node of its stage.
    fn pieces(&self, plan: &Plan) -> Vec<usize> {
        let begin = |index: usize| self.begins.iter().copied().rfind(|begin| *begin <= index).unwrap_or(0);
        (0..plan.nodes.len()).map(begin).collect()
    }

    /// Each stage's part of the time, for people.
    fn describe(&self, load: &Load) -> String {
        let ends = self.begins.iter().copied().chain([load.of.len()]);
        let starts = std::iter::once(0).chain(self.begins.iter().copied());
        let parts =
            starts.zip(ends).map(|(start, end)| format!("{} %", load.percent(load.of[start..end].iter().sum())));
        let parts = parts.collect::<Vec<_>>().join(", ");
        format!("{} stages take {parts} of the {} time", self.begins.len() + 1, load.origin())
    }
}

/// Nodes before which the plan can be cut without changing the output.
fn cuts(plan: &Plan) -> Vec<usize> {
    let crossing = |at: usize| {
        let before = plan.nodes[..at].iter().enumerate();
        let edges = before.flat_map(|(index, node)| node.edges.iter().map(move |edge| (index, edge)));
        edges.filter(move |(_, edge)| edge.to.index() >= at).count()
    };
    let is_whole = |at: usize| {
        plan.nodes[at..].iter().all(|node| {
            let mut is_whole = true;
            if let Task::Choose(choice) = &node.task {
                super::each_operand(choice, &mut |id| is_whole &= id.index() >= at);
            }
            is_whole
        })
    };
    let is_app = |at: usize| plan.nodes[at..].iter().all(|node| node.space == APP);
    let has_no_source = |at: usize| {
        let is_source = |node: &crate::plan::Node| matches!(&node.task, Task::Filter { kind, .. } if kind.is_source());
        !plan.nodes[at..].iter().any(is_source)
    };
    let is_before = |at: usize| plan.caller.iter().filter(move |id| id.index() < at).count();
    let keeps_caller = |at: usize| is_before(at) == 0 || is_before(at) == plan.caller.len();
    let is_line = |at: usize| plan.nodes[at..].iter().all(|node| node.edges.len() < 2);
    let can = |at: &usize| {
        crossing(*at) == 1 && keeps_caller(*at) && is_line(*at) && is_whole(*at) && is_app(*at) && has_no_source(*at)
    };
    (1..plan.nodes.len()).filter(can).collect()
}

/// The best row of at most `most` stages; each stage has to lower the slowest stage's time.
fn best_row(plan: &Plan, load: &Load, most: usize) -> Row {
    let end = plan.nodes.len();
    let mut borders = cuts(plan);
    borders.insert(0, 0);
    let hop = |at: usize| if at == 0 || at == end { 0.0 } else { HOP_NS / 2.0 * load.blocks[at] };
    let stage = |start: usize, end: usize| load.of[start..end].iter().sum::<f64>() + hop(start) + hop(end);
    // For each border: the best row from there to the end, with one more stage in each turn.
    let mut rows: Vec<Option<Row>> =
        borders.iter().map(|start| Some(Row { begins: Vec::new(), slowest: stage(*start, end) })).collect();
    let mut best = Row { begins: Vec::new(), slowest: load.total() };
    for _ in 1..most.min(borders.len()) {
        let longer = |(at, start): (usize, &usize)| {
            let behind = borders.iter().zip(&rows).skip(at + 1);
            let row = |(next, row): (&usize, &Option<Row>)| {
                let row = row.as_ref()?;
                let begins = [&[*next], &row.begins[..]].concat();
                Some(Row { begins, slowest: stage(*start, *next).max(row.slowest) })
            };
            behind.filter_map(row).min_by(|one, other| one.slowest.total_cmp(&other.slowest))
        };
        rows = borders.iter().enumerate().map(longer).collect();
        if let Some(row) = rows[0].take_if(|row| row.slowest < ANOTHER * best.slowest) {
            best = row;
        }
    }
    best
}

/// The stages for `workers=pipeline`.
pub(super) fn pipeline(plan: &Plan, single: Stages) -> Stages {
    let why = |text: &str| Stages { undivided: Some(text.to_string()), ..single.clone() };
    if plan.processors < 2 {
        return why("there is one processor");
    }
    if cuts(plan).is_empty() {
        return why("no cut leaves the order of its output as it is");
    }
    let load = Load::of(plan);
    let row = best_row(plan, &load, plan.processors);
    if row.begins.is_empty() {
        return why("a channel costs more than each part that could be cut off");
    }
    Stages { why: Some(row.describe(&load)), ..Stages::of_pieces(plan, &row.pieces(plan)) }
}

/// The stages for `workers=auto`.
pub(super) fn auto(plan: &Plan, single: Stages) -> Stages {
    let one = |text: &str| Stages { why: Some(format!("one thread: {text}")), ..single.clone() };
    if plan.processors < 2 {
        return one("there is one processor");
    }
    let load = Load::of(plan);
    if !load.is_known {
        return one("no filter has a known cost; `run --profile` measures costs");
    }
    let (total, processors) = (load.total(), plan.processors as f64);
    let row = best_row(plan, &load, plan.processors);
    let hops: f64 = row.begins.iter().map(|at| HOP_NS * load.blocks[*at]).sum();
    let row_takes = row.slowest.max((total + hops) / processors);
    let ways = [of_partitions(plan, &load), of_spread(plan, &load)];
    let partitions = ways.into_iter().flatten().min_by(|(_, one), (_, other)| one.total_cmp(other));
    let partitions_take = partitions.as_ref().map_or(f64::INFINITY, |(_, takes)| *takes);
    if row_takes.min(partitions_take) > (WORTH * total).min(total - SAVES_NS) {
        return one(&format!("threads would save too little of {total:.0} ns a block, the {} time", load.origin()));
    }
    let stages = match partitions {
        Some((partitions, _)) if partitions_take <= row_takes => Stages::of_partitions(plan, &partitions),
        _ => Stages::of_pieces(plan, &row.pieces(plan)),
    };
    let Some(divided) = stages.stages.iter().find(|stage| stage.threads > 1) else {
        let text = row.describe(&load);
        return Stages { why: Some(text), ..stages };
    };
    let part = load.percent(divided.nodes.iter().map(|id| load.of[id.index()]).sum());
    let text = format!("{} shares of filters that take {part} % of the {} time", divided.threads, load.origin());
    Stages { why: Some(text), ..stages }
}

/// Partitions of the flows, one for each processor, and the time of an input block with them. `None`: partitions are not
/// possible, or two paths of the plan could take turns in another order.
fn of_partitions(plan: &Plan, load: &Load) -> Option<(Partitions, f64)> {
    takes(plan, load, Partitions::of_flows(plan, plan.processors.min(WORKERS)).ok()?)
}

/// Copies of the most costly filter, and the time of an input block with them.
fn of_spread(plan: &Plan, load: &Load) -> Option<(Partitions, f64)> {
    let most = (0..plan.nodes.len()).max_by(|one, other| load.of[*one].total_cmp(&load.of[*other]))?;
    let is_operand = plan.sources_of()[most].is_empty();
    let Task::Filter { kind, .. } = &plan.nodes[most].task else { return None };
    if is_operand || matches!(Partitioning::of(kind), Partitioning::Opens | Partitioning::Single) || kind.is_sink() {
        return None;
    }
    let mut plan = plan.clone();
    plan.nodes[most].how.spread = plan.processors.min(WORKERS);
    takes(&plan, load, Partitions::by_hand(&plan).ok()?)
}

/// Groups, and the time of an input block with them.
fn takes(plan: &Plan, load: &Load, partitions: Partitions) -> Option<(Partitions, f64)> {
    let is_partitioned = |index: usize| partitions.group_of(NodeId(index as u32)).is_some();
    let first = (0..plan.nodes.len()).find(|index| is_partitioned(*index))?;
    if plan.nodes[first..].iter().any(|node| node.edges.len() > 1 || node.space != APP) {
        return None;
    }
    let mine: f64 = (0..plan.nodes.len()).filter(|index| is_partitioned(*index)).map(|index| load.of[index]).sum();
    let before: f64 = load.of[..first].iter().sum();
    let behind = load.total() - mine - before;
    let split = PARTITION_NS / 2.0 * load.blocks[first];
    let count = plan.processors as f64;
    let slowest = (before + split).max(behind + split).max((mine + split) / count);
    Some((partitions, slowest.max((load.total() + 2.0 * split) / count)))
}

/// The stages that the planner chooses; `single` are those without its choice.
pub(super) fn choose(plan: &Plan, single: Stages) -> Stages {
    match plan.workers {
        Workers::Pipeline => pipeline(plan, single),
        Workers::Auto => auto(plan, single),
        Workers::Partitions(_) => single,
    }
}
