//! Partitions: finds the nodes that each partition of the blocks has copies of, or says why there are none.
//!
//! A splitter divides blocks in front of a group of nodes. One stage behind puts the copies' blocks together, in the
//! order of one thread. The order needs one path into the group, and one path from the group to each stage behind.
//!
//! - `workers=N` makes one group. It begins with the filters that make streams from frames (`tcp`, `udp`), and ends
//!   before the first filter that sees all blocks (sinks, `count`).
//! - `spread=N` makes a group of each filter that has it; neighbours with the same number form one group. A group with
//!   `decap` is divided by pairs of hosts: in front of it, fragments and tunnels do not name their inner flows.

use super::{each_operand, is_border, join, join_circles, root};
use crate::plan::{Edge, Node, NodeId, Plan, Task};
use filter::partition::{Division, Partitioning};
use filter::{Mode, Parts};

/// The groups of a plan.
pub(super) struct Partitions {
    /// For each node: its group.
    of: Vec<Option<usize>>,
    groups: Vec<Group>,
}

/// Nodes that each partition has copies of.
pub(super) struct Group {
    pub(super) threads: usize,
    pub(super) division: Division,
}

impl Partitions {
    /// The groups for `workers=N`. The error says why there are no partitions.
    pub(super) fn of_flows(plan: &Plan, threads: usize) -> Result<Partitions, String> {
        let above = plan.sources_of();
        let mut copied = vec![false; plan.nodes.len()];
        let partitioning = |id: NodeId| match &plan.nodes[id.index()].task {
            Task::Filter { kind, .. } => Partitioning::of(kind),
            Task::Choose(choice) => {
                let mut all = Partitioning::Copied;
                each_operand(choice, &mut |operand| {
                    if let Task::Filter { kind, .. } = &plan.nodes[operand.index()].task
                        && Partitioning::of(kind) != Partitioning::Copied
                    {
                        all = Partitioning::Single;
                    }
                });
                all
            }
        };
        for index in 0..plan.nodes.len() {
            let (id, above) = (NodeId(index as u32), &above[index]);
            let behind = above.iter().filter(|id| copied[id.index()]).count();
            copied[index] = match partitioning(id) {
                Partitioning::Begins => true,
                Partitioning::Copied => !above.is_empty() && behind == above.len(),
                Partitioning::Opens | Partitioning::Single => false,
            };
        }
        for (index, node) in plan.nodes.iter().enumerate() {
            if let Task::Choose(choice) = &node.task {
                let is_partitioned = copied[index];
                each_operand(choice, &mut |operand| copied[operand.index()] = is_partitioned);
            }
        }
        if !copied.contains(&true) {
            return Err(
                "there is no filter that makes streams of frames, such as `tcp`, so that flows could be divided".into(),
            );
        }
        let of = copied.into_iter().map(|is_partitioned| is_partitioned.then_some(0)).collect();
        let partitions = Partitions { of, groups: vec![Group { threads, division: Division::Flows }] };
        partitions.check(plan).map_err(|(_, why)| why)?;
        Ok(partitions)
    }

