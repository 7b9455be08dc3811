//! Placement: puts each node into the lowest space that may run it and offers to, never below the nodes before it.
//! Within one sort of space the cheapest wins. If it turns out that a space cannot run a node, the caller places the
//! graph again with that refusal. [`check`] is for the plan as a whole.
//!
//! In: a checked [`Graph`] and the spaces present. Out: a [`Design`]: the plan, and the origin of each node.

use crate::branches;
use crate::graph::{Arrow, Call, Choice, Graph, Origin, Task};
use crate::isolate::groups;
use crate::space::{Before, Offer, Space, level};
use base::limits::THREADS;
use engine::{Cost, Edge, How, Node, NodeId, Plan, Stages};
use filter::{ClassUse, Kind, Params, Spaces};
use request::{Diagnostic, Span};
use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// Places a graph.
pub fn place(graph: Graph, spaces: &[Box<dyn Space + '_>], refused: &Refused) -> Result<Design, Diagnostic> {
    let (plan, sites) = place_one_by_one(&graph, spaces, refused)?;
    Ok(Design { plan, sites, graph })
}

/// Checks a placed design as a whole: its stages, its processes, and the branches on its threads.
pub fn check(design: &Design) -> Result<(), Diagnostic> {
    let stages = Stages::of(&design.plan);
    if let Some((id, why)) = stages.unspread {
        let site = &design.sites[id.index()];
        let at = site.param_spans.iter().find(|(key, _)| *key == "spread").map_or(site.span, |(_, span)| *span);
        let text = format!("`{}` cannot be spread here", design.plan.nodes[id.index()].label);
        return Err(Diagnostic::new(text, at).with_label(why));
    }
    groups(design)?;
    if stages.threads() > THREADS {
        let last = design.sites.last().map_or(Span::NONE, |site| site.span);
        let text = format!("a request runs on {THREADS} threads at most");
        let help = "each `||`, and each of `workers=` and `spread=`, is one more";
        return Err(Diagnostic::new(text, last).with_help(help));
    }
    branches::check(design, &stages)
}

/// Places the nodes one by one; the nodes before each are known.
fn place_one_by_one(
    graph: &Graph,
    spaces: &[Box<dyn Space + '_>],
    refused: &Refused,
) -> Result<(Plan, Vec<Site>), Diagnostic> {
    let sorted =
        graph.sorted().map_err(|id| Diagnostic::new("the request leads back to itself", graph.node(id).span))?;
    let mut levels: HashMap<NodeId, u8> = HashMap::new();
    let mut plan = crate::settings::plan(&graph.settings);
    let mut sites = Vec::new();
    let mut places: HashMap<NodeId, NodeId> = HashMap::new();
    let mut chains: HashMap<NodeId, (&str, BTreeSet<NodeId>)> = HashMap::new();
    for id in sorted {
        let vertex = graph.node(id);
        let floor = graph.arrows_to(id).filter_map(|arrow| levels.get(&arrow.from).copied()).max().unwrap_or(0);
        let calls = calls(&vertex.task);
        let chain_in = |space: &str| -> BTreeSet<NodeId> {
            let above = graph.arrows_to(id).filter_map(|arrow| chains.get(&arrow.from));
            above.filter(|(known, _)| *known == space).flat_map(|(_, chain)| chain.iter().copied()).collect()
        };
        let before = |space: &str| -> Vec<Before<'_>> {
            chain_in(space).into_iter().flat_map(|id| self::calls(&graph.node(id).task)).collect()
        };
        let how = if let Task::Filter(call) = &vertex.task { call.how } else { How::default() };
        let (space, why) = choose(&calls, (id, floor, how), spaces, refused, &before).map_err(|why| {
            Diagnostic::new(format!("no space here can run `{}`", vertex.label()), vertex.span).with_help(why)
        })?;
        levels.insert(id, level(space.sort()));
        let mut chain = chain_in(space.name());
        chain.insert(id);
        chains.insert(id, (space.name(), chain));
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
        let mut push = |label: String, task: engine::Task, param_spans: Vec<(&'static str, Span)>, how: How| {
            let (space, input) = (space.name().to_string(), vertex.input);
            plan.nodes.push(Node { label, task, space, input, how, edges: Vec::new() });
            sites.push(site(param_spans));
            NodeId((plan.nodes.len() - 1) as u32)
        };
        let at = match &vertex.task {
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
        places.insert(id, at);
    }
    for arrow in &graph.arrows {
        let Arrow { ref select, cut, rejected, .. } = *arrow;
        let edge = Edge { to: places[&arrow.to], select: select.clone(), cut, rejected };
        plan.nodes[places[&arrow.from].index()].edges.push(edge);
    }
    Ok((plan, sites))
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

/// Gives the space for a node and the reason. The error lists why each space will not do.
fn choose<'a, 'b>(
    calls: &[Before<'_>],
    (id, floor, how): (NodeId, u8, How),
    spaces: &'a [Box<dyn Space + '_>],
    refused: &Refused,
    before: &dyn Fn(&str) -> Vec<Before<'b>>,
) -> Result<(&'a dyn Space, String), String> {
    let mut best: Option<(u8, u32, &dyn Space)> = None;
    // `objections` is for an error when no space can run the node. `surprises` has only spaces that people would expect
    // to run it.
    let (mut objections, mut surprises) = (Vec::new(), Vec::new());
    for space in spaces {
        let space = space.as_ref();
        let objection = |why: &str| format!("{}: {why}", space.name());
        if let Some((kind, _)) = calls.iter().find(|(kind, _)| !kind.spaces.has(space.sort())) {
            objections.push(objection(&format!("`{}` may not run there", kind.name)));
            continue;
        }
        if how.isolate && space.sort() != Spaces::APP {
            objections.push(objection("`isolate=` is for a process of its own"));
            continue;
        }
        if how.spread > 1 && space.sort() != Spaces::APP {
            objections.push(objection("`spread=` is for threads of this process"));
            continue;
        }
        if level(space.sort()) < floor {
            objections.push(objection("lies below what comes before"));
            continue;
        }
        if let Some(why) = refused.0.get(&(id, space.name().to_string())) {
            objections.push(objection(why));
            surprises.push((level(space.sort()), objection(why)));
            continue;
        }
        let before = before(space.name());
        let offers = calls.iter().map(|(kind, params)| space.offer(kind, params, &before));
        match offers.collect::<Result<Option<Vec<Offer>>, String>>() {
            Ok(None) => {}
            Err(why) => {
                objections.push(objection(&why));
                surprises.push((level(space.sort()), objection(&why)));
            }
            Ok(Some(offers)) => {
                let rank = (level(space.sort()), offers.iter().map(|offer| offer.cost).sum());
                if best.is_none_or(|(level, cost, _)| rank < (level, cost)) {
                    best = Some((rank.0, rank.1, space));
                }
            }
        }
    }
    let Some((at, _, space)) = best else { return Err(objections.join("; ")) };
    let app_only = calls.iter().any(|(kind, _)| kind.spaces == Spaces::APP);
    let mut why =
        if app_only { "touches files or the terminal".to_string() } else { "runs as early as possible".to_string() };
    // People only expect spaces below the chosen one.
    surprises.retain(|(level, _)| *level < at);
    if !surprises.is_empty() {
        let surprises: Vec<String> = surprises.into_iter().map(|(_, why)| why).collect();
        why = format!("{why} ({})", surprises.join("; "));
    }
    Ok((space, why))
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
