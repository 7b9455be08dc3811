//! Checks that handwritten files have no tabs and no white space at line ends, and end with a line end. Data may have
//! them, such as the expected output of a test.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.texts.iter().filter(|file| file.is_hand_written() && !file.text.is_empty()) {
        for (number, line) in file.lines() {
            if line.contains('\t') {
                findings.push(Finding::new(&file.path, number, "a tab; use spaces, in strings \\t"));
            }
            if line.ends_with(char::is_whitespace) {
                findings.push(Finding::new(&file.path, number, "white space at the end; remove it"));
            }
        }
        if !file.text.ends_with('\n') {
            let last = file.lines().last().map_or(1, |(number, _)| number);
            findings.push(Finding::new(&file.path, last, "the last line does not end; end it"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn white_space_that_nobody_sees_is_found() {
        let rows: [(&str, &str, &[&str]); 8] = [
            ("a.md", "", &[]),
            ("a.md", "a\n\n  b\n", &[]),
            ("a.md", "a\n b \n", &["a.md:2: white space at the end; remove it"]),
            ("a.md", "a\r\n", &["a.md:1: white space at the end; remove it"]),
            ("a.md", "\tb\n", &["a.md:1: a tab; use spaces, in strings \\t"]),
            ("a.md", "a\nb", &["a.md:2: the last line does not end; end it"]),
            ("run", "a \n", &["run:1: white space at the end; remove it"]),
            ("expected.tsv", "a\tb \n", &[]),
        ];
        for (path, text, expected) in rows {
            assert_eq!(found(check, &[(path, text)]), expected, "{text:?}");
        }
    }
}
