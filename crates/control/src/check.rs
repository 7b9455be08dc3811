//! Types and classes. Refuses what cannot connect, inserts the chain a kind wants for an input that is not its own (this is
//! LANA's automatic stack set-up), gives paths that end without a sink one, and finds out what a class selector refers to.

use crate::graph::{Arrow, Call, Choice, Graph, Origin, Task, Vertex};
use crate::registry::Registry;
use crate::resolve::{is_halves, splice};
use engine::{NodeId, Select};
use filter::{ClassUse, Gives, Kind, Params, Type, Types};
use request::{Diagnostic, Span};

/// Checks and completes a graph.
pub fn check(graph: &mut Graph, registry: &Registry) -> Result<(), Diagnostic> {
    while let Some((arrow, chain, origin)) = find_misfit(graph)? {
        splice(graph, registry, arrow, chain, &origin)?;
    }
    add_endings(graph, registry)?;
    bind_selectors(graph)
}

/// Sets every node's input from the sources down. Gives the first arrow whose blocks its target does not take, with the
/// chain to put in.
fn find_misfit(graph: &mut Graph) -> Result<Option<(usize, &'static str, Origin)>, Diagnostic> {
    let Ok(sorted) = graph.sorted() else { return Ok(None) };
    for id in sorted {
        let mut input = Types::NONE;
        for index in 0..graph.arrows.len() {
            let Arrow { from, to, .. } = graph.arrows[index];
            if to != id {
                continue;
            }
            let comes = graph.node(from).output();
            if comes.is_none() {
                return Err(nothing_comes(graph, from, id));
            }
            if let Some(chain) = misfit(graph, from, id, comes)? {
                let name = graph.node(id).label();
                let name = name.split(' ').next().unwrap_or_default();
                return Ok(Some((index, chain, Origin::Inserted(format!("`{name}` wants it before {comes}")))));
            }
            input = input.with(comes);
        }
        graph.node_mut(id).input = input;
    }
    Ok(None)
}

fn nothing_comes(graph: &Graph, from: NodeId, to: NodeId) -> Diagnostic {
    let name = |id| graph.node(id).kind().map_or("selection", |kind| kind.name);
    Diagnostic::new(format!("nothing comes out of `{}`", name(from)), graph.node(to).span)
        .with_label(format!("`{}` would never see a block", name(to)))
        .with_help(format!("to have both: {{ {} + {} }}", name(from), name(to)))
}

/// `None` where the target takes what comes; the chain it wants where it does not; an error where there is none.
fn misfit(graph: &Graph, from: NodeId, to: NodeId, comes: Types) -> Result<Option<&'static str>, Diagnostic> {
    let vertex = graph.node(to);
    match &vertex.task {
        Task::Filter(Call { kind, .. }) => {
            let strange = comes.without(kind.takes);
            if strange.is_none() {
                return Ok(None);
            }
            let wanted = |one: Type| kind.wants.iter().find(|(of, _)| *of == one).map(|(_, chain)| *chain);
            let mut chains = strange.iter().map(wanted);
            let chain = chains.next().flatten();
            if strange == comes && chain.is_some() && chains.all(|other| other == chain) {
                return Ok(chain);
            }
            Err(mismatch(kind, graph.node(from), comes, vertex.span))
        }
        Task::Choose(choice) => {
            let mut wrong = None;
            choice.each_call(&mut |call| {
                if wrong.is_none() && !call.kind.takes.has_all(comes) {
                    wrong = Some(call.kind);
                }
            });
            wrong.map_or(Ok(None), |kind| Err(mismatch(kind, graph.node(from), comes, vertex.span)))
        }
    }
}

fn mismatch(kind: &Kind, from: &Vertex, comes: Types, span: Span) -> Diagnostic {
    let before = from.kind().map_or("the selection", |kind| kind.name);
    Diagnostic::new(format!("`{}` takes {}, but `{before}` gives {comes}", kind.name, kind.takes), span)
        .with_label(format!("cannot take {comes}"))
}

/// A path that ends in something gets `json` for records and `inspect` for the rest.
fn add_endings(graph: &mut Graph, registry: &Registry) -> Result<(), Diagnostic> {
    let ends: Vec<NodeId> = graph
        .ids()
        .filter(|id| graph.arrows_from(*id).next().is_none() && !graph.node(*id).output().is_none())
        .collect();
    for id in ends {
        let (comes, span) = (graph.node(id).output(), graph.node(id).span);
        let (name, why) = if comes == Types::of(&[Type::Record]) {
            ("json", "the request ends in records without a sink")
        } else {
            ("inspect", "the request ends without a sink")
        };
        let Some(kind) = registry.find(name) else { continue };
        let mut params = Params::new();
        params.fill_defaults(kind.params).map_err(|_| Diagnostic::new(format!("`{name}` cannot stand alone"), span))?;
        let task = Task::Filter(Call { kind, params, param_spans: Vec::new() });
        let vertex = Vertex { input: comes, origin: Origin::Ending(why.into()), ..Vertex::written(task, span) };
        let to = graph.add(vertex)?;
        graph.arrows.push(Arrow { from: id, to, select: None, cut: false, span });
    }
    Ok(())
}

