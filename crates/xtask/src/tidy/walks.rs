//! Walks: which functions a reader goes through to follow a packet or a request. docs/walks.md has them, a line for
//! each function, indented below its caller. Checks that each function is there, and that its caller's file names it.
//!
//! `cargo xtask tidy --walks` measures them:
//! - a *step* leads from a caller to a function that it calls;
//! - a *stay* begins where a step leads into another file;
//! - a *return* is a stay in a file that the walk has left;
//! - a *climb* is a step into a crate that may use the caller's crate, so that the architecture draws it above.

use super::circles::circles;
use super::permissions::{self, Permission};
use super::{Finding, Tree};
use crate::markdown::{self, Syntax};
use crate::modules::{Module, modules};
use crate::{Failure, Outcome};
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "docs/walks.md";

#[derive(Debug)]
struct Walk {
    /// Its heading.
    name: String,
    stops: Vec<Stop>,
}

#[derive(Debug)]
struct Stop {
    /// Its line in [`FILE`].
    line: usize,
    /// Its file, as the list names it: without `crates` and `src`.
    file: String,
    function: String,
    /// The position of its caller. `None`: the walk begins here.
    caller: Option<usize>,
}

impl Stop {
    fn path(&self) -> String {
        let (package, rest) = self.file.split_once('/').unwrap_or((&self.file, ""));
        format!("crates/{package}/src/{rest}")
    }

