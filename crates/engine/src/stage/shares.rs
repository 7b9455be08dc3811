//! Shares of the flows: which nodes of a plan are copied for each, or why none can be.
//!
//! Frames are divided in front of the filters that make streams (`tcp`, `udp`), by flow; those and what follows them, as far as
//! it looks at each block or stream by itself, run once for each share. In front of the first filter that sees all blocks
//! (sinks, `count`) one stage puts together what they give, in the order that one thread would have given it in. So that there
//! is such an order, all frames come by one way, and all that goes on goes by one way to each stage behind.

use super::{each_operand, join, root};
use crate::plan::{Edge, NodeId, Plan, Task};
use filter::share::Sharing;

/// By node: there is a copy of it for each share.
pub(super) fn find(plan: &Plan) -> Result<Vec<bool>, String> {
    let above = plan.sources_of();
    let mut shared = vec![false; plan.nodes.len()];
    let sharing = |id: NodeId| match &plan.nodes[id.index()].task {
        Task::Filter { kind, .. } => Sharing::of(kind),
        Task::Choose(choice) => {
            let mut all = Sharing::Copied;
            each_operand(choice, &mut |operand| {
                if let Task::Filter { kind, .. } = &plan.nodes[operand.index()].task
                    && Sharing::of(kind) != Sharing::Copied
                {
                    all = Sharing::Single;
                }
            });
            all
        }
    };
    for index in 0..plan.nodes.len() {
        let (id, above) = (NodeId(index as u32), &above[index]);
        let behind = above.iter().filter(|id| shared[id.index()]).count();
        shared[index] = match sharing(id) {
            Sharing::Begins => true,
            Sharing::Copied => !above.is_empty() && behind == above.len(),
            Sharing::Single => false,
        };
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        if let Task::Choose(choice) = &node.task {
            let is_shared = shared[index];
            each_operand(choice, &mut |operand| shared[operand.index()] = is_shared);
        }
    }
    if !shared.contains(&true) {
        return Err(
            "there is no filter that makes streams of frames, such as `tcp`, so that flows could be divided".into()
        );
    }
    check_ways(plan, &shared)?;
    Ok(shared)
}

/// Frames come by one way, and each stage behind gets what goes on by one.
fn check_ways(plan: &Plan, shared: &[bool]) -> Result<(), String> {
    let label = |index: usize| plan.nodes[index].label.as_str();
    let mut ways: Vec<(usize, bool)> = Vec::new();
    for (index, edge) in edges(plan).filter(|(index, edge)| !shared[*index] && shared[edge.to.index()]) {
        if !ways.contains(&(index, edge.rejected)) {
            ways.push((index, edge.rejected));
        }
    }
    if let [(first, _), (second, _), ..] = ways[..] {
        let (first, second) = (label(first), label(second));
        return Err(format!("frames come by several ways, from `{first}` and from `{second}`"));
    }
    // In one thread a batch goes along one edge after the other; where that is in a batch the shares cannot tell.
    let branches = |index: usize| plan.nodes[index].edges.iter().filter(|edge| shared[edge.to.index()]);
    for index in (0..plan.nodes.len()).filter(|index| shared[*index]) {
        let mut seen = vec![false; plan.nodes.len()];
        for edge in branches(index) {
            let mut mine = vec![false; plan.nodes.len()];
            let mut left = vec![edge.to.index()];
            while let Some(at) = left.pop() {
                if seen[at] {
                    return Err(format!(
                        "what `{}` gives by several ways meets again in `{}`",
                        label(index),
                        label(at)
                    ));
                }
                if !std::mem::replace(&mut mine[at], true) {
                    left.extend(branches(at).map(|edge| edge.to.index()));
                }
            }
            seen.iter_mut().zip(mine).for_each(|(seen, mine)| *seen |= mine);
        }
    }
    let pieces = pieces(plan, shared);
    let before = ways.first().map_or(0, |(index, _)| pieces[*index]);
    // By stage behind: by which way it gets what goes on.
    let mut behind: Vec<(usize, (usize, bool))> = Vec::new();
    for (index, edge) in edges(plan).filter(|(index, edge)| shared[*index] && !shared[edge.to.index()]) {
        let to = pieces[edge.to.index()];
        if to == before {
            return Err(format!("`{}` gets blocks from before the shares as well", label(edge.to.index())));
        }
        let way = (index, edge.rejected);
        match behind.iter().find(|(piece, _)| *piece == to) {
            None => behind.push((to, way)),
            Some((_, known)) if *known == way => {}
            Some((_, (known, _))) => {
                let (to, first, second) = (label(edge.to.index()), label(*known), label(index));
                return Err(format!("`{to}` gets what goes on by several ways, from `{first}` and from `{second}`"));
            }
        }
    }
    Ok(())
}

/// All edges, with the nodes that they leave.
fn edges(plan: &Plan) -> impl Iterator<Item = (usize, &Edge)> {
    plan.nodes.iter().enumerate().flat_map(|(index, node)| node.edges.iter().map(move |edge| (index, edge)))
}

/// By node, a number that all nodes of its stage have: the copied ones are one stage, and so is what is joined before or
/// behind them.
pub(super) fn pieces(plan: &Plan, shared: &[bool]) -> Vec<usize> {
    let mut pieces: Vec<usize> = (0..plan.nodes.len()).collect();
    let mut first = None;
    for (index, node) in plan.nodes.iter().enumerate() {
        if shared[index] {
            join(&mut pieces, *first.get_or_insert(index), index);
        }
        if let Task::Choose(choice) = &node.task {
            each_operand(choice, &mut |id| join(&mut pieces, index, id.index()));
        }
        for edge in node.edges.iter().filter(|edge| shared[index] == shared[edge.to.index()]) {
            join(&mut pieces, index, edge.to.index());
        }
    }
    (0..pieces.len()).map(|index| root(&pieces, index)).collect()
}
