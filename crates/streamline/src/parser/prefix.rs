//! Which part of a design can run once for several requests, and that part as request text: the same text for every request
//! that begins alike.
//!
//! In: a placed design. Out: for each node what leads to it, written canonically (no names, no defaults), and where a prefix
//! may end.

use crate::parser::space::NAME;
use control::Design;
use control::graph::{Graph, Task};
use control::place::Refused;
use engine::{NodeId, Select};
use filter::{DeviceAccess, Kind, Mode, ParamType, Params, Types};
use filters::parser::Continuity;
use std::collections::{BTreeMap, BTreeSet};

/// A text that is longer is no prefix that anybody shares: it has to fit a message.
pub(crate) const TEXT_BYTES: usize = 2048;

/// What leads to a node, and what comes out of it.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    /// As a request.
    pub(crate) text: String,
    /// What comes out, where that can be shared.
    pub(crate) continuity: Option<Continuity>,
}

/// Why a filter cannot run for several requests; `Ok` where it can.
pub(crate) fn is_shareable(kind: &Kind, params: &Params) -> Result<(), String> {
    if !kind.shared || kind.is_source() || kind.is_sink() {
        return Err(format!("`{}` touches the world", kind.name));
    }
    if depends_on_its_beginning(kind) {
        return Err(format!("`{}` depends on where a request begins", kind.name));
    }
    let is_path = |key| kind.params.iter().any(|param| param.key == key && param.kind == ParamType::Path);
    if params.iter().any(|(key, _)| is_path(key)) {
        return Err(format!("`{}` names a file", kind.name));
    }
    Ok(())
}

/// What is parsed depends on nothing but the stream it is parsed from. Else what is kept of all blocks depends on the first of
/// them, and each request begins at another.
fn depends_on_its_beginning(kind: &Kind) -> bool {
    kind.mode == Mode::Serial && !kind.parses && !kind.is_sink()
}

/// By node of the plan: what leads to it, where that can be written as one request that begins at devices.
pub(crate) fn prefixes(design: &Design) -> Vec<Option<Prefix>> {
    let plan = &design.plan;
    let above = plan.sources_of();
    let mut found: Vec<Option<Prefix>> = Vec::with_capacity(plan.nodes.len());
    // Nodes stand in topological order: what leads to one is known before it.
    for (index, above) in above.iter().enumerate() {
        let id = NodeId(index as u32);
        let prefix = written(&design.graph, design.sites[index].vertex, &plan.nodes[index].task).and_then(|own| {
            let (label, output) = own;
            let text = if above.is_empty() { label } else { format!("{}{label}", before(design, id, above, &found)?) };
            let continuity = Continuity::of(output);
            (text.len() <= TEXT_BYTES).then_some(Prefix { text, continuity })
        });
        found.push(prefix);
    }
    found
}

/// A node by itself as canonical text, and what comes out of it; none for operands of a selection, and for what gives other
/// blocks to each who asks.
fn written(graph: &Graph, vertex: NodeId, task: &engine::Task) -> Option<(String, Types)> {
    let vertex = graph.nodes.get(vertex.index())?.as_ref()?;
    let label = match (&vertex.task, task) {
        (Task::Filter(call), engine::Task::Filter { .. }) => {
            if call.kind.is_source() && !gives_what_comes(call.kind, &call.params) {
                return None;
            }
            if !call.kind.is_source() && depends_on_its_beginning(call.kind) {
                return None;
            }
            call.label()
        }
        (Task::Choose(choice), engine::Task::Choose(_)) => choice.label(),
        _ => return None,
    };
    Some((label, vertex.output()))
}

/// Does a source share a device's packets from when it comes, and neither asks for what was before, nor for something to stay,
/// nor for packets to be taken away?
fn gives_what_comes(kind: &Kind, params: &Params) -> bool {
    let Some(DeviceAccess::Shared(shared)) = kind.device else { return false };
    (shared.asked)(params).is_ok_and(|(asked, _)| asked.last_ns == 0 && !asked.keep && asked.mode == capture::Mode::Tap)
}

