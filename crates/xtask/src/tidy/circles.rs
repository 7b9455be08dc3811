//! Circles: pairs of modules of one crate that use each other. A module and one inside it are no circle. Checks that no
//! crate has more of them than [`MOST`] says, and that its number there falls with them.

use super::{Finding, Tree};
use crate::modules::{Module, modules};
use std::collections::BTreeSet;

/// The circles that crates still have. A number here only falls.
const MOST: &[(&str, usize)] = &[("engine", 1), ("net", 9), ("socket", 2)];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.workspace.packages.iter();
    crates.flat_map(|package| compare(&package.name, &modules(&tree.files, package), MOST)).collect()
}

fn compare(name: &str, modules: &[Module], most: &[(&str, usize)]) -> Vec<Finding> {
    let found = circles(modules);
    let (count, most) = (found.len(), most.iter().find(|(known, _)| *known == name).map_or(0, |(_, most)| *most));
    if count < most {
        let message = format!("`{name}` has {count} circles, not {most}; lower its number in MOST");
        return vec![Finding::new(file!(), 1, message)];
    }
    let finding = |(one, other): &(usize, usize)| {
        let (one, other) = (&modules[*one].file, &modules[*other].file);
        let message = format!(
            "it and {other} use each other: {count} circles in `{name}`, {most} are the most; move what both use into a \
             file of its own"
        );
        Finding::new(one, 1, message)
    };
    found.iter().filter(|_| count > most).map(finding).collect()
}

/// The circles of a crate: pairs of positions in `modules`.
pub(super) fn circles(modules: &[Module]) -> Vec<(usize, usize)> {
    let uses: Vec<BTreeSet<usize>> = modules.iter().map(|module| uses(modules, module)).collect();
    let pairs = uses.iter().enumerate().flat_map(|(one, uses)| uses.iter().map(move |other| (one, *other)));
    pairs.filter(|(one, other)| one < other && uses[*other].contains(one)).collect()
}

/// The modules that a module names by a path, without those that it is in and those in it.
fn uses(modules: &[Module], user: &Module) -> BTreeSet<usize> {
    let resolved = paths(&user.code).into_iter().filter_map(|path| resolve(modules, user, &path));
    let is_beside = |at: &usize| {
        let other = &modules[*at].path;
        !other.starts_with(&user.path) && !user.path.starts_with(other)
    };
    resolved.filter(is_beside).collect()
}

/// The innermost module that a path leads into.
fn resolve(modules: &[Module], user: &Module, path: &[&str]) -> Option<usize> {
    let mut at: Vec<&str> = user.path.iter().map(String::as_str).collect();
    let mut found = None;
    for name in path {
        match *name {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => at.push(name),
        }
        match modules.iter().position(|module| module.path == at) {
            Some(module) => found = Some(module),
            None => break,
        }
    }
    found
}

/// The paths in code that begin with `crate`, `self` or `super`, those in braces one by one.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let mut paths = Vec::new();
    for start in ["crate", "self", "super"] {
        for (at, _) in code.match_indices(start) {
            let is_inside = code[..at].ends_with(|one: char| is_of_name(one) || matches!(one, ':' | '$'));
            if !is_inside && code[at + start.len()..].starts_with("::") {
                tree(&code[at..], &mut Vec::new(), &mut paths);
            }
        }
    }
    paths
}

/// Reads a path, or all paths of a tree of `use`, from the beginning of `code`, and gives what follows.
fn tree<'a>(code: &'a str, above: &mut Vec<&'a str>, paths: &mut Vec<Vec<&'a str>>) -> &'a str {
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches([',', ' ', '\n']);
            match rest.strip_prefix('}') {
                Some(rest) => return rest,
                None if !rest.starts_with(is_of_name) => return rest,
                None => rest = tree(rest, &mut above.clone(), paths),
            }
            // Renaming: `as name`.
            rest = rest.trim_start_matches(|one| is_of_name(one) || one == ' ');
        }
    }
    let (name, rest) = code.split_at(code.find(|one| !is_of_name(one)).unwrap_or(code.len()));
    above.extend((!name.is_empty()).then_some(name));
    match rest.strip_prefix("::").filter(|_| !name.is_empty()) {
        Some(rest) => tree(rest, above, paths),
        None => {
            paths.push(above.clone());
            rest
        }
    }
}

fn is_of_name(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &[&str], code: &str) -> Module {
        Module { file: String::new(), path: path.iter().map(|name| name.to_string()).collect(), code: code.into() }
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let modules = [
            module(&[], "use crate::a::{A, b::B};"),
            module(&["a"], "mod b; use crate::{c, d::{self, D as E}, e}; fn f() { super::e::g() }"),
            module(&["a", "b"], "use super::A; use super::super::c::C;"),
            module(&["c"], "fn f() { crate::a::b::B::<u8>::new() }"),
            module(&["d"], "use crate::a;"),
            module(&["e"], "use super::d::{X, self}; fn f() { $crate::a::A }"),
        ];
        assert_eq!(circles(&modules), [(1, 4), (2, 3)]);
    }

    #[test]
    fn a_crate_has_as_many_circles_as_its_number_says() {
        let mut modules = [module(&[], ""), module(&["a"], "use crate::b::B;"), module(&["b"], "use crate::a::A;")];
        (modules[1].file, modules[2].file) = ("a.rs".into(), "b.rs".into());
        assert_eq!(compare("x", &modules, &[("x", 1)]), []);
        let message =
            "it and b.rs use each other: 1 circles in `x`, 0 are the most; move what both use into a file of its own";
        assert_eq!(compare("x", &modules, &[("y", 1)]), [Finding::new("a.rs", 1, message)]);
        let message = "`x` has 1 circles, not 2; lower its number in MOST";
        assert_eq!(compare("x", &modules, &[("x", 2)]), [Finding::new(file!(), 1, message)]);
    }

    #[test]
    fn code_that_is_no_path_ends_the_search() {
        for code in ["crate::{", "crate::{a", "crate::{*}", "crate::", "use crate::{a as b, c::{d as e, }, };"] {
            let found: Vec<String> = paths(code).iter().map(|path| path.join("::")).collect();
            assert!(found.iter().all(|path| path.starts_with("crate")), "{found:?}");
        }
        assert_eq!(
            paths("crate::{a as b, c::{d as e}, f}"),
            [["crate", "a"].as_slice(), &["crate", "c", "d"], &["crate", "f"]]
        );
    }
}
