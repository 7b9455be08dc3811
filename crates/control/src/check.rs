//! Types and classes.
//!
//! - Refuses filters that cannot connect.
//! - Inserts the chain that a kind wants for an input it does not take (LANA's automatic stack set-up), or the filter
//!   that has to stand before it.
//! - Adds a sink to paths that end without one.
//! - Finds out which class a selector refers to.

use crate::graph::{Arrow, Call, Choice, Graph, Origin, Task, Vertex};
use crate::registry::Registry;
use crate::resolve::{diagnostic, is_halves, splice};
use crate::returns;
use engine::{NodeId, Select};
use filter::param::Value;
use filter::{ClassUse, Gives, Kind, Params, Schema, Type, Types};
use request::{Diagnostic, Span};
use std::collections::HashMap;

/// Checks and completes a graph.
pub fn check(graph: &mut Graph, registry: &Registry) -> Result<(), Diagnostic> {
    find_rejected(graph)?;
    while let Some((arrow, chain, origin)) = find_misfit(graph, registry)? {
        let known = graph.nodes.len();
        let target = graph.arrows[arrow].to;
        splice(graph, registry, arrow, chain, &origin)?;
        isolate_with(graph, known, target);
    }
    check_single(graph)?;
    add_endings(graph, registry)?;
    returns::check(graph)?;
    check_records(graph)?;
    bind_selectors(graph)
}

/// Notes at each filter which records may come to it. Has filters whose parameters name fields look at their schemas, and
/// notes which records they make of those.
fn check_records(graph: &mut Graph) -> Result<(), Diagnostic> {
    let mut given: Vec<Vec<&'static Schema>> = vec![Vec::new(); graph.nodes.len()];
    for id in graph.sorted().unwrap_or_default() {
        let vertex = graph.node(id);
        let mut comes: Vec<&'static Schema> = Vec::new();
        for arrow in graph.arrows_to(id) {
            for schema in &given[arrow.from.index()] {
                if comes.iter().all(|known| known.id() != schema.id()) {
                    comes.push(schema);
                }
            }
        }
        let Task::Filter(Call { kind, params, param_spans, .. }) = &vertex.task else {
            given[id.index()] = comes;
            continue;
        };
        let made = kind.records.map_or(Ok(Vec::new()), |records| records(params, &comes));
        let made = made.map_err(|error| diagnostic(error, params, param_spans, vertex.span))?;
        let come = comes.iter().map(|schema| schema.id()).collect();
        let first = made.first().map(|made| made.id());
        given[id.index()] = match kind.schema {
            _ if !made.is_empty() => made,
            Some(schema) => [schema].into_iter().chain(kind.other_schema).collect(),
            None if kind.gives == Gives::Same || kind.records.is_some() => comes,
            None => Vec::new(),
        };
        if let Task::Filter(call) = &mut graph.node_mut(id).task {
            call.params.set_come(come);
            first.into_iter().for_each(|made| call.params.set_records(made));
        }
    }
    Ok(())
}

/// Isolates the nodes that were inserted before an isolated filter (those from `first` on): they run in its process.
fn isolate_with(graph: &mut Graph, first: usize, target: NodeId) {
    let Task::Filter(Call { how, .. }) = &graph.node(target).task else { return };
    let isolate = how.isolate;
    for vertex in graph.nodes[first..].iter_mut().flatten() {
        if let Task::Filter(call) = &mut vertex.task {
            call.how.isolate = isolate;
        }
    }
}

/// Finds the arrows that carry their node's rejected blocks. These are the arrows with `|!`, if no arrow beside them
/// selects by number. The rest of such an arrow's selector then selects among the rejected blocks.
fn find_rejected(graph: &mut Graph) -> Result<(), Diagnostic> {
    let numbered = |arrow: &&Arrow| arrow.select.as_ref().is_some_and(|select| !has_otherwise(select));
    let by_number: Vec<NodeId> = graph.arrows.iter().filter(numbered).map(|arrow| arrow.from).collect();
    for index in 0..graph.arrows.len() {
        let Arrow { from, select: Some(select), span, .. } = &graph.arrows[index] else { continue };
        if by_number.contains(from) || !has_otherwise(select) {
            continue;
        }
        let vertex = graph.node(*from);
        if let Some(kind) = vertex.kind().filter(|kind| !kind.may_reject()) {
            let why = if kind.is_source() { "it is a source" } else { "it takes everything" };
            return Err(Diagnostic::new(format!("`{}` rejects nothing: {why}", kind.name), *span)
                .with_label("gets what the filter before it rejects")
                .with_help("`|!` gets what no edge beside it selects by number, or else what the filter rejects"));
        }
        let rest = without_otherwise(select);
        let arrow = &mut graph.arrows[index];
        (arrow.rejected, arrow.select) = (true, rest);
    }
    Ok(())
}

