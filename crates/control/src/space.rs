//! A space for the control plane: it offers to run filters at a cost, and carries out steps that it can undo.

use engine::{Edge, Node, NodeId, Plan};
use filter::{Kind, ParamError, Params, Spaces};

/// An offer of a space to run a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The cost of a block here, in rough nanoseconds: decides between spaces of one sort.
    pub cost: u32,
}

/// A filter on some path to another one, with its parameters.
pub type Before<'a> = (&'static Kind, &'a Params);

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// The space cannot do it after all. Something else may be tried: another space, or to read more packets.
    pub refused: bool,
    /// The error.
    pub error: ParamError,
}

/// A place that runs filters. The steps for each node come in this order: prepare, connect, activate. They are undone
/// in the opposite order; undoing cannot fail.
pub trait Space {
    /// Its name in plans: `app`, `kernel`, `daemon`, `parser`.
    fn name(&self) -> &str;

    /// Its sort.
    fn sort(&self) -> Spaces;

    /// Can it run this kind with these parameters, behind these filters that run here as well? The error says why not;
    /// `None` if people would not expect it to. Changes nothing.
    fn offer(&self, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Result<Option<Offer>, String>;

    /// Node `id` of a plan takes the place of node `running` of the running plan. `true`: it goes on here as it is.
    /// Then it is neither prepared nor activated, and discarding it does not touch the running node.
    fn keep(&mut self, _id: NodeId, _running: NodeId) -> bool {
        false
    }

    /// Makes a node ready: opens, compiles and reserves all it needs.
    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError>;

    /// Undoes `prepare`.
    fn discard(&mut self, id: NodeId);

    /// Connects an edge of this plan that leaves or reaches a node of this space.
    fn connect(&mut self, from: NodeId, edge: &Edge, plan: &Plan) -> Result<(), StepError>;

    /// Undoes `connect`.
    fn disconnect(&mut self, from: NodeId, edge: &Edge);

    /// Starts a node: from now on it may get blocks.
    fn activate(&mut self, id: NodeId) -> Result<(), StepError>;

    /// Undoes `activate`.
    fn deactivate(&mut self, id: NodeId);
}

/// How high a sort of space is: blocks never go down again.
pub fn level(sort: Spaces) -> u8 {
    [Spaces::KERNEL, Spaces::DAEMON, Spaces::PARSER, Spaces::APP, Spaces::REMOTE]
        .iter()
        .position(|known| *known == sort)
        .map_or(u8::MAX, |place| place as u8)
}

impl<S: Space + ?Sized> Space for &mut S {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn sort(&self) -> Spaces {
        (**self).sort()
    }

    fn offer(&self, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Result<Option<Offer>, String> {
        (**self).offer(kind, params, before)
    }

    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError> {
        (**self).prepare(id, node)
    }

    fn keep(&mut self, id: NodeId, running: NodeId) -> bool {
        (**self).keep(id, running)
    }

    fn discard(&mut self, id: NodeId) {
        (**self).discard(id);
    }

    fn connect(&mut self, from: NodeId, edge: &Edge, plan: &Plan) -> Result<(), StepError> {
        (**self).connect(from, edge, plan)
    }

    fn disconnect(&mut self, from: NodeId, edge: &Edge) {
        (**self).disconnect(from, edge);
    }

    fn activate(&mut self, id: NodeId) -> Result<(), StepError> {
        (**self).activate(id)
    }

    fn deactivate(&mut self, id: NodeId) {
        (**self).deactivate(id);
    }
}
