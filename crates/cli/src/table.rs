//! What a run counted: a table for people, JSON for scripts.

use crate::progress::{count, size};
use serde_json::{Value, json};
use streamline::{End, Report};

/// The table: one line a filter, with what went in and out and how the rest ended.
pub(crate) fn text(report: &Report, end: Option<End>) -> String {
    let mut rows = vec![["filter", "in", "out", "bytes", "rejected", "dropped"].map(String::from)];
    let mut remarks = Vec::new();
    for node in &report.nodes {
        let counters = &node.counters;
        let dash = |number: u64| if number == 0 { "-".to_string() } else { count(number) };
        let bytes = counters.bytes_out().max(if node.edges.is_empty() { counters.bytes_in } else { 0 });
        let taken = if node.source { String::new() } else { count(counters.blocks_in) };
        // Of several edges each refuses what others may take; only a lone edge's refusal is an end.
        let refused = if let [edge] = &node.edges[..] { edge.refused } else { 0 };
        let rejected = counters.blocks_rejected + refused;
        let label = if node.operand { format!("  {}", node.label) } else { node.label.clone() };
        rows.push([
            shortened(&label),
            taken,
            dash(counters.blocks_out()),
            size(bytes),
            dash(rejected),
            dash(counters.drops.total()),
        ]);
        for (reason, number) in counters.drops.iter() {
            remarks.push(format!("{}: dropped {}: {reason}", shortened(&node.label), count(number)));
        }
        for (event, number) in counters.events.iter() {
            remarks.push(format!("{}: {event}: {}", shortened(&node.label), count(number)));
        }
    }
    if report.traffic.hold_copies > 0 {
        let traffic = &report.traffic;
        let (blocks, bytes) = (count(traffic.hold_copies), size(traffic.hold_copied_bytes));
        remarks.push(format!("{blocks} held blocks were copied ({bytes})"));
    }
    match end {
        None => remarks.push("the run failed: the numbers are of what was done until then".to_string()),
        Some(End::Stopped) => remarks.push("stopped before the input ended".to_string()),
        Some(End::Input | End::Enough) => {}
    }
    let widths: Vec<usize> =
        (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = format!("{:width$}", row[0], width = widths[0]);
        for column in 1..6 {
            line.push_str(&format!("  {:>width$}", row[column], width = widths[column]));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for remark in remarks {
        text.push_str(&format!("{remark}\n"));
    }
    text
}

/// A label that leaves room for the numbers.
fn shortened(label: &str) -> String {
    const WIDTH: usize = 44;
    let label = base::terminal::line(label);
    if label.chars().count() <= WIDTH {
        return label.to_string();
    }
    label.chars().take(WIDTH - 1).chain(['…']).collect()
}

/// The same as one JSON object; `before` is what was counted by requests that this one took the place of.
pub(crate) fn json(report: &Report, end: Option<End>, before: &[Report]) -> String {
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
        },
    });
    if !before.is_empty() {
        value["before"] = before.iter().map(nodes).collect();
    }
    base::terminal::json(&format!("{value}\n")).into_owned()
}

fn node(node: &engine::NodeReport) -> Value {
    let counters = &node.counters;
    let tally = |tally: &filter::counter::Tally| tally.iter().map(|(name, n)| (name.to_string(), n.into())).collect();
    let edge = |edge: &engine::EdgeReport| json!({ "to": edge.to, "blocks": edge.blocks, "refused": edge.refused });
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
        "events": Value::Object(tally(&counters.events)),
        "edges": node.edges.iter().map(edge).collect::<Vec<_>>(),
    })
}

/// Rows of cells, each column as wide as its widest cell. A cell is one line, whatever it quotes.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let fit = |row: &Vec<String>| row.iter().map(|cell| base::terminal::line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(fit).collect();
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}
