//! Names, parameters and references: from the tree of a request to a graph.
//!
//! In: an expanded tree (no `let`, no `$x`). Out: a [`Graph`] whose nodes have kinds and checked parameters. Types are
//! checked later.

use crate::graph::{Arrow, Call, Choice, Graph, Task, Vertex};
use crate::registry::Registry;
use crate::reserved;
use crate::settings::{self, SETTINGS};
use engine::{NodeId, Select};
use filter::{ClassUse, Kind, Param, ParamError, ParamType, Params};
use request::{Chain, Diagnostic, Edge, FilterCall, Item, Name, Par, Selector, Span, Term, Text, Value, nearest};
use std::collections::BTreeMap;
use std::ops::Range;

/// Resolves a whole text.
pub fn resolve(text: &Text, registry: &Registry) -> Result<Graph, Diagnostic> {
    let mut resolver = Resolver { registry, graph: Graph::default(), labels: BTreeMap::new() };
    resolver.find_labels(text);
    let mut settings = Vec::new();
    for item in &text.items {
        match item {
            Item::Path(par) => resolver.path(par)?,
            Item::Set { settings: given, .. } => settings.extend(given),
            Item::Let { span, .. } => return Err(Diagnostic::new("`let` was not expanded", *span)),
        }
    }
    resolver.graph.settings = check_settings(&settings)?;
    if resolver.graph.nodes.is_empty() {
        let message = "the request is empty";
        return Err(Diagnostic::new(message, Span::new(0, 0)).with_help("try: pcap FILE | tcp | http | files dir=out"));
    }
    for (name, label) in &resolver.labels {
        let is_there = label.node.is_some_and(|id| resolver.graph.nodes[id.index()].is_some());
        if !is_there {
            return Err(Diagnostic::new(format!("`{name}` names an operand of a selection"), label.span)
                .with_label("a selection's operands cannot be referred to"));
        }
    }
    if let Err(id) = resolver.graph.sorted() {
        let vertex = resolver.graph.nodes[id.index()].as_ref();
        let span = vertex.map_or(Span::new(0, 0), |vertex| vertex.span);
        return Err(
            Diagnostic::new("the request leads back to itself", span).with_label("blocks would go round for ever")
        );
    }
    Ok(resolver.graph)
}

const BEGINS_WITH: &str = "a path begins with a source: `pcap FILE | ...`, `ethernet DEVICE | ...`; or name it beside the request: \
                           -r FILE, -i DEVICE";

struct Resolver<'a> {
    registry: &'a Registry,
    graph: Graph,
    labels: BTreeMap<String, Label>,
}

/// A node with a name. All names are noted before the tree is walked, so a reference may come before its node.
struct Label {
    span: Span,
    node: Option<NodeId>,
}

/// Blocks that wait for the next term: the node they come from, and the selectors they pass.
#[derive(Clone)]
struct Tail {
    from: NodeId,
    selects: Vec<Selector>,
    cut: bool,
    span: Span,
}

