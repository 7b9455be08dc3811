//! Checks that every Rust file begins with `//!`, which introduces the file.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let silent = tree.files.with_extension("rs").filter(|file| !file.text.starts_with("//! "));
    silent.map(|file| Finding::new(&file.path, 1, "does not begin with `//! `; say in a sentence what it is")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn files_say_what_they_are() {
        let finding = "a.rs:1: does not begin with `//! `; say in a sentence what it is";
        let rows: [(&str, &str, &[&str]); 5] = [
            ("a.rs", "//! A thing.\n", &[]),
            ("a.rs", "", &[finding]),
            ("a.rs", "//!\n", &[finding]),
            ("a.rs", "use b;\n//! A thing.\n", &[finding]),
            ("a.md", "A", &[]),
        ];
        for (path, text, expected) in rows {
            assert_eq!(found(check, &[(path, text)]), expected, "{text:?}");
        }
    }
}
