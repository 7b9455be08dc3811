//! Checks that the dependencies between crates equal the table in ARCHITECTURE.md. Dependencies of tests may also
//! include [`TESTKIT`].

use super::permissions::{self, Permission};
use super::{Finding, Tree};
use crate::workspace::Package;

/// Every crate may use it for its tests.
const TESTKIT: &str = "testkit";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let permissions = match permissions::read(tree) {
        Ok(permissions) => permissions,
        Err(findings) => return findings,
    };
    let mut findings = Vec::new();
    for package in &tree.workspace.packages {
        match permissions.iter().find(|permission| permission.name == package.name) {
            Some(permission) => findings.extend(check_package(tree, package, permission)),
            None => {
                let message = format!("`{}` has no row in {}; add one", package.name, permissions::FILE);
                findings.push(Finding::new(&manifest(package), 1, message));
            }
        }
    }
    for permission in permissions.iter().filter(|permission| tree.workspace.package(&permission.name).is_none()) {
        let message = format!("there is no crate `{}`; remove the row", permission.name);
        findings.push(Finding::new(permissions::FILE, permission.line, message));
    }
    findings
}

fn check_package(tree: &Tree, package: &Package, permission: &Permission) -> Vec<Finding> {
    let name = &package.name;
    let mut findings = Vec::new();
    for arrow in &package.arrows {
        let permitted = permission.may_use.contains(&arrow.to) || arrow.for_tests && arrow.to == TESTKIT;
        if !permitted {
            let (to, file) = (&arrow.to, permissions::FILE);
            let tests = if arrow.for_tests { "the tests of " } else { "" };
            let message =
                format!("{tests}`{name}` may not use `{to}`; do without, or argue the arrow and add it to {file}");
            findings.push(Finding::new(&manifest(package), manifest_line(tree, package, to), message));
        }
    }
    findings.sort();
    findings.dedup();
    for to in permission.may_use.iter().filter(|to| !package.arrows.iter().any(|arrow| arrow.to == **to)) {
        let message = format!("`{name}` does not use `{to}`; remove it from the row");
        findings.push(Finding::new(permissions::FILE, permission.line, message));
    }
    findings
}

fn manifest(package: &Package) -> String {
    format!("{}/Cargo.toml", package.folder)
}

fn manifest_line(tree: &Tree, package: &Package, dependency: &str) -> usize {
    let Some(file) = tree.files.get(&manifest(package)) else { return 1 };
    let lines = file.lines().skip_while(|(_, line)| !(line.starts_with('[') && line.contains("dependencies")));
    let begins = |line: &str| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    lines.into_iter().find(|(_, line)| begins(line)).map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::workspace::{Arrow, Workspace};

    fn check_rows(rows: &str, crates: &[(&str, &[(&str, bool)])], expected: &[&str]) {
        let table = format!("## Rooms\n| crate | contents | may use | unsafe |\n|-|-|-|-|\n{rows}");
        let manifest = "[package]\nname = \"c\"\n[dependencies]\nbb = \"1\"\nb.workspace = true\n";
        let packages = crates.iter().map(|(name, arrows)| Package {
            name: name.to_string(),
            folder: format!("crates/{name}"),
            arrows: arrows.iter().map(|(to, for_tests)| Arrow { to: to.to_string(), for_tests: *for_tests }).collect(),
            targets: Vec::new(),
        });
        let tree = Tree {
            files: Files::made_up(&[(permissions::FILE, &table), ("crates/c/Cargo.toml", manifest)]),
            workspace: Workspace { packages: packages.collect(), default_members: Vec::new() },
        };
        assert_eq!(check(&tree).iter().map(Finding::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_table_and_the_crates_agree() {
        let table = "| b | x | - | no |\n| c | x | b | no |\n";
        check_rows(table, &[("b", &[]), ("c", &[("b", false), ("b", true), ("testkit", true)])], &[]);
        check_rows(
            "| b | x | - | no |\n| c | x | - | no |\n",
            &[("b", &[]), ("c", &[("b", false), ("b", false), ("b", true), ("testkit", false)])],
            &[
                "crates/c/Cargo.toml:1: `c` may not use `testkit`; do without, or argue the arrow and add it to ARCHITECTURE.md",
                "crates/c/Cargo.toml:5: `c` may not use `b`; do without, or argue the arrow and add it to ARCHITECTURE.md",
                "crates/c/Cargo.toml:5: the tests of `c` may not use `b`; do without, or argue the arrow and add it to ARCHITECTURE.md",
            ],
        );
        check_rows(
            table,
            &[("b", &[]), ("c", &[])],
            &["ARCHITECTURE.md:5: `c` does not use `b`; remove it from the row"],
        );
        check_rows(table, &[("c", &[("b", true)])], &["ARCHITECTURE.md:4: there is no crate `b`; remove the row"]);
        check_rows("", &[("c", &[])], &["crates/c/Cargo.toml:1: `c` has no row in ARCHITECTURE.md; add one"]);
    }

    #[test]
    fn without_a_table_that_is_the_one_finding() {
        let findings = check(&Tree::default());
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, permissions::FILE);
    }
}
