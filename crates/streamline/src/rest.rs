//! The worker's part of a plan, in which everything that runs further down is a source.

use crate::left::{Left, Opened};
use crate::live::LiveSpaces;
use crate::space::{DAEMON, KERNEL, PARSER};
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::device::opened_by_owner;
use filter::{Kind, Params, Type, Types};
use std::collections::BTreeMap;

/// A source of blocks that another process gives for a request.
static INLET: Kind = Kind::new("inlet", "gives what another process runs", opened_by_owner).source(Type::Frame);

/// Makes the worker's part of a plan. Sources replace what runs in the kernel or the daemon. They also replace what
/// other processes run for this request: `inlets` has their names and sources, by node of the plan.
pub(crate) fn rest(mut live: LiveSpaces, mut inlets: BTreeMap<NodeId, (String, Opened)>, plan: &Plan) -> Rest {
    let mut rest = Plan { nodes: Vec::new(), ..plan.clone() };
    let mut left = Vec::new();
    // For each node of the whole plan, its new id; only nodes that stay have one.
    let mut places: Vec<Option<NodeId>> = vec![None; plan.nodes.len()];
    let is_below = |id: NodeId| [KERNEL, DAEMON, PARSER].contains(&plan.nodes[id.index()].space.as_str());
    let ids = || (0..plan.nodes.len()).map(|index| NodeId(index as u32));
    let mut pushed = Vec::new();
    for id in ids() {
        let node = &plan.nodes[id.index()];
        if !is_below(id) {
            places[id.index()] = Some(NodeId(rest.nodes.len() as u32));
            pushed.push(node.edges.clone());
            rest.nodes.push(Node { edges: Vec::new(), ..node.clone() });
            left.push(Left::Node(id));
            continue;
        }
        let edges: Vec<Edge> = node.edges.iter().filter(|edge| !is_below(edge.to)).cloned().collect();
        let mut push = |label, task, source| {
            let space = node.space.clone();
            pushed.push(edges.clone());
            rest.nodes.push(Node {
                label,
                task,
                space,
                input: Default::default(),
                how: Default::default(),
                edges: Vec::new(),
            });
            left.push(source);
        };
        if let Some((label, inlet)) = inlets.remove(&id) {
            push(label, Task::Filter { kind: &INLET, params: Params::new() }, Left::Given(id, inlet));
        }
        for (label, task, source) in live.take_sources(&node.space, id) {
            push(label, task, source);
        }
    }
    for (node, edges) in rest.nodes.iter_mut().zip(pushed) {
        let moved = edges.into_iter().filter_map(|edge| Some(Edge { to: places[edge.to.index()]?, ..edge }));
        node.edges = moved.collect();
    }
    for node in &mut rest.nodes {
        if let Task::Choose(choice) = &mut node.task {
            choice.renumber(&|id| places[id.index()].unwrap_or(id));
        }
    }
    Rest { plan: rest, left }
}

/// The worker's part of a plan. Everything else runs elsewhere; its blocks come in through sources.
pub(crate) struct Rest {
    pub(crate) plan: engine::Plan,
    /// One entry for each node of the rest.
    pub(crate) left: Vec<Left>,
}

impl Rest {
    /// Marks a node of the whole plan to run in the caller's thread.
    pub(crate) fn run_in_caller(&mut self, id: NodeId) {
        let at = self.left.iter().position(|left| left.is_node(id));
        self.plan.caller.extend(at.map(|at| NodeId(at as u32)));
    }

    /// Adds a node at the end that gets what node `from` gives.
    pub(crate) fn add(&mut self, from: usize, origin: NodeId, instance: filter::run::Instance) {
        let task = Task::Filter { kind: &filters::drop::KIND, params: Params::new() };
        let to = NodeId(self.plan.nodes.len() as u32);
        let (space, input) = ("app".to_string(), Types::ANY);
        let how = Default::default();
        self.plan.nodes.push(Node { label: PARSER.into(), task, space, input, how, edges: Vec::new() });
        self.plan.nodes[from].edges.push(Edge::plain(to));
        self.left.push(Left::Given(origin, Opened::New(instance)));
    }
}
