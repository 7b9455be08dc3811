//! Checks that no handwritten file is so long that it must contain two ideas.

use super::{Finding, Tree};
use crate::files::File;

const MOST_LINES: usize = 900;

/// Pages that are read from end to end.
const PAGES: &[(&str, usize)] = &[("README.md", 110), ("ARCHITECTURE.md", 180), ("BENCHMARKS.md", 120)];

/// Files that may be longer, and why.
const EXCEPTIONS: &[(&str, &str)] = &[("CHANGELOG.md", "only grows")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.texts.iter().filter(|file| file.is_hand_written()) {
        let excepted = EXCEPTIONS.iter().any(|(path, _)| *path == file.path);
        let most = PAGES.iter().find(|(path, _)| *path == file.path).map_or(MOST_LINES, |(_, most)| *most);
        if line_count(file) > most && !excepted {
            let (list, count) = (file!(), line_count(file));
            let message = format!("{count} lines, {most} are the most; split it, or add it with its reason to {list}");
            findings.push(Finding::new(&file.path, most, message));
        }
    }
    findings
}

fn line_count(file: &File) -> usize {
    file.text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn files_have_a_longest_length() {
        let list = "crates/xtask/src/tidy/length.rs";
        let message = format!("901 lines, 900 are the most; split it, or add it with its reason to {list}");
        let rows = [
            ("a.rs", 900, vec![]),
            ("a.rs", 901, vec![format!("a.rs:900: {message}")]),
            ("A.md", 901, vec![format!("A.md:900: {message}")]),
            ("README.md", 111, vec![format!("README.md:110: {}", message.replace("901", "111").replace("900", "110"))]),
            ("CHANGELOG.md", 901, vec![]),
            ("Cargo.lock", 901, vec![]),
        ];
        for (path, lines, expected) in rows {
            assert_eq!(found(check, &[(path, &"x\n".repeat(lines))]), expected, "{path}, {lines}");
        }
    }
}
