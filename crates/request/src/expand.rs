//! Fills in `let` and `$x`, and checks names. The result has only filters, groups, operators, and references to nodes
//! that exist.
//!
//! Each use of a `let` is a fresh copy with nodes of its own. References inside the body find the copy's nodes; other
//! references do not. Further copies get new names (`tag.2`). The caller knows which filters exist; whether they fit
//! together is for the control plane.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::{Diagnostic, Span};
use crate::lets::{self, Lets, labels_of, named_twice};
use crate::limits::{EXPANDED_BYTES_MAX, NESTING_MAX, TERM_COUNT_MAX};
use crate::tree::{Chain, FilterCall, Item, Link, Name, Par, Param, Term, Text, Value};
use crate::value::Piece;
use base::nearest;

/// The text without `let` and without variables.
///
/// `variables` are those of `run -D x=...`; `is_filter` says whether a filter has that name. The control plane reports
/// unknown filters, unless their name looks like a mistyped `let`. Comments are dropped: they belong to the source.
///
/// # Errors
///
/// - A `let` that uses itself, is given twice, hides a filter, or is given parameters.
/// - A variable without a value.
/// - A node's name that is used twice, or is that of a filter.
/// - A reference to a node that does not exist.
/// - A setting that is given twice.
/// - A result larger than [`limits`](crate::limits) allow.
pub fn expand(
    text: &Text,
    variables: &BTreeMap<String, String>,
    is_filter: &dyn Fn(&str) -> bool,
) -> Result<Text, Diagnostic> {
    let mut expander = Expander {
        variables,
        is_filter,
        top: BTreeMap::new(),
        taken: BTreeSet::new(),
        copies: BTreeMap::new(),
        unknown_seen: false,
        depth: 0,
        term_count: 0,
        byte_count: 0,
        lets: lets::collect(text, is_filter)?,
    };
    expander.collect_labels(text)?;
    let mut keys = BTreeSet::new();
    let mut items = Vec::new();
    for item in &text.items {
        match item {
            // Bodies are expanded where they are used. They are checked here, so that an error in an unused one is
            // seen, too.
            Item::Let { body, .. } => expander.check_values(body)?,
            Item::Set { settings, span } => {
                for setting in settings {
                    if !keys.insert(setting.key.text.as_str()) {
                        return Err(Diagnostic::new(format!("`{}` is set twice", setting.key.text), setting.key.span)
                            .with_label("set before"));
                    }
                }
                items.push(Item::Set { settings: expander.params(settings)?, span: *span });
            }
            Item::Path(par) => items.push(Item::Path(expander.par(par, &Scope::Top)?)),
        }
    }
    Ok(Text { items, notation: text.notation, layout: Default::default() })
}

/// The nodes that a reference can see, besides those of the text itself.
enum Scope<'a> {
    /// A path: no other nodes.
    Top,
    /// A copy of a `let`: for each name in its body, the name in this copy.
    Copy(BTreeMap<&'a str, String>),
}

struct Expander<'a> {
    lets: Lets<'a>,
    variables: &'a BTreeMap<String, String>,
    is_filter: &'a dyn Fn(&str) -> bool,
    /// The nodes named in paths.
    top: BTreeMap<&'a str, &'a Name>,
    /// All names of nodes in the result.
    taken: BTreeSet<String>,
    /// For each name inside of lets: how many copies it has had.
    copies: BTreeMap<&'a str, usize>,
    /// A name was neither a filter nor a `let`. The control plane reports only the first such name, so only that one is
    /// compared with the lets. Comparing each name with all lets would take quadratic time.
    unknown_seen: bool,
    depth: usize,
    term_count: usize,
    byte_count: usize,
}

impl<'a> Expander<'a> {
    fn collect_labels(&mut self, text: &'a Text) -> Result<(), Diagnostic> {
        for item in &text.items {
            let Item::Path(par) = item else { continue };
            for label in labels_of(par)? {
                if self.top.insert(&label.text, label).is_some() {
                    return Err(named_twice(label));
                }
                self.taken.insert(label.text.clone());
            }
        }
        for label in self.top.values().copied().chain(self.lets.values().flat_map(|entry| entry.labels.iter().copied()))
        {
            let owner = if (self.is_filter)(&label.text) {
                "a filter"
            } else if self.lets.contains_key(label.text.as_str()) {
                "a `let`"
            } else {
                continue;
            };
            return Err(Diagnostic::new(
                format!("a node cannot be named `{}`: that is {owner}", label.text),
                label.span,
            )
            .with_label("name taken")
            .with_help("choose another name"));
        }
        Ok(())
    }

    fn check_values(&self, body: &Par) -> Result<(), Diagnostic> {
        let mut result = Ok(());
        body.each_term(&mut |term| {
            if let Term::Filter(call) = term {
                let values = call.main.iter().chain(call.params.iter().map(|param| &param.value));
                for variable in values.flat_map(|value| &value.variables) {
                    if result.is_ok()
                        && let Err(error) = self.variable(&variable.name)
                    {
                        result = Err(error);
                    }
                }
            }
        });
        result
    }

