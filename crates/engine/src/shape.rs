//! Properties of a node that follow from the whole plan.

use crate::plan::{Choice, NodeId, Plan, Task};
use filter::Wanted;

/// Properties of a node that follow from the whole plan.
pub(crate) struct Shape {
    /// For each node: it is an operand of a choice.
    pub(crate) operands: Vec<bool>,
    /// For each node: no other node sees the blocks that it gets, or it is the last to see them.
    pub(crate) exclusive: Vec<bool>,
    /// For each node: the fields and bodies that the nodes behind it read.
    pub(crate) read_behind: Vec<Wanted>,
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
        Shape { operands, exclusive, read_behind: read_behind(plan) }
    }
}

/// For each node: the fields and bodies that the nodes behind it read.
fn read_behind(plan: &Plan) -> Vec<Wanted> {
    let count = plan.nodes.len();
    let mut given: Vec<Wanted> = (0..count).map(|_| Wanted::none()).collect();
    // What each node and those behind it read of the blocks that come to it.
    let mut come: Vec<Wanted> = (0..count).map(|_| Wanted::none()).collect();
    for (index, node) in plan.nodes.iter().enumerate().rev() {
        node.edges.iter().filter(|edge| !edge.rejected).for_each(|edge| given[index].add(&come[edge.to.index()]));
        let mut read = read_by(plan, &node.task);
        if hands_names_on(&node.task) {
            read.add(&given[index]);
        }
        node.edges.iter().filter(|edge| edge.rejected).for_each(|edge| read.add(&come[edge.to.index()]));
        come[index] = read;
    }
    given
}

fn hands_names_on(task: &Task) -> bool {
    match task {
        Task::Filter { kind, params } => kind.keeps_names || kind.hands_on(params),
        Task::Choose(_) => true,
    }
}

fn read_by(plan: &Plan, task: &Task) -> Wanted {
    match task {
        Task::Filter { kind, params } => kind.wants_of_records(params),
        Task::Choose(choice) => {
            let (mut read, mut operands) = (Wanted::none(), vec![false; plan.nodes.len()]);
            mark_operands(choice, &mut operands);
            let operands = plan.nodes.iter().zip(operands).filter(|(_, is_operand)| *is_operand);
            operands.for_each(|(node, _)| read.add(&read_by(plan, &node.task)));
            read
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Edge, How, Node, NodeId};
    use filter::{Kind, ParamError, Params, Parts, Type, Types};

    const fn kind(name: &'static str) -> Kind {
        Kind::new(name, "", |_, _| Err(ParamError::system("not run")))
    }

    static SOURCE: Kind = kind("source").source(Type::Record);
    static NAMES_ONE: Kind = kind("names-one").reads_fields(|_| vec!["one".into()]);
    static NAMES_TWO: Kind = kind("names-two").reads_fields(|_| vec!["two".into()]).sink();
    static GROUPS: Kind =
        kind("groups").reads_fields(|_| vec!["three".into()]).gives_records(&filter::Schema::new("groups", &[]));
    static JOINS: Kind =
        kind("joins").keeps_names().gives_records(&filter::Schema::new("joins", &[])).touches(Parts::DATA, Parts::NONE);
    static BLIND: Kind = kind("blind").touches(Parts::METADATA, Parts::NONE);
    static LOOKS: Kind = kind("looks").sink();

    /// `edges`: from, to, and whether it carries rejected blocks. `expected`: of the source's records, whether the fields
    /// `one`, `two` and `three`, and all fields, are read.
    fn check(kinds: &[&'static Kind], edges: &[(usize, u32, bool)], expected: [bool; 4]) -> Wanted {
        let node = |kind: &&'static Kind| Node {
            label: String::new(),
            task: Task::Filter { kind, params: Params::new() },
            space: String::new(),
            input: Types::NONE,
            how: How::default(),
            edges: Vec::new(),
        };
        let mut plan = Plan { nodes: kinds.iter().map(node).collect(), ..Plan::default() };
        for (from, to, rejected) in edges {
            plan.nodes[*from].edges.push(Edge { rejected: *rejected, ..Edge::plain(NodeId(*to)) });
        }
        let read = Shape::of(&plan).read_behind.remove(0);
        let found = [read.has("one"), read.has("two"), read.has("three"), read.is_all()];
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!((found, read.bodies()), (expected, expected[3]), "{names:?}");
        read
    }

    #[test]
    fn a_source_gives_what_all_filters_behind_it_read() {
        check(&[&SOURCE], &[], [false; 4]);
        check(&[&SOURCE, &NAMES_TWO], &[(0, 1, false)], [false, true, false, false]);
        let chain = [&SOURCE, &NAMES_ONE, &BLIND, &NAMES_TWO];
        check(&chain, &[(0, 1, false), (1, 2, false), (2, 3, false)], [true, true, false, false]);
        let branches = [&SOURCE, &NAMES_ONE, &LOOKS];
        check(&branches, &[(0, 1, false), (0, 2, false)], [true; 4]);
        check(&branches, &[(0, 1, false), (1, 2, true)], [true; 4]);
        // What joins records reads all of them, and hands on which fields are asked for by name.
        let read = check(&[&SOURCE, &JOINS, &NAMES_TWO], &[(0, 1, false), (1, 2, false)], [true; 4]);
        assert!(read.names_field("two") && !read.names_field("one"));
        let groups = [&SOURCE, &GROUPS, &LOOKS];
        check(&groups, &[(0, 1, false), (1, 2, false)], [false, false, true, false]);
        check(&groups, &[(0, 1, false), (1, 2, true)], [true; 4]);
        // A filter behind a rejected edge reads none of the records that the node gives.
        check(&[&SOURCE, &NAMES_TWO, &LOOKS], &[(0, 1, false), (0, 2, true)], [false, true, false, false]);
    }
}
