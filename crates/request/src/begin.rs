//! A source from outside the text: `run -r trace.pcap 'tcp | http'`.

use crate::diagnostic::Span;
use crate::tree::{Chain, Edge, FilterCall, Item, Link, Par, Term, Text};

/// Puts a source before each chain of an [expanded](crate::expand()) text's paths that lacks one. A chain that begins
/// with a source or a reference stays as it is. `is_source` says whether a filter of that name is a source. Gives the
/// number of chains that lacked one.
///
/// Each such chain gets a filter of its own; the control plane merges equal ones.
pub fn begin_with(text: &mut Text, source: &FilterCall, is_source: &dyn Fn(&str) -> bool) -> usize {
    let paths = text.items.iter_mut().filter_map(|item| match item {
        Item::Path(par) => Some(par),
        Item::Let { .. } | Item::Set { .. } => None,
    });
    paths.map(|par| of_par(par, source, is_source)).sum()
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
    let plain = Edge { cut: false, select: None, span: Span::NONE };
    first.edge = Some(chain.lead.take().unwrap_or(plain));
    chain.links.insert(0, Link { edge: None, term: Term::Filter(source.clone()) });
    1
}