    fn par(&mut self, par: &'a Par, scope: &Scope<'a>) -> Result<Par, Diagnostic> {
        let branches = par.branches.iter().map(|chain| self.chain(chain, scope)).collect::<Result<_, _>>()?;
        Ok(Par { branches, span: par.span })
    }

    fn chain(&mut self, chain: &'a Chain, scope: &Scope<'a>) -> Result<Chain, Diagnostic> {
        let links = chain
            .links
            .iter()
            .map(|link| Ok(Link { edge: link.edge, term: self.term(&link.term, scope)? }))
            .collect::<Result<_, _>>()?;
        Ok(Chain { lead: chain.lead, links, span: chain.span })
    }

    fn term(&mut self, term: &'a Term, scope: &Scope<'a>) -> Result<Term, Diagnostic> {
        self.count_term(term.span())?;
        match term {
            Term::Filter(call) => match self.let_of(call)? {
                Some(name) => self.use_of_let(name, call.span),
                None => self.filter(call, scope).map(Term::Filter),
            },
            Term::Group(par) => {
                self.enter(par.span)?;
                let par = self.par(par, scope)?;
                self.depth -= 1;
                Ok(Term::Group(par))
            }
            Term::Ref(name) => self.reference(name, scope).map(Term::Ref),
            Term::Or(terms) => Ok(Term::Or(self.terms(terms, scope)?)),
            Term::And(terms) => Ok(Term::And(self.terms(terms, scope)?)),
            Term::Not(operand) => {
                self.enter(term.span())?;
                let operand = self.term(operand, scope)?;
                self.depth -= 1;
                Ok(Term::Not(Box::new(operand)))
            }
        }
    }

    fn terms(&mut self, terms: &'a [Term], scope: &Scope<'a>) -> Result<Vec<Term>, Diagnostic> {
        terms.iter().map(|term| self.term(term, scope)).collect()
    }

