//! A plan: a checked graph with every filter placed. Data only: the control plane makes it, and spaces carry it out.

use base::id::Class;
use buffer::queue::numbers::Queue;
use filter::{Kind, ParamType, Params, Types, Wait};
use std::fmt;

/// A node's place in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A whole plan. Nodes are in topological order: edges lead to later nodes only.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// How its worker waits while no block comes.
    pub wait: Wait,
    /// How to divide it over threads, if the request has no cuts.
    pub workers: Workers,
    /// Processors that it may use; 0 = not known.
    pub processors: usize,
    /// Processors for its threads, one after the other, and again from the first. Empty: any.
    pub cpus: Vec<u32>,
    /// The kind of queue between its threads.
    pub queue: Queue,
    /// Nodes by which a program gives and takes blocks: they run in the caller's thread, and so in one stage.
    pub caller: Vec<NodeId>,
    /// Pieces that no edge joins run on threads of their own, because a process joins them.
    pub apart: bool,
}

/// How to divide a plan over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// This number of partitions of the flows, each with copies of filters; 0 or 1 = none.
    Partitions(usize),
    /// The planner cuts the plan into stages by the costs of filters, at most one for each processor.
    Pipeline,
    /// The planner takes one thread, partitions or a pipeline, by the costs of filters.
    Auto,
}

impl Default for Workers {
    fn default() -> Workers {
        Workers::Partitions(1)
    }
}

impl fmt::Display for Workers {
    /// Writes the value as `set workers=` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workers::Partitions(count) => count.fmt(f),
            Workers::Pipeline => f.write_str("pipeline"),
            Workers::Auto => f.write_str("auto"),
        }
    }
}

/// How a node runs, whatever its filter does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Threads with a copy of the node each; 0 or 1 = one thread.
    pub spread: usize,
    /// It runs in a process of its own, together with neighbours that do, too.
    pub isolate: bool,
    /// A new process replaces one that died.
    pub restart: bool,
    /// The cost of its filter. `None`: not known.
    pub cost: Option<Cost>,
}

/// The cost of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Time for each block that comes, or that a source gives.
    pub ns: u32,
    /// Blocks given for each thousand that come.
    pub gives: u32,
    /// An earlier run has measured it; else its kind declares it.
    pub is_measured: bool,
}

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Node {
    /// Canonical request text, for people.
    pub label: String,
    /// Its task.
    pub task: Task,
    /// The name of the space it runs in.
    pub space: String,
    /// The block types on its input.
    pub input: Types,
    /// How it runs.
    pub how: How,
    /// Its edges to other nodes.
    pub edges: Vec<Edge>,
}

impl Node {
    /// The file or folder that it writes to, as the request names it.
    pub fn writes_to(&self) -> Option<&str> {
        let Task::Filter { kind, params } = &self.task else { return None };
        let path = kind.params.iter().find(|param| param.kind == ParamType::Path)?;
        params.text(path.key).filter(|text| *text != "-")
    }
}

/// The task of a node.
#[derive(Clone, Debug)]
pub enum Task {
    /// Runs a filter.
    Filter {
        /// Its kind.
        kind: &'static Kind,
        /// Its parameters.
        params: Params,
    },
    /// Passes the blocks that a choice of selectors passes. The selectors are nodes of their own, without edges.
    Choose(Choice),
}

impl Task {
    /// Whether this filter sends each block along one of the edges behind it.
    pub(crate) fn splits(&self) -> bool {
        matches!(self, Task::Filter { kind, .. } if kind.splits)
    }
}

/// Boolean selection over blocks by their place in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Blocks that this selector passes.
    Filter(NodeId),
    /// Blocks whose class the selector accepts.
    Class(Select),
    /// Blocks that all choices pass, one after the other: each sees only the blocks that are left.
    All(Vec<Choice>),
    /// Blocks that any choice passes: each sees only the blocks that no choice before it passed.
    Any(Vec<Choice>),
    /// Blocks that this choice does not pass.
    Not(Box<Choice>),
    /// Blocks that this choice passes, with their classes from before.
    KeepClass(Box<Choice>),
}

