//! An error in a request: message, place and remedy. All errors that point at a text have this shape, here and in the
//! control plane.
//!
//! Rendering knows about tabs, wide characters, long lines and spans at the end; it writes no colour codes.

use std::fmt;

use unicode_width::UnicodeWidthChar;

use crate::limits::RENDER_COLUMNS;

/// A piece of source text, as byte offsets: `start` is in, `end` is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The offset of the first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The span of something that was made, not read.
    pub const NONE: Span = Span { start: usize::MAX, end: usize::MAX };

    /// The span from `start` up to, not including, `end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start, end }
    }

    /// The span from the start of this one to the end of `last`. [`Span::NONE`] adds nothing.
    pub fn to(self, last: Span) -> Span {
        if self == Span::NONE {
            last
        } else if last == Span::NONE {
            self
        } else {
            Span { start: self.start.min(last.start), end: self.end.max(last.end) }
        }
    }
}

/// An error in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The error, as one sentence without capital and full stop.
    pub message: String,
    /// The place.
    pub span: Span,
    /// A few words beside the caret; may be empty.
    pub label: String,
    /// The remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error without label and help.
    pub fn new(message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic { message: message.into(), span, label: String::new(), help: None }
    }

    /// Adds words beside the caret.
    pub fn with_label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds a line with the remedy.
    pub fn with_help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// The error for people: message, place, the line with carets under the span, help. Ends with a newline.
    ///
    /// `source` is the text that the span refers to; `source_name` is its file name, or `request` for a command line. A
    /// span over several lines is shown on its first line; one outside of `source` is moved to its end. Lines and
    /// columns count from 1, columns in characters.
    pub fn render(&self, source: &str, source_name: &str) -> String {
        let mut out = String::from("error: ");
        push_visible(&mut out, &self.message);
        out.push('\n');
        let mut margin = 1;
        if self.span != Span::NONE {
            let snippet = Snippet::find(source, self.span);
            let number = snippet.line_number.to_string();
            margin = number.len();
            let (shown, caret_column, caret_count) = snippet.window();
            out.push_str(&format!("{:margin$} --> ", ""));
            push_visible(&mut out, source_name);
            out.push_str(&format!(":{number}:{}\n", snippet.column_number));
            out.push_str(&format!(" {:margin$} |\n", ""));
            out.push_str(&format!(" {number} | {shown}\n"));
            out.push_str(&format!(" {:margin$} | {:caret_column$}{}", "", "", "^".repeat(caret_count)));
            if !self.label.is_empty() {
                out.push(' ');
                push_visible(&mut out, &self.label);
            }
            out.push('\n');
        }
        if let Some(help) = &self.help {
            out.push_str(&format!(" {:margin$} = help: ", ""));
            push_visible(&mut out, help);
            out.push('\n');
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// The line a span starts on, and the part of the span on that line.
struct Snippet<'a> {
    line: &'a str,
    line_number: usize,
    column_number: usize,
    /// In bytes of `line`.
    start: usize,
    end: usize,
}

impl<'a> Snippet<'a> {
    fn find(source: &'a str, span: Span) -> Snippet<'a> {
        // An error on blank lines at the end is shown after the last character.
        let last = source.trim_end().len();
        let mut start = source.floor_char_boundary(span.start.min(source.len()));
        if start > last {
            start = last;
        }
        let end = source.floor_char_boundary(span.end.min(source.len())).max(start);
        let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |newline| start + newline);
        let line = source[line_start..line_end].trim_end_matches('\r');
        let within = |offset: usize| (offset - line_start).min(line.len());
        Snippet {
            line,
            line_number: source[..line_start].matches('\n').count() + 1,
            column_number: source[line_start..start].chars().count() + 1,
            start: within(start),
            end: within(end.min(line_end)),
        }
    }

    /// The line as shown, the column of the first caret in it and the number of carets.
    fn window(&self) -> (String, usize, usize) {
        const CUT: &str = "...";
        let columns_before = |offset: usize| self.line[..offset].chars().map(columns).sum::<usize>();
        let caret_start = columns_before(self.start);
        let caret_end = columns_before(self.end).max(caret_start + 1);
        let total = columns_before(self.line.len());
        if total.max(caret_end) <= RENDER_COLUMNS {
            let mut shown = String::new();
            push_visible(&mut shown, self.line);
            return (shown, caret_start, caret_end - caret_start);
        }
        // Two fifths of the window are before the caret, unless the line ends sooner.
        let from = caret_start.saturating_sub(RENDER_COLUMNS * 2 / 5).min(total.saturating_sub(RENDER_COLUMNS));
        let to = from + RENDER_COLUMNS;
        let mut shown = String::new();
        let mut column = 0;
        let mut shown_from = None;
        let mut shown_to = from;
        for character in self.line.chars() {
            let next = column + columns(character);
            if column >= from && next <= to {
                shown_from.get_or_insert(column);
                push_visible_character(&mut shown, character);
                shown_to = next;
            }
            column = next;
        }
        let shown_from = shown_from.unwrap_or(from);
        let left = if shown_from > 0 { CUT } else { "" };
        let right = if shown_to < total { CUT } else { "" };
        // The caret of a span that starts at the end of the line is behind the window's last character.
        let caret_end = caret_end.min(shown_to.max(caret_start + 1));
        (format!("{left}{shown}{right}"), left.len() + caret_start.saturating_sub(shown_from), caret_end - caret_start)
    }
}

fn columns(character: char) -> usize {
    match character {
        '\t' => TAB.len(),
        _ if replacement(character).is_some() => 1,
        _ => character.width().unwrap_or(1),
    }
}

/// How a tab is shown: a terminal's tab stops would move the text away from its carets.
const TAB: &str = "    ";

fn push_visible(out: &mut String, text: &str) {
    text.chars().for_each(|character| push_visible_character(out, character));
}

fn push_visible_character(out: &mut String, character: char) {
    match character {
        '\t' => out.push_str(TAB),
        _ => out.push(replacement(character).unwrap_or(character)),
    }
}

/// A picture of one column for a character that is unfit for a terminal; an escape would move the following text away
/// from its caret.
fn replacement(character: char) -> Option<char> {
    match character {
        '\0'..='\x1f' => char::from_u32(0x2400 + character as u32),
        '\x7f' => Some('\u{2421}'),
        _ => base::terminal::is_unfit(character).then_some('\u{fffd}'),
    }
}

/// Source text for a message: in backticks, and shortened.
pub(crate) fn quote(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((cut, _)) => format!("`{}...`", &text[..cut]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Diagnostic, Span};

    fn check(source: &str, start: usize, end: usize, expected: &str) {
        let error = Diagnostic::new("wrong", Span::new(start, end)).with_label("here");
        let rendered = error.render(source, "request");
        let body = rendered.strip_prefix("error: wrong\n").expect("the message comes first");
        assert_eq!(body, expected, "{source:?} at {start}..{end}:\n{rendered}");
    }

    #[test]
    fn carets_stand_under_the_span() {
        let rows: &[(&str, usize, usize, &str)] = &[
            ("a | b", 4, 5, "  --> request:1:5\n   |\n 1 | a | b\n   |     ^ here\n"),
            ("a | b", 5, 5, "  --> request:1:6\n   |\n 1 | a | b\n   |      ^ here\n"),
            ("a |\n", 3, 3, "  --> request:1:4\n   |\n 1 | a |\n   |    ^ here\n"),
            ("a |\n\n  \n", 8, 8, "  --> request:1:4\n   |\n 1 | a |\n   |    ^ here\n"),
            ("", 0, 0, "  --> request:1:1\n   |\n 1 | \n   | ^ here\n"),
            ("a", 7, 900, "  --> request:1:2\n   |\n 1 | a\n   |  ^ here\n"),
            ("\ta\tbc", 3, 5, "  --> request:1:4\n   |\n 1 |     a    bc\n   |          ^^ here\n"),
            ("世界 | x", 9, 10, "  --> request:1:6\n   |\n 1 | 世界 | x\n   |        ^ here\n"),
            ("a 世界", 2, 8, "  --> request:1:3\n   |\n 1 | a 世界\n   |   ^^^^ here\n"),
            ("a\r\nbc\r\n", 3, 5, "  --> request:2:1\n   |\n 2 | bc\n   | ^^ here\n"),
            ("a \"b\nc\"", 2, 7, "  --> request:1:3\n   |\n 1 | a \"b\n   |   ^^ here\n"),
            ("a\x1b[1m b", 6, 7, "  --> request:1:7\n   |\n 1 | a␛[1m b\n   |       ^ here\n"),
            // An offset inside a character is moved to its start.
            ("世", 1, 2, "  --> request:1:1\n   |\n 1 | 世\n   | ^ here\n"),
        ];
        for (source, start, end, expected) in rows {
            check(source, *start, *end, expected);
        }
        let tenth = "\n".repeat(9) + "a";
        check(&tenth, 9, 10, "   --> request:10:1\n    |\n 10 | a\n    | ^ here\n");
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let long = "x".repeat(500) + "HERE" + &"y".repeat(500);
        let shown = format!("...{}HERE{}...", "x".repeat(40), "y".repeat(56));
        check(&long, 500, 504, &format!("  --> request:1:501\n   |\n 1 | {shown}\n   | {:43}^^^^ here\n", ""));
        let all = Diagnostic::new("wrong", Span::new(0, long.len())).render(&long, "request");
        assert!(all.lines().all(|line| line.len() < 120), "{all}");
        let at_end = format!("...{}", "y".repeat(100));
        let end = long.len();
        check(&long, end, end, &format!("  --> request:1:1005\n   |\n 1 | {at_end}\n   | {:103}^ here\n", ""));
    }

    #[test]
    fn a_tab_wider_than_the_rest_of_the_window_is_left_out() {
        let source = format!("{}\tEND{}", "x".repeat(300), "\t".repeat(100));
        let rendered = Diagnostic::new("wrong", Span::new(301, 304)).render(&source, "request");
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!(lines[3].find("END"), lines[4].find("^^^"), "{rendered}");
    }

    #[test]
    fn help_and_nowhere() {
        let error = Diagnostic::new("wrong", Span::NONE).with_help("do this");
        assert_eq!(error.render("a", "request"), "error: wrong\n   = help: do this\n");
        assert_eq!(error.to_string(), "wrong");
    }

    #[test]
    fn spans_join() {
        let (first, second) = (Span::new(1, 3), Span::new(5, 9));
        assert_eq!(first.to(second), Span::new(1, 9));
        assert_eq!(Span::NONE.to(second), second);
        assert_eq!(first.to(Span::NONE), first);
    }
}
