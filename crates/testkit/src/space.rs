//! A second space, which refuses or fails at any chosen step, and records what is left in it.

use control::place::{Asked, Offered};
use control::transaction::{Order, Step};
use control::{Offer, StepError};
use engine::{NodeId, Plan};
use filter::{ParamError, Spaces};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The refusals of a [`FussySpace`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Makes no offers.
    pub offers_nothing: bool,
    /// Refuses to prepare this kind, although it offered to run it.
    pub refuses: Option<&'static str>,
    /// Fails at this step, counted from 0 over all its steps.
    pub fails_at: Option<usize>,
}

/// The present contents of a [`FussySpace`], and the calls it got. Shared with the test that made it.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Nodes that are prepared.
    pub prepared: BTreeSet<NodeId>,
    /// Nodes that go on from a running plan, with their ids there.
    pub kept: BTreeMap<NodeId, NodeId>,
    /// Connected edges: (from, to).
    pub connected: Vec<(NodeId, NodeId)>,
    /// Active nodes.
    pub active: BTreeSet<NodeId>,
    /// Number of steps, without undone ones.
    pub steps: usize,
    /// All calls, in order, as text.
    pub log: Vec<String>,
}

impl Contents {
    /// Whether the space is empty.
    pub fn is_empty(&self) -> bool {
        self.prepared.is_empty() && self.kept.is_empty() && self.connected.is_empty() && self.active.is_empty()
    }
}

/// A space that runs nothing, but takes part in transactions.
pub struct FussySpace {
    name: &'static str,
    sort: Spaces,
    cost: u32,
    all_asked: Refusals,
    contents: Arc<Mutex<Contents>>,
}

impl FussySpace {
    /// A space of this sort, and a handle to its contents.
    pub fn new(name: &'static str, sort: Spaces, all_asked: Refusals) -> (FussySpace, Arc<Mutex<Contents>>) {
        let contents = Arc::new(Mutex::new(Contents::default()));
        (FussySpace { name, sort, cost: 1, all_asked, contents: Arc::clone(&contents) }, contents)
    }

    /// Sets its cost.
    #[must_use]
    pub fn at_cost(mut self, cost: u32) -> FussySpace {
        self.cost = cost;
        self
    }

    fn step(&self, what: String, change: impl FnOnce(&mut Contents)) -> Result<(), StepError> {
        let mut contents = self.contents.lock().expect("one thread");
        let number = contents.steps;
        contents.steps += 1;
        contents.log.push(what);
        if self.all_asked.fails_at == Some(number) {
            let error = ParamError::system(format!("{} fails at step {number}", self.name));
            return Err(StepError { refused: false, error });
        }
        change(&mut contents);
        Ok(())
    }

    fn undo(&self, what: String, change: impl FnOnce(&mut Contents)) {
        let mut contents = self.contents.lock().expect("one thread");
        contents.log.push(what);
        change(&mut contents);
    }

    /// Its name and its sort.
    pub fn what(&self) -> (&'static str, Spaces) {
        (self.name, self.sort)
    }

    /// What it offers for a node.
    pub fn offer(&self, asked: &Asked<'_>) -> Offered {
        if self.all_asked.offers_nothing {
            return Err(format!("has no implementation of `{}`", asked.calls[0].0.name));
        }
        Ok(Some(Offer { cost: self.cost * asked.calls.len() as u32 }))
    }

    /// Follows an order of a transaction.
    ///
    /// # Errors
    /// The space was made to refuse this node, or to fail at this step.
    pub fn follow(&self, order: &Order, plan: &Plan) -> Result<bool, StepError> {
        match order {
            Order::Keep(id, running) => self.undo(format!("keep {} as {}", running.0, id.0), |contents| {
                contents.kept.insert(*id, *running);
            }),
            Order::Carry(Step::Prepare(id)) => {
                let label = &plan.nodes[id.index()].label;
                let kind = label.split(' ').next().unwrap_or_default();
                if self.all_asked.refuses == Some(kind) {
                    let error = ParamError::system(format!("{} refuses {kind}", self.name));
                    return Err(StepError { refused: true, error });
                }
                self.step(format!("prepare {label}"), |contents| {
                    contents.prepared.insert(*id);
                })?;
            }
            Order::Carry(Step::Connect(from, edge)) => {
                self.step(format!("connect {} {}", from.0, edge.to.0), |contents| {
                    contents.connected.push((*from, edge.to));
                })?
            }
            Order::Carry(Step::Activate(id)) => self.step(format!("activate {}", id.0), |contents| {
                contents.active.insert(*id);
            })?,
            Order::Undo(Step::Prepare(id)) => self.undo(format!("discard {}", id.0), |contents| {
                contents.prepared.remove(id);
                contents.kept.remove(id);
            }),
            Order::Undo(Step::Connect(from, edge)) => {
                self.undo(format!("disconnect {} {}", from.0, edge.to.0), |contents| {
                    let place = contents.connected.iter().position(|known| *known == (*from, edge.to));
                    place.map(|place| contents.connected.remove(place));
                });
            }
            Order::Undo(Step::Activate(id)) => self.undo(format!("deactivate {}", id.0), |contents| {
                contents.active.remove(id);
            }),
        }
        Ok(true)
    }
}