/// The rest of a selector without its first `|!`. `None`: there is no rest, so all blocks go along.
fn without_otherwise(select: &Select) -> Option<Select> {
    let Select::All(parts) = select else { return None };
    let mut parts = parts.clone();
    let first = parts.iter().position(has_otherwise)?;
    parts.remove(first);
    if parts.len() > 1 { Some(Select::All(parts)) } else { parts.pop() }
}

/// Sets each node's input, from the sources down. Gives the first arrow that needs a chain inserted, with that chain.
/// Its target does not take the arrow's blocks, or lacks the filter that has to stand before it.
fn find_misfit(graph: &mut Graph, registry: &Registry) -> Result<Option<(usize, &'static str, Origin)>, Diagnostic> {
    let Ok(sorted) = graph.sorted() else { return Ok(None) };
    for id in sorted {
        let mut input = Types::NONE;
        for index in 0..graph.arrows.len() {
            let Arrow { from, to, .. } = graph.arrows[index];
            if to != id {
                continue;
            }
            let comes = graph.node(from).along(&graph.arrows[index]);
            if comes.is_none() {
                return Err(nothing_comes(graph, from, id));
            }
            if let Some(chain) = misfit(graph, registry, &graph.arrows[index], comes)? {
                let name = graph.node(id).label();
                let name = name.split(' ').next().unwrap_or_default();
                return Ok(Some((index, chain, Origin::Inserted(format!("`{name}` wants it before {comes}")))));
            }
            if let Some(name) = lacks(graph, registry, from, id) {
                let kind = graph.node(id).kind().map_or("", |kind| kind.name);
                let why = format!("it stands before `{kind}` unless the request says `set {name}=no`");
                return Ok(Some((index, name, Origin::Inserted(why))));
            }
            input = input.with(comes);
        }
        graph.node_mut(id).input = input;
    }
    Ok(None)
}

/// The filter that has to stand before `to`. `None`: it needs none, or one of that name stands on each path to `from`.
fn lacks(graph: &Graph, registry: &Registry, from: NodeId, to: NodeId) -> Option<&'static str> {
    let name = graph.node(to).kind()?.behind?;
    let is_wanted = graph.settings.get(name).is_none_or(|_| graph.settings.flag(name));
    let is_known = registry.find(name).is_some();
    (is_wanted && is_known && !is_behind(graph, from, name, &mut HashMap::new())).then_some(name)
}

/// Whether all blocks from this node have gone through a filter of this name. `known` caches the answer for each node.
fn is_behind(graph: &Graph, at: NodeId, name: &str, known: &mut HashMap<NodeId, bool>) -> bool {
    if let Some(known) = known.get(&at) {
        return *known;
    }
    let mut above = graph.arrows_to(at).peekable();
    let is = graph.node(at).kind().is_some_and(|kind| kind.name == name)
        || above.peek().is_some() && above.all(|arrow| is_behind(graph, arrow.from, name, known));
    known.insert(at, is);
    is
}

fn nothing_comes(graph: &Graph, from: NodeId, to: NodeId) -> Diagnostic {
    let name = |id| graph.node(id).kind().map_or("selection", |kind| kind.name);
    Diagnostic::new(format!("nothing comes out of `{}`", name(from)), graph.node(to).span)
        .with_label(format!("`{}` would never see a block", name(to)))
        .with_help(format!("to have both: {{ {} + {} }}", name(from), name(to)))
}

/// Gives the chain to insert. `None`: the target takes the blocks as they are. An error: no chain helps.
fn misfit(graph: &Graph, registry: &Registry, arrow: &Arrow, comes: Types) -> Result<Option<&'static str>, Diagnostic> {
    let vertex = graph.node(arrow.to);
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
            Err(mismatch(graph, registry, arrow, kind, comes))
        }
        Task::Choose(choice) => {
            let mut wrong = None;
            choice.each_call(&mut |call| {
                if wrong.is_none() && !call.kind.takes.has_all(comes) {
                    wrong = Some(call.kind);
                }
            });
            wrong.map_or(Ok(None), |kind| Err(mismatch(graph, registry, arrow, kind, comes)))
        }
    }
}

fn mismatch(graph: &Graph, registry: &Registry, arrow: &Arrow, kind: &Kind, comes: Types) -> Diagnostic {
    let before = graph.node(arrow.from).kind().map_or("the selection", |kind| kind.name);
    let does = if arrow.rejected { "rejects" } else { "gives" };
    let message = format!("`{}` takes {}, but `{before}` {does} {comes}", kind.name, kind.takes);
    let error = Diagnostic::new(message, graph.node(arrow.to).span).with_label(format!("cannot take {comes}"));
    match registry.between(comes, kind.takes)[..] {
        [] => error,
        ref names => {
            error.with_help(format!("put one between that makes {} of {comes}: {}", kind.takes, names.join(", ")))
        }
    }
}

