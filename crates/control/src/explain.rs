//! A design for people: a tree, or a graph for `dot`.

use crate::graph::Origin;
use crate::place::Design;
use engine::{Edge, NodeId, Stages, Task, Workers};
use filter::partition::Partitioning;
use std::collections::HashSet;
use std::fmt::Write;

/// The space of this process.
const APP: &str = "app";

/// The plan as a tree: for each filter its space, why it is there, and what was inserted, merged or rewritten.
pub fn tree(design: &Design) -> String {
    let operands = operands(design);
    let above = design.plan.sources_of();
    let mut lines = Vec::new();
    let mut seen = HashSet::new();
    for (index, above) in above.iter().enumerate() {
        let id = NodeId(index as u32);
        if above.is_empty() && !operands.contains(&id) {
            branch(design, id, "", "", &mut seen, &mut lines);
        }
    }
    // A text in a request may have several lines, but a filter has one line here.
    let fit = |text: String| base::terminal::line(&text).into_owned();
    let lines: Vec<_> = lines.into_iter().map(|(left, right)| (fit(left), fit(right))).collect();
    let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (left, right) in lines {
        let line = format!("{left}{:pad$}  {right}", "", pad = width - left.chars().count());
        let _ = writeln!(text, "{}", line.trim_end());
    }
    append_stages(design, &mut text);
    text
}

/// The stages of a design, for filters of this process. Nodes that run further down are left out.
pub fn stages(design: &Design) -> Stages {
    let mut plan = design.plan.clone();
    let is_app: Vec<bool> = plan.nodes.iter().map(|node| node.space == APP).collect();
    for edge in plan.nodes.iter_mut().flat_map(|node| &mut node.edges) {
        edge.cut &= is_app[edge.to.index()];
    }
    let stages = Stages::of(&plan);
    let are_below = |stage: &engine::Stage| stage.threads > 1 && stage.nodes.iter().any(|id| !is_app[id.index()]);
    if !stages.stages.iter().any(are_below) {
        return stages;
    }
    plan.workers = Workers::default();
    let why = "the filter that makes streams runs outside this process".to_string();
    Stages { undivided: Some(why), ..Stages::of(&plan) }
}

/// Says that `workers=` does nothing, and why.
pub fn idle(design: &Design, why: &str) -> String {
    let workers = design.plan.workers;
    let does = if workers == Workers::Pipeline { "cuts" } else { "shares" };
    format!("workers={workers} {does} nothing: {why}")
}

/// Adds which filters run on which thread, if there are several, and which cuts have no effect.
fn append_stages(design: &Design, text: &mut String) {
    let stages = stages(design);
    let operands = operands(design);
    let label = |id: &NodeId| base::terminal::line(&design.plan.nodes[id.index()].label).into_owned();
    let is_several = stages.stages.len() > 1;
    if is_several {
        let count = |count: usize, what: &str, more: &str| format!("{count} {}", if count == 1 { what } else { more });
        let processes = stages.stages.iter().filter(|stage| stage.is_process).count();
        let beside = match processes {
            0 => String::new(),
            _ => format!(" and {}", count(processes, "process", "processes")),
        };
        let _ = writeln!(text, "{}{beside}:", count(stages.threads() - processes, "thread", "threads"));
    }
    // For each stage: its threads, counted from 1, and whether they are partitions.
    let mut threads: Vec<(String, bool)> = Vec::new();
    let mut next = 1;
    for stage in &stages.stages {
        let last = next + stage.threads - 1;
        threads.push(if last == next { (next.to_string(), false) } else { (format!("{next}-{last}"), true) });
        next = last + 1;
    }
    for (number, stage) in stages.stages.iter().enumerate().filter(|_| is_several) {
        let labels: Vec<String> = stage.nodes.iter().filter(|id| !operands.contains(id)).map(label).collect();
        let channels = stages.channels.iter().filter(|channel| channel.to == number);
        let (numbers, are_partitions) = &threads[number];
        let what = |channel: &engine::Channel| {
            let verb = if channel.rejected { "rejects" } else { "gives" };
            let (from, from_partitions) = &threads[channel.from.0];
            let how = match (*are_partitions, *from_partitions) {
                (true, _) => format!(", {}", stage.division.words()),
                (_, true) => ", in the order of one thread".to_string(),
                _ => String::new(),
            };
            format!("what `{}` ({from}) {verb}{how}", label(&channel.from.1))
        };
        let channels: Vec<String> = channels.map(what).collect();
        let comes = if channels.is_empty() { String::new() } else { format!("; gets {}", channels.join(", and ")) };
        let place = if stage.is_process { ", in a process of its own" } else { "" };
        let _ = writeln!(text, "  {numbers}  {}{place}{comes}", labels.join(", "));
    }
    for (number, stage) in stages.stages.iter().enumerate().filter(|(_, stage)| stage.threads == 1) {
        let is_shared = |number: usize| stages.stages[number].threads > 1;
        let is_between = stages.channels.iter().any(|channel| channel.to == number && is_shared(channel.from.0))
            && stages.channels.iter().any(|channel| channel.from.0 == number && is_shared(channel.to));
        let opens = |id: &&NodeId| match &design.plan.nodes[id.index()].task {
            Task::Filter { kind, .. } => Partitioning::of(kind) == Partitioning::Opens,
            Task::Choose(_) => false,
        };
        if let Some(id) = stage.nodes.iter().find(opens).filter(|_| is_between) {
            let _ = writeln!(
                text,
                "`{0}` is one thread: fragments and tunnels do not say their flow; with `spread=` as its neighbours have it, it \
                 runs in their shares, which are of pairs of hosts then",
                label(id)
            );
        }
    }
    if let Some(why) = &stages.why {
        let _ = writeln!(text, "workers={}: {why}", design.plan.workers);
    }
    if let Some(why) = &stages.undivided {
        let _ = writeln!(text, "{}", idle(design, why));
    }
    for (id, edge) in
        design.plan.nodes.iter().enumerate().flat_map(|(id, node)| node.edges.iter().map(move |edge| (id, edge)))
    {
        if !edge.cut {
            continue;
        }
        let (from, to) = (NodeId(id as u32), edge.to);
        if stages.of_node(from) == stages.of_node(to) {
            let why = match design.plan.nodes[to.index()].space.as_str() {
                APP => "what lies on its left also reaches its right without a cut",
                _ => "both sides run outside this process",
            };
            let _ = writeln!(text, "`||` between `{}` and `{}` cuts nothing: {why}", label(&from), label(&to));
        }
    }
}

