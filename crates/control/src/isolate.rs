//! Filters with `isolate=yes`: which of them share a process, and which blocks go in and come out.
//!
//! A group is a chain, so that one ring leads into its process and one out of it. Each ring carries one type. An
//! inserted filter belongs to the group of the filter that wants it; the process inserts it again.

use crate::graph::{Call, Origin, Task};
use crate::place::Design;
use engine::{Edge, How, NodeId, Select, Stages};
use filter::{Type, Types};
use request::Diagnostic;
use std::collections::BTreeMap;

/// Filters that share a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// All filters of the group, in the order of the plan.
    pub nodes: Vec<NodeId>,
    /// The filters that blocks from outside come to; each gets all of those blocks.
    pub entries: Vec<NodeId>,
    /// The filter whose blocks come out.
    pub last: NodeId,
    /// The group as a piece of a request, without the keys that say how filters run.
    pub text: String,
    /// The type of the blocks that go in.
    pub input: Type,
    /// The type of the blocks that come out.
    pub output: Type,
    /// Starts a new process when one has died.
    pub restart: bool,
}

/// The groups of a design. An error names a filter that cannot be isolated at its place, and says why.
pub fn groups(design: &Design) -> Result<Vec<Group>, Diagnostic> {
    let stages = Stages::of(&design.plan).stages;
    stages.iter().filter(|stage| stage.is_process).map(|stage| group(design, &stage.nodes)).collect()
}

fn group(design: &Design, members: &[NodeId]) -> Result<Group, Diagnostic> {
    let nodes = &design.plan.nodes;
    let is_member = |id: &NodeId| members.contains(id);
    let first_isolated = members.iter().find(|id| nodes[id.index()].how.isolate).unwrap_or(&members[0]);
    if let Some(other) = members.iter().find(|id| !nodes[id.index()].how.isolate) {
        let why = format!("`{}` gets blocks that do not come through the process as well", nodes[other.index()].label);
        return Err(wrong(design, *first_isolated, why));
    }
    let no_chain = |id: NodeId| wrong(design, id, "filters that share a process stand in one chain".into());
    // The process inserts again what control inserted here, so an inserted node stands for the filter that wanted it.
    let mut stands_for: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in members.iter().rev() {
        let is_inserted = matches!(design.sites[id.index()].origin, Origin::Inserted(_));
        let mut next = nodes[id.index()].edges.iter().map(|edge| stands_for.get(&edge.to).copied());
        let wanted = next.next().flatten().filter(|first| is_inserted && next.all(|other| other == Some(*first)));
        if is_inserted && wanted.is_none() {
            return Err(no_chain(*id));
        }
        stands_for.insert(*id, wanted.unwrap_or(*id));
    }
    let written: Vec<NodeId> = members.iter().copied().filter(|id| stands_for[id] == *id).collect();
    let (first, last) = (written[0], written[written.len() - 1]);
    let mut text = piece(design, first)?;
    for (at, id) in written.iter().enumerate() {
        let edges = &nodes[id.index()].edges;
        if edges.iter().any(|edge| edge.rejected) {
            return Err(wrong(
                design,
                *id,
                "another filter takes its rejected blocks, and they cannot leave its process".into(),
            ));
        }
        let Some(next) = written.get(at + 1) else {
            if edges.iter().any(|edge| is_member(&edge.to)) {
                return Err(no_chain(*id));
            }
            break;
        };
        let all_go_on =
            edges.iter().all(|edge| stands_for.get(&edge.to) == Some(next) && edge.select == edges[0].select);
        if edges.is_empty() || !all_go_on {
            return Err(no_chain(*id));
        }
        text.push_str(&format!(" |{} {}", select(design, *id, &edges[0])?, piece(design, *next)?));
    }
    // Blocks from outside come to the first filter. All nodes that were inserted before it get all of these blocks.
    let ways = |to: &NodeId| -> Vec<(usize, &Option<Select>, bool)> {
        let outside = (0..nodes.len()).filter(|index| !is_member(&NodeId(*index as u32)));
        let edges = outside.flat_map(|index| nodes[index].edges.iter().map(move |edge| (index, edge)));
        edges.filter(|(_, edge)| edge.to == *to).map(|(index, edge)| (index, &edge.select, edge.rejected)).collect()
    };
    let entries: Vec<NodeId> = members.iter().copied().filter(|id| !ways(id).is_empty()).collect();
    let begins = |id: &NodeId| stands_for[id] == first && ways(id) == ways(&entries[0]);
    if let Some(other) = entries.iter().find(|id| !begins(id)) {
        return Err(no_chain(stands_for[other]));
    }
    let comes = entries.iter().fold(Types::NONE, |types, id| types.with(nodes[id.index()].input));
    let input = one(comes).ok_or_else(|| wrong(design, first, format!("blocks of several types come: {comes}")))?;
    let gives = match &nodes[last.index()].task {
        engine::Task::Filter { kind, params } => kind.output(nodes[last.index()].input, params),
        engine::Task::Choose(_) => nodes[last.index()].input,
    };
    let output = one(gives).ok_or_else(|| wrong(design, last, format!("it gives blocks of several types: {gives}")))?;
    let restart = members.iter().any(|id| nodes[id.index()].how.restart);
    Ok(Group { nodes: members.to_vec(), entries, last, text, input, output, restart })
}

fn piece(design: &Design, id: NodeId) -> Result<String, Diagnostic> {
    let vertex = design.graph.node(design.sites[id.index()].vertex);
    match &vertex.task {
        Task::Filter(call) => Ok(Call { how: How::default(), ..call.clone() }.label()),
        Task::Choose(_) => Err(wrong(design, id, "a selection runs in this process".into())),
    }
}

fn select(design: &Design, from: NodeId, edge: &Edge) -> Result<String, Diagnostic> {
    match &edge.select {
        None => Ok(String::new()),
        Some(select @ Select::Classes { .. }) => Ok(select.to_string()),
        Some(_) => Err(wrong(design, from, "filters that share a process stand in one chain".into())),
    }
}

fn one(types: Types) -> Option<Type> {
    let mut all = types.iter();
    all.next().filter(|_| all.next().is_none())
}

/// An error at the key that isolates this filter.
pub fn wrong(design: &Design, id: NodeId, why: String) -> Diagnostic {
    let site = &design.sites[id.index()];
    let at = site.param_spans.iter().find(|(key, _)| *key == "isolate").map_or(site.span, |(_, span)| *span);
    let text = format!("`{}` cannot be isolated here", design.plan.nodes[id.index()].label);
    Diagnostic::new(text, at).with_label(why)
}
