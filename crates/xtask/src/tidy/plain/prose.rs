//! The prose of a Rust file: paragraphs of comments, and string literals of at least four words: help and messages.
//!
//! Text in backquotes becomes `X`. Code blocks in comments, and strings of tests, are left out.

/// Words that belong together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passage {
    /// The words, with single spaces where lines were joined.
    pub words: String,
    /// It is of a comment, and of no literal.
    pub is_comment: bool,
    /// Where each line begins in `words`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Passage {
    /// The number of its lines.
    pub fn count(&self) -> usize {
        self.lines.len()
    }

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
        let mut plain = Passage { is_comment: self.is_comment, ..Passage::default() };
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
    passages.iter_mut().for_each(|passage| passage.is_comment = true);
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

/// String literals that are long enough to be for people, help texts over several lines too, up to the file's tests. An
/// empty line within a literal begins a new paragraph.
fn strings(text: &str) -> Vec<Passage> {
    let mut passages = Vec::new();
    let (mut previous, mut open) = ("", None);
    for (line, number) in text.lines().zip(1..) {
        if previous == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        previous = line;
        if open.is_none() && line.trim_start().starts_with("//") {
            continue;
        }
        open = literals(line, number, open.take(), &mut passages);
    }
    passages.retain(|passage| passage.words.matches(' ').count() >= 3);
    passages
}

/// The literals of a line; `open` was begun before. Returns the one that goes on behind the line: within help texts, lines
/// end in `\`, `\n\` or nothing.
fn literals(line: &str, number: usize, open: Option<Passage>, passages: &mut Vec<Passage>) -> Option<Passage> {
    let (goes_on, mut open, mut begin, mut escaped) = (open.is_some(), open, 0, false);
    for (at, one) in line.char_indices() {
        match (&mut open, one) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(passage), '"') => {
                passage.push(number, &without_braces(line[begin..at].trim()));
                passages.extend(open.take());
            }
            (None, '"') => (open, begin) = (Some(Passage::default()), at + 1),
            _ => {}
        }
    }
    let mut passage = open?;
    let (words, joined) = match line[begin..].strip_suffix('\\') {
        Some(words) => (words.trim(), true),
        None if goes_on => (line[begin..].trim(), false),
        None => return None,
    };
    passage.push(number, &without_braces(words.strip_suffix("\\n").unwrap_or(words)));
    // Lines that are not joined are those of a list or of examples, unless they fill the line.
    if words.ends_with("\\n") || words.is_empty() || !joined && (line.starts_with("  ") || words.len() < 60) {
        passages.push(std::mem::take(&mut passage));
    }
    Some(passage)
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
        let help = "    .help(\n        \"a b c \\\n         d `e` f.\\n\\\n         g h i j\",\n    )\nx = '\"';\ny\n";
        check("a.rs", help, &[("a b c d X f.", &[2, 3]), ("g h i j", &[4])]);
    }
}