/// Refuses several types before a filter that takes one at a time, and a type that differs from its parameter.
fn check_single(graph: &Graph) -> Result<(), Diagnostic> {
    for vertex in graph.nodes.iter().flatten() {
        let Task::Filter(Call { kind, params, param_spans, .. }) = &vertex.task else { continue };
        let Some(key) = kind.one_type else { continue };
        let (name, comes) = (kind.name, vertex.input);
        if comes.iter().nth(1).is_some() {
            return Err(Diagnostic::new(format!("`{name}` takes one type, but {comes} may come"), vertex.span)
                .with_help(format!("give each type a `{name}` of its own")));
        }
        if let Some(stated) = params.text(key).filter(|stated| comes.iter().any(|one| one.name() != *stated)) {
            let at = param_spans.iter().find(|(known, _)| *known == key).map_or(vertex.span, |(_, span)| *span);
            return Err(Diagnostic::new(format!("`{name}` gets {comes}, but `{key}=` says {stated}"), at)
                .with_help(format!("leave out `{key}=`, or put a filter between that gives {stated}")));
        }
    }
    Ok(())
}

/// Adds a sink to each path without one: the registry's sink for ends, else the sink by which frames go back to their
/// source, else `json` for records and `inspect` for other blocks. What a person reads becomes columns, see [`Columns`].
fn add_endings(graph: &mut Graph, registry: &Registry) -> Result<(), Diagnostic> {
    let mut columns = Columns::default();
    for id in graph.ids().collect::<Vec<_>>() {
        let vertex = graph.node(id);
        let passes_rejects = vertex.kind().is_some_and(|kind| kind.passes_rejects);
        let has = |rejected: bool| graph.arrows_from(id).any(|arrow| arrow.rejected == rejected);
        // After any other filter, an edge of one sort means that blocks along the other sort are not wanted.
        let is_end = if passes_rejects { !has(false) } else { graph.arrows_from(id).next().is_none() };
        let wants_end = [is_end && !vertex.output().is_none(), passes_rejects && !has(true)];
        for rejected in [false, true].into_iter().filter(|rejected| wants_end[usize::from(*rejected)]) {
            add_ending(graph, registry, id, rejected, &mut columns)?;
        }
    }
    Ok(())
}

fn add_ending(
    graph: &mut Graph,
    registry: &Registry,
    id: NodeId,
    rejected: bool,
    columns: &mut Columns,
) -> Result<(), Diagnostic> {
    let arrow = Arrow { rejected, ..Arrow::plain(id, id, graph.node(id).span) };
    let (comes, span) = (graph.node(id).along(&arrow), arrow.span);
    let back = returns::sink(graph, registry, id).filter(|(kind, _)| kind.takes.has_all(comes));
    let (name, why) = match (registry.end(), &back) {
        (Some(end), _) if !rejected => (end.name, "the program takes what comes out here"),
        (_, Some((kind, _))) => (kind.name, "what passes goes out by the other device"),
        _ if registry.is_for_people() && columns.add(graph, registry, &arrow)? => return Ok(()),
        _ if are_rows(graph, id, comes) => ("json", "the request ends in records without a sink"),
        _ => ("inspect", "the request ends without a sink"),
    };
    let Some(kind) = registry.find(name) else { return Ok(()) };
    let params = back.filter(|(kind, _)| kind.name == name).map_or_else(Params::new, |(_, params)| params);
    let to = graph.add(ending(kind, params, comes, why, span)?)?;
    graph.arrows.push(Arrow { to, ..arrow });
    Ok(())
}

/// A vertex that the request does not have.
fn ending(kind: &'static Kind, mut params: Params, input: Types, why: &str, span: Span) -> Result<Vertex, Diagnostic> {
    let alone = || Diagnostic::new(format!("`{}` cannot stand alone", kind.name), span);
    params.fill_defaults(kind.params).map_err(|_| alone())?;
    let task = Task::Filter(Call { kind, params, param_spans: Vec::new(), how: Default::default() });
    Ok(Vertex { input, origin: Origin::Ending(why.into()), ..Vertex::written(task, span) })
}

/// Whether a node gives records, or messages that begin with them.
fn are_rows(graph: &Graph, id: NodeId, comes: Types) -> bool {
    comes == Types::of(&[Type::Record]) || (comes == Types::of(&[Type::Message]) && has_heads(graph, id))
}

