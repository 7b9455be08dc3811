//! Placement: puts each node into the lowest space that may run it and offers to, never below the nodes before it.
//! Within one sort of space the cheapest wins. [`Placing`] calls no space: its caller says what the spaces offer. If it
//! turns out that a space cannot run a node, the caller places the graph again with that refusal.
//!
//! In: a checked [`Graph`], and offers of the spaces present. Out: the parts of a [`Design`]: the plan, and the origin of
//! each node. [`whole`](crate::whole) checks the plan as a whole.

use crate::graph::{Arrow, Call, Choice, Graph, Origin, Task};
use crate::space::{Before, Offer, level};
use engine::{Cost, Edge, How, Node, NodeId, Plan};
use filter::{ClassUse, Kind, Params, Spaces};
use request::{Diagnostic, Span};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A plan, with notes for people about each node.
#[derive(Clone, Debug)]
pub struct Design {
    /// The plan.
    pub plan: Plan,
    /// For each node of the plan: its notes.
    pub sites: Vec<Site>,
    /// The graph that it was made from, to place it again where a space refuses.
    pub graph: Graph,
}

/// Notes for people about a node of a plan.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its place in the request.
    pub span: Span,
    /// The place of each parameter's text.
    pub param_spans: Vec<(&'static str, Span)>,
    /// Its origin.
    pub origin: Origin,
    /// The reason for its space.
    pub why: String,
    /// Other notes about it.
    pub notes: Vec<String>,
    /// Its node in the graph.
    pub vertex: NodeId,
}

/// Spaces that will not run a node that they offered to run, with the reason. The key is the graph's node and the
/// space's name.
#[derive(Clone, Debug, Default)]
pub struct Refused(pub BTreeMap<(NodeId, String), String>);

/// A graph whose nodes are placed one by one. For each, the caller says what the spaces offer.
pub struct Placing<'a> {
    graph: &'a Graph,
    spaces: &'a [(&'a str, Spaces)],
    refused: &'a Refused,
    /// The nodes that are not placed yet.
    left: VecDeque<NodeId>,
    levels: HashMap<NodeId, u8>,
    /// For each node: the position of its space, and all nodes on its way that are there too.
    chains: HashMap<NodeId, (usize, BTreeSet<NodeId>)>,
    /// Where it is in the plan.
    places: HashMap<NodeId, NodeId>,
    plan: Plan,
    sites: Vec<Site>,
}

/// A node to be placed.
pub struct Asked<'a> {
    /// The filter, or all filters of a selection.
    pub calls: Vec<Before<'a>>,
    /// For each space: the filters before it that run there.
    pub before: Vec<Vec<Before<'a>>>,
}

/// The offer of a space to run all filters of a node. The error says why it makes none; `None` if people would not
/// expect one.
pub type Offered = Result<Option<Offer>, String>;

