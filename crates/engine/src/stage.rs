//! Stages: the parts of a plan that run on threads of their own, and the channels between them. The plan alone decides
//! them, so explaining and running a request give the same stages.
//!
//! The plan falls into pieces at edges that are cut. Nodes that other edges join stay in one stage, and so do the
//! operands of a choice. Two pieces that would each give to the other are one stage, since each could wait for the
//! other.

mod choose;
mod partitions;

use crate::plan::{Choice, Edge, NodeId, Plan, Task, Workers};
use filter::partition::Division;
use partitions::Partitions;

/// The nodes that one thread runs. With several threads, each has copies of the same nodes for its share of the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Nodes of the plan, in its order.
    pub nodes: Vec<NodeId>,
    /// Number of threads: 1, or one for each partition.
    pub threads: usize,
    /// How blocks are divided, if there are several partitions.
    pub division: Division,
    /// It runs in a process of its own, and in no thread of this one.
    pub is_process: bool,
}

impl Stage {
    pub(crate) fn single(nodes: Vec<NodeId>) -> Stage {
        Stage { nodes, threads: 1, division: Division::default(), is_process: false }
    }
}

/// The connection from one stage to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The giving stage, and its node.
    pub from: (usize, NodeId),
    /// It carries the blocks that the node rejects.
    pub rejected: bool,
    /// The getting stage.
    pub to: usize,
    /// The node's edges that it replaces.
    pub edges: Vec<usize>,
}

/// All stages of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The stages in the order of their first nodes; but the stage of [`Plan::caller`] comes first.
    pub stages: Vec<Stage>,
    /// The channels, in the order of the giving nodes.
    pub channels: Vec<Channel>,
    /// Edges (node and index) that the request cuts although both ends are in one stage.
    pub uncut: Vec<(NodeId, usize)>,
    /// Why the plan has no partitions although it should have some. `None`: it has them, or needs none.
    pub undivided: Option<String>,
    /// Why the planner chose these threads. `None`: the request chose them.
    pub why: Option<String>,
    /// A filter with `spread=` that the planner cannot spread, and the reason. The plan then has no spread filter at
    /// all.
    pub unspread: Option<(NodeId, String)>,
}

impl Stages {
    /// The stages of a plan.
    pub fn of(plan: &Plan) -> Stages {
        let is_cut_by_hand = plan.nodes.iter().any(|node| node.edges.iter().any(|edge| edge.cut));
        let is_isolated = plan.apart || plan.nodes.iter().any(|node| node.how.isolate);
        let is_cut = is_cut_by_hand || is_isolated;
        let is_spread = plan.nodes.iter().any(|node| node.how.spread > 1);
        let is_by_hand = is_cut || is_spread;
        let mut by_hand = if is_spread {
            match Partitions::by_hand(plan) {
                Ok(partitions) => Stages::of_partitions(plan, &partitions),
                Err(unspread) => Stages { unspread: Some(unspread), ..Stages::without_partitions(plan, is_cut) },
            }
        } else {
            Stages::without_partitions(plan, is_cut)
        };
        if plan.workers == Workers::Partitions(0) || plan.workers == Workers::Partitions(1) {
            return by_hand;
        }
        if is_by_hand {
            let how = match (is_cut_by_hand, is_spread) {
                (true, _) => "`||` cuts it",
                (_, true) => "`spread=` divides it",
                _ => "`isolate=` cuts it",
            };
            by_hand.undivided = Some(format!("{how} by hand"));
            return by_hand;
        }
        let Workers::Partitions(count) = plan.workers else { return choose::choose(plan, by_hand) };
        match Partitions::of_flows(plan, count) {
            Ok(partitions) => Stages::of_partitions(plan, &partitions),
            Err(why) => Stages { undivided: Some(why), ..by_hand },
        }
    }

    fn of_partitions(plan: &Plan, partitions: &Partitions) -> Stages {
        let mut all = Stages::of_pieces(plan, &partitions.pieces(plan));
        for stage in &mut all.stages {
            if let Some(group) = partitions.group_of(stage.nodes[0]) {
                (stage.threads, stage.division) = (group.threads, group.division);
            }
        }
        all
    }

    fn without_partitions(plan: &Plan, is_cut: bool) -> Stages {
        if is_cut {
            return Stages::of_pieces(plan, &join_circles(plan, &pieces(plan)));
        }
        let nodes = (0..plan.nodes.len()).map(|index| NodeId(index as u32)).collect();
        Stages { stages: vec![Stage::single(nodes)], ..Stages::default() }
    }