/// What comes before a node, up to and with the arrow to it.
fn before(design: &Design, to: NodeId, above: &[NodeId], found: &[Option<Prefix>]) -> Option<String> {
    let mut texts = Vec::new();
    let mut arrows = Vec::new();
    for from in above {
        texts.push(found.get(from.index())?.as_ref()?.text.as_str());
        let edges: Vec<_> = design.plan.nodes[from.index()].edges.iter().filter(|edge| edge.to == to).collect();
        if edges.iter().any(|edge| edge.rejected) {
            // The process that runs prefixes gives what filters give.
            return None;
        }
        arrows.extend(edges.iter().map(|edge| edge.select.as_ref()));
    }
    texts.sort_unstable();
    texts.dedup();
    let select = match arrows.first()? {
        None => String::new(),
        Some(select @ Select::Classes { .. }) => select.to_string(),
        // Written out, it would say something about other arrows, too.
        Some(_) => return None,
    };
    if texts.len() != arrows.len() || arrows.iter().any(|arrow| *arrow != arrows[0]) {
        return None;
    }
    Some(match texts.as_slice() {
        [one] => format!("{one} |{select} "),
        several => format!("{{ {} }} |{select} ", several.join(" + ")),
    })
}

/// What was placed in the space `parser` and does not pay or cannot be: each node of the graph, and why.
pub(crate) fn unfit(design: &Design) -> Refused {
    let prefixes = prefixes(design);
    let nodes = &design.plan.nodes;
    let is_here = |id: NodeId| nodes[id.index()].space == NAME;
    let mut fit = vec![true; nodes.len()];
    let mut unfit = BTreeMap::new();
    let operands = operands(design);
    for index in (0..nodes.len()).rev() {
        let node = &nodes[index];
        if node.space != NAME || operands.contains(&index) {
            continue;
        }
        let ends = prefixes[index].as_ref().is_some_and(|prefix| prefix.continuity.is_some());
        let goes_on = node.edges.iter().any(|edge| is_here(edge.to) && fit[edge.to.index()]);
        let leaves = node.edges.iter().any(|edge| !is_here(edge.to) || !fit[edge.to.index()]);
        let why = match &prefixes[index] {
            _ if node.edges.iter().any(|edge| edge.rejected) => "what it rejects is wanted, too",
            None => "what leads to it is not for others to run",
            Some(_) if leaves && !ends => "frames are read by all from the device's ring",
            Some(_) if !ends && !goes_on => "nothing comes out that others could read",
            Some(_) => continue,
        };
        fit[index] = false;
        unfit.insert((design.sites[index].vertex, NAME.to_string()), why.to_string());
    }
    Refused(unfit)
}

/// What was placed in the space `parser` and runs in this process already, by its text: each node of the graph. It goes on
/// where it is, with its state and all that stands behind it.
pub(crate) fn running_here(design: &Design, texts: &BTreeSet<String>) -> Refused {
    let prefixes = prefixes(design);
    let is_here = |index: &usize| {
        let text = prefixes[*index].as_ref().map(|prefix| &prefix.text);
        design.plan.nodes[*index].space == NAME && text.is_some_and(|text| texts.contains(text))
    };
    let here = (0..prefixes.len()).filter(is_here);
    let why = "it runs in this process already, and goes on";
    Refused(here.map(|index| ((design.sites[index].vertex, NAME.to_string()), why.to_string())).collect())
}

