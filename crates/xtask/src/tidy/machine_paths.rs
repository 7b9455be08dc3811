//! Checks that no file names a folder of a developer's machine. Tests may use the folder for temporary files.

use super::{Finding, Tree};
use crate::files::File;

/// Folders, and whether tests may name them. Each is in two parts, so that this file does not contain it.
const FOLDERS: &[(&str, bool)] = &[
    (concat!("/wo", "rk/"), false),
    (concat!("/ho", "me/"), false),
    (concat!("/ro", "ot/"), false),
    (concat!("/tm", "p/"), true),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files.texts {
        let tests_begin = first_line_of_tests(file);
        for (number, line) in file.lines() {
            let named = FOLDERS.iter().filter(|(folder, _)| names(line, folder));
            for (folder, _) in named.filter(|(_, in_tests)| !(*in_tests && number >= tests_begin)) {
                let message =
                    format!("`{folder}` is of one machine only; use a path from here, or an environment variable");
                findings.push(Finding::new(&file.path, number, message));
            }
        }
    }
    findings
}

/// The first line of a file's tests. Without tests, a line beyond its end.
fn first_line_of_tests(file: &File) -> usize {
    if file.path.split('/').any(|part| part == "tests") {
        return 1;
    }
    let begin = file.lines().find(|(_, line)| line.trim() == "#[cfg(test)]");
    begin.map_or(usize::MAX, |(number, _)| number)
}

/// Whether an absolute path in this line begins with the folder. `../x/`, `~/x/` and `$y/x/` do not count.
fn names(line: &str, folder: &str) -> bool {
    let inside = |one: char| one.is_alphanumeric() || matches!(one, '_' | '.' | '-' | '~' | '}' | '*');
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(inside))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        let [work, home, _, temporary] = [0, 1, 2, 3].map(|index| FOLDERS[index].0);
        let rows = [
            ("a.md", format!("see {work}x"), true),
            ("a.md", format!("\n[x]({home}x)"), true),
            ("a.md", format!("file://{home}x"), true),
            ("a.md", format!("https://a.org{home}x, ..{work}x, ~{work}x, $HOME{work}x, ${{x}}{work}"), false),
            ("a.rs", format!("{temporary}x"), true),
            ("a.rs", format!("#[cfg(test)]\n{temporary}x"), false),
            ("a/tests/b.rs", format!("{temporary}x"), false),
            ("a/tests/b.rs", format!("{home}x"), true),
            ("expected.txt", format!("{home}x"), true),
        ];
        for (path, text, expected) in rows {
            assert_eq!(found(check, &[(path, &text)]).len(), usize::from(expected), "{text}");
        }
        assert_eq!(
            found(check, &[("a.md", &format!("\n{home}x"))]),
            [format!("a.md:2: `{home}` is of one machine only; use a path from here, or an environment variable")]
        );
    }
}
