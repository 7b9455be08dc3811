//! A request as a graph: nodes with kinds and checked parameters, edges with selectors, and the origin of each node.
//! [`resolve`](crate::resolve) makes it, and the later steps change it.

use base::limits::PLAN_NODES;
use engine::{How, NodeId, Select};
use filter::{Kind, Params, Types};
use request::{Diagnostic, Span};

/// A request as a graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The nodes. `None`: merging or rewriting has removed the node.
    pub nodes: Vec<Option<Vertex>>,
    /// The arrows, in the order of the text.
    pub arrows: Vec<Arrow>,
    /// The `set` items, checked.
    pub settings: Params,
}

/// A node of the graph.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// Its task.
    pub task: Task,
    /// Its name in the request (`name=x`).
    pub name: Option<String>,
    /// Its place in the request; for an inserted node, the place of the filter that wanted it.
    pub span: Span,
    /// Its origin.
    pub origin: Origin,
    /// Notes for `explain` about changes to it.
    pub notes: Vec<String>,
    /// The types of its input; known after [`check`](crate::check).
    pub input: Types,
    /// How many nodes of the request it stands for.
    pub uses: u32,
}

/// The task of a node.
#[derive(Clone, Debug)]
pub enum Task {
    /// Runs a filter.
    Filter(Call),
    /// Boolean selection.
    Choose(Choice),
}

/// A filter with its parameters.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its kind.
    pub kind: &'static Kind,
    /// Checked parameters, defaults filled in.
    pub params: Params,
    /// The place of each parameter's text.
    pub param_spans: Vec<(&'static str, Span)>,
    /// How it runs: the [`reserved`](crate::reserved) keys.
    pub how: How,
}

/// Boolean selection over filters.
#[derive(Clone, Debug)]
pub enum Choice {
    /// A selector.
    Filter(Call),
    /// A class selector on an edge inside the operand.
    Class(Select),
    /// A chain: the filters come one after the other, and each sees the class set by the one before.
    Chain(Vec<Choice>),
    /// All of them have to pass; each sees the class as it came in.
    All(Vec<Choice>),
    /// Any of them has to pass.
    Any(Vec<Choice>),
    /// It must not pass.
    Not(Box<Choice>),
}

/// The origin of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is in the request.
    Written,
    /// A kind wanted it; the text names the filter and the input.
    Inserted(String),
    /// The request had no sink here; the text says why this one was chosen.
    Ending(String),
}

/// An arrow between nodes.
#[derive(Clone, Debug)]
pub struct Arrow {
    /// From which node.
    pub from: NodeId,
    /// To which node.
    pub to: NodeId,
    /// The classes that go along it. `None`: all.
    pub select: Option<Select>,
    /// It cuts between workers.
    pub cut: bool,
    /// It carries the blocks that its node rejects, instead of those that the node gives.
    pub rejected: bool,
    /// Its place in the request.
    pub span: Span,
}

impl Call {
    /// Canonical request text: name, main parameter, and parameters that differ from the defaults.
    pub fn label(&self) -> String {
        let mut label = self.kind.name.to_string();
        for param in self.kind.params {
            let Some(value) = self.params.get(param.key) else { continue };
            let is_default = param.default.is_some_and(|text| param.kind.parse(text).as_ref() == Ok(value));
            if is_default {
                continue;
            }
            let key = if param.main { String::new() } else { format!("{}=", param.key) };
            match value {
                filter::param::Value::Text(text) => label.push_str(&format!(" {key}{}", quoted(text))),
                filter::param::Value::List(list) if param.key.ends_with('.') => {
                    // A key has no `=` in it.
                    let pairs = list.iter().filter_map(|text| text.split_once('='));
                    pairs.for_each(|(rest, value)| label.push_str(&format!(" {}{rest}={}", param.key, quoted(value))));
                }
                filter::param::Value::List(list) => {
                    list.iter().for_each(|text| label.push_str(&format!(" {key}{}", quoted(text))));
                }
                filter::param::Value::Number(number) => {
                    label.push_str(&format!(" {key}{}", param.kind.print(*number)));
                }
                filter::param::Value::Flag(flag) => {
                    label.push_str(&format!(" {key}{}", if *flag { "yes" } else { "no" }))
                }
            }
        }
        label + &crate::reserved::label(&self.how)
    }
}

impl Arrow {
    /// An arrow for all blocks that its node gives.
    pub fn plain(from: NodeId, to: NodeId, span: Span) -> Arrow {
        Arrow { from, to, select: None, cut: false, rejected: false, span }
    }
}

