//! A plan: a checked graph with every filter placed. Data only; the control plane makes it, spaces carry it out.

use base::id::Class;
use filter::{Kind, ParamType, Params, Types, Wait};
use std::fmt;

/// A node's place in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A whole plan. Nodes stand in topological order: edges lead to later nodes only.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// What its worker does while nothing comes.
    pub wait: Wait,
    /// Shares of the flows that filters are copied for; 0 or 1 for none.
    pub workers: usize,
}

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Node {
    /// As people know it: canonical request text.
    pub label: String,
    /// What it does.
    pub task: Task,
    /// The name of the space it runs in.
    pub space: String,
    /// What comes on its input.
    pub input: Types,
    /// Where its blocks go next.
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

/// What a node does.
#[derive(Clone, Debug)]
pub enum Task {
    /// Runs a filter.
    Filter {
        /// Its kind.
        kind: &'static Kind,
        /// What it was told.
        params: Params,
    },
    /// Passes what a choice of selectors passes. The selectors are nodes of their own, without edges.
    Choose(Choice),
}

/// Boolean selection over blocks by their place in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// What this selector passes.
    Filter(NodeId),
    /// What has such a class.
    Class(Select),
    /// What each, one after the other, passes: each sees only what is left.
    All(Vec<Choice>),
    /// What any passes: each sees only what none before it passed.
    Any(Vec<Choice>),
    /// What this does not pass.
    Not(Box<Choice>),
    /// What this passes, with the classes as they were before.
    KeepClass(Box<Choice>),
}

impl Choice {
    /// Names other nodes, where a plan's nodes have moved.
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
    /// Where it leads.
    pub to: NodeId,
    /// Which classes go along it; `None` = all.
    pub select: Option<Select>,
    /// The request asks for a cut between workers here.
    pub cut: bool,
    /// Blocks go along it that its node rejects, as they came; else those that it gives.
    pub rejected: bool,
}

impl Edge {
    /// An edge along which all goes that its node gives.
    pub fn plain(to: NodeId) -> Edge {
        Edge { to, select: None, cut: false, rejected: false }
    }
}

/// A class selector: `|22`, `|22:80`, `|!80`, `|!`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Select {
    /// Numbers in a range, or all others.
    Classes {
        /// Lowest number in it.
        low: u32,
        /// Highest number in it.
        high: u32,
        /// What is *not* in it goes along.
        invert: bool,
        /// The class is two 16-bit halves, and either may be in it.
        halves: bool,
    },
    /// What none of these takes.
    Otherwise(Vec<Select>),
    /// What all of these take.
    All(Vec<Select>),
}

impl Select {
    /// Does a block of this class go along?
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
