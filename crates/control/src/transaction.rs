//! Carries a design out: prepares every node, connects every edge, and activates from the sinks up; all or nothing.
//!
//! Each step knows its undo. When a step fails, the earlier ones are undone in the opposite order. If a space refuses a
//! node that it had offered to run, the caller decides again from the top. A [`Transaction`] calls no space: its caller
//! does, and tells how that went.
//!
//! A change is data: if a plan replaces a running one, the steps are those for wanted minus running. They leave running
//! nodes alone. The caller switches between the plans after the last step, and only then retires the rest of the
//! running plan. From there on no step can fail.

use crate::difference::{self, Difference, operands};
use crate::outputs;
use crate::place::Design;
use crate::space::StepError;
use engine::{Edge, NodeId};
use filter::ParamError;
use request::{Diagnostic, Span};
use std::collections::VecDeque;

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

/// A step for a node or an edge of a plan.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a node ready: opens, compiles and reserves all it needs.
    Prepare(NodeId),
    /// Connects an edge that leaves or reaches a node of the space.
    Connect(NodeId, Edge),
    /// Starts a node: from now on it may get blocks.
    Activate(NodeId),
}

/// What a space is asked to do next.
#[derive(Clone, Debug)]
pub enum Order {
    /// The node takes the place of the second one, which is of the running plan. If the space agrees, that one goes on
    /// as it is: it is neither prepared nor activated, and undoing its preparation does not touch it.
    Keep(NodeId, NodeId),
    /// To carry out a step.
    Carry(Step),
    /// To undo a step, which cannot fail.
    Undo(Step),
}

/// Why a design could not be carried out as it is. All its steps were undone.
#[derive(Clone, Debug)]
pub enum Failed {
    /// A space does not run this node after all, and why. Another design may do.
    Refused(NodeId, String),
    /// No other design would do.
    Error(CarryError),
}

/// A design that is carried out: gives one order after the other, and is told how each went.
///
/// If it is to replace a running design, nodes that go on are left as they are. On failure the running design is
/// unchanged, and all steps of the new one are undone.
pub struct Transaction<'a> {
    design: &'a Design,
    difference: Difference,
    /// A node that writes where the running design still writes.
    conflict: Option<(NodeId, ParamError)>,
    /// Nodes that may go on, and are not asked about yet.
    keeps: VecDeque<(NodeId, NodeId)>,
    goes_on: Vec<bool>,
    /// All steps, each for the node whose space carries it out. Empty while nodes are kept.
    steps: Vec<(NodeId, Step)>,
    done: usize,
    failed: Option<Failed>,
}

impl<'a> Transaction<'a> {
    /// Begins to carry out a design. `running`: the design that it is to replace.
    pub fn new(design: &'a Design, running: Option<&Design>) -> Transaction<'a> {
        // Which nodes go on depends on where nodes are placed.
        let count = design.plan.nodes.len();
        let difference = match running {
            Some(running) => difference::compare(design, running),
            None => Difference { kept: vec![None; count], restarts: Vec::new() },
        };
        let conflict = running.and_then(|running| outputs::conflict(design, running, &difference.kept));
        let kept = difference.kept.iter().enumerate();
        let keeps = kept.filter_map(|(index, running)| Some((NodeId(index as u32), (*running)?))).collect();
        let (goes_on, steps) = (vec![false; count], Vec::new());
        Transaction { design, difference, conflict, keeps, goes_on, steps, done: 0, failed: None }
    }

    /// The next order, and the name of the space that it is for. `None`: the transaction has ended.
    pub fn order(&mut self) -> Option<(&'a str, Order)> {
        if let Some((id, running)) = self.keeps.front() {
            return Some((self.space(*id), Order::Keep(*id, *running)));
        }
        if self.steps.is_empty() {
            self.steps = steps(self.design, &self.goes_on);
        }
        if self.failed.is_none() {
            let (id, step) = self.steps.get(self.done)?;
            match (step, self.conflict.take()) {
                (Step::Prepare(id), Some((at, error))) if *id == at => {
                    let id = *id;
                    self.fail(id, StepError { refused: false, error });
                }
                (_, conflict) => {
                    self.conflict = conflict;
                    return Some((self.space(*id), Order::Carry(step.clone())));
                }
            }
        }
        if self.done > 0 {
            self.done -= 1;
            let (id, step) = &self.steps[self.done];
            return Some((self.space(*id), Order::Undo(step.clone())));
        }
        let kept = self.goes_on.iter().position(|goes_on| *goes_on)?;
        self.goes_on[kept] = false;
        let id = NodeId(kept as u32);
        Some((self.space(id), Order::Undo(Step::Prepare(id))))
    }

    /// Tells how the order went: for [`Order::Keep`], whether the space agrees.
    pub fn answer(&mut self, answer: Result<bool, StepError>) {
        if let Some((id, _)) = self.keeps.pop_front() {
            self.goes_on[id.index()] = answer == Ok(true);
        } else if self.failed.is_none() {
            match answer {
                Ok(_) => self.done += 1,
                Err(error) => self.fail(self.steps[self.done].0, error),
            }
        }
    }

    fn fail(&mut self, id: NodeId, StepError { refused, error }: StepError) {
        self.failed = Some(match refused {
            true => Failed::Refused(id, format!("{REFUSED}{}", error.message)),
            false => Failed::Error(carry_error(self.design, id, error)),
        });
    }

    fn space(&self, id: NodeId) -> &'a str {
        &self.design.plan.nodes[id.index()].space
    }

    /// Which nodes go on, or why nothing was carried out.
    pub fn end(self) -> Result<Difference, Failed> {
        self.failed.map_or(Ok(self.difference), Err)
    }
}

/// The steps for nodes that do not go on, each for a node in whose space it is. An edge between two nodes that go on
/// exists already. An edge between two spaces is a step for both, upstream first.
fn steps(design: &Design, goes_on: &[bool]) -> Vec<(NodeId, Step)> {
    let nodes = || (0..design.plan.nodes.len()).map(|index| NodeId(index as u32));
    let begins = |id: &NodeId| !goes_on[id.index()];
    let space = |id: NodeId| &design.plan.nodes[id.index()].space;
    let edges = nodes().flat_map(|id| design.plan.nodes[id.index()].edges.iter().map(move |edge| (id, edge)));
    let edges = edges.filter(|(from, edge)| begins(from) || begins(&edge.to));
    let connect = edges.flat_map(|(from, edge)| {
        let other = Some(edge.to).filter(|to| space(*to) != space(from));
        std::iter::once(from).chain(other).map(move |id| (id, Step::Connect(from, edge.clone())))
    });
    // Prepare ends last: an error in the request comes before an error about a place that it writes to.
    let operands = operands(design);
    let is_end = |id: &NodeId| design.plan.nodes[id.index()].edges.is_empty() && !operands[id.index()];
    let ordered = nodes().filter(|id| !is_end(id)).chain(nodes().filter(is_end));
    let prepare = ordered.filter(begins).map(|id| (id, Step::Prepare(id)));
    // Nodes are in topological order, so sinks come first in reverse.
    prepare.chain(connect).chain(nodes().rev().filter(begins).map(|id| (id, Step::Activate(id)))).collect()
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
