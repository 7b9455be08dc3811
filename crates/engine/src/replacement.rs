//! A plan that replaces the running one: where each of its nodes comes from, and how far all stages are.

use crate::gauge::Gauges;
use crate::plan::Plan;
use base::atomic::{AtomicUsize, Ordering};
use filter::run::Instance;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// The origin of a node of the new plan.
pub enum Part {
    /// It begins, with this instance. `None`: it is a choice, and choices have no instance.
    New(Option<Instance>),
    /// It is this node of the running plan, and goes on unchanged.
    Kept(usize),
    /// It is this sink of the running plan, and goes on; from now on other filters give its blocks.
    Restarts(usize),
    /// It is this source of the running plan; from now on another instance gives its blocks.
    Goes(usize, Instance),
}

impl Part {
    /// The node of the running plan that it is. `None`: it is new.
    pub(crate) fn of(&self) -> Option<usize> {
        match self {
            Part::New(_) => None,
            Part::Kept(node) | Part::Restarts(node) | Part::Goes(node, _) => Some(*node),
        }
    }
}

/// Sources of one device in the running and in the new plan, which take turns at one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// Sources of the running plan, which give the packets before `first`.
    pub from: Vec<usize>,
    /// Nodes of the new plan, which give the packets from there on.
    pub to: Vec<usize>,
    /// The first packet from which on no new source misses a packet that it wants.
    pub first: u64,
}

/// The gauges of the new stages once the plan has replaced the other, or why it has not: the running plan goes on then.
pub type Replaced = Result<Option<Arc<Gauges>>, String>;

/// A plan that replaces the running one.
pub struct Replacement {
    /// The plan.
    pub plan: Plan,
    /// For each node of the plan: its origin. The nodes above a kept node are the same as before, and kept as well.
    pub parts: Vec<Part>,
    /// For each partition of the flows except the first: one instance for each node that begins and that the partition has a
    /// copy of.
    pub copies: Vec<Vec<Option<Instance>>>,
    /// Sources that take over from running sources of the same device.
    pub hand_overs: Vec<HandOver>,
    /// Gets the outcome. It is dropped if the run, or one of its stages, ends first.
    pub done: SyncSender<Replaced>,
}

/// How a replacement treats a node of the running plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    GoesOn,
    Restarts,
    Retires,
}

/// The step of a replacement, for all stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no replacement.
    Run,
    /// All stages have to stop at one block.
    Stop,
    /// Retired nodes give their last blocks.
    Retire,
}

/// A [`Step`] that threads share.
#[derive(Debug, Default)]
pub(crate) struct Switching(AtomicUsize);

impl Switching {
    pub(crate) fn step(&self) -> Step {
        // Relaxed: a stage that sees it a batch late stops a batch later.
        match self.0.load(Ordering::Relaxed) {
            0 => Step::Run,
            1 => Step::Stop,
            _ => Step::Retire,
        }
    }

    pub(crate) fn set(&self, step: Step) {
        self.0.store(step as usize, Ordering::Relaxed);
    }
}
