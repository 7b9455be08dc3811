//! The lets of a text, by name, checked so that they can be copied. `expand.rs` uses them.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::Diagnostic;
use crate::tree::{FilterCall, Item, Name, Par, Term, Text};

/// A `let` and the names of the nodes in its body.
pub(crate) struct Let<'a> {
    pub(crate) name: &'a Name,
    pub(crate) body: &'a Par,
    pub(crate) labels: Vec<&'a Name>,
}

pub(crate) type Lets<'a> = BTreeMap<&'a str, Let<'a>>;

/// Collects the lets of a text. Checks that they hide no filter and no other `let`, and do not use each other in a
/// circle.
pub(crate) fn collect<'a>(text: &'a Text, is_filter: &dyn Fn(&str) -> bool) -> Result<Lets<'a>, Diagnostic> {
    let mut lets = Lets::new();
    for item in &text.items {
        let Item::Let { name, body, .. } = item else { continue };
        if is_filter(&name.text) {
            return Err(Diagnostic::new(format!("`let {}` hides the filter of that name", name.text), name.span)
                .with_label("a filter")
                .with_help("choose another name"));
        }
        let entry = Let { name, body, labels: labels_of(body)? };
        if lets.insert(&name.text, entry).is_some() {
            return Err(
                Diagnostic::new(format!("`let {}` is given twice", name.text), name.span).with_label("given before")
            );
        }
    }
    check_circles(&lets)?;
    Ok(lets)
}

/// The names of the nodes in a body; an error if one is used twice.
pub(crate) fn labels_of(body: &Par) -> Result<Vec<&Name>, Diagnostic> {
    let mut labels = Vec::new();
    body.each_term(&mut |term| {
        if let Term::Filter(FilterCall { label: Some(label), .. }) = term {
            labels.push(label);
        }
    });
    let mut seen = BTreeSet::new();
    match labels.iter().find(|label| !seen.insert(label.text.as_str())) {
        Some(label) => Err(named_twice(label)),
        None => Ok(labels),
    }
}

/// The error for a second node of the same name.
pub(crate) fn named_twice(label: &Name) -> Diagnostic {
    Diagnostic::new(format!("two nodes are named `{}`", label.text), label.span).with_label("named before")
}

/// Follows the uses of each `let` depth first. The path is on a list, not on the stack, because texts may hold long
/// chains of lets.
fn check_circles(lets: &Lets<'_>) -> Result<(), Diagnostic> {
    let uses: BTreeMap<&str, Vec<&Name>> =
        lets.iter().map(|(name, entry)| (*name, uses_in(entry.body, lets))).collect();
    let mut finished: BTreeSet<&str> = BTreeSet::new();
    for start in lets.keys() {
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        let mut on_path: BTreeSet<&str> = BTreeSet::from([*start]);
        while let Some((name, next)) = path.last_mut() {
            if finished.contains(*name) {
                path.pop();
                continue;
            }
            // Each name on the path is a `let`, so it has an entry.
            let Some(used) = uses.get(*name).and_then(|uses| uses.get(*next)) else {
                finished.insert(*name);
                on_path.remove(*name);
                path.pop();
                continue;
            };
            *next += 1;
            if on_path.contains(used.text.as_str()) {
                let from = path.iter().position(|(name, _)| *name == used.text).unwrap_or(0);
                return Err(circle(used, &path[from..]));
            }
            if !finished.contains(used.text.as_str()) {
                on_path.insert(&used.text);
                path.push((&used.text, 0));
            }
        }
    }
    Ok(())
}

fn circle(used: &Name, names_on_it: &[(&str, usize)]) -> Diagnostic {
    const NAMES_MAX: usize = 8;
    let error =
        Diagnostic::new(format!("`let {}` uses itself", used.text), used.span).with_label("used in its own body");
    if names_on_it.len() < 2 {
        return error.with_help("a `let` stands for a copy of its body, so it cannot stand in it");
    }
    let mut names: Vec<&str> = names_on_it.iter().take(NAMES_MAX).map(|(name, _)| *name).collect();
    if names_on_it.len() > NAMES_MAX {
        names.push("...");
    }
    names.push(&used.text);
    error.with_help(format!("the circle is {}", names.join(" -> ")))
}

fn uses_in<'a>(body: &'a Par, lets: &Lets<'_>) -> Vec<&'a Name> {
    let mut uses = Vec::new();
    body.each_term(&mut |term| {
        if let Term::Filter(call) = term
            && lets.contains_key(call.name.text.as_str())
        {
            uses.push(&call.name);
        }
    });
    uses
}