impl Resolver<'_> {
    /// Notes which nodes have names, so that a reference may come before its node. Expansion has checked that names are
    /// unique and known.
    fn find_labels(&mut self, text: &Text) {
        text.each_term(&mut |term| {
            if let Term::Filter(FilterCall { label: Some(label), .. }) = term {
                self.labels.insert(label.text.clone(), Label { span: label.span, node: None });
            }
        });
    }

    fn path(&mut self, par: &Par) -> Result<(), Diagnostic> {
        for (index, chain) in par.branches.iter().enumerate() {
            self.chain(chain, None).map_err(|diagnostic| hint_at_braces(diagnostic, par, index))?;
        }
        Ok(())
    }

    /// Walks a chain. `tails`: the blocks that come to it; `None` at the beginning of a path.
    fn chain(&mut self, chain: &Chain, tails: Option<Vec<Tail>>) -> Result<Vec<Tail>, Diagnostic> {
        let mut tails = tails.map(|tails| through(tails, chain.lead.as_ref()));
        for link in &chain.links {
            let entering = match &link.edge {
                Some(edge) => tails.map(|tails| through(tails, Some(edge))),
                None => tails,
            };
            tails = Some(self.term(&link.term, entering)?);
        }
        Ok(tails.unwrap_or_default())
    }

    fn term(&mut self, term: &Term, tails: Option<Vec<Tail>>) -> Result<Vec<Tail>, Diagnostic> {
        match term {
            Term::Filter(call) => {
                let resolved = self.call(call, tails.is_none())?;
                self.check_place(&resolved, call.span, tails.as_deref())?;
                let name = call.label.as_ref().map(|label| label.text.clone());
                let vertex = Vertex { name, ..Vertex::written(Task::Filter(resolved), call.span) };
                let id = match &call.label {
                    Some(label) => self.fill_label(label, vertex)?,
                    None => self.graph.add(vertex)?,
                };
                self.connect(tails, id);
                Ok(vec![tail(id, call.span)])
            }
            Term::Group(par) => {
                let mut out = Vec::new();
                for (index, chain) in par.branches.iter().enumerate() {
                    let branch = self.chain(chain, tails.clone());
                    out.extend(branch.map_err(|diagnostic| {
                        if tails.is_none() { hint_at_braces(diagnostic, par, index) } else { diagnostic }
                    })?);
                }
                Ok(out)
            }
            Term::Ref(name) => {
                let id = self.reference(name)?;
                self.connect(tails, id);
                Ok(vec![tail(id, name.span)])
            }
            Term::Or(_) | Term::And(_) | Term::Not(_) => {
                let span = term.span();
                if tails.is_none() {
                    let message = "a selection needs blocks to choose from";
                    return Err(Diagnostic::new(message, span)
                        .with_label("nothing stands before it")
                        .with_help(BEGINS_WITH));
                }
                let choice = self.choice(term)?;
                let id = self.graph.add(Vertex::written(Task::Choose(choice), span))?;
                self.connect(tails, id);
                Ok(vec![tail(id, span)])
            }
        }
    }

    /// Checks that a source begins a path, and that any other filter has something before it.
    fn check_place(&self, call: &Call, span: Span, tails: Option<&[Tail]>) -> Result<(), Diagnostic> {
        let name = call.kind.name;
        match tails {
            None if !call.kind.is_source() => Err(Diagnostic::new(format!("`{name}` has no source"), span)
                .with_label(format!("takes {}, but nothing stands before it", call.kind.takes))
                .with_help(BEGINS_WITH)),
            Some(tails) if call.kind.is_source() => {
                let _ = tails;
                Err(Diagnostic::new(format!("`{name}` is a source and takes no input"), span)
                    .with_label("only the first of a path can be a source")
                    .with_help("to read two sources side by side: { a + b } | ..."))
            }
            _ => Ok(()),
        }
    }

    fn connect(&mut self, tails: Option<Vec<Tail>>, to: NodeId) {
        for Tail { from, selects, cut, span } in tails.unwrap_or_default() {
            // Whether the class has two halves is known only when types are checked.
            let mut selects: Vec<Select> = selects.iter().map(select).collect();
            let select = if selects.len() > 1 { Some(Select::All(selects)) } else { selects.pop() };
            self.graph.arrows.push(Arrow { select, cut, ..Arrow::plain(from, to, span) });
        }
    }

    fn fill_label(&mut self, label: &Name, vertex: Vertex) -> Result<NodeId, Diagnostic> {
        let reserved = self.labels.get(&label.text).and_then(|label| label.node);
        let id = match reserved {
            Some(id) => {
                self.graph.nodes[id.index()] = Some(vertex);
                id
            }
            None => self.graph.add(vertex)?,
        };
        if let Some(label) = self.labels.get_mut(&label.text) {
            label.node = Some(id);
        }
        Ok(id)
    }

    /// The node that a reference means; its number is reserved if the node is still to come.
    fn reference(&mut self, name: &Name) -> Result<NodeId, Diagnostic> {
        let Some(label) = self.labels.get(&name.text) else {
            return Err(Diagnostic::new(format!("no node is named `{}`", name.text), name.span));
        };
        if let Some(id) = label.node {
            return Ok(id);
        }
        self.graph.nodes.push(None);
        let id = NodeId((self.graph.nodes.len() - 1) as u32);
        if let Some(label) = self.labels.get_mut(&name.text) {
            label.node = Some(id);
        }
        Ok(id)
    }

    fn choice(&mut self, term: &Term) -> Result<Choice, Diagnostic> {
        let all = |resolver: &mut Self, terms: &[Term]| {
            terms.iter().map(|term| resolver.choice(term)).collect::<Result<Vec<_>, _>>()
        };
        match term {
            Term::Or(terms) => Ok(Choice::Any(all(self, terms)?)),
            Term::And(terms) => Ok(Choice::All(all(self, terms)?)),
            Term::Not(term) => Ok(Choice::Not(Box::new(self.choice(term)?))),
            Term::Filter(call) => {
                let resolved = self.call(call, false)?;
                if !resolved.kind.selector {
                    return Err(Diagnostic::new(format!("`{}` is not a selector", call.name.text), call.span)
                        .with_label("only filters that pass or reject blocks unchanged can be chosen between")
                        .with_help("selectors are: ".to_string() + &self.selectors()));
                }
                if let Some((key, span)) = resolved.param_spans.iter().find(|(key, _)| is_reserved(key)) {
                    let text = format!("`{key}` has no meaning for an operand of a selection");
                    return Err(Diagnostic::new(text, *span).with_label("a selection runs as a whole"));
                }
                Ok(Choice::Filter(resolved))
            }
            Term::Group(par) => match &par.branches[..] {
                [chain] => self.choice_of_chain(chain),
                _ => Err(Diagnostic::new("chains side by side cannot be an operand", par.span)
                    .with_label("`+` gives each chain every block; `or` passes a block once")),
            },
            Term::Ref(name) => Err(Diagnostic::new("a named node cannot be an operand", name.span)),
        }
    }

    fn choice_of_chain(&mut self, chain: &Chain) -> Result<Choice, Diagnostic> {
        let mut parts = Vec::new();
        let mut edge = chain.lead.as_ref();
        for link in &chain.links {
            edge = link.edge.as_ref().or(edge);
            if let Some(Edge { select: Some(one), span, .. }) = edge {
                if *one == Selector::Otherwise {
                    let message = "`|!` needs other edges beside it";
                    return Err(Diagnostic::new(message, *span).with_label("inside a selection there is one edge only"));
                }
                parts.push(Choice::Class(select(one)));
            }
            parts.push(self.choice(&link.term)?);
            edge = None;
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Choice::Chain(parts) })
    }

    fn selectors(&self) -> String {
        let names = self.registry.each().filter(|kind| kind.selector).map(|kind| kind.name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// The filter that is easily mistaken for this one, if the registry has it.
    fn beside(&self, kind: &Kind) -> Option<(&'static str, &'static str)> {
        kind.beside.filter(|(other, _)| self.registry.find(other).is_some())
    }

    fn has_param(&self, filter: &str, key: &Name) -> bool {
        self.registry.find(filter).is_some_and(|kind| kind.params.iter().any(|param| param.key == key.text))
    }

    /// A filter's kind and checked parameters; `begins`: it is at the beginning of a chain.
    fn call(&self, call: &FilterCall, begins: bool) -> Result<Call, Diagnostic> {
        let name = &call.name.text;
        let Some(kind) = self.registry.find(name).map(|kind| kind.at(begins)) else {
            if let Some(how) = self.registry.left_out(name) {
                return Err(Diagnostic::new(format!("no filter `{name}` in this program"), call.name.span)
                    .with_label("left out")
                    .with_help(how));
            }
            let guess = self.registry.nearest(name);
            let message = match guess {
                Some(guess) => format!("no filter `{name}`; did you mean `{guess}`?"),
                None => format!("no filter `{name}`"),
            };
            let diagnostic = Diagnostic::new(message, call.name.span).with_label("unknown filter");
            return Err(match guess {
                Some(_) => diagnostic,
                None => diagnostic.with_help("`streamline filters` lists them all"),
            });
        };
        let mut given = Given { params: Params::new(), spans: Vec::new(), owner: name, declared: kind.params };
        for (index, value) in call.main.iter().enumerate() {
            let Some(main) = kind.main_param() else {
                let words: Vec<&str> = call.main.iter().map(|value| value.text.as_str()).collect();
                let words = words.join(" ");
                let bpf = self.registry.each().find(|kind| kind.expression.is_some());
                let help = match (self.beside(kind), bpf) {
                    (Some((other, does)), _) => format!("{}; `{other} {words}` {does}", known_keys(kind.params)),
                    (None, Some(bpf)) => format!(
                        "{}; a tcpdump expression goes into `{} \"{name} {words}\"`",
                        known_keys(kind.params),
                        bpf.name
                    ),
                    (None, None) => known_keys(kind.params),
                };
                return Err(Diagnostic::new(format!("`{name}` takes no plain value"), value.span).with_help(help));
            };
            if index > 0 && main.kind != ParamType::List && !call.main[0].text.starts_with('\'') {
                return Err(too_many_values(call, value));
            }
            given.set_plain(main, value)?;
        }
        let mut reserved = Given { params: Params::new(), spans: Vec::new(), owner: name, declared: &reserved::KEYS };
        for param in &call.params {
            if is_reserved(&param.key.text) {
                reserved.set_named(&param.key, &param.value)?;
                continue;
            }
            given.set_named(&param.key, &param.value).map_err(|error| match self.registry.find(&param.key.text) {
                _ if let Some((other, does)) =
                    self.beside(kind).filter(|(other, _)| self.has_param(other, &param.key)) =>
                {
                    error.with_help(format!("`{other} ... {}={}` {does}", param.key.text, param.value.text))
                }
                Some(other) if kind.params.iter().all(|known| known.key != other.name) => {
                    let value = &param.value.text;
                    error.with_help(format!("`{0}` is a filter of its own: {name} | {0} {value}", other.name))
                }
                _ => error,
            })?;
        }
        let Given { mut params, spans, .. } = given;
        params.fill_defaults(kind.params).map_err(|missing| {
            // If a parameter has the same name as its filter, the name says nothing new.
            let is_called_alike = missing.key == name && missing.kind == ParamType::Text;
            let value = if is_called_alike { "NAME".into() } else { example(missing) };
            let message = match is_called_alike {
                true => format!("`{name}` needs a {value}"),
                false => format!("`{name}` needs {}", missing.key),
            };
            let how = match missing.main {
                true => format!("{name} {value}"),
                false => format!("{}={value}", missing.key),
            };
            Diagnostic::new(message, call.span).with_label(missing.help).with_help(format!("write: {how}"))
        })?;
        if let Some(complete) = kind.complete {
            complete(&mut params).map_err(|error| diagnostic(error, &params, &spans, call.span))?;
        }
        let how = reserved::how(kind, &params, &reserved.params, &reserved.spans)?;
        Ok(Call { kind, params, param_spans: [spans, reserved.spans].concat(), how })
    }
}

/// The diagnostic for an error in parameters. It points at the wrong value, else at `call`, the place of the filter.
pub(crate) fn diagnostic(error: ParamError, params: &Params, spans: &[(&'static str, Span)], call: Span) -> Diagnostic {
    let at = error.key.and_then(|key| {
        let mut spans = spans.iter().filter(|(known, _)| *known == key).map(|(_, span)| *span);
        let Some(within) = error.within.map(|within| within.start as usize..within.end as usize) else {
            return spans.next();
        };
        // The texts of a list are counted as if joined.
        let (list, text) = (params.list(key), params.text(key));
        let mut before = 0;
        let mut texts = list.iter().map(String::as_str).chain(text).zip(spans).peekable();
        while let Some((text, span)) = texts.next() {
            if within.start < before + text.len() || texts.peek().is_none() {
                return Some(narrowed(span, text, within.start.saturating_sub(before)..within.end - before));
            }
            before += text.len();
        }
        None
    });
    Diagnostic { help: error.help, ..Diagnostic::new(error.message, at.unwrap_or(call)) }
}

/// The part of a value's span that holds these bytes of its text. The whole span if the text was written with escapes.
fn narrowed(value: Span, text: &str, within: Range<usize>) -> Span {
    let start = match (value.end - value.start).checked_sub(text.len()) {
        Some(0) => value.start,
        // In quotes, without escapes.
        Some(2) => value.start + 1,
        _ => return value,
    };
    if within.end <= text.len() { Span::new(start + within.start, start + within.end) } else { value }
}

fn is_reserved(key: &str) -> bool {
    reserved::KEYS.iter().any(|known| known.key == key)
}

/// The error for `bpf tcp port 80`: most likely one value that needs quotes.
fn too_many_values(call: &FilterCall, value: &Value) -> Diagnostic {
    let words: Vec<&str> = call.main.iter().map(|value| value.text.as_str()).collect();
    Diagnostic::new(format!("`{}` is a second plain value", value.text), value.span)
        .with_label(format!("`{}` takes one", call.name.text))
        .with_help(format!("put a value with spaces in quotes: {} \"{}\"", call.name.text, words.join(" ")))
}

struct Given<'a> {
    params: Params,
    spans: Vec<(&'static str, Span)>,
    owner: &'a str,
    declared: &'static [Param],
}

impl Given<'_> {
    fn set(&mut self, param: &'static Param, value: &Value) -> Result<(), Diagnostic> {
        if param.kind != ParamType::List && self.params.get(param.key).is_some() {
            return Err(Diagnostic::new(format!("{} is given twice", param.key), value.span));
        }
        if !value.quoted && value.text.starts_with('\'') {
            return Err(Diagnostic::new("values are quoted with `\"`, not with `'`", value.span)
                .with_help("in a shell, put the whole request in single quotes: 'bpf \"tcp port 80\"'"));
        }
        let checked = param.kind.parse(&value.text).map_err(|message| {
            Diagnostic::new(message, value.span).with_label(format!("{}: {}", param.key, param.kind))
        })?;
        self.params.set(param.key, checked);
        self.spans.push((param.key, value.span));
        Ok(())
    }

    /// Sets the value without a key. A value that begins with `-` may be meant as an option.
    fn set_plain(&mut self, param: &'static Param, value: &Value) -> Result<(), Diagnostic> {
        self.set(param, value).map_err(|error| match value.text.strip_prefix('-') {
            Some(rest) if !rest.is_empty() && error.help.is_none() => error.with_help(format!(
                "there are no options with `-`: write `{} {}`, other parameters as key=value",
                self.owner,
                example(param)
            )),
            _ => error,
        })
    }

    fn set_named(&mut self, key: &Name, value: &Value) -> Result<(), Diagnostic> {
        let declared = self.declared;
        let family = declared.iter().find_map(|param| Some((param, param.rest_of(&key.text)?)));
        if let Some((param, rest)) = family {
            let text = format!("{rest}={}", value.text);
            return self.set(param, &Value { text, ..value.clone() });
        }
        let Some(param) = declared.iter().find(|param| param.key == key.text && !param.key.ends_with('.')) else {
            let guess = nearest(&key.text, declared.iter().map(|param| param.key)).filter(|guess| *guess != key.text);
            let guess = guess.map_or(String::new(), |guess| format!("; did you mean `{guess}`?"));
            return Err(Diagnostic::new(format!("`{}` has no parameter `{}`{guess}", self.owner, key.text), key.span)
                .with_label("unknown parameter")
                .with_help(known_keys(declared)));
        };
        self.set(param, value)
    }
}

fn known_keys(declared: &[Param]) -> String {
    if declared.is_empty() {
        return "it has no parameters".to_string();
    }
    let key = |param: &Param| match param.key.ends_with('.') {
        true => format!("{}NAME", param.key),
        false => param.key.to_string(),
    };
    format!("it knows: {}", declared.iter().map(key).collect::<Vec<_>>().join(", "))
}

/// An example for a parameter: a value of its type, or its key in capitals.
fn example(param: &Param) -> String {
    match param.kind {
        ParamType::Text | ParamType::Path | ParamType::List => param.key.to_uppercase(),
        ParamType::Number => "N".into(),
        ParamType::Size => "10M".into(),
        ParamType::Duration => "10s".into(),
        ParamType::Flag => "yes".into(),
        ParamType::Choice(words) => words.first().copied().unwrap_or("WORD").into(),
    }
}

fn check_settings(given: &[&request::Param]) -> Result<Params, Diagnostic> {
    let mut checked = Given { params: Params::new(), spans: Vec::new(), owner: "set", declared: &SETTINGS };
    for param in given {
        checked.set_named(&param.key, &param.value)?;
        settings::check(&checked.params, &param.key.text, param.value.span)?;
    }
    let mut params = checked.params;
    params.fill_defaults(&SETTINGS).map_err(|param| Diagnostic::new(param.key, Span::new(0, 0)))?;
    Ok(params)
}

fn tail(from: NodeId, span: Span) -> Tail {
    Tail { from, selects: Vec::new(), cut: false, span }
}

/// Takes waiting blocks through one more edge.
fn through(mut tails: Vec<Tail>, edge: Option<&Edge>) -> Vec<Tail> {
    if let Some(edge) = edge {
        for tail in &mut tails {
            tail.selects.extend(edge.select);
            tail.cut |= edge.cut;
            tail.span = edge.span;
        }
    }
    tails
}

/// A selector in the engine's form; `|!` is filled in when all edges are known.
fn select(selector: &Selector) -> Select {
    match *selector {
        Selector::Otherwise => Select::Otherwise(Vec::new()),
        Selector::Classes { invert, low, high } => Select::Classes { low, high, invert, halves: false },
    }
}

/// `pcap x | tcp + udp` leaves `udp` without a source: suggests braces.
fn hint_at_braces(diagnostic: Diagnostic, par: &Par, index: usize) -> Diagnostic {
    let no_source = diagnostic.message.ends_with("has no source");
    let names = |chain: &Chain| match chain.links.last().map(|link| &link.term) {
        Some(Term::Filter(call)) => Some(call.name.text.clone()),
        _ => None,
    };
    let first = |chain: &Chain| match chain.links.first().map(|link| &link.term) {
        Some(Term::Filter(call)) => Some(call.name.text.clone()),
        _ => None,
    };
    match (index.checked_sub(1).and_then(|before| names(&par.branches[before])), first(&par.branches[index])) {
        (Some(before), Some(this)) if no_source => diagnostic
            .with_help(format!("`+` separates whole paths; to branch after `|`, use braces: {{ {before} + {this} }}")),
        _ => diagnostic,
    }
}

/// Whether this setter's classes have two halves.
pub(crate) fn is_halves(class: ClassUse) -> bool {
    matches!(class, ClassUse::SetsHalves(_))
}

/// Inserts a chain into an arrow of the graph, before the filter that wants it. A kind gives the chain as request text.
///
/// # Panics
/// When the text is not a request: a mistake in our own kinds, which a test over all kinds finds.
pub(crate) fn splice(
    graph: &mut Graph,
    registry: &Registry,
    arrow: usize,
    text: &str,
    origin: &crate::graph::Origin,
) -> Result<(), Diagnostic> {
    let parsed = request::parse(text).unwrap_or_else(|wrong| panic!("`{text}` is wanted by a kind: {}", wrong.message));
    let arrow = graph.arrows.remove(arrow);
    let span = graph.node(arrow.to).span;
    let (first_node, first_arrow) = (graph.nodes.len(), graph.arrows.len());
    let mut resolver = Resolver { registry, graph: std::mem::take(graph), labels: BTreeMap::new() };
    let mut tails = vec![tail(arrow.from, span)];
    for item in &parsed.items {
        if let Item::Path(par) = item {
            tails = resolver.term(&Term::Group(par.clone()), Some(tails))?;
        }
    }
    resolver.connect(Some(tails), arrow.to);
    *graph = resolver.graph;
    for new in &mut graph.arrows[first_arrow..] {
        new.span = arrow.span;
        if new.from == arrow.from {
            (new.select, new.cut, new.rejected) = (arrow.select.clone(), arrow.cut, arrow.rejected);
        }
    }
    for vertex in graph.nodes[first_node..].iter_mut().flatten() {
        (vertex.span, vertex.origin) = (span, origin.clone());
    }
    Ok(())
}
