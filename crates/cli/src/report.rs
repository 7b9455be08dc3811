//! The counters of a run: a table for people, JSON for scripts.

use crate::progress::{count, size};
use crate::table::Table;
use crate::terminal;
use engine::EdgeReport;
use filter::counter::{FILE_BYTES, FILES};
use serde_json::{Value, json};
use streamline::{End, Report};

/// The table: a line for each filter with the blocks in and out and what happened to the rest. Remarks follow below.
pub(crate) fn text(report: &Report, end: Option<End>) -> String {
    let mut table = Table::new(&["filter", ">in", ">out", ">bytes", ">rejected", ">dropped"]);
    let mut remarks = Vec::new();
    for node in &report.nodes {
        let counters = &node.counters;
        let dash = |number: u64| if number == 0 { "-".to_string() } else { count(number) };
        let bytes = counters.bytes_out().max(if node.edges.is_empty() { counters.bytes_in } else { 0 });
        let taken = if node.source { String::new() } else { count(counters.blocks_in) };
        // With several edges, a block that one edge refuses may go along another. Only the refusals of a lone edge are final.
        let refused = if let [EdgeReport { refused, rejected: false, .. }] = &node.edges[..] { *refused } else { 0 };
        let rejected = counters.blocks_rejected + refused;
        let label = if node.operand { format!("  {}", node.label) } else { node.label.clone() };
        table.row([
            shortened(&label),
            taken,
            dash(counters.blocks_out()),
            size(bytes),
            dash(rejected),
            dash(counters.drops.total()),
        ]);
        remarks.extend(written(node));
        let label = shortened(&node.label);
        let dropped = counters.drops.iter().map(|(reason, number)| format!("dropped {}: {reason}", count(number)));
        let unread = counters.unread.iter().map(|(reason, number)| format!("rejected {}: {reason}", count(number)));
        let events = counters.events.iter().filter(|(event, _)| ![FILES, FILE_BYTES].contains(event));
        let events = events.map(|(event, number)| format!("{event}: {}", count(number)));
        remarks.extend(dropped.chain(unread).chain(events).map(|remark| format!("{label}: {remark}")));
    }
    if report.traffic.hold_copies > 0 {
        let traffic = &report.traffic;
        let (blocks, bytes) = (count(traffic.hold_copies), size(traffic.hold_copied_bytes));
        remarks.push(format!("{blocks} held blocks were copied ({bytes})"));
    }
    match end {
        None => remarks.push("the run failed: the numbers cover the work before the failure".to_string()),
        Some(End::Stopped) => remarks.push("stopped before the input ended".to_string()),
        Some(End::Input | End::Enough) => {}
    }
    remarks.extend(stages(report));
    let mut text = table.within(None);
    for remark in remarks {
        text.push_str(&format!("{remark}\n"));
    }
    text
}

/// Which filters ran on which threads, and the blocks of each. Empty if there was only one thread.
fn stages(report: &Report) -> Vec<String> {
    let mut next = 1;
    let stage = |stage: &engine::StageReport| {
        let (first, last) = (next, next + stage.blocks.len() - 1);
        next = last + 1;
        let nodes = stage.nodes.iter().map(|node| &report.nodes[*node]).filter(|node| !node.operand);
        let labels: Vec<String> = nodes.map(|node| shortened(&node.label)).collect();
        let blocks: Vec<String> = stage.blocks.iter().map(|blocks| count(*blocks)).collect();
        let threads = if first == last { format!("thread {first}") } else { format!("threads {first}-{last}") };
        format!("{threads}: {}: {} blocks", labels.join(", "), blocks.join(" + "))
    };
    report.stages.iter().map(stage).collect()
}

/// The output of a sink: number of files, bytes and place.
fn written(node: &engine::NodeReport) -> Option<String> {
    let (files, bytes) = (node.counters.events.get(FILES), node.counters.events.get(FILE_BYTES));
    let place = node.writes_to.as_ref().filter(|_| files > 0)?;
    let (path, place, written) = (std::path::Path::new(place), base::terminal::line(place), size(bytes));
    Some(match files {
        _ if path.is_dir() => {
            let noun = if files == 1 { "file" } else { "files" };
            format!("{} {noun}, {written} in {}/", count(files), place.trim_end_matches('/'))
        }
        1 => format!("1 file, {written}: {place}"),
        _ => format!("{} files, {written}, named after {place}", count(files)),
    })
}

/// A label, cut so that the numbers have room.
pub(crate) fn shortened(label: &str) -> String {
    const WIDTH: usize = 44;
    terminal::cut(&base::terminal::line(label), WIDTH)
}

/// The report as one JSON object. `before` are the reports of requests that this one replaced; `warnings` are those
/// printed at the end.
pub(crate) fn json(report: &Report, end: Option<End>, before: &[Report], warnings: &[String]) -> String {
    let nodes = |report: &Report| report.nodes.iter().map(node).collect::<Vec<Value>>();
    let traffic = &report.traffic;
    let mut value = json!({
        "end": end.map(|end| match end { End::Input => "input", End::Enough => "enough", End::Stopped => "stopped" }),
        "filters": nodes(report),
        "rings": {
            "hold_copies": traffic.hold_copies,
            "hold_copied_bytes": traffic.hold_copied_bytes,
            "edits_in_place": traffic.edits_in_place,
            "edit_copies": traffic.edit_copies,
            "faults": traffic.faults,
            "hold_refusals": traffic.hold_refusals,
        },
    });
    if !report.stages.is_empty() {
        let stage = |stage: &engine::StageReport| {
            let filters: Vec<&str> = stage.nodes.iter().map(|node| report.nodes[*node].label.as_str()).collect();
            json!({ "filters": filters, "nodes": stage.nodes, "blocks": stage.blocks })
        };
        value["stages"] = report.stages.iter().map(stage).collect();
    }
    if !warnings.is_empty() {
        value["warnings"] = json!(warnings);
    }
    if !before.is_empty() {
        value["before"] = before.iter().map(nodes).collect();
    }
    base::terminal::json(&format!("{value}\n")).into_owned()
}

fn node(node: &engine::NodeReport) -> Value {
    let counters = &node.counters;
    let tally = |tally: &filter::counter::Tally| tally.iter().map(|(name, n)| (name.to_string(), n.into())).collect();
    let edge = |edge: &EdgeReport| json!({ "to": edge.to, "blocks": edge.blocks, "refused": edge.refused, "rejected": edge.rejected });
    json!({
        "filter": node.label,
        "space": node.space,
        "operand": node.operand,
        "blocks_in": counters.blocks_in,
        "bytes_in": counters.bytes_in,
        "blocks_passed": counters.blocks_passed,
        "blocks_rejected": counters.blocks_rejected,
        "blocks_taken": counters.blocks_taken,
        "blocks_made": counters.blocks_made,
        "bytes_out": counters.bytes_out(),
        "dropped": Value::Object(tally(&counters.drops)),
        "unread": Value::Object(tally(&counters.unread)),
        "events": Value::Object(tally(&counters.events)),
        "edges": node.edges.iter().map(edge).collect::<Vec<_>>(),
    })
}