    /// Number of threads of all stages.
    pub fn threads(&self) -> usize {
        self.stages.iter().map(|stage| stage.threads).sum()
    }

    /// Makes stages from `pieces`: for each node, a number that all nodes of its stage share.
    fn of_pieces(plan: &Plan, pieces: &[usize]) -> Stages {
        let mut stages: Vec<Stage> = Vec::new();
        let mut numbers = vec![usize::MAX; plan.nodes.len()];
        let mut stage_of = Vec::with_capacity(pieces.len());
        if let Some(first) = plan.caller.first() {
            // The first stage is the caller's.
            numbers[pieces[first.index()]] = 0;
            stages.push(Stage::single(Vec::new()));
        }
        for (index, piece) in pieces.iter().enumerate() {
            if numbers[*piece] == usize::MAX {
                numbers[*piece] = stages.len();
                stages.push(Stage::single(Vec::new()));
            }
            stage_of.push(numbers[*piece]);
            stages[numbers[*piece]].nodes.push(NodeId(index as u32));
        }
        for stage in &mut stages {
            stage.is_process = stage.nodes.iter().any(|id| plan.nodes[id.index()].how.isolate);
        }
        let mut all = Stages { stages, ..Stages::default() };
        for (index, node) in plan.nodes.iter().enumerate() {
            let (id, from) = (NodeId(index as u32), stage_of[index]);
            for (place, edge) in node.edges.iter().enumerate() {
                let to = stage_of[edge.to.index()];
                if to == from {
                    all.uncut.extend(edge.cut.then_some((id, place)));
                    continue;
                }
                let is_it = |channel: &&mut Channel| {
                    // Each edge of a splitting node carries other blocks.
                    !node.task.splits()
                        && channel.from == (from, id)
                        && channel.to == to
                        && channel.rejected == edge.rejected
                };
                match all.channels.iter_mut().find(is_it) {
                    Some(channel) => channel.edges.push(place),
                    None => {
                        let channel = Channel { from: (from, id), rejected: edge.rejected, to, edges: vec![place] };
                        all.channels.push(channel);
                    }
                }
            }
        }
        all
    }

    /// The stage of a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn of_node(&self, id: NodeId) -> usize {
        self.stages.iter().position(|stage| stage.nodes.contains(&id)).expect("every node is in a stage")
    }
}

/// For each node, a number that all nodes of its piece share: the least index among them.
fn pieces(plan: &Plan) -> Vec<usize> {
    let mut pieces: Vec<usize> = (0..plan.nodes.len()).collect();
    for (index, node) in plan.nodes.iter().enumerate() {
        if let Task::Choose(choice) = &node.task {
            each_operand(choice, &mut |id| join(&mut pieces, index, id.index()));
        }
        for edge in node.edges.iter().filter(|edge| !edge.cut && !is_border(plan, index, edge)) {
            join(&mut pieces, index, edge.to.index());
        }
    }
    plan.caller.windows(2).for_each(|two| join(&mut pieces, two[0].index(), two[1].index()));
    (0..pieces.len()).map(|index| root(&pieces, index)).collect()
}

/// Whether this edge of a node leads into a process of its own, or out of one.
fn is_border(plan: &Plan, from: usize, edge: &Edge) -> bool {
    plan.nodes[from].how.isolate != plan.nodes[edge.to.index()].how.isolate
}

fn root(pieces: &[usize], mut index: usize) -> usize {
    while pieces[index] != index {
        index = pieces[index];
    }
    index
}

fn join(pieces: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(pieces, a), root(pieces, b));
    pieces[a.max(b)] = a.min(b);
}

fn each_operand(choice: &Choice, each: &mut impl FnMut(NodeId)) {
    match choice {
        Choice::Filter(id) => each(*id),
        Choice::Class(_) => {}
        Choice::All(parts) | Choice::Any(parts) => parts.iter().for_each(|part| each_operand(part, each)),
        Choice::Not(part) | Choice::KeepClass(part) => each_operand(part, each),
    }
}

