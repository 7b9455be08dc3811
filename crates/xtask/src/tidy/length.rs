//! Checks that no handwritten file is so long that it must contain two ideas, and no function so long that its steps
//! should have names.

use super::{Finding, Tree};
use crate::files::File;
use crate::modules::modules;

const MOST_LINES: usize = 900;

/// Most lines of code in a function that ships, as `clippy::too_many_lines` counts.
const MOST_IN_FUNCTION: usize = 100;

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
    findings.extend(long_functions(tree));
    findings
}

fn long_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in tree.workspace.packages.iter().flat_map(|package| modules(&tree.files, package)) {
        for (name, line, lines) in module.functions().filter(|(.., lines)| *lines > MOST_IN_FUNCTION) {
            let message = format!(
                "`{name}` has {lines} lines, {MOST_IN_FUNCTION} are the most; give its steps names of their own"
            );
            findings.push(Finding::new(&module.file, line, message));
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
    use crate::files::Files;
    use crate::workspace::{Package, Workspace};

    #[test]
    fn functions_have_a_most_number_of_lines() {
        let text = |lines| format!("//! A.\n\nfn f() {{\n{}\n}}\n#[test]\nfn g() {{}}\n", "    a();\n".repeat(lines));
        let findings = |lines| {
            let package = Package { name: "a".into(), folder: "crates/a".into(), ..Package::default() };
            let workspace = Workspace { packages: vec![package], default_members: Vec::new() };
            check(&Tree { files: Files::made_up(&[("crates/a/src/lib.rs", &text(lines))]), workspace })
        };
        assert_eq!(findings(100), []);
        let message = "`f` has 101 lines, 100 are the most; give its steps names of their own";
        assert_eq!(findings(101), [Finding::new("crates/a/src/lib.rs", 3, message)]);
    }

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