fn quoted(text: &str) -> String {
    let bare = |c: char| c.is_alphanumeric() || "._-/:*?!<>&%~^".contains(c);
    if !text.is_empty() && text.chars().all(bare) {
        return text.to_string();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Choice {
    /// Canonical request text.
    pub fn label(&self) -> String {
        match self {
            Choice::Filter(call) => call.label(),
            Choice::Class(select) => format!("|{select}"),
            Choice::Chain(parts) => join(parts, " | ").replace("| |", "|"),
            Choice::All(parts) => join(parts, " and "),
            Choice::Any(parts) => join(parts, " or "),
            Choice::Not(part) => match **part {
                Choice::Filter(_) | Choice::Not(_) => format!("not {}", part.label()),
                _ => format!("not {{ {} }}", part.label()),
            },
        }
    }

    /// Calls `visit` for every filter in it.
    pub fn each_call<'a>(&'a self, visit: &mut dyn FnMut(&'a Call)) {
        match self {
            Choice::Filter(call) => visit(call),
            Choice::Class(_) => {}
            Choice::Chain(parts) | Choice::All(parts) | Choice::Any(parts) => {
                parts.iter().for_each(|part| part.each_call(visit))
            }
            Choice::Not(part) => part.each_call(visit),
        }
    }
}

fn join(parts: &[Choice], word: &str) -> String {
    let part = |part: &Choice| match part {
        Choice::Any(_) | Choice::All(_) | Choice::Chain(_) => format!("{{ {} }}", part.label()),
        _ => part.label(),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(word)
}

impl Vertex {
    /// A node that is in the request.
    pub fn written(task: Task, span: Span) -> Vertex {
        Vertex { task, name: None, span, origin: Origin::Written, notes: Vec::new(), input: Types::NONE, uses: 1 }
    }

    /// Canonical request text, without its name.
    pub fn task_label(&self) -> String {
        match &self.task {
            Task::Filter(call) => call.label(),
            Task::Choose(choice) => choice.label(),
        }
    }

    /// Canonical request text.
    pub fn label(&self) -> String {
        let label = self.task_label();
        match &self.name {
            Some(name) => format!("{label} name={name}"),
            None => label,
        }
    }

    /// The types that go along an arrow from here.
    pub fn along(&self, arrow: &Arrow) -> Types {
        if arrow.rejected { self.input } else { self.output() }
    }

    /// The types that it gives for its input.
    pub fn output(&self) -> Types {
        match &self.task {
            Task::Filter(call) => call.kind.output(self.input, &call.params),
            Task::Choose(_) => self.input,
        }
    }

    /// Its kind. `None`: it is a selection.
    pub fn kind(&self) -> Option<&'static Kind> {
        match &self.task {
            Task::Filter(call) => Some(call.kind),
            Task::Choose(_) => None,
        }
    }
}

impl Graph {
    /// Adds a node.
    pub fn add(&mut self, vertex: Vertex) -> Result<NodeId, Diagnostic> {
        if self.nodes.len() >= PLAN_NODES {
            let message = format!("the request has more than {PLAN_NODES} filters");
            return Err(Diagnostic::new(message, vertex.span));
        }
        self.nodes.push(Some(vertex));
        Ok(NodeId((self.nodes.len() - 1) as u32))
    }

    /// The node; it must be in use.
    pub fn node(&self, id: NodeId) -> &Vertex {
        self.nodes[id.index()].as_ref().expect("arrows lead to nodes in use")
    }

    /// The node, to change it; it must be in use.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Vertex {
        self.nodes[id.index()].as_mut().expect("arrows lead to nodes in use")
    }

    /// Nodes in use.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_some()).map(|index| NodeId(index as u32))
    }

    /// Arrows that lead to this node.
    pub fn arrows_to(&self, id: NodeId) -> impl Iterator<Item = &Arrow> {
        self.arrows.iter().filter(move |arrow| arrow.to == id)
    }

    /// Arrows that leave this node.
    pub fn arrows_from(&self, id: NodeId) -> impl Iterator<Item = &Arrow> {
        self.arrows.iter().filter(move |arrow| arrow.from == id)
    }

    /// Nodes in use in an order in which arrows lead forward, or a node on a cycle.
    pub fn sorted(&self) -> Result<Vec<NodeId>, NodeId> {
        let mut waiting = vec![0u32; self.nodes.len()];
        let mut next = vec![Vec::new(); self.nodes.len()];
        for arrow in &self.arrows {
            waiting[arrow.to.index()] += 1;
            next[arrow.from.index()].push(arrow.to);
        }
        // Lowest number first, so that the order follows the text.
        let mut ready: std::collections::BTreeSet<NodeId> = self.ids().filter(|id| waiting[id.index()] == 0).collect();
        let mut sorted = Vec::new();
        while let Some(id) = ready.pop_first() {
            sorted.push(id);
            for to in &next[id.index()] {
                waiting[to.index()] -= 1;
                if waiting[to.index()] == 0 {
                    ready.insert(*to);
                }
            }
        }
        match self.ids().find(|id| waiting[id.index()] > 0) {
            Some(on_cycle) => Err(on_cycle),
            None => Ok(sorted),
        }
    }
}