    fn package(&self) -> &str {
        self.file.split('/').next().unwrap_or_default()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Measure {
    steps: usize,
    stays: usize,
    /// The positions of the stops that climbs lead to.
    climbs: Vec<usize>,
    /// The positions of the stops that returns lead to.
    returns: Vec<usize>,
}

impl Walk {
    fn measure(&self, rows: &[Permission]) -> Measure {
        let mut measure = Measure::default();
        let mut been = BTreeSet::new();
        for (at, stop) in self.stops.iter().enumerate() {
            let caller = stop.caller.map(|caller| &self.stops[caller]);
            measure.steps += usize::from(caller.is_some());
            if caller.is_some_and(|caller| is_above(rows, stop.package(), caller.package())) {
                measure.climbs.push(at);
            }
            if caller.is_none_or(|caller| caller.file != stop.file) {
                measure.stays += 1;
                if !been.insert(&stop.file) {
                    measure.returns.push(at);
                }
            }
        }
        measure
    }
}

/// Whether the upper crate may use the lower one, also through others.
fn is_above(rows: &[Permission], upper: &str, lower: &str) -> bool {
    let mut reached = BTreeSet::from([upper]);
    let mut next = vec![upper];
    while let Some(name) = next.pop() {
        let row = rows.iter().find(|row| row.name == name);
        let fresh = row.iter().flat_map(|row| &row.may_use).filter(|used| reached.insert(used));
        next.extend(fresh.map(String::as_str));
    }
    upper != lower && reached.contains(lower)
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let modules: BTreeMap<String, Module> = by_file(tree);
    let walks = match read(tree) {
        Ok(walks) => walks,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for (walk, stop) in walks.iter().flat_map(|walk| walk.stops.iter().map(move |stop| (walk, stop))) {
        let function = &stop.function;
        let caller = stop.caller.map(|caller| walk.stops[caller].path());
        let message = match (modules.get(&stop.path()), caller.as_ref().map(|path| modules.get(path))) {
            (None, _) => format!("there is no module {}; mend the walk", stop.path()),
            (Some(module), _) if !module.has_function(function) => {
                format!("{} has no function `{function}`; mend the walk", stop.path())
            }
            (_, Some(Some(caller))) if !caller.names(function) => {
                format!("{} does not call `{function}`; mend the walk", caller.file)
            }
            _ => continue,
        };
        findings.push(Finding::new(FILE, stop.line, message));
    }
    findings
}

fn by_file(tree: &Tree) -> BTreeMap<String, Module> {
    let all = tree.workspace.packages.iter().flat_map(|package| modules(&tree.files, package));
    all.map(|module| (module.file.clone(), module)).collect()
}

/// Reads the lists: the fenced lines under each heading. A repository without the file has no walks.
fn read(tree: &Tree) -> Result<Vec<Walk>, Finding> {
    let Some(file) = tree.files.get(FILE) else { return Ok(Vec::new()) };
    let headings: Vec<(usize, &str)> = markdown::headings(&file.text).collect();
    let mut walks: Vec<Walk> = Vec::new();
    // The positions of the stop before and of its callers, by depth.
    let mut callers: Vec<usize> = Vec::new();
    for piece in markdown::pieces(&file.text).iter().filter(|piece| piece.syntax == Syntax::Fenced) {
        let wrong = |message: &str| Finding::new(FILE, piece.line, message);
        let name = headings.iter().rev().find(|(line, _)| *line < piece.line).map_or("", |(_, name)| name);
        if walks.last().is_none_or(|walk| walk.name != name) {
            walks.push(Walk { name: name.into(), stops: Vec::new() });
            callers.clear();
        }
        let Some(walk) = walks.last_mut() else { continue };
        let depth = (piece.text.len() - piece.text.trim_start().len()) / 2;
        let (file, function) =
            piece.text.trim().split_once(' ').ok_or_else(|| wrong("not `CRATE/FILE FUNCTION`; write it so"))?;
        if depth > callers.len() || depth == 0 && !walk.stops.is_empty() {
            return Err(wrong("it has no caller above; indent it two spaces more than its caller"));
        }
        callers.truncate(depth);
        let (caller, line) = (callers.last().copied(), piece.line);
        callers.push(walk.stops.len());
        walk.stops.push(Stop { line, file: file.into(), function: function.trim().into(), caller });
    }
    Ok(walks)
}

/// Prints the measures of the walks, the circles of each crate, and its lines of code.
pub(super) fn print(tree: &Tree) -> Outcome {
    let failed = |finding: &Finding| Failure::Failed(finding.to_string());
    let walks = read(tree).map_err(|finding| failed(&finding))?;
    let rows = permissions::read(tree).map_err(|findings| failed(&findings[0]))?;
    println!("{:<24}{:>8}{:>8}{:>8}{:>8}", "walk", "steps", "stays", "climbs", "returns");
    let mut notes = Vec::new();
    for walk in &walks {
        let Measure { steps, stays, climbs, returns } = walk.measure(&rows);
        println!("{:<24}{steps:>8}{stays:>8}{:>8}{:>8}", walk.name, climbs.len(), returns.len());
        for (what, stops) in [("climb", climbs), ("return", returns)] {
            let stops = stops.into_iter().map(|at| &walk.stops[at]);
            notes.extend(
                stops.map(|Stop { line, file, function, .. }| format!("{FILE}:{line}: {what}: {file} {function}")),
            );
        }
    }
    println!("\n{:<24}{:>8}{:>8}", "crate", "lines", "circles");
    let mut sums = [0; 2];
    for package in &tree.workspace.packages {
        let modules = modules(&tree.files, package);
        let circles = circles(&modules);
        let lines: usize = modules.iter().map(Module::lines).sum();
        println!("{:<24}{lines:>8}{:>8}", package.name, circles.len());
        sums = [sums[0] + lines, sums[1] + circles.len()];
        notes.extend(
            circles.iter().map(|(one, other)| format!("{}: circle: {}", modules[*one].file, modules[*other].file)),
        );
    }
    println!("{:<24}{:>8}{:>8}\n", "all", sums[0], sums[1]);
    notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::workspace::{Package, Workspace};

    const TABLE: &str = "## Rooms\n| crate | contents | may use | unsafe |\n|-|-|-|-|\n\
                         | low | x | - | no |\n| mid | x | low | no |\n| top | x | mid | no |\n";

    fn tree(list: &str) -> Tree {
        let files = [
            (FILE, list),
            (permissions::FILE, TABLE),
            ("crates/low/src/lib.rs", "mod a;\nfn low() { upper() }\n"),
            ("crates/low/src/a.rs", "fn a() { low(); b() }\nfn b() {}\n"),
            ("crates/mid/src/lib.rs", "fn mid() { low(); a(); low() }\n"),
            ("crates/top/src/lib.rs", "fn top() { mid() }\nfn upper() {}\n#[cfg(test)]\nmod tests { fn t() {} }\n"),
        ];
        let package =
            |name: &str| Package { name: name.into(), folder: format!("crates/{name}"), ..Package::default() };
        let packages = ["low", "mid", "top"].map(package).into();
        Tree { files: Files::made_up(&files), workspace: Workspace { packages, default_members: Vec::new() } }
    }

    fn check_list(lines: &str, expected: &[&str]) {
        let findings = check(&tree(&format!("# W\n```\n{lines}```\n")));
        assert_eq!(findings.iter().map(Finding::to_string).collect::<Vec<_>>(), expected, "{lines}");
    }

    #[test]
    fn a_walk_names_functions_and_steps_that_are_there() {
        check_list("top/lib.rs top\n  mid/lib.rs mid\n    low/lib.rs low\n    low/a.rs a\n", &[]);
        check_list("low/a.rs a\n  low/a.rs b\n", &[]);
        check_list("top/lib.rs t\n", &["docs/walks.md:3: crates/top/src/lib.rs has no function `t`; mend the walk"]);
        check_list("low/b.rs a\n", &["docs/walks.md:3: there is no module crates/low/src/b.rs; mend the walk"]);
        check_list(
            "top/lib.rs top\n  low/lib.rs low\n",
            &["docs/walks.md:4: crates/top/src/lib.rs does not call `low`; mend the walk"],
        );
        check_list("low\n", &["docs/walks.md:3: not `CRATE/FILE FUNCTION`; write it so"]);
        let no_caller = "it has no caller above; indent it two spaces more than its caller";
        check_list("top/lib.rs top\n    mid/lib.rs mid\n", &[&format!("docs/walks.md:4: {no_caller}")]);
        check_list("top/lib.rs top\nmid/lib.rs mid\n", &[&format!("docs/walks.md:4: {no_caller}")]);
    }

    #[test]
    fn a_walk_is_measured_by_its_files_and_crates() {
        let list = "# W\n```\nmid/lib.rs mid\n  low/a.rs a\n    low/a.rs b\n    low/lib.rs low\n      top/lib.rs upper\n  low/lib.rs low\n```\n\
                    # V\n```\nlow/lib.rs low\n```\n";
        let tree = tree(list);
        let (walks, rows) = (read(&tree).unwrap(), permissions::read(&tree).unwrap());
        assert_eq!(walks.iter().map(|walk| &walk.name[..]).collect::<Vec<_>>(), ["W", "V"]);
        let measure = Measure { steps: 5, stays: 5, climbs: vec![4], returns: vec![5] };
        assert_eq!(walks[0].measure(&rows), measure);
        assert_eq!(walks[1].measure(&rows), Measure { stays: 1, ..Measure::default() });
    }
}
