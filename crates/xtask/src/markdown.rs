//! The parts of Markdown that `tidy` needs: code and prose, headings and tables. Not a full parser: it reads the plain
//! style of this repository.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// In a paragraph, heading, list or table.
    Prose,
    /// Between backticks.
    Inline,
    Fenced,
    /// Four spaces of indentation after an empty line: code, or a paragraph of a list.
    Indented,
}

/// A piece of text: a line of code, or the part of a paragraph up to the next backtick.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Its kind.
    pub syntax: Syntax,
    /// The number of its first line, from 1.
    pub line: usize,
    /// The text. A paragraph's piece may have several lines.
    pub text: &'a str,
}

pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    // The current paragraph: the number of its first line, and the offset of its first byte.
    let mut paragraph: Option<(usize, usize)> = None;
    let mut fence: Option<&str> = None;
    let mut indented = false;
    let mut start = 0;
    for (line, number) in text.split('\n').zip(1..) {
        let end = start + line.len();
        let mark = fence_mark(line);
        let blank = line.trim().is_empty();
        indented = line.starts_with("    ") && (indented || paragraph.is_none()) || indented && blank;
        if let Some(first) = paragraph
            && (blank || mark.is_some() || fence.is_some())
        {
            split_paragraph(&text[first.1..start], first.0, &mut pieces);
            paragraph = None;
        }
        match (fence, mark) {
            (Some(open), Some(close)) if close.starts_with(open) => fence = None,
            (Some(_), _) => pieces.push(Piece { syntax: Syntax::Fenced, line: number, text: line }),
            (None, Some(open)) => fence = Some(open),
            (None, None) if blank => {}
            (None, None) if indented => pieces.push(Piece { syntax: Syntax::Indented, line: number, text: line }),
            (None, None) => paragraph = paragraph.or(Some((number, start))),
        }
        start = end + 1;
    }
    if let Some((number, first)) = paragraph {
        split_paragraph(&text[first..], number, &mut pieces);
    }
    pieces
}

/// The run of backticks or tildes that opens or closes fenced code.
fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = |character: char| &line[..line.len() - line.trim_start_matches(character).len()];
    ['`', '~'].map(mark).into_iter().find(|mark| mark.len() >= 3)
}

/// Splits a paragraph at its backticks. A run of backticks closes with the next run of the same length; without one, it
/// is text.
fn split_paragraph<'a>(text: &'a str, first_line: usize, pieces: &mut Vec<Piece<'a>>) {
    let mut push = |syntax, from: usize, to: usize| {
        if from < to {
            let line = first_line + text[..from].matches('\n').count();
            pieces.push(Piece { syntax, line, text: &text[from..to] });
        }
    };
    let runs = backtick_runs(text);
    let (mut prose, mut at) = (0, 0);
    while let Some((from, length)) = runs.get(at).copied() {
        let close = runs[at + 1..].iter().position(|(_, other)| *other == length);
        let Some(close) = close.map(|offset| at + 1 + offset) else {
            at += 1;
            continue;
        };
        push(Syntax::Prose, prose, from);
        push(Syntax::Inline, from + length, runs[close].0);
        prose = runs[close].0 + length;
        at = close + 1;
    }
    push(Syntax::Prose, prose, text.len());
}

fn backtick_runs(text: &str) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in text.match_indices('`') {
        match runs.last_mut() {
            Some((from, length)) if *from + *length == at => *length += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

/// GitHub's anchors of the headings, in order.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, heading) in headings(text) {
        let kept = heading.chars().filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let same = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
    }
    anchors
}

/// The headings with their line numbers, without the leading marks.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let fenced: Vec<usize> =
        pieces(text).iter().filter(|piece| piece.syntax == Syntax::Fenced).map(|piece| piece.line).collect();
    let lines = text.lines().zip(1..).filter(move |(_, number)| !fenced.contains(number));
    lines.filter_map(|(line, number)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(())?;
        heading.strip_prefix(' ').map(|heading| (number, heading.trim()))
    })
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub line: usize,
    /// The text of its cells, without backticks. A link is replaced by its text.
    pub cells: Vec<String>,
}

