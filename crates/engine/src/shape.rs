//! Properties of a node that follow from the whole plan.

use crate::plan::{Choice, NodeId, Plan, Task};
use filter::Gives;

/// Properties of a node that follow from the whole plan.
pub(crate) struct Shape {
    /// For each node: it is an operand of a choice.
    pub(crate) operands: Vec<bool>,
    /// For each node: no other node sees the blocks that it gets, or it is the last to see them.
    pub(crate) exclusive: Vec<bool>,
    /// For each node: a node behind it reads more of messages than META records.
    pub(crate) bodies_are_read: Vec<bool>,
}

impl Shape {
    pub(crate) fn of(plan: &Plan) -> Shape {
        let above = plan.sources_of();
        let mut operands = vec![false; plan.nodes.len()];
        let mut exclusive = vec![true; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate() {
            if let Task::Choose(choice) = &node.task {
                mark_operands(choice, &mut operands);
            }
            // A batch goes along the last edge when all nodes behind the other edges have returned.
            let comes_last = |from: &NodeId| {
                let edges = &plan.nodes[from.index()].edges;
                let edge = edges.iter().find(|edge| edge.to.index() == index);
                let last = edge.and_then(|edge| edges.iter().rfind(|other| other.rejected == edge.rejected));
                last.is_some_and(|last| last.to.index() == index)
            };
            let is_shared =
                above[index].len() > 1 || above[index].iter().any(|from| !exclusive[from.index()] || !comes_last(from));
            exclusive[index] = !is_shared;
        }
        let mut bodies_are_read = vec![false; plan.nodes.len()];
        for (index, node) in plan.nodes.iter().enumerate().rev() {
            bodies_are_read[index] = node.edges.iter().any(|edge| match &plan.nodes[edge.to.index()].task {
                Task::Filter { kind, .. } if kind.reads_heads => {
                    kind.gives == Gives::Same && bodies_are_read[edge.to.index()]
                }
                _ => true,
            });
        }
        Shape { operands, exclusive, bodies_are_read }
    }
}

fn mark_operands(choice: &Choice, operands: &mut [bool]) {
    match choice {
        Choice::Filter(id) => operands[id.index()] = true,
        Choice::Class(_) => {}
        Choice::All(parts) | Choice::Any(parts) => parts.iter().for_each(|part| mark_operands(part, operands)),
        Choice::Not(part) | Choice::KeepClass(part) => mark_operands(part, operands),
    }
}