fn join_circles(plan: &Plan, pieces: &[usize]) -> Vec<usize> {
    // For each piece: the pieces that it gives to.
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); pieces.len()];
    for (index, node) in plan.nodes.iter().enumerate() {
        for edge in &node.edges {
            let (from, to) = (pieces[index], pieces[edge.to.index()]);
            if from != to && !next[from].contains(&to) {
                next[from].push(to);
            }
        }
    }
    let reached = |from: usize| {
        let mut seen = vec![false; next.len()];
        let mut left = next[from].clone();
        while let Some(at) = left.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                left.extend(&next[at]);
            }
        }
        seen
    };
    let all: Vec<Vec<bool>> =
        (0..next.len()).map(|from| if next[from].is_empty() { Vec::new() } else { reached(from) }).collect();
    let leads = |from: usize, to: usize| all[from].get(to).copied().unwrap_or(false);
    let first = |piece: &usize| (0..*piece).find(|other| leads(*piece, *other) && leads(*other, *piece));
    pieces.iter().map(|piece| first(piece).unwrap_or(*piece)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Node;
    use filter::Types;

    /// A plan of edges (from, to, cut).
    fn plan(count: usize, edges: &[(usize, u32, bool)]) -> Plan {
        let node = |index| Node {
            label: format!("{index}"),
            task: Task::Choose(Choice::All(Vec::new())),
            space: "app".into(),
            input: Types::ANY,
            how: Default::default(),
            edges: Vec::new(),
        };
        let mut plan = Plan { nodes: (0..count).map(node).collect(), ..Plan::default() };
        for (from, to, cut) in edges {
            plan.nodes[*from].edges.push(Edge { cut: *cut, ..Edge::plain(NodeId(*to)) });
        }
        plan
    }

    /// Checks the nodes of each stage, the channels as (from, to stage, edges), and the edges that are not cut.
    fn check(
        count: usize,
        edges: &[(usize, u32, bool)],
        stages: &[&[u32]],
        channels: &[(u32, usize, &[usize])],
        uncut: &[(u32, usize)],
    ) {
        let all = Stages::of(&plan(count, edges));
        let found: Vec<Vec<u32>> = all.stages.iter().map(|stage| stage.nodes.iter().map(|id| id.0).collect()).collect();
        assert_eq!(found, stages, "{edges:?}");
        let found: Vec<_> =
            all.channels.iter().map(|channel| (channel.from.1.0, channel.to, &channel.edges[..])).collect();
        assert_eq!(found, channels, "{edges:?}");
        assert_eq!(all.uncut.iter().map(|(id, place)| (id.0, *place)).collect::<Vec<_>>(), uncut, "{edges:?}");
    }

    #[test]
    fn a_plan_falls_into_stages_where_it_is_cut() {
        check(3, &[(0, 1, false), (1, 2, false)], &[&[0, 1, 2]], &[], &[]);
        check(3, &[(0, 1, true), (1, 2, false)], &[&[0], &[1, 2]], &[(0, 1, &[0])], &[]);
        check(3, &[(0, 1, true), (1, 2, true)], &[&[0], &[1], &[2]], &[(0, 1, &[0]), (1, 2, &[0])], &[]);
        // Two branches that meet: one channel for both.
        let meet = [(0, 1, true), (0, 2, true), (1, 3, false), (2, 3, false)];
        check(4, &meet, &[&[0], &[1, 2, 3]], &[(0, 1, &[0, 1])], &[]);
    }

    #[test]
    fn a_process_is_a_stage_and_pieces_that_it_joins_are_apart() {
        let mut plan = plan(4, &[(0, 1, false), (1, 2, false), (2, 3, false)]);
        (plan.nodes[1].how.isolate, plan.nodes[2].how.isolate) = (true, true);
        let found = Stages::of(&plan).stages;
        let found: Vec<(usize, bool)> = found.iter().map(|stage| (stage.nodes.len(), stage.is_process)).collect();
        assert_eq!(found, [(1, false), (2, true), (1, false)]);
        let mut ends = self::plan(4, &[(0, 1, false), (2, 3, false)]);
        assert_eq!(Stages::of(&ends).stages.len(), 1);
        ends.apart = true;
        assert_eq!(Stages::of(&ends).stages.len(), 2);
    }

    #[test]
    fn what_is_joined_elsewhere_is_not_cut() {
        check(3, &[(0, 1, true), (0, 2, false), (1, 2, false)], &[&[0, 1, 2]], &[], &[(0, 0)]);
        // Each of two pieces would give to the other.
        let circle = [(0, 1, true), (1, 2, true), (0, 2, false), (2, 3, false)];
        check(4, &circle, &[&[0, 1, 2, 3]], &[], &[(0, 0), (1, 0)]);
    }
}