impl<'a> Placing<'a> {
    /// Begins to place a graph. `spaces` are their names and sorts.
    pub fn new(
        graph: &'a Graph,
        spaces: &'a [(&'a str, Spaces)],
        refused: &'a Refused,
    ) -> Result<Placing<'a>, Diagnostic> {
        let sorted =
            graph.sorted().map_err(|id| Diagnostic::new("the request leads back to itself", graph.node(id).span))?;
        let plan = crate::settings::plan(&graph.settings);
        let (levels, chains, places) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Placing { graph, spaces, refused, left: sorted.into(), levels, chains, places, plan, sites: Vec::new() })
    }

    /// The node that is placed next; the nodes before it are placed. `None`: all are.
    pub fn ask(&self) -> Option<Asked<'a>> {
        let id = *self.left.front()?;
        let calls_of = |id: NodeId| calls(&self.graph.node(id).task);
        let before = |space| self.chain(id, space).into_iter().flat_map(calls_of).collect();
        Some(Asked { calls: calls_of(id), before: (0..self.spaces.len()).map(before).collect() })
    }

    /// The nodes before a node that run in this space, without gaps.
    fn chain(&self, id: NodeId, space: usize) -> BTreeSet<NodeId> {
        let above = self.graph.arrows_to(id).filter_map(|arrow| self.chains.get(&arrow.from));
        above.filter(|(known, _)| *known == space).flat_map(|(_, chain)| chain.iter().copied()).collect()
    }

    /// Places the next node by the offer of each space.
    pub fn put(&mut self, offers: &[Offered]) -> Result<(), Diagnostic> {
        let Some(id) = self.left.pop_front() else { return Ok(()) };
        let vertex = self.graph.node(id);
        let floor = self.graph.arrows_to(id).filter_map(|arrow| self.levels.get(&arrow.from).copied()).max();
        let (at, why) = self.choose(id, floor.unwrap_or(0), offers).map_err(|why| {
            Diagnostic::new(format!("no space here can run `{}`", vertex.label()), vertex.span).with_help(why)
        })?;
        self.levels.insert(id, level(self.spaces[at].1));
        let mut chain = self.chain(id, at);
        chain.insert(id);
        self.chains.insert(id, (at, chain));
        let note = match &vertex.task {
            Task::Filter(Call { kind, params, .. }) => kind.note.and_then(|note| note(params)),
            _ => None,
        };
        let site = |param_spans| Site {
            span: vertex.span,
            param_spans,
            origin: vertex.origin.clone(),
            why: why.clone(),
            notes: vertex.notes.iter().cloned().chain(note.clone()).collect(),
            vertex: id,
        };
        let Placing { plan, sites, spaces, .. } = self;
        let mut push = |label: String, task: engine::Task, param_spans: Vec<(&'static str, Span)>, how: How| {
            let (space, input) = (spaces[at].0.to_string(), vertex.input);
            plan.nodes.push(Node { label, task, space, input, how, edges: Vec::new() });
            sites.push(site(param_spans));
            NodeId((plan.nodes.len() - 1) as u32)
        };
        let place = match &vertex.task {
            Task::Filter(Call { kind, params, param_spans, how }) => {
                let task = engine::Task::Filter { kind, params: params.clone() };
                push(vertex.label(), task, param_spans.clone(), How { cost: known_cost(kind, params), ..*how })
            }
            Task::Choose(choice) => {
                let choice = keeping_class(choice, &mut |call| {
                    let task = engine::Task::Filter { kind: call.kind, params: call.params.clone() };
                    push(call.label(), task, call.param_spans.clone(), call.how)
                });
                push(vertex.label(), engine::Task::Choose(choice), Vec::new(), How::default())
            }
        };
        self.places.insert(id, place);
        Ok(())
    }

    /// The plan of all placed nodes, and the notes about each.
    pub fn done(mut self) -> (Plan, Vec<Site>) {
        for arrow in &self.graph.arrows {
            let Arrow { ref select, cut, rejected, .. } = *arrow;
            let edge = Edge { to: self.places[&arrow.to], select: select.clone(), cut, rejected };
            self.plan.nodes[self.places[&arrow.from].index()].edges.push(edge);
        }
        (self.plan, self.sites)
    }

    /// Gives the space for a node and the reason. The error lists why each space will not do.
    fn choose(&self, id: NodeId, floor: u8, offers: &[Offered]) -> Result<(usize, String), String> {
        let task = &self.graph.node(id).task;
        let (calls, how) = (calls(task), if let Task::Filter(call) = task { call.how } else { How::default() });
        let mut best: Option<(u8, u32, usize)> = None;
        // `objections` is for an error when no space can run the node. `surprises` has only spaces that people would
        // expect to run it.
        let (mut objections, mut surprises) = (Vec::new(), Vec::new());
        for (at, ((name, sort), offered)) in self.spaces.iter().zip(offers).enumerate() {
            let objection = |why: &str| format!("{name}: {why}");
            if let Some((kind, _)) = calls.iter().find(|(kind, _)| !kind.spaces.has(*sort)) {
                objections.push(objection(&format!("`{}` may not run there", kind.name)));
                continue;
            }
            if how.isolate && *sort != Spaces::APP {
                objections.push(objection("`isolate=` is for a process of its own"));
                continue;
            }
            if how.spread > 1 && *sort != Spaces::APP {
                objections.push(objection("`spread=` is for threads of this process"));
                continue;
            }
            if level(*sort) < floor {
                objections.push(objection("lies below what comes before"));
                continue;
            }
            let refused = self.refused.0.get(&(id, name.to_string()));
            match refused.map_or(offered.as_ref(), Err) {
                Ok(None) => {}
                Err(why) => {
                    objections.push(objection(why));
                    surprises.push((level(*sort), objection(why)));
                }
                Ok(Some(offer)) => {
                    if best.is_none_or(|(level_of, cost, _)| (level(*sort), offer.cost) < (level_of, cost)) {
                        best = Some((level(*sort), offer.cost, at));
                    }
                }
            }
        }
        let Some((level, _, at)) = best else { return Err(objections.join("; ")) };
        let app_only = calls.iter().any(|(kind, _)| kind.spaces == Spaces::APP);
        let why = if app_only { "touches files or the terminal" } else { "runs as early as possible" };
        // People only expect spaces below the chosen one.
        surprises.retain(|(below, _)| *below < level);
        if surprises.is_empty() {
            return Ok((at, why.into()));
        }
        let surprises: Vec<String> = surprises.into_iter().map(|(_, why)| why).collect();
        Ok((at, format!("{why} ({})", surprises.join("; "))))
    }
}

/// The cost that a kind declares for a filter with these parameters. `None`: it declares none.
fn known_cost(kind: &Kind, params: &Params) -> Option<Cost> {
    let ns = kind.cost.map(|cost| cost(params))?;
    Some(Cost { ns: ns.min(u64::from(u32::MAX)) as u32, gives: 1000, is_measured: false })
}

fn calls(task: &Task) -> Vec<Before<'_>> {
    match task {
        Task::Filter(call) => vec![(call.kind, &call.params)],
        Task::Choose(choice) => {
            let mut calls = Vec::new();
            choice.each_call(&mut |call| calls.push((call.kind, &call.params)));
            calls
        }
    }
}

/// A choice in the engine's form. If its operands set a class, the class of its blocks is kept anyway.
fn keeping_class(choice: &Choice, operand: &mut dyn FnMut(&Call) -> NodeId) -> engine::Choice {
    let converted = convert(choice, operand);
    if sets_class(choice) { engine::Choice::KeepClass(Box::new(converted)) } else { converted }
}

fn convert(choice: &Choice, operand: &mut dyn FnMut(&Call) -> NodeId) -> engine::Choice {
    match choice {
        Choice::Filter(call) => engine::Choice::Filter(operand(call)),
        Choice::Class(select) => engine::Choice::Class(select.clone()),
        Choice::Chain(parts) => engine::Choice::All(parts.iter().map(|part| convert(part, operand)).collect()),
        Choice::All(parts) => engine::Choice::All(parts.iter().map(|part| keeping_class(part, operand)).collect()),
        Choice::Any(parts) => engine::Choice::Any(parts.iter().map(|part| keeping_class(part, operand)).collect()),
        Choice::Not(part) => engine::Choice::Not(Box::new(keeping_class(part, operand))),
    }
}

fn sets_class(choice: &Choice) -> bool {
    let mut sets = false;
    choice.each_call(&mut |call| sets |= call.kind.class != ClassUse::Keeps);
    sets
}
