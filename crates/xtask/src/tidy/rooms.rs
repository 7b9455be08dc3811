//! Checks the README's table of rooms: every crate has a row, and every row names an existing folder.

use super::{Finding, Tree};
use crate::markdown;

const FILE: &str = "README.md";
const HEADING: &str = "Rooms";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let one = |line, message: String| Finding::new(FILE, line, message);
    let Some(file) = tree.files.get(FILE) else {
        return vec![one(
            1,
            format!("there is no such file; write it, with a table of the crates under `## {HEADING}`"),
        )];
    };
    let rows = match markdown::table(&file.text, HEADING) {
        Ok((_, rows)) => rows,
        Err(None) => {
            return vec![one(1, format!("there is no heading `## {HEADING}`; add it, and a table of the crates"))];
        }
        Err(Some(line)) => {
            return vec![one(line, "no table follows this heading; add one, a row for each crate".into())];
        }
    };
    let name = |cell: &str| cell.trim_end_matches('/').trim_start_matches("crates/").to_string();
    let rooms: Vec<(usize, String)> = rows.iter().map(|row| (row.line, name(&row.cells[0]))).collect();
    let mut findings = Vec::new();
    for room in crates(tree).filter(|room| !rooms.iter().any(|(_, name)| name == room)) {
        let line = rows.last().map_or(1, |row| row.line);
        findings
            .push(one(line, format!("the crate `{room}` is not in this table; add a row that says what it is for")));
    }
    for (line, room) in &rooms {
        if !tree.files.has_folder(&format!("crates/{room}")) && !tree.files.has_folder(room) {
            findings
                .push(one(*line, format!("there is no folder crates/{room} and no {room}; mend or remove the row")));
        }
    }
    findings
}

/// The names of folders in `crates` that contain a crate.
fn crates(tree: &Tree) -> impl Iterator<Item = &str> {
    let folders = tree.files.paths.iter().filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
    folders.filter(|folder| !folder.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_readme(readme: &str, expected: &[&str]) {
        let files = [(FILE, readme), ("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", ""), ("fuzz/Cargo.toml", "")];
        assert_eq!(found(check, &files), expected, "{readme}");
    }

    #[test]
    fn crates_and_rows_agree() {
        let head = "## Rooms\n\n| crate | for |\n|---|---|\n";
        check_readme(&format!("{head}| `a` | x |\n| [crates/b](crates/b) | y |\n| fuzz/ | z |\n"), &[]);
        check_readme(
            &format!("{head}| a | x |\n| c | y |\n"),
            &[
                "README.md:6: the crate `b` is not in this table; add a row that says what it is for",
                "README.md:6: there is no folder crates/c and no c; mend or remove the row",
            ],
        );
        check_readme("# R\n", &["README.md:1: there is no heading `## Rooms`; add it, and a table of the crates"]);
        check_readme("\n## Rooms\n", &["README.md:2: no table follows this heading; add one, a row for each crate"]);
        assert_eq!(
            found(check, &[]),
            ["README.md:1: there is no such file; write it, with a table of the crates under `## Rooms`"]
        );
    }
}
