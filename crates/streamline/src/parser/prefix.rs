//! Finds the part of a design that can run once for several requests, and writes it as request text. Requests that
//! begin alike get the same text.
//!
//! In: a placed design. Out: for each node the text that leads to it, in canonical form (no names, no defaults), and
//! the places where a prefix may end.

use crate::space::PARSER;
use control::Design;
use control::graph::{Graph, Task};
use control::place::Refused;
use engine::{NodeId, Select};
use filter::{DeviceAccess, Kind, Mode, ParamType, Params, Types};
use filters::parser::Continuity;
use std::collections::{BTreeMap, BTreeSet};

/// Longest text of a prefix: it has to fit a message. A longer one is not shared.
pub(crate) const TEXT_BYTES: usize = 2048;

/// A prefix: the text that leads to a node, and the blocks that come out of it.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    pub(crate) text: String,
    /// How a reader notices missing blocks. `None`: the blocks cannot be shared.
    pub(crate) continuity: Option<Continuity>,
}

/// Checks that a filter can run for several requests. The error says why not.
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

/// Whether this filter's states depend on the first block that it sees.
///
/// The state of a parser depends on nothing but the stream it parses. Other serial filters keep state over all blocks,
/// and each request starts at another block.
fn depends_on_its_beginning(kind: &Kind) -> bool {
    kind.mode == Mode::Serial && !kind.parses && !kind.is_sink()
}

/// For each node of the plan: the prefix that leads to it. `None`: it cannot be written as one request that begins at
/// devices.
pub(crate) fn prefixes(design: &Design) -> Vec<Option<Prefix>> {
    let plan = &design.plan;
    let above = plan.sources_of();
    let mut found: Vec<Option<Prefix>> = Vec::with_capacity(plan.nodes.len());
    // Nodes are in topological order, so the prefixes before this node are known.
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

/// A node by itself as canonical text, and the types that it gives. `None`: it is an operand of a selection, or it
/// gives each asker other blocks.
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

/// Whether a source gives just a device's packets from now on. Not if it asks for past packets, for a reader that stays, or
/// for packets to be taken away.
fn gives_what_comes(kind: &Kind, params: &Params) -> bool {
    let Some(DeviceAccess::Shared(shared)) = kind.device else { return false };
    (shared.asked)(params).is_ok_and(|(asked, _)| asked.last_ns == 0 && !asked.keep && asked.mode == capture::Mode::Tap)
}

/// The text before a node, including the arrow to it. `None`: it cannot be written.
fn before(design: &Design, to: NodeId, above: &[NodeId], found: &[Option<Prefix>]) -> Option<String> {
    let mut texts = Vec::new();
    let mut arrows = Vec::new();
    for from in above {
        texts.push(found.get(from.index())?.as_ref()?.text.as_str());
        let edges: Vec<_> = design.plan.nodes[from.index()].edges.iter().filter(|edge| edge.to == to).collect();
        if edges.iter().any(|edge| edge.rejected) {
            // The parser process gives out what filters pass, not what they reject.
            return None;
        }
        arrows.extend(edges.iter().map(|edge| edge.select.as_ref()));
    }
    texts.sort_unstable();
    texts.dedup();
    let select = match arrows.first()? {
        None => String::new(),
        Some(select @ Select::Classes { .. }) => select.to_string(),
        // Written out, this selection would change the meaning of other arrows.
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

/// Nodes of the graph that were placed in the space `parser` but cannot run there or are not worth it, each with the
/// reason.
pub(crate) fn unfit(design: &Design) -> Refused {
    let prefixes = prefixes(design);
    let nodes = &design.plan.nodes;
    let is_here = |id: NodeId| nodes[id.index()].space == PARSER;
    let mut fit = vec![true; nodes.len()];
    let mut unfit = BTreeMap::new();
    let operands = operands(design);
    for index in (0..nodes.len()).rev() {
        let node = &nodes[index];
        if node.space != PARSER || operands.contains(&index) {
            continue;
        }
        let ends = prefixes[index].as_ref().is_some_and(|prefix| prefix.continuity.is_some());
        let goes_on = node.edges.iter().any(|edge| is_here(edge.to) && fit[edge.to.index()]);
        let leaves = node.edges.iter().any(|edge| !is_here(edge.to) || !fit[edge.to.index()]);
        let why = match &prefixes[index] {
            _ if node.edges.iter().any(|edge| edge.rejected) => "another filter takes its rejected blocks",
            None => "what leads to it is not for others to run",
            Some(_) if leaves && !ends => "frames are read by all from the device's ring",
            Some(_) if !ends && !goes_on => "nothing comes out that others could read",
            Some(_) => continue,
        };
        fit[index] = false;
        unfit.insert((design.sites[index].vertex, PARSER.to_string()), why.to_string());
    }
    Refused(unfit)
}

/// Nodes of the graph that were placed in the space `parser` but whose prefix already runs in this process. They go on
/// where they are, with their state and everything behind them.
pub(crate) fn running_here(design: &Design, texts: &BTreeSet<String>) -> Refused {
    let prefixes = prefixes(design);
    let is_here = |index: &usize| {
        let text = prefixes[*index].as_ref().map(|prefix| &prefix.text);
        design.plan.nodes[*index].space == PARSER && text.is_some_and(|text| texts.contains(text))
    };
    let here = (0..prefixes.len()).filter(is_here);
    let why = "it runs in this process already, and goes on";
    Refused(here.map(|index| ((design.sites[index].vertex, PARSER.to_string()), why.to_string())).collect())
}

/// The indexes of nodes that are operands of selections; they run where the selection runs.
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
    use crate::session::Session;
    use crate::space::PARSER;
    use engine::NodeId;

    fn session() -> Session {
        Session::new().devices_at(Place::Daemon("/nowhere/control".into())).share(true)
    }

    fn asked(request: &str) -> Vec<String> {
        let design =
            session().design(request, &Default::default()).unwrap_or_else(|error| panic!("{request}: {error}"));
        let prefixes = prefixes(&design);
        let nodes = &design.plan.nodes;
        let is_here = |id: NodeId| nodes[id.index()].space == PARSER;
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
            // Each request runs by itself what depends on the asker or on the time. Frames are not shared either: all
            // read them from one ring.
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
