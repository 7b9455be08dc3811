//! The prose of a Rust file: paragraphs of comments, and string literals of at least four words.
//!
//! Text in backquotes becomes `X`. Code blocks in comments, and strings of tests, are left out.

/// Words that belong together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// The words, with single spaces where lines were joined.
    pub words: String,
    /// Where each line begins in `words`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Passage {
    /// The number of the line that holds this byte of `words`.
    pub fn line(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(begin, _)| *begin <= at).map_or(0, |(_, number)| *number)
    }

    fn push(&mut self, number: usize, words: &str) {
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        self.lines.push((self.words.len(), number));
        self.words.push_str(words);
    }

    /// Replaces text in backquotes, which may run over the end of a line.
    fn without_code(self) -> Passage {
        let mut plain = Passage::default();
        let (mut lines, mut code) = (self.lines.into_iter().peekable(), false);
        for (at, one) in self.words.char_indices() {
            while let Some((_, number)) = lines.next_if(|(begin, _)| *begin <= at) {
                plain.lines.push((plain.words.len(), number));
            }
            match one {
                '`' => {
                    code = !code;
                    if code {
                        plain.words.push('X');
                    }
                }
                _ if code => {}
                _ => plain.words.push(one),
            }
        }
        plain
    }
}

pub(super) fn passages(path: &str, text: &str) -> Vec<Passage> {
    let mut passages = comments(text);
    if !path.contains("/tests") {
        passages.extend(strings(text));
    }
    passages.into_iter().map(Passage::without_code).filter(|passage| !passage.words.is_empty()).collect()
}

/// Paragraphs of comments, without `// plain:` markers. A blank comment line, a list item, a row of a table and another kind of comment begin a new one.
fn comments(text: &str) -> Vec<Passage> {
    let mut passages = vec![Passage::default()];
    let (mut kind, mut block) = ("", false);
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_start();
        let Some(this) = ["//!", "///", "//"].into_iter().find(|kind| line.starts_with(kind)) else {
            (kind, block) = ("", false);
            passages.push(Passage::default());
            continue;
        };
        let words = line[this.len()..].trim();
        if words.starts_with("```") {
            block = !block;
        } else if words.starts_with("plain:") {
            passages.push(Passage::default());
        } else if !block {
            let item =
                words.trim_start_matches(|one: char| one.is_ascii_digit()).trim_start_matches(['.', '-', '*', '#']);
            let marked = item.len() < words.len() && item.starts_with(' ');
            if this != kind || words.is_empty() || marked || words.starts_with('|') {
                passages.push(Passage::default());
            }
            let words = if marked { item.trim() } else { words };
            passages.last_mut().expect("there is a first one").push(number, words);
        }
        kind = this;
    }
    passages
}

/// String literals that lie on one line and are long enough to be for people, up to the file's tests.
fn strings(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let mut previous = "";
    for (line, number) in text.lines().zip(1..) {
        if previous == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        previous = line;
        if line.trim_start().starts_with("//") {
            continue;
        }
        for literal in literals(line).into_iter().filter(|literal| literal.matches(' ').count() >= 3) {
            let mut passage = Passage::default();
            passage.push(number, &without_braces(literal));
            passages.push(passage);
        }
    }
    passages
}

fn literals(line: &str) -> Vec<&str> {
    let (mut found, mut open, mut escaped) = (Vec::new(), None, false);
    for (at, one) in line.char_indices() {
        match (open, one) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(begin), '"') => {
                found.push(&line[begin..at]);
                open = None;
            }
            (None, '"') => open = Some(at + 1),
            _ => {}
        }
    }
    found
}

/// A format string with `X` for each of its arguments.
fn without_braces(literal: &str) -> String {
    let (mut words, mut inside) = (String::new(), false);
    for one in literal.chars() {
        match one {
            '{' => inside = true,
            '}' if inside => {
                inside = false;
                words.push('X');
            }
            _ if inside => {}
            _ => words.push(one),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[(&str, &[usize])]) {
        let found = passages(path, text);
        let lines = |passage: &Passage| passage.lines.iter().map(|(_, number)| *number).collect::<Vec<_>>();
        let found: Vec<(&str, Vec<usize>)> = found.iter().map(|one| (one.words.as_str(), lines(one))).collect();
        let expected: Vec<(&str, Vec<usize>)> =
            expected.iter().map(|(words, lines)| (*words, lines.to_vec())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn comment_lines_make_paragraphs() {
        let text =
            "//! One\n//! two.\n//!\n//! - three\n//! - `a\n//! b` four\n\n/// Five\n// six\nx();\n    // seven\n";
        let expected: &[(&str, &[usize])] = &[
            ("One two.", &[1, 2]),
            ("three", &[4]),
            ("X four", &[5, 6]),
            ("Five", &[8]),
            ("six", &[9]),
            ("seven", &[11]),
        ];
        check("a.rs", text, expected);
        check("a.rs", "/// A\n/// ```\n/// b\n/// ```\n/// C\n", &[("A C", &[1, 5])]);
        check("a.rs", "// A\n// plain: b\n// C\n", &[("A", &[1]), ("C", &[3])]);
    }

    #[test]
    fn long_strings_are_for_people() {
        let text =
            "f(\"one two\", \"a {b} \\\"c\\\" `d e` f\");\n// \"g h i j\"\n#[cfg(test)]\nmod tests {\n\"k l m n\"\n";
        let comment: (&str, &[usize]) = ("\"g h i j\"", &[2]);
        check("a.rs", text, &[comment, ("a X \\\"c\\\" X f", &[1])]);
        check("crates/a/tests/a.rs", text, &[comment]);
    }
}
