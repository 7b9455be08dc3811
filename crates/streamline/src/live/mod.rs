//! The spaces `kernel` and `daemon`: devices, and selectors on what they give, run where the packets are.
//!
//! - `lowering` — what can be done there: decided from the plan, before anything is opened.
//! - `forward` — frames that go from one device to another.
//! - `ration` — what the daemon's budget has room for.
//! - `selection` — selectors as expressions, and what decides in the reader where a program cannot.
//! - `space` — one of the two: steps of a transaction, in which what was decided is opened.
//! - here — both, and the part of a plan that is left for a worker ([`rest`]): all that runs further down is a source there.

mod forward;
mod lowering;
mod ration;
mod selection;
mod space;

pub(crate) use space::{Reads, RunningSource, hands_over};

use crate::parser::space::NAME as PARSER;
use crate::session::{Left, Opened, Rest};
use capture::Devices;
use control::Space;
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::Params;
use lowering::{DAEMON, KERNEL};
use program::Compile;
use space::LiveSpace;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Both of them.
pub(crate) struct LiveSpaces([LiveSpace; 2]);

impl LiveSpaces {
    pub(crate) fn new(devices: &Arc<dyn Devices>, compiler: &Arc<dyn Compile>, push_down: bool) -> LiveSpaces {
        LiveSpaces(
            [KERNEL, DAEMON].map(|name| LiveSpace::new(name, Arc::clone(devices), Arc::clone(compiler), push_down)),
        )
    }

    /// The same for a request whose packets may be found so much later than they came (`set latency=`).
    pub(crate) fn latency(mut self, latency: Option<Duration>) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_latency(latency));
        self
    }

    /// The same beside sources that run, and whose places are to be taken: who wants what one of them reads gets that one,
    /// and who reads the same device otherwise takes over at one packet.
    pub(crate) fn beside(mut self, running: &[RunningSource]) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_beside(running));
        self
    }

    /// For a design that is not carried out.
    pub(crate) fn into_boxes(self) -> impl Iterator<Item = Box<dyn Space>> {
        self.0.into_iter().map(|space| Box::new(space) as Box<dyn Space>)
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut dyn Space> {
        self.0.iter_mut().map(|space| space as &mut dyn Space)
    }
}

/// The part of a plan that is left for a worker: what runs in the kernel or the daemon, and what others run for this request
/// (by node of the plan: its name and its source), have become sources.
pub(crate) fn rest(mut live: LiveSpaces, mut inlets: BTreeMap<NodeId, (String, Opened)>, plan: &Plan) -> Rest {
    let mut rest = Plan { nodes: Vec::new(), ..plan.clone() };
    let mut left = Vec::new();
    // By node of the whole plan; only those that stay have one.
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
            // Its kind says that it is a source, and nothing else of it counts here.
            push(label, Task::Filter { kind: &filters::ethernet::KIND, params: Params::new() }, Left::Given(id, inlet));
        }
        let Some(live) = live.0.iter_mut().find(|space| space.name() == node.space) else { continue };
        for (label, task, source) in live.take_sources(id, plan) {
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