/// Places of nodes that are operands of selections: they are where the selection is.
fn operands(design: &Design) -> Vec<usize> {
    let is_choice = |vertex: NodeId| matches!(design.graph.node(vertex).task, Task::Choose(_));
    let nodes = design.plan.nodes.iter().zip(&design.sites).enumerate();
    nodes
        .filter(|(_, (node, site))| is_choice(site.vertex) && matches!(node.task, engine::Task::Filter { .. }))
        .map(|(index, _)| index)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::devices::Place;
    use crate::parser::prefix::prefixes;
    use crate::parser::space::NAME;
    use crate::session::Session;
    use engine::NodeId;

    fn session() -> Session {
        Session::new().devices_at(Place::Daemon("/nowhere/control".into())).share(true)
    }

    /// The prefixes that a request would ask for, in order.
    fn asked(request: &str) -> Vec<String> {
        let design =
            session().design(request, &Default::default()).unwrap_or_else(|error| panic!("{request}: {error}"));
        let prefixes = prefixes(&design);
        let nodes = &design.plan.nodes;
        let is_here = |id: NodeId| nodes[id.index()].space == NAME;
        let leaves =
            |index: &usize| is_here(NodeId(*index as u32)) && nodes[*index].edges.iter().any(|edge| !is_here(edge.to));
        let mut texts: Vec<String> = (0..nodes.len())
            .filter(leaves)
            .filter_map(|index| prefixes[index].clone())
            .map(|prefix| prefix.text)
            .collect();
        texts.sort_unstable();
        texts
    }

    #[test]
    fn what_requests_begin_with_is_the_same_text_for_all_that_begin_alike() {
        let rows: &[(&str, &[&str])] = &[
            ("ethernet e0 | http | files dir=x", &["ethernet e0 | decap | tcp | http"]),
            ("(ethernet,device=e0) > (tcp) > (http) > (json)", &["ethernet e0 | decap | tcp | http"]),
            ("let web = tcp | http; ethernet e0 name=here | web | count", &["ethernet e0 | decap | tcp | http"]),
            (
                "set share=yes; ethernet e0 | bpf \"tcp port  80\" | tcp | inspect",
                &["ethernet e0 | bpf \"tcp port  80\" | decap | tcp"],
            ),
            ("ethernet e0 | dns | json", &["{ ethernet e0 | decap | tcp + ethernet e0 | decap | udp } | dns"]),
            (
                "ethernet e0 | { udp + tcp } | dns | json",
                &["{ ethernet e0 | decap | tcp + ethernet e0 | decap | udp } | dns"],
            ),
            (
                "ethernet e0 | tcp | { http | json + tls | json }",
                &["ethernet e0 | decap | tcp | http", "ethernet e0 | decap | tcp | tls"],
            ),
            ("ethernet e0 | tcp | port 80 or port 81 | inspect", &["ethernet e0 | decap | tcp | port 80 or port 81"]),
            ("ethernet e0 | tcp | not port 80 | inspect", &["ethernet e0 | decap | tcp | not port 80"]),
            ("ethernet e0 | port |53 udp | inspect", &["ethernet e0 | port |53 decap | udp"]),
            ("ethernet e0@1/4 | udp | inspect", &["ethernet \"e0@1/4\" | decap | udp"]),
            ("ethernet e0 + ethernet e1 | udp | inspect", &["ethernet e1 | decap | udp"]),
            ("ethernet e0 | match \"a b|c\" | inspect", &[]),
            ("ethernet e0 | tcp | match \"a \\\"b\" | inspect", &["ethernet e0 | decap | tcp | match \"a \\\"b\""]),
            // What depends on who asks, or on when, is for each by itself; so are frames, which all read from one ring.
            ("set share=no; ethernet e0 | http | json", &[]),
            ("ethernet e0 | tcp | count", &["ethernet e0 | decap | tcp"]),
            ("ethernet e0 | tcp | head 3 | http | json", &["ethernet e0 | decap | tcp"]),
            ("ethernet e0 | sample 10 | tcp | inspect", &[]),
            ("ethernet e0 last=30s | tcp | inspect", &[]),
            ("ethernet e0 mode=consume everything=yes | tcp | inspect", &[]),
            ("ethernet e0 | vlan 7 | save x.pcap", &[]),
            ("pcap x.pcap | http | json", &[]),
        ];
        for (request, expected) in rows {
            assert_eq!(asked(request), *expected, "{request}");
            for text in *expected {
                let parts = session().prefixes_of(text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(parts.last().map(String::as_str), Some(*text), "read again it is the same text");
            }
        }
    }
}