impl Choice {
    /// Changes node ids after a plan's nodes have moved.
    pub fn renumber(&mut self, to: &dyn Fn(NodeId) -> NodeId) {
        match self {
            Choice::Filter(id) => *id = to(*id),
            Choice::Class(_) => {}
            Choice::All(parts) | Choice::Any(parts) => parts.iter_mut().for_each(|part| part.renumber(to)),
            Choice::Not(part) | Choice::KeepClass(part) => part.renumber(to),
        }
    }
}

/// An arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node it leads to.
    pub to: NodeId,
    /// The classes that go along it. `None`: all.
    pub select: Option<Select>,
    /// The request asks for a cut between workers here.
    pub cut: bool,
    /// It carries the blocks that its node rejects, unchanged, instead of those that the node gives.
    pub rejected: bool,
}

impl Edge {
    /// An edge for all blocks that its node gives.
    pub fn plain(to: NodeId) -> Edge {
        Edge { to, select: None, cut: false, rejected: false }
    }
}

/// A class selector: `|22`, `|22:80`, `|!80`, `|!`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Select {
    /// Numbers in a range, or all others.
    Classes {
        /// Lowest number of the range.
        low: u32,
        /// Highest number of the range.
        high: u32,
        /// Accept classes outside the range.
        invert: bool,
        /// The class is two 16-bit halves, and one of them must be in the range.
        halves: bool,
    },
    /// Classes that no selector of the list accepts.
    Otherwise(Vec<Select>),
    /// Classes that every selector of the list accepts.
    All(Vec<Select>),
}

impl Select {
    /// Whether a block of this class goes along.
    #[inline]
    pub fn accepts(&self, class: Class) -> bool {
        match self {
            &Select::Classes { low, high, invert, halves } => {
                let inside = |number: u32| (low..=high).contains(&number);
                let either = || inside(class.0 >> 16) || inside(class.0 & 0xffff);
                let found = if halves { either() } else { inside(class.0) };
                found != invert
            }
            Select::Otherwise(others) => !others.iter().any(|other| other.accepts(class)),
            Select::All(all) => all.iter().all(|one| one.accepts(class)),
        }
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Select::Classes { low, high, invert, .. } => {
                f.write_str(if *invert { "!" } else { "" })?;
                if low == high { write!(f, "{low}") } else { write!(f, "{low}:{high}") }
            }
            Select::Otherwise(_) => f.write_str("!"),
            Select::All(all) => {
                for (index, one) in all.iter().enumerate() {
                    write!(f, "{}{one}", if index > 0 { " " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl Plan {
    /// For each node, the nodes whose edges lead to it.
    pub fn sources_of(&self) -> Vec<Vec<NodeId>> {
        let mut above = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for edge in &node.edges {
                above[edge.to.index()].push(NodeId(index as u32));
            }
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_accept_either_and_inversion_is_the_complement() {
        let select = |low, high, invert, halves| Select::Classes { low, high, invert, halves };
        for class in [22 << 16 | 50_000, 50_000 << 16 | 80, 1 << 16 | 2, 79 << 16 | 23] {
            let either = (22..=80).contains(&(class >> 16)) || (22..=80).contains(&(class & 0xffff));
            assert_eq!(select(22, 80, false, true).accepts(Class(class)), either);
            assert_eq!(select(22, 80, true, true).accepts(Class(class)), !either);
        }
        let exact = select(22, 22, false, false);
        assert!(exact.accepts(Class(22)) && !exact.accepts(Class(22 << 16)));
        let rest = Select::Otherwise(vec![exact.clone(), select(80, 90, false, false)]);
        assert_eq!([21, 22, 85, 91].map(|class| rest.accepts(Class(class))), [true, false, false, true]);
        let both = Select::All(vec![rest, select(0, 21, false, false)]);
        assert_eq!([21, 22, 91].map(|class| both.accepts(Class(class))), [true, false, false]);
    }
}
