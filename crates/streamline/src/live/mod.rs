//! The spaces `kernel` and `daemon`: devices, and selectors that run where the packets are.
//!
//! - `known` — what is known of devices, budgets and refusals.
//! - `offer` — decides which filters may run there.
//! - `cut` — decides from the plan what is read and what is left out, before anything is opened; `shape` has what the
//!   plan's shape rules out, `reads` what a source reads, `lowering` the
//!   programs for it, `behind` the packets that filters above want.
//! - `selection` — selectors as expressions, and what decides in the reader where a program cannot.
//! - `verifier` — asks the kernel about programs.
//! - `forward` — frames that go from one device to another.
//! - `space` — one of the two spaces: opens what was cut.
//! - here — both spaces, and the worker's part of a plan ([`rest`]), in which everything that runs further down is a
//!   source.

mod behind;
mod cut;
mod forward;
mod known;
mod lowering;
mod offer;
mod reads;
mod selection;
mod shape;
mod space;
mod verifier;

pub(crate) use cut::{Cut, cut};
pub(crate) use known::Known;
pub(crate) use lowering::{DAEMON, KERNEL};
pub(crate) use offer::offer;
pub(crate) use reads::{Reads, RunningSource, hands_over};
pub(crate) use verifier::ask;

use crate::parser::space::NAME as PARSER;
use crate::session::{Left, Opened, Rest};
use crate::space::Space;
use capture::Devices;
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::Params;
use program::Compile;
use space::LiveSpace;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct LiveSpaces([LiveSpace; 2]);

impl LiveSpaces {
    pub(crate) fn new(devices: &Arc<dyn Devices>, compiler: &Arc<dyn Compile>) -> LiveSpaces {
        LiveSpaces([KERNEL, DAEMON].map(|name| LiveSpace::new(name, Arc::clone(devices), Arc::clone(compiler))))
    }

    /// Sets how much later than it came a packet may be found (`set latency=`).
    pub(crate) fn latency(mut self, latency: Option<Duration>) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_latency(latency));
        self
    }

    /// Prepares a plan beside running sources that it will replace. A new source that reads the same as a running one
    /// is that one. A source that reads the same device differently takes over at one packet.
    pub(crate) fn beside(mut self, running: &[RunningSource]) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_beside(running));
        self
    }

    /// Sets what is to be opened.
    pub(crate) fn set_cut(&mut self, cut: Cut) {
        self.0.iter_mut().for_each(|space| space.set_sources(cut.sources.clone()));
    }

    /// Tells what could not be opened. Gives whether there was something.
    pub(crate) fn tell(&mut self, known: &mut Known) -> bool {
        self.0.iter_mut().fold(false, |told, space| space.tell(known) | told)
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut dyn Space> {
        self.0.iter_mut().map(|space| space as &mut dyn Space)
    }
}

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
            // This kind marks it as a source; its other properties are not used here.
            push(label, Task::Filter { kind: &filters::ethernet::KIND, params: Params::new() }, Left::Given(id, inlet));
        }
        let Some(live) = live.0.iter_mut().find(|space| space.name() == node.space) else { continue };
        for (label, task, source) in live.take_sources(id) {
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
