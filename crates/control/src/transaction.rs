//! Carries a design out: prepares every node, connects every edge, and activates from the sinks up; all or nothing.
//!
//! Each step knows its undo. When a step fails, the earlier ones are undone in the opposite order. If a space refuses a
//! node that it had offered to run, the caller decides again from the top.
//!
//! A change is data: if a plan replaces a running one, the steps are those for wanted minus running. They leave running
//! nodes alone. The caller switches between the plans after the last step, and only then retires the rest of the
//! running plan. From there on no step can fail.

use crate::difference::{self, Difference, Kept, operands};
use crate::outputs;
use crate::place::Design;
use crate::space::{Space, StepError};
use engine::{Edge, NodeId};
use filter::ParamError;
use request::{Diagnostic, Span};

/// Why a design could not be carried out. All its steps were undone.
#[derive(Clone, Debug)]
pub enum CarryError {
    /// The request is wrong.
    Request(Diagnostic),
    /// The world is wrong.
    System(String),
}

/// Begins the reason when a space did not run a node that it had offered to run.
pub const REFUSED: &str = "refused when asked to prepare it: ";

#[derive(Clone, Debug)]
enum Step {
    Prepare(NodeId),
    Connect(NodeId, Edge),
    Activate(NodeId),
}

/// Why a design could not be carried out as it is. All its steps were undone.
#[derive(Clone, Debug)]
pub enum Failed {
    /// A space does not run this node after all, and why. Another design may do.
    Refused(NodeId, String),
    /// No other design would do.
    Error(CarryError),
}

