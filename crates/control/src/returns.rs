//! Sources whose frames go back by a sink of theirs ([`Kind::returns`](filter::Kind::returns())): which sink that is at some
//! node, what a sink without parameters means, and that the frames go back at all.

use crate::graph::{Call, Graph, Task};
use crate::registry::Registry;
use engine::NodeId;
use filter::{Kind, Params};
use request::Diagnostic;

/// The sink by which what comes out of this node goes back, with its parameters. `None` where not all of it comes from one such
/// source, or from several that are alike.
pub(crate) fn sink(graph: &Graph, registry: &Registry, from: NodeId) -> Option<(&'static Kind, Params)> {
    let mut found: Option<(&'static str, Params)> = None;
    for call in sources(graph, from) {
        let this = (call.kind.returns?, known(call));
        if found.as_ref().is_some_and(|other| *other != this) {
            return None;
        }
        found = Some(this);
    }
    let (name, given) = found?;
    let kind = registry.find(name)?;
    let mut params = Params::new();
    fill(&mut params, kind, &given);
    Some((kind, params))
}

/// The parameters of a source that its sink may have, too.
fn known(call: &Call) -> Params {
    let mut params = Params::new();
    fill(&mut params, call.kind, &call.params);
    params
}

/// Takes over parameters of these that `kind` has, where they are not given.
fn fill(params: &mut Params, kind: &Kind, given: &Params) {
    for param in kind.params {
        if let (None, Some(value)) = (params.get(param.key), given.get(param.key)) {
            params.set(param.key, value.clone());
        }
    }
}

/// The sources above a node, or the node itself where it is one.
fn sources(graph: &Graph, from: NodeId) -> Vec<&Call> {
    let (mut seen, mut at) = (vec![from], 0);
    while let Some(id) = seen.get(at).copied() {
        at += 1;
        let above: Vec<NodeId> = graph.arrows_to(id).map(|arrow| arrow.from).filter(|id| !seen.contains(id)).collect();
        seen.extend(above);
    }
    let calls = seen.into_iter().filter_map(|id| match &graph.node(id).task {
        Task::Filter(call) if call.kind.is_source() => Some(call),
        _ => None,
    });
    calls.collect()
}

/// Gives sinks without parameters those of the source, and filters that decide what goes back. Refuses a request in which nothing goes back to such a source.
pub(crate) fn check(graph: &mut Graph) -> Result<(), Diagnostic> {
    for id in graph.ids().collect::<Vec<_>>() {
        let Task::Filter(Call { kind, .. }) = graph.node(id).task else { continue };
        let returns_by = |sink: Option<&str>| sink.is_some_and(|sink| kind.passes_rejects || kind.name == sink);
        let mut above = sources(graph, id).into_iter().filter(|call| returns_by(call.kind.returns)).map(known);
        let Some(given) = above.next().filter(|first| above.all(|other| other == *first)) else { continue };
        if let Task::Filter(Call { kind, params, .. }) = &mut graph.node_mut(id).task {
            fill(params, kind, &given);
        }
    }
    for id in graph.ids() {
        let vertex = graph.node(id);
        let Some(sink) = vertex.kind().and_then(|kind| kind.returns) else { continue };
        let goes_back = |to: NodeId| graph.node(to).kind().is_some_and(|kind| kind.name == sink && kind.is_sink());
        if !reached(graph, id).any(goes_back) {
            return Err(Diagnostic::new(
                format!("nothing of `{}` goes on: no path leads to the sink `{sink}`", vertex.label()),
                vertex.span,
            )
            .with_label("its frames would end here")
            .with_help(format!("to forward all and look at it beside: {} | {{ {sink} + ... }}", vertex.label())));
        }
    }
    Ok(())
}

/// All nodes below this one.
fn reached(graph: &Graph, from: NodeId) -> impl Iterator<Item = NodeId> {
    let (mut seen, mut at) = (vec![from], 0);
    while let Some(id) = seen.get(at).copied() {
        at += 1;
        let below: Vec<NodeId> = graph.arrows_from(id).map(|arrow| arrow.to).filter(|id| !seen.contains(id)).collect();
        seen.extend(below);
    }
    seen.into_iter()
}
