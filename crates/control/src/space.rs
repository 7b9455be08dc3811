//! A space, as the control plane sees it: it offers implementations at a cost, and carries out steps that it can undo.

use engine::{Edge, Node, NodeId, Plan};
use filter::{Kind, ParamError, Params, Spaces};

/// An implementation a space offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What a block costs here, in rough nanoseconds: breaks ties between spaces of one sort.
    pub cost: u32,
}

/// A filter that stands before another one, on some way to it, and what it is told.
pub type Before<'a> = (&'static Kind, &'a Params);

/// Why a step did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// The space cannot do it after all: another one may.
    pub refused: bool,
    /// What was wrong.
    pub error: ParamError,
}

/// What a space says of a plan as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Nodes it would have to run and will not, standing where they stand, and why: they are placed again without it.
    pub refused: Vec<(NodeId, String)>,
    /// What it does for nodes that run elsewhere, for people. Of a plan of which it refuses something they say nothing.
    pub notes: Vec<(NodeId, String)>,
    /// A node that the request must not have as it stands, and why.
    pub wrong: Option<(NodeId, ParamError)>,
}

/// A place filters run. Steps come in this order for every node: prepare, connect, activate; their undoing in the opposite
/// order. Undoing cannot fail.
pub trait Space {
    /// Its name in plans: `app`, `kernel`, `daemon`, `parser`.
    fn name(&self) -> &str;

    /// Which sort of space it is.
    fn sort(&self) -> Spaces;

    /// Can it run this kind with these parameters, where these filters before it run here as well? Else says why not, or nothing
    /// where nobody would look for it here. Changes nothing.
    fn offer(&self, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Result<Option<Offer>, String>;

    /// What it says of a plan in which these nodes of it were placed here one by one: some can be judged only when it is
    /// known what stands behind them. Whoever asks where things run, and whoever runs them, hear the same. Changes nothing.
    fn judge(&self, _plan: &Plan) -> Verdict {
        Verdict::default()
    }

    /// A plan is to take the place of one that runs, and this node of it is that node of the running one. True where it goes
    /// on here as it is: then it is neither prepared nor activated, and discarding it leaves the running one alone.
    fn keep(&mut self, _id: NodeId, _running: NodeId) -> bool {
        false
    }

    /// Makes a node ready: opens what it needs, compiles, reserves.
    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError>;

    /// Undoes `prepare`.
    fn discard(&mut self, id: NodeId);

    /// Lays an edge of this plan that leaves or reaches a node of this space.
    fn connect(&mut self, from: NodeId, edge: &Edge, plan: &Plan) -> Result<(), StepError>;

    /// Undoes `connect`.
    fn disconnect(&mut self, from: NodeId, edge: &Edge);

    /// Lets a node run: from now on it may get blocks.
    fn activate(&mut self, id: NodeId) -> Result<(), StepError>;

    /// Undoes `activate`.
    fn deactivate(&mut self, id: NodeId);
}

/// How far up a sort of space lies: blocks never go down again.
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

    fn judge(&self, plan: &Plan) -> Verdict {
        (**self).judge(plan)
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