/// The first table under a heading and before the next one: its head and its rows. The error: `Some(line)` of the
/// heading if there is no table, `None` if there is no such heading.
pub(crate) fn table(text: &str, heading: &str) -> Result<(Row, Vec<Row>), Option<usize>> {
    let mut headings = headings(text).skip_while(|(_, one)| *one != heading);
    let (begin, _) = headings.next().ok_or(None)?;
    let end = headings.next().map_or(usize::MAX, |(line, _)| line);
    let lines = text.lines().zip(1..).filter(|(_, number)| (begin + 1..end).contains(number));
    let rows = lines.skip_while(|(line, _)| !line.starts_with('|')).take_while(|(line, _)| line.starts_with('|'));
    let mut rows = rows.map(|(line, number)| Row { line: number, cells: cells(line) });
    let head = rows.next().ok_or(Some(begin))?;
    Ok((head, rows.skip(1).collect()))
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    // `\|` is a bar inside a cell. A character that no file here contains protects it from the split.
    line.replace("\\|", "\0").split('|').map(|cell| plain(&cell.replace('\0', "|"))).collect()
}

/// A cell without backticks, with `[text](target)` replaced by the text.
fn plain(cell: &str) -> String {
    let cell = cell.replace('`', "");
    let cell = cell.trim();
    match cell.strip_prefix('[').and_then(|rest| rest.split_once("](")) {
        Some((text, rest)) if rest.ends_with(')') => text.to_string(),
        _ => cell.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::Syntax::{Fenced, Indented, Inline, Prose};
    use super::*;

    fn check(text: &str, expected: &[(Syntax, usize, &str)]) {
        let pieces = pieces(text);
        let pieces: Vec<_> = pieces.iter().map(|piece| (piece.syntax, piece.line, piece.text.trim_end())).collect();
        assert_eq!(pieces, expected, "{text:?}");
    }

    #[test]
    fn code_is_told_from_prose() {
        check("", &[]);
        check("one\ntwo\n\nthree", &[(Prose, 1, "one\ntwo"), (Prose, 4, "three")]);
        check("a `b` c", &[(Prose, 1, "a"), (Inline, 1, "b"), (Prose, 1, " c")]);
        check("a\n`b\nc`", &[(Prose, 1, "a"), (Inline, 2, "b\nc")]);
        check("``a`b`` `c", &[(Inline, 1, "a`b"), (Prose, 1, " `c")]);
        check("x\n```sh\na `b\n\n```\ny", &[(Prose, 1, "x"), (Fenced, 3, "a `b"), (Fenced, 4, ""), (Prose, 6, "y")]);
        check("~~~\n```\n~~~\n", &[(Fenced, 2, "```")]);
        check(
            "x\n\n    a\n\n    b\ny",
            &[(Prose, 1, "x"), (Indented, 3, "    a"), (Indented, 5, "    b"), (Prose, 6, "y")],
        );
        check("- x\n    y", &[(Prose, 1, "- x\n    y")]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# A, `b` & C\n```\n# no\n```\n## Größe_x-y\n#no\n### a b\n### a b\n";
        assert_eq!(anchors(text), ["a-b--c", "größe_x-y", "a-b", "a-b-1"]);
    }

    #[test]
    fn a_table_is_found_under_its_heading() {
        let text = "## A\n\ntext\n\n| x | y |\n|---|---|\n| `a` | b \\| c |\n| [d](e/f) | |\n\n## B\n\n## C\n\n| z |\n";
        let row = |line, cells: &[&str]| Row { line, cells: cells.iter().map(|cell| cell.to_string()).collect() };
        assert_eq!(table(text, "A"), Ok((row(5, &["x", "y"]), vec![row(7, &["a", "b | c"]), row(8, &["d", ""])])));
        assert_eq!(table(text, "B"), Err(Some(10)));
        assert_eq!(table(text, "C"), Ok((row(14, &["z"]), vec![])));
        assert_eq!(table(text, "D"), Err(None));
    }
}
