//! References in the notation of papers: a bare `(x)` stands for the node x, wherever that is.

use std::collections::BTreeSet;

use crate::tree::{Item, Par, Term, Text};

/// Makes references of all bare `(x)` for which any node in the text is named x.
pub(crate) fn resolve_references(text: &mut Text) {
    let mut labels = BTreeSet::new();
    text.each_term(&mut |term| {
        if let Term::Filter(call) = term
            && let Some(label) = &call.label
        {
            labels.insert(label.text.clone());
        }
    });
    if labels.is_empty() {
        return;
    }
    for item in &mut text.items {
        match item {
            Item::Let { body: par, .. } | Item::Path(par) => resolve_par(par, &labels),
            Item::Set { .. } => {}
        }
    }
}

fn resolve_par(par: &mut Par, labels: &BTreeSet<String>) {
    for link in par.branches.iter_mut().flat_map(|chain| &mut chain.links) {
        resolve_term(&mut link.term, labels);
    }
}

fn resolve_term(term: &mut Term, labels: &BTreeSet<String>) {
    match term {
        Term::Filter(call) => {
            let bare = call.main.is_empty() && call.params.is_empty() && call.label.is_none();
            if bare && labels.contains(&call.name.text) {
                let mut name = call.name.clone();
                name.span = call.span;
                *term = Term::Ref(name);
            }
        }
        Term::Group(par) => resolve_par(par, labels),
        Term::Or(terms) | Term::And(terms) => terms.iter_mut().for_each(|term| resolve_term(term, labels)),
        Term::Not(term) => resolve_term(term, labels),
        Term::Ref(_) => {}
    }
}
