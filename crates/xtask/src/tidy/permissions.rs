//! Reads the table in ARCHITECTURE.md with the contents, the permitted dependencies and `unsafe` of each crate, for the checks
//! `arrows` and `unsafe_code`.

use super::{Finding, Tree};
use crate::markdown;

pub(super) const FILE: &str = "ARCHITECTURE.md";
pub(super) const HEADING: &str = "Rooms";
/// The head of the table.
const COLUMNS: [&str; 4] = ["crate", "contents", "may use", "unsafe"];

/// The permissions of one crate. A row may name several crates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Permission {
    pub line: usize,
    pub name: String,
    pub may_use: Vec<String>,
    pub may_be_unsafe: bool,
}

/// Reads the table. The error says why it cannot be read.
pub(super) fn read(tree: &Tree) -> Result<Vec<Permission>, Vec<Finding>> {
    let one = |line, message: String| vec![Finding::new(FILE, line, message)];
    let columns = format!("| {} |", COLUMNS.join(" | "));
    let file = tree.files.get(FILE);
    let file = file.ok_or_else(|| one(1, format!("there is no such file; write it, with a table {columns} in it")))?;
    let (head, rows) = markdown::table(&file.text, HEADING).map_err(|heading| match heading {
        None => one(1, format!("there is no heading `## {HEADING}`; add it, and the table {columns} under it")),
        Some(line) => one(line, format!("no table follows this heading; add one with the columns {columns}")),
    })?;
    if head.cells != COLUMNS {
        return Err(one(head.line, format!("these are not the columns {columns}; name them so")));
    }
    let (mut permissions, mut findings) = (Vec::<Permission>::new(), Vec::new());
    for row in rows {
        let [names, contents, may_use, unsafe_code] = &row.cells[..] else {
            findings.extend(one(row.line, format!("this row has {} cells; give it four", row.cells.len())));
            continue;
        };
        if contents.is_empty() {
            findings.extend(one(row.line, "this row has no contents; say what the crate is for".into()));
        }
        let may_be_unsafe = match unsafe_code.as_str() {
            "yes" => true,
            "no" => false,
            other => {
                findings
                    .extend(one(row.line, format!("`{other}` in the column `unsafe` is neither yes nor no; say one")));
                continue;
            }
        };
        let list = |cell: &str| -> Vec<String> {
            let words = cell.split(',').map(str::trim).filter(|name| !matches!(*name, "-" | ""));
            words.map(str::to_string).collect()
        };
        for name in list(names) {
            if permissions.iter().any(|other| other.name == name) {
                findings.extend(one(row.line, format!("`{name}` has a row above; leave one")));
            }
            permissions.push(Permission { line: row.line, name, may_use: list(may_use), may_be_unsafe });
        }
    }
    if findings.is_empty() { Ok(permissions) } else { Err(findings) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;

    fn read_text(text: &str) -> Result<Vec<Permission>, String> {
        let tree = Tree { files: Files::made_up(&[(FILE, text)]), ..Tree::default() };
        read(&tree).map_err(|findings| findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn rows_are_read() {
        let text = "## Rooms\n\n| crate | contents | may use | unsafe |\n|---|---|---|---|\n| `a` | x | - | yes |\n| b | y | `a`, c | no |\n";
        let row = |line, name: &str, may_use: &[&str], may_be_unsafe| Permission {
            line,
            name: name.into(),
            may_use: may_use.iter().map(|name| name.to_string()).collect(),
            may_be_unsafe,
        };
        assert_eq!(read_text(text), Ok(vec![row(5, "a", &[], true), row(6, "b", &["a", "c"], false)]));
    }

    #[test]
    fn what_is_missing_is_said() {
        let head = "## Rooms\n| crate | contents | may use | unsafe |\n|---|---|---|---|\n";
        let rows = [
            ("# Other\n".to_string(), "ARCHITECTURE.md:1: there is no heading `## Rooms`; "),
            ("x\n## Rooms\n".into(), "ARCHITECTURE.md:2: no table follows this heading; "),
            ("## Rooms\n| crate | uses |\n".into(), "ARCHITECTURE.md:2: these are not the columns "),
            (format!("{head}| a | - |\n"), "ARCHITECTURE.md:4: this row has 2 cells; "),
            (format!("{head}| a | x | - | maybe |\n"), "ARCHITECTURE.md:4: `maybe` in the column `unsafe` is neither "),
            (format!("{head}| a |  | - | no |\n"), "ARCHITECTURE.md:4: this row has no contents; "),
            (format!("{head}| a | x | - | no |\n| a | x | - | no |\n"), "ARCHITECTURE.md:5: `a` has a row above; "),
        ];
        for (text, message) in rows {
            let error = read_text(&text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
        let findings = read(&Tree::default()).unwrap_err();
        assert!(findings[0].message.starts_with("there is no such file; "), "{findings:?}");
    }
}
