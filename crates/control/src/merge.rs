//! Merges equal beginnings, so that they run once. Nodes of the same kind with the same parameters and the same input
//! become one node, from the sources down. A kind that touches the world is never shared.

use crate::graph::{Arrow, Graph, Task};
use engine::NodeId;
use std::collections::HashMap;

/// Merges a graph's common prefixes.
pub fn merge(graph: &mut Graph) {
    let mut known: HashMap<String, NodeId> = HashMap::new();
    for id in graph.sorted().unwrap_or_default() {
        let Some(key) = key(graph, id) else { continue };
        match known.get(&key) {
            Some(&first) => replace(graph, id, first),
            None => {
                known.insert(key, id);
            }
        }
    }
    for vertex in graph.nodes.iter_mut().flatten() {
        if vertex.uses > 1 {
            let uses = vertex.uses;
            vertex.notes.push(format!("shared: runs once for {uses} uses"));
        }
    }
}

/// The key that two nodes must have in common to be merged. `None`: this node is never shared.
fn key(graph: &Graph, id: NodeId) -> Option<String> {
    let vertex = graph.node(id);
    let what = match &vertex.task {
        Task::Filter(call) if call.kind.shared => format!("{} {:?} {:?}", call.kind.name, call.params, call.how),
        Task::Filter(_) => return None,
        Task::Choose(choice) => format!("choose {}", choice.label()),
    };
    let input = |a: &Arrow| {
        // Behind a splitting filter each branch gets other blocks.
        let branch = graph.node(a.from).kind().filter(|kind| kind.splits).map(|_| id.0);
        format!("{} {:?} {} {} {branch:?}", a.from.0, a.select, a.cut, a.rejected)
    };
    let mut input: Vec<_> = graph.arrows_to(id).map(input).collect();
    input.sort();
    Some(format!("{what} < {}", input.join(", ")))
}

fn replace(graph: &mut Graph, gone: NodeId, kept: NodeId) {
    graph.arrows.retain(|arrow| arrow.to != gone);
    for arrow in graph.arrows.iter_mut().filter(|arrow| arrow.from == gone) {
        arrow.from = kept;
    }
    if let Some(vertex) = graph.nodes[gone.index()].take() {
        graph.node_mut(kept).uses += vertex.uses;
    }
}
