//! Filters with `isolate=yes` run in a process of their own. It reads one ring, writes another, and can do nothing
//! else.
//!
//! - here — replaces the filters in a plan by the two ends of a process.
//! - `process` — starts the process, learns why it ended, and starts another.
//! - `words` — what that process and this one agree on.
//! - [`child`] — the process itself: an ordinary request between two rings, confined.

pub mod child;
mod process;
mod words;

use crate::error::Error;
use crate::left::{Left, Opened};
use crate::rest::Rest;
use control::Design;
use control::isolate::{Group, groups};
use control::settings::latency;
use engine::{How, Node, NodeId, Task};
use filter::run::Instance;
use filter::{Kind, Params};
use filters::ring::{KIND, process as ends};
use process::{Child, Recipe};
use request::Diagnostic;
use std::ffi::OsString;

/// Refuses filters with `isolate=yes` where no process can be started for them.
pub(crate) fn refuse(design: &Design, why: &str) -> Result<(), Diagnostic> {
    let isolated = design.plan.nodes.iter().position(|node| node.how.isolate);
    isolated.map_or(Ok(()), |index| Err(control::isolate::wrong(design, NodeId(index as u32), why.into())))
}

/// Starts the processes of a design, and puts their ends into the worker's part of the plan. Gives the nodes that run
/// in a process.
pub(crate) fn carve(design: &Design, command: &[OsString], rest: &mut Rest) -> Result<Vec<NodeId>, Error> {
    let mut away = Vec::new();
    for group in groups(design)? {
        if command.is_empty() {
            refuse(design, "the program that runs this request starts no processes")?;
        }
        let recipe = Recipe {
            command: command.to_vec(),
            request: group.text.clone(),
            input: group.input,
            output: group.output,
            latency: latency(&design.graph.settings),
        };
        let failed = |why: String| Error::System(format!("no process for `{}`: {why}", group.text));
        let (child, rings) = Child::start(recipe).map_err(failed)?;
        let (input, output) = (group.input, group.output);
        let (sink, source) = ends::ends(
            rings,
            (input, output),
            &group.text,
            Box::new(child),
            latency(&design.graph.settings),
            group.restart,
        );
        put_in(rest, &group, sink, source);
        away.extend(group.nodes);
    }
    rest.plan.apart |= !away.is_empty();
    Ok(away)
}

/// Replaces the first node of a group by a sink and a source, and removes the group's other nodes.
fn put_in(rest: &mut Rest, group: &Group, sink: Instance, source: Instance) {
    let (first, last) = (group.entries[0], group.last);
    let end = |kind: &'static Kind, label: String, like: &Node| Node {
        label,
        task: Task::Filter { kind, params: Params::new() },
        how: How::default(),
        edges: Vec::new(),
        ..like.clone()
    };
    let mut instances = Some((sink, source));
    let nodes = std::mem::take(&mut rest.plan.nodes);
    // For each old node: the new node that gets its input.
    let mut places = Vec::new();
    let mut source_at = 0;
    // Each entry gets all blocks, but the sink must get each block once.
    let is_double: Vec<bool> =
        rest.left.iter().map(|left| group.entries[1..].iter().any(|entry| left.is_node(*entry))).collect();
    for (node, left) in nodes.into_iter().zip(std::mem::take(&mut rest.left)) {
        places.push(NodeId(rest.plan.nodes.len() as u32));
        match left {
            Left::Node(id) if group.nodes.contains(&id) => {
                if let Some((sink, source)) = instances.take() {
                    rest.plan.nodes.push(end(&KIND, format!("{} isolate=yes", group.text), &node));
                    rest.left.push(Left::Given(first, Opened::New(sink)));
                    source_at = rest.plan.nodes.len();
                    rest.plan.nodes.push(end(KIND.first.unwrap_or(&KIND), format!("from `{}`", group.text), &node));
                    rest.left.push(Left::Given(last, Opened::New(source)));
                }
                if id == last {
                    rest.plan.nodes[source_at].edges = node.edges;
                }
            }
            left => {
                rest.plan.nodes.push(node);
                rest.left.push(left);
            }
        }
    }
    let moved = |id: NodeId| places[id.index()];
    for node in &mut rest.plan.nodes {
        node.edges.retain(|edge| !is_double[edge.to.index()]);
        node.edges.iter_mut().for_each(|edge| edge.to = moved(edge.to));
        if let Task::Choose(choice) = &mut node.task {
            choice.renumber(&moved);
        }
    }
}
