//! Nodes that a space cannot run where they stand because of the plan's shape, whatever their programs are. They are
//! placed again elsewhere.

use super::lowering::{WAYS, forwards_to, is_own};
use super::selection::selection;
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::{Kind, Lower, Params};
use std::collections::BTreeSet;

/// The nodes of a plan that stand in one space.
pub(super) struct Shape<'a> {
    space: &'static str,
    plan: &'a Plan,
    above: &'a [Vec<NodeId>],
    /// Nodes that the space will not run, and why.
    pub(super) refused: Vec<(NodeId, String)>,
    /// Notes for people about nodes that it runs.
    pub(super) notes: Vec<(NodeId, String)>,
}

impl<'a> Shape<'a> {
    /// `above`: for each node of the plan, the nodes before it.
    pub(super) fn of(space: &'static str, plan: &'a Plan, above: &'a [Vec<NodeId>]) -> Shape<'a> {
        let mut shape = Shape { space, plan, above, refused: Vec::new(), notes: Vec::new() };
        let here: Vec<NodeId> = shape.ids().collect();
        shape.refuse_by_operand(&here);
        shape.refuse_from_elsewhere(&here);
        shape.refuse_by_class(&here);
        shape.refuse_by_rejects(&here);
        shape.refuse_behind_forks(&here);
        shape.refuse_forwards(&here);
        shape
    }

    /// The nodes of this space.
    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> + use<'_, 'a> {
        (0..self.plan.nodes.len()).map(|index| NodeId(index as u32)).filter(|id| self.is_here(*id))
    }

    /// The name of the space.
    pub(super) fn space(&self) -> &'static str {
        self.space
    }

    fn node(&self, id: NodeId) -> &'a Node {
        &self.plan.nodes[id.index()]
    }

    pub(super) fn is_here(&self, id: NodeId) -> bool {
        self.node(id).space == self.space
    }

    fn refuse(&mut self, id: NodeId, why: impl Into<String>) {
        self.refused.push((id, why.into()));
    }

    fn filter(&self, id: NodeId) -> Option<(&'static Kind, &'a Params)> {
        match &self.node(id).task {
            Task::Filter { kind, params } => Some((kind, params)),
            Task::Choose(_) => None,
        }
    }

    /// The ways to a node from the devices before it, each with the nodes on it. `None`: there are too many.
    pub(super) fn ways(&self, to: NodeId) -> Option<Vec<Vec<NodeId>>> {
        let above: Vec<NodeId> = self.above[to.index()].iter().copied().filter(|id| self.is_here(*id)).collect();
        if above.is_empty() {
            return Some(vec![vec![to]]);
        }
        let mut ways = Vec::new();
        for from in above {
            ways.extend(self.ways(from)?);
            if ways.len() > WAYS {
                return None;
            }
        }
        ways.iter_mut().for_each(|way| way.push(to));
        Some(ways)
    }

    /// Refuses choices by class: no program knows the class.
    fn refuse_by_operand(&mut self, here: &[NodeId]) {
        for id in here.iter().copied().filter(|id| selection(self.plan, *id).is_none()).collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// Refuses nodes that get packets from elsewhere: no path carries packets from one of these spaces to the other.
    fn refuse_from_elsewhere(&mut self, here: &[NodeId]) {
        let gets_others = |id: &NodeId| self.above[id.index()].iter().any(|from| !self.is_here(*from));
        for id in here.iter().copied().filter(gets_others).collect::<Vec<_>>() {
            self.refuse(id, "some of its packets come from a device that is not in this space");
        }
    }

    /// Refuses nodes behind edges for one class: only the reader can check the class.
    fn refuse_by_class(&mut self, here: &[NodeId]) {
        let edges = here.iter().flat_map(|id| &self.plan.nodes[id.index()].edges);
        let asking = edges.filter(|edge| edge.select.is_some() && self.is_here(edge.to)).map(|edge| edge.to);
        for id in asking.collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// Refuses selectors whose rejected packets are wanted: packets rejected down there do not come up.
    fn refuse_by_rejects(&mut self, here: &[NodeId]) {
        let rejects = |id: &NodeId| self.node(*id).edges.iter().any(|edge| edge.rejected);
        for id in here.iter().copied().filter(rejects).collect::<Vec<_>>() {
            self.refuse(id, "another filter takes its rejected blocks");
        }
    }

    /// Refuses nodes behind forks of a device that the request has to itself. Such a device chooses its packets once,
    /// by the filters on every packet's path. Filters behind a fork run above, on what any of the branches wants.
    fn refuse_behind_forks(&mut self, here: &[NodeId]) {
        for device in here.iter().copied() {
            if !self.filter(device).is_some_and(|(kind, _)| is_own(kind)) {
                continue;
            }
            let (mut behind, mut at) = (BTreeSet::new(), device);
            while let [Edge { to, .. }] = &self.node(at).edges[..] {
                if !self.is_here(*to) {
                    break;
                }
                at = *to;
            }
            let mut next: Vec<NodeId> = self.node(at).edges.iter().map(|edge| edge.to).collect();
            while let Some(id) = next.pop() {
                if self.is_here(id) && behind.insert(id) {
                    next.extend(self.node(id).edges.iter().map(|edge| edge.to));
                }
            }
            for id in behind {
                self.refuse(id, "the device's packets are chosen once, for all branches");
            }
        }
    }

    /// Refuses a forwarding sink whose frames have another reader: a forwarded frame is gone.
    fn refuse_forwards(&mut self, here: &[NodeId]) {
        for id in here.iter().copied() {
            if self.filter(id).is_none_or(|(kind, params)| forwards_to(kind, params).is_none()) {
                continue;
            }
            let ways = self.ways(id).unwrap_or_default();
            let has_program =
                |at: &NodeId| matches!(self.filter(*at), Some((Kind { lower: Some(Lower::Program(_)), .. }, _)));
            match &ways.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
                [[_, between @ .., _]] if !between.iter().all(has_program) => {
                    self.refuse(id, "between two devices it runs `bpf` alone");
                }
                [way] if way[..way.len() - 1].iter().all(|at| self.node(*at).edges.len() == 1) => {
                    self.notes.push((id, "frames do not leave the kernel".into()));
                }
                [_] => self.refuse(id, "another branch wants the same frames"),
                _ => self.refuse(id, "frames come to it by several ways"),
            }
        }
    }
}
