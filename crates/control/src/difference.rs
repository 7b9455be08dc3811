//! Wanted plan minus running plan: which nodes of the wanted plan are nodes of the running plan, and go on.
//!
//! A node goes on if all of this holds:
//! - it does the same with the same parameters in the same space;
//! - all nodes before it go on, along the same edges;
//! - its stage goes on as one stage on as many threads, because no node moves between threads with its state.
//!
//! So the common beginning of both plans goes on. Below a new or changed node all nodes are new, since their state
//! would be that of other blocks. The exception is a sink that restarts: its output goes on, its state does not.

use crate::place::Design;
use engine::{Choice, Edge, Node, NodeId, Stages, Task};

/// For each node of the wanted plan: the running plan's node that it is.
pub type Kept = Vec<Option<NodeId>>;

/// The nodes of a running plan that go on.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// For each node of the wanted plan: the running node that it is.
    pub kept: Kept,
    /// For each node of the wanted plan: it goes on, but other filters lead to it, or it moves to another stage.
    pub restarts: Vec<bool>,
}

struct Pairs {
    wanted: Stages,
    running: Stages,
    pairs: Vec<(usize, usize)>,
}

impl Pairs {
    /// Whether a node can go on here. If so, its two stages are a pair from then on.
    fn join(&mut self, wanted: usize, running: usize) -> bool {
        let (to, from) = (self.wanted.of_node(NodeId(wanted as u32)), self.running.of_node(NodeId(running as u32)));
        if self.pairs.contains(&(to, from)) {
            return true;
        }
        let is_new = self.pairs.iter().all(|pair| pair.0 != to && pair.1 != from);
        let goes_on = is_new && self.wanted.stages[to].threads == self.running.stages[from].threads;
        if goes_on {
            self.pairs.push((to, from));
        }
        goes_on
    }
}

/// Compares two plans.
pub fn compare(wanted: &Design, running: &Design) -> Difference {
    let mut pairs = Pairs { wanted: Stages::of(&wanted.plan), running: Stages::of(&running.plan), pairs: Vec::new() };
    let (edges, before) = (edges_to(wanted), edges_to(running));
    let (is_operand, was_operand) = (operands(wanted), operands(running));
    let mut kept: Kept = vec![None; wanted.plan.nodes.len()];
    let mut taken = vec![false; running.plan.nodes.len()];
    // Nodes are in topological order, so the nodes before this one are known.
    for (index, node) in wanted.plan.nodes.iter().enumerate() {
        if is_operand[index] {
            continue;
        }
        let above: Option<Vec<Arrow>> =
            edges[index].iter().map(|(from, edge)| Some((kept[from.index()]?, edge.clone()))).collect();
        let Some(above) = above else { continue };
        let found = running.plan.nodes.iter().enumerate().position(|(at, other)| {
            !taken[at]
                && !was_operand[at]
                && node.space == other.space
                && same_task(wanted, &node.task, running, &other.task)
                && same_arrows(&above, &before[at])
                && pairs.join(index, at)
        });
        let Some(found) = found else { continue };
        taken[found] = true;
        kept[index] = Some(NodeId(found as u32));
        if let (Task::Choose(choice), Task::Choose(other)) = (&node.task, &running.plan.nodes[found].task) {
            let (mut ids, mut others) = (Vec::new(), Vec::new());
            each_operand(choice, &mut |id| ids.push(id));
            each_operand(other, &mut |id| others.push(id));
            ids.into_iter().zip(others).for_each(|(id, other)| kept[id.index()] = Some(other));
        }
    }
    let mut restarts = vec![false; kept.len()];
    for (index, node) in wanted.plan.nodes.iter().enumerate().filter(|(_, node)| may_restart(node)) {
        let found = running.plan.nodes.iter().enumerate().position(|(at, other)| {
            !taken[at]
                && node.space == other.space
                && node.input == other.input
                && same_task(wanted, &node.task, running, &other.task)
        });
        if let Some(found) = found.filter(|_| kept[index].is_none()) {
            taken[found] = true;
            kept[index] = Some(NodeId(found as u32));
            restarts[index] = true;
        }
    }
    Difference { kept, restarts }
}

fn may_restart(node: &Node) -> bool {
    matches!(&node.task, Task::Filter { kind, .. } if kind.restarts)
}

/// The node an edge comes from, and the edge without its target.
type Arrow = (NodeId, Edge);

fn edges_to(design: &Design) -> Vec<Vec<Arrow>> {
    let mut edges = vec![Vec::new(); design.plan.nodes.len()];
    for (index, node) in design.plan.nodes.iter().enumerate() {
        for edge in &node.edges {
            edges[edge.to.index()].push((NodeId(index as u32), Edge { to: NodeId(0), ..edge.clone() }));
        }
    }
    edges
}

/// Whether these are the same edges, in any order.
fn same_arrows(some: &[Arrow], others: &[Arrow]) -> bool {
    let count = |all: &[Arrow], one: &Arrow| all.iter().filter(|other| *other == one).count();
    some.len() == others.len() && some.iter().all(|one| count(some, one) == count(others, one))
}

fn same_task(wanted: &Design, task: &Task, running: &Design, other: &Task) -> bool {
    match (task, other) {
        (Task::Filter { kind, params }, Task::Filter { kind: other, params: told }) => {
            kind.name == other.name && params == told
        }
        (Task::Choose(choice), Task::Choose(other)) => same_choice(wanted, choice, running, other),
        _ => false,
    }
}

fn same_choice(wanted: &Design, choice: &Choice, running: &Design, other: &Choice) -> bool {
    let all = |parts: &[Choice], others: &[Choice]| {
        let pairs = || parts.iter().zip(others);
        parts.len() == others.len() && pairs().all(|(part, other)| same_choice(wanted, part, running, other))
    };
    match (choice, other) {
        (Choice::Filter(id), Choice::Filter(other)) => {
            same_task(wanted, &wanted.plan.nodes[id.index()].task, running, &running.plan.nodes[other.index()].task)
        }
        (Choice::Class(select), Choice::Class(other)) => select == other,
        (Choice::All(parts), Choice::All(others)) | (Choice::Any(parts), Choice::Any(others)) => all(parts, others),
        (Choice::Not(part), Choice::Not(other)) | (Choice::KeepClass(part), Choice::KeepClass(other)) => {
            same_choice(wanted, part, running, other)
        }
        _ => false,
    }
}

/// For each node: it is an operand of a selection, and no edge leads to it.
pub(crate) fn operands(design: &Design) -> Vec<bool> {
    let mut operands = vec![false; design.plan.nodes.len()];
    for node in &design.plan.nodes {
        if let Task::Choose(choice) = &node.task {
            each_operand(choice, &mut |id| operands[id.index()] = true);
        }
    }
    operands
}

fn each_operand(choice: &Choice, see: &mut dyn FnMut(NodeId)) {
    match choice {
        Choice::Filter(id) => see(*id),
        Choice::Class(_) => {}
        Choice::All(parts) | Choice::Any(parts) => parts.iter().for_each(|part| each_operand(part, see)),
        Choice::Not(part) | Choice::KeepClass(part) => each_operand(part, see),
    }
}
