//! `streamline explain`: shows how a request would be carried out.

use crate::exit::Outcome;
use crate::hints;
use crate::request_text::{RequestArgs, SourceArgs};
use crate::{print_exact, print_json, print_text};
use control::Design;
use control::graph::Origin;
use engine::{NodeId, Task};
use serde_json::{Value, json};
use streamline::explain;

/// Show how a request would be carried out: where each filter runs and why, what was inserted, merged or rewritten
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    place: crate::place::PlaceArgs,

    /// As JSON
    #[arg(long, conflicts_with = "dot")]
    json: bool,

    /// As a graph for graphviz
    #[arg(long)]
    dot: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (session, request) = args.source.session(&args.place, &args.request)?;
    let design = session.design(&request.source, &request.variables).map_err(|error| request.tell(error))?;
    // Files that are missing may be there when the request runs.
    session.missing(&design).map_err(|error| request.tell(error))?;
    hints::tell_idle(&design);
    if args.json {
        print_json(&json_of(&design))
    } else if args.dot {
        print_exact(&explain::dot(&design))
    } else {
        print_text(&explain::tree(&design))
    }
}

fn json_of(design: &Design) -> Value {
    let stages = explain::stages(design);
    let node = |index: usize| {
        let (node, site) = (&design.plan.nodes[index], &design.sites[index]);
        let edges: Vec<Value> = node
            .edges
            .iter()
            .map(|edge| {
                let select = edge.select.as_ref().map(ToString::to_string);
                json!({ "to": edge.to.0, "select": select, "cut": edge.cut, "rejected": edge.rejected })
            })
            .collect();
        let (origin, because) = match &site.origin {
            Origin::Written => ("written", None),
            Origin::Inserted(why) => ("inserted", Some(why)),
            Origin::Ending(why) => ("added", Some(why)),
        };
        let kind = match &node.task {
            Task::Filter { kind, .. } => kind.name,
            Task::Choose(_) => "choice",
        };
        json!({
            "id": NodeId(index as u32).0,
            "filter": node.label,
            "kind": kind,
            "space": node.space,
            "why": site.why,
            "origin": origin,
            "because": because,
            "notes": site.notes,
            "stage": stages.of_node(NodeId(index as u32)) + 1,
            "input": node.input.iter().map(filter::Type::name).collect::<Vec<_>>(),
            "edges": edges,
        })
    };
    json!({ "nodes": (0..design.plan.nodes.len()).map(node).collect::<Vec<_>>() })
}