/// Who set the class that blocks have when they leave a node.
#[derive(Clone, Copy, PartialEq)]
enum Setter {
    Nobody,
    One(&'static str, ClassUse),
    Several,
}

/// The setter for every node, from the sources down.
fn setters(graph: &Graph) -> Vec<Setter> {
    let mut setters = vec![Setter::Nobody; graph.nodes.len()];
    for id in graph.sorted().unwrap_or_default() {
        let vertex = graph.node(id);
        setters[id.index()] = match vertex.kind() {
            Some(kind) if sets_class(kind, vertex.input) => Setter::One(kind.name, kind.class),
            _ => joined(graph.arrows_to(id).map(|arrow| setters[arrow.from.index()])),
        };
    }
    setters
}

/// What holds where paths meet.
fn joined(mut above: impl Iterator<Item = Setter>) -> Setter {
    let first = above.next().unwrap_or(Setter::Nobody);
    above.fold(first, |one, other| if one.agrees(other) { one } else { Setter::Several })
}

impl Setter {
    fn agrees(self, other: Setter) -> bool {
        match (self, other) {
            (Setter::One(_, one), Setter::One(_, other)) => one == other,
            (one, other) => one == other,
        }
    }
}

/// A filter that works in place keeps the class of streams, by contract: what it declares holds for frames.
fn sets_class(kind: &Kind, input: Types) -> bool {
    let of_frames = input.has(Type::Frame) || input.has(Type::Packet) || kind.gives != Gives::Same;
    kind.class != ClassUse::Keeps && of_frames
}

/// Finds out for every selector on an edge whether the class before it is of two halves, and what `|!` leaves out.
fn bind_selectors(graph: &mut Graph) -> Result<(), Diagnostic> {
    let setters = setters(graph);
    let bound = |from: NodeId, span: Span| match setters[from.index()] {
        Setter::One(_, class) => Ok(is_halves(class)),
        Setter::Nobody => Err(Diagnostic::new("nothing before this edge sets a class", span)
            .with_label("selects by class")
            .with_help("put a filter that sets one before it: port, vlan, ether, tcp ...")),
        Setter::Several => Err(Diagnostic::new("the paths before this edge set different classes", span)
            .with_label("it is not clear which class is meant")),
    };
    for arrow in &mut graph.arrows {
        let span = arrow.span;
        if let Some(select) = &mut arrow.select {
            set_halves(select, bound(arrow.from, span)?);
        }
    }
    let numbered: Vec<(NodeId, Select)> = graph
        .arrows
        .iter()
        .filter_map(|arrow| Some((arrow.from, arrow.select.clone().filter(|one| !has_otherwise(one))?)))
        .collect();
    for arrow in &mut graph.arrows {
        let (from, span) = (arrow.from, arrow.span);
        if let Some(select) = arrow.select.as_mut().filter(|one| has_otherwise(one)) {
            let others: Vec<Select> =
                numbered.iter().filter(|(of, _)| *of == from).map(|(_, one)| one.clone()).collect();
            if others.is_empty() {
                return Err(Diagnostic::new("`|!` takes what no other edge takes, and there is none", span)
                    .with_label("no edge beside it selects by number"));
            }
            fill_otherwise(select, &others);
        }
    }
    for index in 0..graph.nodes.len() {
        let id = NodeId(index as u32);
        let Some(Vertex { task: Task::Choose(choice), span, .. }) = &graph.nodes[index] else { continue };
        let (mut choice, span) = (choice.clone(), *span);
        let before = joined(graph.arrows_to(id).map(|arrow| setters[arrow.from.index()]));
        bind_choice(&mut choice, before, span)?;
        graph.node_mut(id).task = Task::Choose(choice);
    }
    Ok(())
}

/// The same inside a selection, where the class is set by what stands before in the same chain.
fn bind_choice(choice: &mut Choice, before: Setter, span: Span) -> Result<Setter, Diagnostic> {
    match choice {
        Choice::Filter(call) => Ok(match call.kind.class {
            ClassUse::Keeps => before,
            class => Setter::One(call.kind.name, class),
        }),
        Choice::Class(select) => match before {
            Setter::One(_, class) => {
                set_halves(select, is_halves(class));
                Ok(before)
            }
            _ => Err(Diagnostic::new("a selector in this selection has no class to look at", span)
                .with_help("put a filter that sets one before it, such as `port`")),
        },
        Choice::Chain(parts) => parts.iter_mut().try_fold(before, |before, part| bind_choice(part, before, span)),
        Choice::All(parts) | Choice::Any(parts) => {
            parts.iter_mut().try_for_each(|part| bind_choice(part, before, span).map(|_| ()))?;
            Ok(before)
        }
        Choice::Not(part) => bind_choice(part, before, span).map(|_| before),
    }
}

fn set_halves(select: &mut Select, of_halves: bool) {
    match select {
        Select::Classes { halves, .. } => *halves = of_halves,
        Select::Otherwise(parts) | Select::All(parts) => parts.iter_mut().for_each(|one| set_halves(one, of_halves)),
    }
}

fn has_otherwise(select: &Select) -> bool {
    match select {
        Select::Classes { .. } => false,
        Select::Otherwise(_) => true,
        Select::All(parts) => parts.iter().any(has_otherwise),
    }
}

fn fill_otherwise(select: &mut Select, others: &[Select]) {
    match select {
        Select::Classes { .. } => {}
        Select::Otherwise(parts) => *parts = others.to_vec(),
        Select::All(parts) => parts.iter_mut().for_each(|one| fill_otherwise(one, others)),
    }
}
