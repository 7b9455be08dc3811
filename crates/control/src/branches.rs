//! Filters that give each block to one branch, and filters where such branches meet: checks that a plan fits them.

use crate::place::Design;
use engine::{NodeId, Stages, Task};
use filter::Kind;
use filter::param::Value;
use request::Diagnostic;

/// Checks that a design fits its `split` and `join` filters.
pub(crate) fn check(design: &Design, stages: &Stages) -> Result<(), Diagnostic> {
    let above = design.plan.sources_of();
    for (index, node) in design.plan.nodes.iter().enumerate() {
        let Task::Filter { kind, params } = &node.task else { continue };
        let (id, site) = (NodeId(index as u32), &design.sites[index]);
        if kind.splits && node.edges.iter().any(|edge| edge.select.is_some()) {
            let text = format!("`{}` chooses the branch, so edges behind it select nothing", kind.name);
            return Err(Diagnostic::new(text, site.span).with_label("a selector by number stands behind it"));
        }
        let wants_order = kind.joins.is_some_and(|key| params.get(key) == Some(&Value::Flag(true)));
        if !wants_order {
            continue;
        }
        let at = site.param_spans.iter().find(|(key, _)| Some(*key) == kind.joins).map_or(site.span, |(_, span)| *span);
        let why = match branches_of(design, &above, id) {
            None => "its blocks do not all come from one filter that splits".to_string(),
            Some(branches) => {
                let other = branches.into_iter().find(|branch| stages.of_node(*branch) != stages.of_node(id));
                let Some(other) = other else { continue };
                format!("`{}` is on another thread", design.plan.nodes[other.index()].label)
            }
        };
        return Err(Diagnostic::new(format!("`{}` cannot restore an order here", kind.name), at)
            .with_label(why)
            .with_help("write order=no; or `spread=N` on the filter, which keeps the order on several threads"));
    }
    Ok(())
}

/// The splitting filter before this node, and all nodes between the two. `None`: blocks come by another way as well.
fn branches_of(design: &Design, above: &[Vec<NodeId>], id: NodeId) -> Option<Vec<NodeId>> {
    let splits = |id: NodeId| match &design.plan.nodes[id.index()].task {
        Task::Filter { kind: Kind { splits, .. }, .. } => *splits,
        Task::Choose(_) => false,
    };
    let (mut found, mut left, mut first) = (Vec::new(), vec![id], None);
    while let Some(at) = left.pop() {
        if at != id && splits(at) {
            if *first.get_or_insert(at) != at {
                return None;
            }
        } else if above[at.index()].is_empty() {
            return None;
        } else {
            left.extend(above[at.index()].iter().copied().filter(|one| !found.contains(one)));
        }
        found.push(at);
    }
    Some(found)
}
