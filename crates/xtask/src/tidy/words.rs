//! Checks that Rust files do not contain words that mean unfinished work.

use super::{Finding, Tree};

/// The words, and what to do instead. Each is in two parts, so that this file does not contain it.
const WORDS: &[(&str, &str)] = &[
    (concat!("todo", "!"), "write it, or end in an error that says what is not possible"),
    (concat!("unimplemented", "!"), "write it, or end in an error that says what is not possible"),
    (concat!("dbg", "!"), "remove it"),
    (concat!("#[", "ignore"), "let the test say on standard error why it cannot run, and pass"),
    (concat!("FIX", "ME"), "do it"),
    (concat!("XX", "X"), "do it, or say what is known"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.with_extension("rs") {
        for (number, line) in file.lines() {
            for (word, instead) in WORDS.iter().filter(|(word, _)| holds_word(line, word)) {
                findings.push(Finding::new(&file.path, number, format!("`{word}`; {instead}")));
            }
        }
    }
    findings
}

/// Whether this line contains the word, not as a part of a longer one.
fn holds_word(line: &str, word: &str) -> bool {
    let joins = |one: char| one.is_alphanumeric() || one == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        let longer =
            |neighbour: Option<char>, edge: Option<char>| neighbour.is_some_and(joins) && edge.is_some_and(joins);
        !longer(before, word.chars().next()) && !longer(after, word.chars().next_back())
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn unfinished_words_are_found() {
        let word = |index: usize| WORDS[index].0;
        let rows = [
            (format!("    {}()", word(0)), true),
            (format!("{}(\"later\")", word(1)), true),
            (format!("let x = {}(y);", word(2)), true),
            (format!("my_{}(y);", word(2)), false),
            (format!("{} = \"slow\"]", word(3)), true),
            (format!("// {}: this", word(4)), true),
            (format!("{}X", word(5)), false),
            (format!("\"{}\"", word(5)), true),
            ("nothing to do here".into(), false),
        ];
        for (line, expected) in rows {
            assert_eq!(found(check, &[("a.rs", &format!("//! A.\n{line}\n"))]).len(), usize::from(expected), "{line}");
            assert!(found(check, &[("a.txt", &line)]).is_empty());
        }
        let message = found(check, &[("a.rs", &format!("\n{}(x)", word(2)))]);
        assert_eq!(message, [format!("a.rs:2: `{}`; remove it", word(2))]);
    }
}