    /// The `let` that a filter's name stands for. `None`: it is no `let`.
    fn let_of(&mut self, call: &FilterCall) -> Result<Option<&'a str>, Diagnostic> {
        let name = call.name.text.as_str();
        if let Some((name, _)) = self.lets.get_key_value(name) {
            let plain = call.main.iter().map(|value| value.span);
            let keyed = call.params.iter().map(|param| param.key.span);
            let label = call.label.iter().map(|label| label.span);
            return match plain.chain(keyed).chain(label).next() {
                None => Ok(Some(name)),
                Some(span) => Err(Diagnostic::new(format!("`{name}` is a `let` and takes no parameters"), span)
                    .with_label("not taken")
                    .with_help("every use is the same copy; if a new item was meant, it needs a `;` before it")),
            };
        }
        if (self.is_filter)(name) {
            return Ok(None);
        }
        if self.top.contains_key(name) {
            return Err(Diagnostic::new(format!("no filter `{name}`; a node has that name"), call.name.span)
                .with_label("a node's name")
                .with_help(format!("write `@{name}` to refer to it")));
        }
        if std::mem::replace(&mut self.unknown_seen, true) {
            return Ok(None);
        }
        match nearest(name, self.lets.keys().copied()) {
            Some(meant) => Err(Diagnostic::new(format!("no filter `{name}`; did you mean `{meant}`?"), call.name.span)
                .with_label("unknown filter")
                .with_help(format!("`let {meant}` is in this request"))),
            None => Ok(None),
        }
    }

    fn use_of_let(&mut self, name: &'a str, span: Span) -> Result<Term, Diagnostic> {
        // The caller has found `name` in `lets`.
        let entry = &self.lets[name];
        let body = entry.body;
        let labels = entry.labels.clone();
        self.enter(span)?;
        let scope =
            Scope::Copy(labels.into_iter().map(|label| (label.text.as_str(), self.copy_of_label(label))).collect());
        let mut par = self.par(body, &scope)?;
        self.depth -= 1;
        par.span = span;
        Ok(match par.branches.as_mut_slice() {
            // A single filter, reference or group needs no group around it.
            [Chain { lead: None, links, .. }] if links.len() == 1 => match links.remove(0).term {
                term @ (Term::Filter(_) | Term::Ref(_) | Term::Group(_)) => term,
                term => Term::Group(Par { span, ..Par::of_term(term) }),
            },
            _ => Term::Group(par),
        })
    }

    /// The name of a node in a copy of a `let`: the same name for the first copy, then one with a number.
    fn copy_of_label(&mut self, label: &'a Name) -> String {
        let count = self.copies.entry(&label.text).or_insert(0);
        loop {
            *count += 1;
            let name = if *count == 1 { label.text.clone() } else { format!("{}.{count}", label.text) };
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    fn reference(&mut self, name: &Name, scope: &Scope<'a>) -> Result<Name, Diagnostic> {
        if let Scope::Copy(labels) = scope
            && let Some(copy) = labels.get(name.text.as_str())
        {
            self.count_bytes(copy.len(), name.span)?;
            return Ok(Name { text: copy.clone(), span: name.span });
        }
        if self.top.contains_key(name.text.as_str()) {
            self.count_bytes(name.text.len(), name.span)?;
            return Ok(name.clone());
        }
        let owner = self.lets.values().find(|entry| entry.labels.iter().any(|label| label.text == name.text));
        if let Some(owner) = owner {
            let owner = &owner.name.text;
            return Err(Diagnostic::new(format!("`{}` is inside of `let {owner}`", name.text), name.span)
                .with_label("not seen from here")
                .with_help(format!(
                    "each use of `{owner}` is a fresh copy with nodes of its own; name a node outside of it"
                )));
        }
        let local = match scope {
            Scope::Top => None,
            Scope::Copy(labels) => Some(labels.keys().copied()),
        };
        let known = self.top.keys().copied().chain(local.into_iter().flatten());
        let meant = nearest(&name.text, known).map(|meant| format!("; did you mean `@{meant}`?")).unwrap_or_default();
        Err(Diagnostic::new(format!("no node is named `{}`{meant}", name.text), name.span)
            .with_label("unknown node")
            .with_help(format!("name a filter with `name={}`", name.text)))
    }

    fn filter(&mut self, call: &FilterCall, scope: &Scope<'a>) -> Result<FilterCall, Diagnostic> {
        self.count_bytes(call.name.text.len(), call.span)?;
        let label = match (&call.label, scope) {
            // Each label of a body got its copy's name on entry.
            (Some(label), Scope::Copy(labels)) => {
                let copy = labels.get(label.text.as_str()).unwrap_or(&label.text).clone();
                Some(Name { text: copy, span: label.span })
            }
            (label, _) => label.clone(),
        };
        self.count_bytes(label.as_ref().map_or(0, |label| label.text.len()), call.span)?;
        let main = call.main.iter().map(|value| self.value(value)).collect::<Result<_, _>>()?;
        Ok(FilterCall { name: call.name.clone(), main, params: self.params(&call.params)?, label, span: call.span })
    }

    fn params(&mut self, params: &[Param]) -> Result<Vec<Param>, Diagnostic> {
        params
            .iter()
            .map(|param| {
                self.count_bytes(param.key.text.len(), param.key.span)?;
                Ok(Param { key: param.key.clone(), value: self.value(&param.value)? })
            })
            .collect()
    }

    fn value(&mut self, value: &Value) -> Result<Value, Diagnostic> {
        let mut text = String::new();
        for piece in value.pieces() {
            let piece = match piece {
                Piece::Text(piece) => piece,
                Piece::Variable(variable) => self.variable(&variable.name)?,
            };
            self.count_bytes(piece.len(), value.span)?;
            text.push_str(piece);
        }
        let quoted = value.quoted || !value.variables.is_empty();
        Ok(Value { text, quoted, variables: Vec::new(), span: value.span })
    }

    fn variable(&self, name: &Name) -> Result<&'a str, Diagnostic> {
        if let Some(text) = self.variables.get(&name.text) {
            return Ok(text);
        }
        let meant = nearest(&name.text, self.variables.keys().map(String::as_str))
            .map(|meant| format!("; did you mean `${meant}`?"))
            .unwrap_or_default();
        Err(Diagnostic::new(format!("variable `{}` has no value{meant}", name.text), name.span)
            .with_label("unknown variable")
            .with_help(format!("give it one with `-D {}=VALUE`; put text with a `$` of its own in quotes", name.text)))
    }

    fn enter(&mut self, span: Span) -> Result<(), Diagnostic> {
        if self.depth >= NESTING_MAX {
            return Err(Diagnostic::new("the request is nested too deeply once `let` is filled in", span)
                .with_label(format!("level {}", NESTING_MAX + 1))
                .with_help(format!("groups, `not` and uses of `let` go {NESTING_MAX} levels deep")));
        }
        self.depth += 1;
        Ok(())
    }

    fn count_term(&mut self, span: Span) -> Result<(), Diagnostic> {
        if self.term_count >= TERM_COUNT_MAX {
            return Err(Diagnostic::new(
                format!("the request has more than {TERM_COUNT_MAX} terms once `let` is filled in"),
                span,
            )
            .with_label("one too many")
            .with_help("each use of a `let` is a copy of all of it"));
        }
        self.term_count += 1;
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize, span: Span) -> Result<(), Diagnostic> {
        self.byte_count = self.byte_count.saturating_add(bytes);
        if self.byte_count > EXPANDED_BYTES_MAX {
            return Err(Diagnostic::new(
                format!("the request has more than {EXPANDED_BYTES_MAX} bytes once `let` and variables are filled in"),
                span,
            )
            .with_label("too long"));
        }
        Ok(())
    }
}