    /// The groups for `spread=N` of filters. The error names a filter that cannot be spread, and says why.
    pub(super) fn by_hand(plan: &Plan) -> Result<Partitions, (NodeId, String)> {
        let mut pieces: Vec<usize> = (0..plan.nodes.len()).collect();
        let spread = |index: usize| plan.nodes[index].how.spread;
        for (index, edge) in edges(plan).filter(|(index, _)| spread(*index) > 1) {
            let (next, label) = (edge.to.index(), &plan.nodes[index].label);
            if spread(next) == spread(index) {
                join(&mut pieces, index, next);
            } else if spread(next) > 1 {
                let why = format!("`{label}` before it has spread={}: neighbours have the same", spread(index));
                return Err((edge.to, why));
            }
        }
        let mut partitions = Partitions { of: vec![None; plan.nodes.len()], groups: Vec::new() };
        for index in (0..plan.nodes.len()).filter(|index| spread(*index) > 1) {
            let first = root(&pieces, index);
            let Task::Filter { kind, .. } = &plan.nodes[index].task else { continue };
            let mine = match (Partitioning::of(kind), kind.mode) {
                (Partitioning::Begins, _) => Division::Flows,
                (Partitioning::Opens, _) => Division::Hosts,
                (_, Mode::Stateless) if !kind.writes.has(Parts::STREAMS) => Division::Batches,
                _ => Division::Streams,
            };
            if first == index {
                partitions.groups.push(Group { threads: spread(index), division: mine });
            }
            // The first node of a group comes before the others.
            let group = if first == index { partitions.groups.len() - 1 } else { partitions.of[first].unwrap_or(0) };
            let division = &mut partitions.groups[group].division;
            *division = (*division).max(mine);
            partitions.of[index] = Some(group);
        }
        partitions.check_hosts(plan)?;
        partitions.check(plan)?;
        Ok(partitions)
    }

    /// Flows that several tunnels carry meet in no partition of pairs of hosts.
    fn check_hosts(&self, plan: &Plan) -> Result<(), (NodeId, String)> {
        let joins = |(index, node): (usize, &Node)| match &node.task {
            Task::Filter { kind, params } => {
                let group = self.group_of(NodeId(index as u32));
                Partitioning::of(kind) == Partitioning::Begins
                    && params.text("tunnel") == Some("ignore")
                    && group.is_some_and(|group| group.division == Division::Hosts)
            }
            Task::Choose(_) => false,
        };
        plan.nodes.iter().enumerate().find(|node| joins(*node)).map_or(Ok(()), |(index, _)| {
            let why =
                "with `tunnel=ignore` a flow may come between several pairs of hosts, by which its share is divided";
            Err((NodeId(index as u32), why.to_string()))
        })
    }

    pub(super) fn group_of(&self, id: NodeId) -> Option<&Group> {
        self.of[id.index()].map(|group| &self.groups[group])
    }

    /// Checks that blocks come to each group by one path, and that each stage behind gets its blocks by one path. The
    /// error names a node of the group.
    fn check(&self, plan: &Plan) -> Result<(), (NodeId, String)> {
        let pieces = self.pieces(plan);
        (0..self.groups.len()).try_for_each(|group| self.check_group(plan, group, &pieces))?;
        // A piece that both gives to a group and gets from it would have to be one stage with it.
        let joined = join_circles(plan, &pieces);
        let circle = (0..pieces.len()).find(|index| {
            let is_joined = |other: usize| joined[*index] == joined[other] && pieces[*index] != pieces[other];
            self.of[*index].is_some() && (0..pieces.len()).any(is_joined)
        });
        circle.map_or(Ok(()), |index| {
            let why = "what gives blocks to it gets blocks from it as well".to_string();
            Err((NodeId(index as u32), why))
        })
    }