fn branch(
    design: &Design,
    id: NodeId,
    lead: &str,
    indent: &str,
    seen: &mut HashSet<NodeId>,
    lines: &mut Vec<(String, String)>,
) {
    let node = &design.plan.nodes[id.index()];
    if !seen.insert(id) {
        lines.push((format!("{lead}{}", node.label), "(as above: the paths meet here)".to_string()));
        return;
    }
    lines.push((format!("{lead}{}", node.label), format!("{:8}{}", node.space, remarks(design, id))));
    for (index, edge) in node.edges.iter().enumerate() {
        let last = index + 1 == node.edges.len();
        let (corner, bar) = if last { ("└─", "  ") } else { ("├─", "│ ") };
        let lead = format!("{indent}{corner}{} ", arrow(edge));
        branch(design, edge.to, lead.trim_end_matches("  "), &format!("{indent}{bar} "), seen, lines);
    }
}

fn arrow(edge: &Edge) -> String {
    let bar = if edge.cut { "||" } else { "|" };
    match (&edge.select, edge.rejected) {
        (Some(select), false) => format!("{bar}{select}"),
        (Some(select), true) => format!("{bar}! {bar}{select}"),
        (None, true) => format!("{bar}!"),
        (None, false) if edge.cut => bar.to_string(),
        (None, false) => String::new(),
    }
}

/// Says why a node is in its space, and where it came from.
pub fn remarks(design: &Design, id: NodeId) -> String {
    let site = &design.sites[id.index()];
    let mut remarks = vec![site.why.clone()];
    match &site.origin {
        Origin::Written => {}
        Origin::Inserted(why) => remarks.push(format!("inserted: {why}")),
        Origin::Ending(why) => remarks.push(format!("added: {why}")),
    }
    remarks.extend(site.notes.iter().cloned());
    remarks.join("; ")
}

fn operands(design: &Design) -> HashSet<NodeId> {
    let mut found = HashSet::new();
    for node in &design.plan.nodes {
        if let Task::Choose(choice) = &node.task {
            collect(choice, &mut found);
        }
    }
    found
}

fn collect(choice: &engine::Choice, found: &mut HashSet<NodeId>) {
    use engine::Choice::{All, Any, Class, Filter, KeepClass, Not};
    match choice {
        Filter(id) => {
            found.insert(*id);
        }
        Class(_) => {}
        All(parts) | Any(parts) => parts.iter().for_each(|part| collect(part, found)),
        Not(part) | KeepClass(part) => collect(part, found),
    }
}

/// The plan in the language of graphviz's `dot`.
pub fn dot(design: &Design) -> String {
    let operands = operands(design);
    let mut text = String::from("digraph streamline {\n  rankdir=LR;\n  node [shape=box];\n");
    for (index, node) in design.plan.nodes.iter().enumerate() {
        let id = NodeId(index as u32);
        if operands.contains(&id) {
            continue;
        }
        let label = format!("{}\\n{}", escaped(&node.label), escaped(&node.space));
        let style = if design.sites[index].origin == Origin::Written { "" } else { ", style=dashed" };
        let _ = writeln!(text, "  n{index} [label=\"{label}\"{style}];");
        for edge in &node.edges {
            let _ = writeln!(text, "  n{index} -> n{} [label=\"{}\"];", edge.to.0, escaped(&arrow(edge)));
        }
    }
    text.push_str("}\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
