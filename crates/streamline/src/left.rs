//! What a node of the worker's plan is: a node of the whole plan, or a source that stands for what runs elsewhere.

use crate::live::reads::Reads;
use engine::NodeId;

/// What a node of the worker's plan is.
pub(crate) enum Left {
    /// The same node of the whole plan.
    Node(NodeId),
    /// A source of blocks from elsewhere, or a sink to there. The node is the one of the whole plan that gives those
    /// blocks.
    Given(NodeId, Opened),
    /// A source that stands for nodes that run below.
    Source {
        /// The last node of the whole plan that it stands for.
        origin: NodeId,
        /// The source itself.
        source: Opened,
        /// The packets or counts that the source reads.
        reads: Reads,
        /// The first packet from which it can replace other sources of its device. `None`: it cannot.
        first: Option<u64>,
    },
}

pub(crate) enum Opened {
    New(filter::run::Instance),
    /// This node of the running worker.
    Running(usize),
}

impl Left {
    /// The node of the whole plan whose blocks this node gives.
    pub(crate) fn origin(&self) -> NodeId {
        let (Left::Node(id) | Left::Given(id, _) | Left::Source { origin: id, .. }) = self;
        *id
    }

    pub(crate) fn is_node(&self, id: NodeId) -> bool {
        matches!(self, Left::Node(one) if *one == id)
    }
}
