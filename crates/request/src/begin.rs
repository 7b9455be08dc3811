//! A source from outside the text: `run -r trace.pcap 'tcp | http'`.

use crate::diagnostic::Span;
use crate::tree::{Chain, Edge, FilterCall, Item, Link, Par, Term, Text};

const PLAIN: Edge = Edge { cut: false, select: None, span: Span::NONE };

/// Puts a source before each chain of an [expanded](crate::expand()) text's paths that lacks one. A chain that begins
/// with a source or a reference stays as it is. `is_source` says whether a filter of that name is a source. Gives the
/// number of chains that lacked one.
///
/// Each such chain gets a filter of its own; the control plane merges equal ones.
pub fn begin_with(text: &mut Text, source: &FilterCall, is_source: &dyn Fn(&str) -> bool) -> usize {
    paths(text).map(|par| of_par(par, source, is_source)).sum()
}

fn paths(text: &mut Text) -> impl Iterator<Item = &mut Par> {
    text.items.iter_mut().filter_map(|item| match item {
        Item::Path(par) => Some(par),
        Item::Let { .. } | Item::Set { .. } => None,
    })
}

fn of_par(par: &mut Par, source: &FilterCall, is_source: &dyn Fn(&str) -> bool) -> usize {
    par.branches.iter_mut().map(|chain| of_chain(chain, source, is_source)).sum()
}

fn of_chain(chain: &mut Chain, source: &FilterCall, is_source: &dyn Fn(&str) -> bool) -> usize {
    let Some(first) = chain.links.first_mut() else { return 0 };
    match &mut first.term {
        Term::Ref(_) => return 0,
        Term::Filter(call) if is_source(&call.name.text) => return 0,
        Term::Group(par) => return of_par(par, source, is_source),
        Term::Filter(_) | Term::Or(_) | Term::And(_) | Term::Not(_) => {}
    }
    // The edge before the chain still leads to it.
    first.edge = Some(chain.lead.take().unwrap_or(PLAIN));
    chain.links.insert(0, Link { edge: None, term: Term::Filter(source.clone()) });
    1
}

/// What a filter is to [`put_behind_sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It begins a chain.
    Source,
    /// It passes or rejects blocks.
    Selector,
    /// Anything else.
    Other,
}

/// Puts a filter behind each source of an [expanded](crate::expand()) text's paths: `run -c 10`. It stands behind the
/// selectors that follow the source along plain edges, so that it sees what tcpdump's `-c` counts. A group of sources
/// is one source.
pub fn put_behind_sources(text: &mut Text, call: &FilterCall, role: &dyn Fn(&str) -> Role) {
    paths(text).for_each(|par| behind_sources(par, call, role));
}

fn behind_sources(par: &mut Par, call: &FilterCall, role: &dyn Fn(&str) -> Role) {
    par.branches.iter_mut().for_each(|chain| behind_source(chain, call, role));
}

fn behind_source(chain: &mut Chain, call: &FilterCall, role: &dyn Fn(&str) -> Role) {
    match chain.links.first_mut().map(|link| &mut link.term) {
        Some(first) if is_source(first, role) => {}
        Some(Term::Group(par)) => return behind_sources(par, call, role),
        _ => return,
    }
    // References to the source see what it limits.
    let mut call = call.clone();
    if let Some(Term::Filter(source)) = chain.links.first_mut().map(|link| &mut link.term) {
        call.label = source.label.take();
    }
    let is_named = call.label.is_some();
    let selects = |at: usize| chain.links.get(at).is_some_and(|link| is_plain(link) && is_selection(&link.term, role));
    // A selector whose own edges say more than `|` keeps them.
    let is_plain_at = |at: usize| chain.links.get(at).is_none_or(is_plain);
    let mut at = 1;
    while !is_named && selects(at) && is_plain_at(at + 1) {
        at += 1;
    }
    let edge = chain.links.get_mut(at).and_then(|link| link.edge.replace(PLAIN)).unwrap_or(PLAIN);
    // A cut stays where it is, before the filters that it was to run apart.
    let (before, after) = if edge.cut || edge.select.is_some() { (PLAIN, edge) } else { (edge, PLAIN) };
    if let Some(next) = chain.links.get_mut(at) {
        next.edge = Some(after);
    }
    chain.links.insert(at, Link { edge: Some(before), term: Term::Filter(call) });
}

fn is_plain(link: &Link) -> bool {
    link.edge.is_some_and(|edge| !edge.cut && edge.select.is_none())
}

/// Whether frames come out of this term as a source gave them.
fn is_source(term: &Term, role: &dyn Fn(&str) -> Role) -> bool {
    match term {
        Term::Filter(call) => role(&call.name.text) == Role::Source,
        Term::Group(par) => par.branches.iter().all(|chain| {
            let mut terms = chain.links.iter().map(|link| &link.term);
            terms.next().is_some_and(|first| is_source(first, role)) && terms.all(|term| is_selection(term, role))
        }),
        Term::Ref(_) | Term::Or(_) | Term::And(_) | Term::Not(_) => false,
    }
}

fn is_selection(term: &Term, role: &dyn Fn(&str) -> Role) -> bool {
    match term {
        Term::Filter(call) => role(&call.name.text) == Role::Selector,
        Term::Or(_) | Term::And(_) | Term::Not(_) => true,
        Term::Group(_) | Term::Ref(_) => false,
    }
}
