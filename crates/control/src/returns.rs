//! Sources whose frames go back by a sink ([`Kind::returns`](filter::Kind::returns())). Finds the sink for a node,
//! fills in parameters of such sinks, and checks that frames go back at all.

use crate::graph::{Arrow, Call, Graph, Task};
use crate::registry::Registry;
use engine::NodeId;
use filter::{Kind, Params};
use request::Diagnostic;
use std::collections::BTreeSet;

/// The sink by which this node's blocks go back, with its parameters. `None`: not all of them come from one such
/// source, or from several equal ones.
pub(crate) fn sink(graph: &Graph, registry: &Registry, from: NodeId) -> Option<(&'static Kind, Params)> {
    // Most requests have no such source.
    returning(graph).next()?;
    let mut found: Option<(&'static str, Params)> = None;
    for call in sources(graph, &Ways::up(graph), from) {
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

/// The sources whose frames go back by a sink, and the sink's name.
fn returning(graph: &Graph) -> impl Iterator<Item = (NodeId, &'static str)> + '_ {
    graph.ids().filter_map(|id| Some((id, graph.node(id).kind()?.returns?)))
}

/// The parameters of a source that its sink may have, too.
fn known(call: &Call) -> Params {
    let mut params = Params::new();
    fill(&mut params, call.kind, &call.params);
    params
}

/// Copies parameters from `given` that `kind` has and that are not set yet.
fn fill(params: &mut Params, kind: &Kind, given: &Params) {
    for param in kind.params {
        if let (None, Some(value)) = (params.get(param.key), given.get(param.key)) {
            params.set(param.key, value.clone());
        }
    }
}

/// The sources above a node, or the node itself if it is a source.
fn sources<'a>(graph: &'a Graph, above: &Ways, from: NodeId) -> Vec<&'a Call> {
    let calls = above.reached(from).into_iter().filter_map(|id| match &graph.node(id).task {
        Task::Filter(call) if call.kind.is_source() => Some(call),
        _ => None,
    });
    calls.collect()
}

/// The neighbours of each node in one direction. A search takes time in proportion to the arrows.
struct Ways(Vec<Vec<NodeId>>);

impl Ways {
    fn up(graph: &Graph) -> Ways {
        Ways::new(graph, |arrow| (arrow.to, arrow.from))
    }

    fn down(graph: &Graph) -> Ways {
        Ways::new(graph, |arrow| (arrow.from, arrow.to))
    }

    fn new(graph: &Graph, ends: impl Fn(&Arrow) -> (NodeId, NodeId)) -> Ways {
        let mut next = vec![Vec::new(); graph.nodes.len()];
        for (from, to) in graph.arrows.iter().map(ends) {
            next[from.index()].push(to);
        }
        Ways(next)
    }

    fn reached(&self, from: NodeId) -> Vec<NodeId> {
        let (mut found, mut at) = (vec![from], 0);
        let mut is_seen = vec![false; self.0.len()];
        is_seen[from.index()] = true;
        while let Some(id) = found.get(at).copied() {
            at += 1;
            for next in &self.0[id.index()] {
                if !std::mem::replace(&mut is_seen[next.index()], true) {
                    found.push(*next);
                }
            }
        }
        found
    }
}

/// Gives the source's parameters to its sinks without parameters, and to filters that decide which frames go back.
/// Refuses a request in which no frame can go back to such a source.
pub(crate) fn check(graph: &mut Graph) -> Result<(), Diagnostic> {
    let sinks: BTreeSet<&str> = returning(graph).map(|(_, sink)| sink).collect();
    if sinks.is_empty() {
        return Ok(());
    }
    let above = Ways::up(graph);
    for id in graph.ids().collect::<Vec<_>>() {
        let Task::Filter(Call { kind, .. }) = graph.node(id).task else { continue };
        if !kind.passes_rejects && !sinks.contains(kind.name) {
            continue;
        }
        let returns_by = |sink: Option<&str>| sink.is_some_and(|sink| kind.passes_rejects || kind.name == sink);
        let calls = sources(graph, &above, id).into_iter();
        let mut given = calls.filter(|call| returns_by(call.kind.returns)).map(known);
        let Some(given) = given.next().filter(|first| given.all(|other| other == *first)) else { continue };
        if let Task::Filter(Call { kind, params, .. }) = &mut graph.node_mut(id).task {
            fill(params, kind, &given);
        }
    }
    let below = Ways::down(graph);
    for (id, sink) in returning(graph) {
        let vertex = graph.node(id);
        let goes_back = |to: NodeId| graph.node(to).kind().is_some_and(|kind| kind.name == sink && kind.is_sink());
        if !below.reached(id).into_iter().any(goes_back) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Vertex;
    use filter::prelude::*;
    use request::Span;
    use std::time::{Duration, Instant};

    fn nothing(_: &Params, _: &Env) -> Result<filter::Instance, ParamError> {
        Err(ParamError::of_request("runs in no test"))
    }

    static SOURCE: Kind = Kind::new("wire", "its frames go back", nothing).source(Type::Frame).returns("wire");
    static SINK: Kind = Kind::new("wire", "where they go back", nothing).takes(&[Type::Frame]).sink();
    static MIDDLE: Kind = Kind::new("look", "neither", nothing).takes(&[Type::Frame]).selects();

    fn chain(kinds: impl Iterator<Item = &'static Kind>) -> Graph {
        let mut graph = Graph::default();
        for kind in kinds {
            let call = Call { kind, params: Params::new(), param_spans: Vec::new(), how: Default::default() };
            let to = graph.add(Vertex::written(Task::Filter(call), Span::NONE)).unwrap();
            if to.index() > 0 {
                graph.arrows.push(Arrow::plain(NodeId(to.0 - 1), to, Span::NONE));
            }
        }
        graph
    }

    #[test]
    fn frames_go_back_or_the_request_is_refused() {
        assert!(check(&mut chain([&SOURCE, &MIDDLE, &SINK].into_iter())).is_ok());
        let error = check(&mut chain([&SOURCE, &MIDDLE].into_iter())).unwrap_err();
        assert_eq!(error.message, "nothing of `wire` goes on: no path leads to the sink `wire`");
    }

    #[test]
    fn a_long_request_is_not_searched_in_cubic_time() {
        let middle = base::limits::PLAN_NODES - 2;
        let mut long = chain(std::iter::once(&SOURCE).chain(std::iter::repeat_n(&MIDDLE, middle)).chain([&SINK]));
        let mut without = chain(std::iter::repeat_n(&MIDDLE, middle));
        let start = Instant::now();
        assert!(check(&mut long).is_ok() && check(&mut without).is_ok());
        // A cubic search took minutes in a debug build.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