    fn check_group(&self, plan: &Plan, group: usize, pieces: &[usize]) -> Result<(), (NodeId, String)> {
        let label = |index: usize| plan.nodes[index].label.as_str();
        let is_in = |index: usize| self.of[index] == Some(group);
        let wrong = |index: usize, why: String| Err((NodeId(index as u32), why));
        let mut ways: Vec<(usize, bool)> = Vec::new();
        for (index, edge) in edges(plan).filter(|(index, edge)| !is_in(*index) && is_in(edge.to.index())) {
            if !ways.contains(&(index, edge.rejected)) {
                ways.push((index, edge.rejected));
            }
            if plan.nodes[index].task.splits() && plan.nodes[index].edges.len() > 1 {
                return wrong(edge.to.index(), format!("`{}` gives each branch other blocks", label(index)));
            }
            if let [(first, _), (second, _), ..] = ways[..] {
                let (first, second) = told_apart(plan, first, second);
                let why = format!("frames come by several ways, from `{first}` and from `{second}`");
                return wrong(edge.to.index(), why);
            }
        }
        // In one thread a batch goes along one edge after the other. Partitions do not know where in the batch that
        // happens.
        let branches = |index: usize| plan.nodes[index].edges.iter().filter(|edge| is_in(edge.to.index()));
        for index in (0..plan.nodes.len()).filter(|index| is_in(*index)) {
            let mut seen = vec![false; plan.nodes.len()];
            for edge in branches(index) {
                let mut mine = vec![false; plan.nodes.len()];
                let mut left = vec![edge.to.index()];
                while let Some(at) = left.pop() {
                    if seen[at] {
                        let (from, to) = (label(index), label(at));
                        return wrong(index, format!("what `{from}` gives by several ways meets again in `{to}`"));
                    }
                    if !std::mem::replace(&mut mine[at], true) {
                        left.extend(branches(at).map(|edge| edge.to.index()));
                    }
                }
                seen.iter_mut().zip(mine).for_each(|(seen, mine)| *seen |= mine);
            }
        }
        let before = ways.first().map(|(index, _)| pieces[*index]);
        // For each stage behind: the path by which it gets blocks.
        let mut behind: Vec<(usize, (usize, bool))> = Vec::new();
        for (index, edge) in edges(plan).filter(|(index, edge)| is_in(*index) && !is_in(edge.to.index())) {
            let to = pieces[edge.to.index()];
            if Some(to) == before {
                let why = format!("`{}` gets blocks from before the shares as well", label(edge.to.index()));
                return wrong(index, why);
            }
            let way = (index, edge.rejected);
            match behind.iter().find(|(piece, _)| *piece == to) {
                None => behind.push((to, way)),
                Some((_, known)) if *known == way => {}
                Some((_, (known, _))) => {
                    let (to, (first, second)) = (label(edge.to.index()), told_apart(plan, *known, index));
                    let why = format!("`{to}` gets what goes on by several ways, from `{first}` and from `{second}`");
                    return wrong(index, why);
                }
            }
        }
        Ok(())
    }

    /// For each node, a number that all nodes of its stage share. A group is one stage. So are nodes that are joined
    /// before or behind it without a cut.
    pub(super) fn pieces(&self, plan: &Plan) -> Vec<usize> {
        let mut pieces: Vec<usize> = (0..plan.nodes.len()).collect();
        let mut firsts: Vec<Option<usize>> = vec![None; self.groups.len()];
        // A program's ends are in one stage. If that stage is both before and behind the partitions, `check_group` says so.
        plan.caller.windows(2).for_each(|two| join(&mut pieces, two[0].index(), two[1].index()));
        for (index, node) in plan.nodes.iter().enumerate() {
            if let Some(group) = self.of[index] {
                join(&mut pieces, *firsts[group].get_or_insert(index), index);
            }
            if let Task::Choose(choice) = &node.task {
                each_operand(choice, &mut |id| join(&mut pieces, index, id.index()));
            }
            let stays =
                |edge: &&Edge| !edge.cut && !is_border(plan, index, edge) && self.of[index] == self.of[edge.to.index()];
            for edge in node.edges.iter().filter(stays) {
                join(&mut pieces, index, edge.to.index());
            }
        }
        (0..pieces.len()).map(|index| root(&pieces, index)).collect()
    }
}

/// Different labels for two nodes: their own, or those of nodes above if their own are the same.
fn told_apart(plan: &Plan, mut one: usize, mut other: usize) -> (&str, &str) {
    let label = |index: usize| plan.nodes[index].label.as_str();
    let above = plan.sources_of();
    while label(one) == label(other) {
        match (above[one].first(), above[other].first()) {
            (Some(before), Some(beside)) if before != beside => (one, other) = (before.index(), beside.index()),
            _ => break,
        }
    }
    (label(one), label(other))
}

/// All edges, with the indexes of the nodes that they leave.
fn edges(plan: &Plan) -> impl Iterator<Item = (usize, &Edge)> {
    plan.nodes.iter().enumerate().flat_map(|(index, node)| node.edges.iter().map(move |edge| (index, edge)))
}