/// Carries out a design. If it is to replace a running one, nodes that go on are left as they are; gives which these
/// are. On failure the running design is unchanged, and all steps of the new one are undone.
pub fn carry_out(
    design: &Design,
    running: Option<&Design>,
    spaces: &mut [Box<dyn Space + '_>],
) -> Result<Difference, Failed> {
    // Which nodes go on depends on where nodes are placed.
    let difference = match running {
        Some(running) => difference::compare(design, running),
        None => Difference { kept: vec![None; design.plan.nodes.len()], restarts: Vec::new() },
    };
    let conflict = running.and_then(|running| outputs::conflict(design, running, &difference.kept));
    match attempt(design, &difference.kept, conflict, spaces) {
        Ok(()) => Ok(difference),
        Err((node, StepError { refused: true, error })) => {
            Err(Failed::Refused(node, format!("{REFUSED}{}", error.message)))
        }
        Err((node, StepError { error, .. })) => Err(Failed::Error(carry_error(design, node, error))),
    }
}

/// The steps for nodes that do not go on. An edge between two nodes that go on exists already.
fn steps(design: &Design, goes_on: &[bool]) -> Vec<Step> {
    let nodes = || (0..design.plan.nodes.len()).map(|index| NodeId(index as u32));
    let begins = |id: &NodeId| !goes_on[id.index()];
    let edges = nodes().flat_map(|id| design.plan.nodes[id.index()].edges.iter().map(move |edge| (id, edge.clone())));
    let edges = edges.filter(|(from, edge)| begins(from) || begins(&edge.to));
    let connect = edges.map(|(from, edge)| Step::Connect(from, edge));
    // Prepare ends last: an error in the request comes before an error about a place that it writes to.
    let operands = operands(design);
    let is_end = |id: &NodeId| design.plan.nodes[id.index()].edges.is_empty() && !operands[id.index()];
    let ordered = nodes().filter(|id| !is_end(id)).chain(nodes().filter(is_end));
    let prepare = ordered.filter(begins).map(Step::Prepare);
    // Nodes are in topological order, so sinks come first in reverse.
    prepare.chain(connect).chain(nodes().rev().filter(begins).map(Step::Activate)).collect()
}

fn attempt(
    design: &Design,
    kept: &Kept,
    conflict: Option<(NodeId, ParamError)>,
    spaces: &mut [Box<dyn Space + '_>],
) -> Result<(), (NodeId, StepError)> {
    let going_on = kept.iter().enumerate().map(|(index, running)| {
        let (id, Some(running)) = (NodeId(index as u32), running) else { return false };
        spaces.iter_mut().any(|space| space.name() == design.plan.nodes[index].space && space.keep(id, *running))
    });
    let goes_on: Vec<bool> = going_on.collect();
    let steps = steps(design, &goes_on);
    for (index, step) in steps.iter().enumerate() {
        let carried = match (step, &conflict) {
            (Step::Prepare(id), Some((at, error))) if id == at => {
                Err((*id, StepError { refused: false, error: error.clone() }))
            }
            _ => carry(step, design, spaces),
        };
        let Err((node, error)) = carried else { continue };
        steps[..index].iter().rev().for_each(|done| undo(done, design, spaces));
        for index in (0..goes_on.len()).filter(|index| goes_on[*index]) {
            undo(&Step::Prepare(NodeId(index as u32)), design, spaces);
        }
        return Err((node, error));
    }
    Ok(())
}

/// The spaces of a step, by index; for an edge both ends' spaces, upstream first.
fn concerned(step: &Step, design: &Design, spaces: &[Box<dyn Space + '_>]) -> Vec<(NodeId, usize)> {
    let ids = match step {
        Step::Prepare(id) | Step::Activate(id) => vec![*id],
        Step::Connect(from, edge) => vec![*from, edge.to],
    };
    let mut found: Vec<(NodeId, usize)> = Vec::new();
    for id in ids {
        let name = &design.plan.nodes[id.index()].space;
        let index = spaces.iter().position(|space| space.name() == name);
        let index = index.expect("a design is placed in spaces that are here");
        if found.iter().all(|(_, known)| *known != index) {
            found.push((id, index));
        }
    }
    found
}

fn carry(step: &Step, design: &Design, spaces: &mut [Box<dyn Space + '_>]) -> Result<(), (NodeId, StepError)> {
    let concerned = concerned(step, design, spaces);
    for (done, (id, index)) in concerned.iter().enumerate() {
        let space = &mut spaces[*index];
        let outcome = match step {
            Step::Prepare(id) => space.prepare(*id, &design.plan.nodes[id.index()]),
            Step::Connect(from, edge) => space.connect(*from, edge, &design.plan),
            Step::Activate(id) => space.activate(*id),
        };
        if let Err(error) = outcome {
            for (_, index) in concerned[..done].iter().rev() {
                undo_in(step, spaces[*index].as_mut());
            }
            return Err((*id, error));
        }
    }
    Ok(())
}

fn undo(step: &Step, design: &Design, spaces: &mut [Box<dyn Space + '_>]) {
    for (_, index) in concerned(step, design, spaces).into_iter().rev() {
        undo_in(step, spaces[index].as_mut());
    }
}

fn undo_in(step: &Step, space: &mut dyn Space) {
    match step {
        Step::Prepare(id) => space.discard(*id),
        Step::Connect(from, edge) => space.disconnect(*from, edge),
        Step::Activate(id) => space.deactivate(*id),
    }
}

/// The place of a node's parameter, or of the nearest node before it that has this parameter. The nodes of a space that
/// work together are opened where blocks leave that space.
fn span_of(design: &Design, node: NodeId, key: &str) -> Option<Span> {
    let above = design.plan.sources_of();
    let mut looked = vec![node];
    let mut at = 0;
    while let Some(&id) = looked.get(at) {
        let spans = &design.sites[id.index()].param_spans;
        if let Some((_, span)) = spans.iter().find(|(known, _)| *known == key) {
            return Some(*span);
        }
        let further: Vec<NodeId> = above[id.index()].iter().copied().filter(|id| !looked.contains(id)).collect();
        looked.extend(further);
        at += 1;
    }
    None
}

/// Sorts the error of a node that could not be prepared by whose fault it is, with its place in the request.
pub fn carry_error(design: &Design, node: NodeId, error: ParamError) -> CarryError {
    if error.system {
        let help = error.help.map_or(String::new(), |help| format!(" ({help})"));
        return CarryError::System(format!("{}{help}", error.message));
    }
    CarryError::Request(wrong(design, node, error))
}

/// The error of a node that makes the request wrong, with its place in the request.
pub fn wrong(design: &Design, node: NodeId, error: ParamError) -> Diagnostic {
    let span = error.key.and_then(|key| span_of(design, node, key));
    let mut diagnostic = Diagnostic::new(error.message, span.unwrap_or(design.sites[node.index()].span));
    diagnostic.help = error.help;
    diagnostic
}