/// Whether the messages that a node gives begin with records, as those of `http` do and datagrams of `udp` do not.
fn has_heads(graph: &Graph, id: NodeId) -> bool {
    match graph.node(id).kind() {
        Some(kind) if kind.gives != Gives::Same => kind.schema.is_some(),
        _ => graph.arrows_to(id).all(|arrow| has_heads(graph, arrow.from)),
    }
}

/// The sinks that show a person columns: one for the records of all paths, so that their lines do not mix, and one for
/// messages. Frames and packets become records.
#[derive(Default)]
struct Columns {
    sinks: Vec<(Types, NodeId)>,
}

impl Columns {
    const WHY: &str = "the request ends on a terminal";

    /// Ends an arrow's path in columns. `false`: its blocks have none.
    fn add(&mut self, graph: &mut Graph, registry: &Registry, arrow: &Arrow) -> Result<bool, Diagnostic> {
        let comes = graph.node(arrow.from).along(arrow);
        let are_frames = !comes.is_none() && Types::of(&[Type::Frame, Type::Packet]).has_all(comes);
        if let (true, Some(packets)) = (are_frames, registry.find("packets")) {
            let from = graph.add(ending(packets, Params::new(), comes, Columns::WHY, arrow.span)?)?;
            graph.arrows.push(Arrow { to: from, ..arrow.clone() });
            return self.add(graph, registry, &Arrow::plain(from, from, arrow.span));
        }
        let are_rows = are_rows(graph, arrow.from, comes);
        let Some(inspect) = registry.find("inspect").filter(|_| are_rows) else { return Ok(false) };
        let to = match self.sinks.iter().find(|(of, _)| *of == comes) {
            Some((_, known)) => *known,
            None => {
                let mut params = Params::new();
                params.set("format", Value::Text("table".into()));
                let to = graph.add(ending(inspect, params, comes, Columns::WHY, arrow.span)?)?;
                self.sinks.push((comes, to));
                to
            }
        };
        graph.arrows.push(Arrow { to, ..arrow.clone() });
        Ok(true)
    }
}

/// The filter that last set the class of a node's blocks.
#[derive(Clone, Copy, PartialEq)]
enum Setter {
    Nobody,
    One(&'static str, ClassUse),
    Several,
}

/// The setter before and behind each node.
struct Setters {
    before: Vec<Setter>,
    behind: Vec<Setter>,
}

impl Setters {
    /// Finds the setters, from the sources down.
    fn of(graph: &Graph) -> Setters {
        let nobody = || vec![Setter::Nobody; graph.nodes.len()];
        let mut setters = Setters { before: nobody(), behind: nobody() };
        for id in graph.sorted().unwrap_or_default() {
            let vertex = graph.node(id);
            let before = joined(graph.arrows_to(id).map(|arrow| setters.along(arrow.from, arrow.rejected)));
            setters.before[id.index()] = before;
            setters.behind[id.index()] = match vertex.kind() {
                Some(kind) if sets_class(kind, vertex.input) => Setter::One(kind.name, kind.class),
                _ => before,
            };
        }
        setters
    }

    /// The setter for the blocks that a node gives, or for those that it rejects.
    fn along(&self, from: NodeId, rejected: bool) -> Setter {
        if rejected { self.before[from.index()] } else { self.behind[from.index()] }
    }
}

/// The setter where paths meet.
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

/// Whether a filter sets the class of these blocks. A filter in place keeps the class of streams, by contract; its
/// declaration holds for frames.
fn sets_class(kind: &Kind, input: Types) -> bool {
    let of_frames = input.has(Type::Frame) || input.has(Type::Packet) || kind.gives != Gives::Same;
    kind.class != ClassUse::Keeps && of_frames
}

/// Finds out for each selector on an edge whether the class has two halves, and which classes `|!` leaves out.
fn bind_selectors(graph: &mut Graph) -> Result<(), Diagnostic> {
    let setters = Setters::of(graph);
    let bound = |from: NodeId, rejected: bool, span: Span| match setters.along(from, rejected) {
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
            set_halves(select, bound(arrow.from, arrow.rejected, span)?);
        }
    }
    let numbered: Vec<((NodeId, bool), Select)> = graph
        .arrows
        .iter()
        .filter_map(|arrow| {
            Some(((arrow.from, arrow.rejected), arrow.select.clone().filter(|one| !has_otherwise(one))?))
        })
        .collect();
    for arrow in &mut graph.arrows {
        let (from, span) = ((arrow.from, arrow.rejected), arrow.span);
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
        bind_choice(&mut choice, setters.before[index], span)?;
        graph.node_mut(id).task = Task::Choose(choice);
    }
    Ok(())
}

/// Does the same inside a selection, where filters before a selector in the same chain set the class.
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
