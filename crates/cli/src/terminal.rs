//! The terminal that this program writes to, and the one line on it that changes.
//!
//! That line is the progress, on standard error. All other messages go through [`tell`], which first clears the line,
//! on whatever thread.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use streamline::Output;
use streamline::session::columns_of;

/// Columns of the line that is on standard error now; 0 if there is none.
static SHOWN: Mutex<usize> = Mutex::new(0);

/// When data were last written to standard output, which is a terminal.
static WRITTEN: Mutex<Option<Instant>> = Mutex::new(None);

/// Standard output for data. On a terminal, data take the place of the line of progress.
pub(crate) fn data() -> Output {
    let stdout = std::io::stdout();
    let bold = has_colours(&stdout);
    let output = match stdout.is_terminal() {
        true => Output::terminal(Box::new(Shown(stdout)), || columns_of(std::io::stdout())),
        false => Output::new(Box::new(stdout), false),
    };
    output.with_bold_heads(bold)
}

/// Whether a line can stand below the data on the terminal: none have come for `silence`.
pub(crate) fn data_pauses(now: Instant, silence: Duration) -> bool {
    let written = *WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    written.is_none_or(|written| now.saturating_duration_since(written) >= silence)
}

struct Shown(std::io::Stdout);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Under the lock no line appears before the data.
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        clear(&mut shown, &mut std::io::stderr().lock())?;
        *WRITTEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colours {
    /// On a terminal that understands them, unless NO_COLOR is set (no-color.org).
    #[default]
    Auto,
    /// Wherever text is for people.
    Always,
    /// Nowhere.
    Never,
}

static COLOURS: OnceLock<Colours> = OnceLock::new();

/// Says when colours are used, once.
pub(crate) fn set_colours(colours: Colours) {
    let _ = COLOURS.set(colours);
}

fn has_colours(stream: &impl IsTerminal) -> bool {
    match COLOURS.get().copied().unwrap_or_default() {
        Colours::Always => true,
        Colours::Never => false,
        Colours::Auto => {
            let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !is_unwanted && has_escapes() && stream.is_terminal()
        }
    }
}

const BOLD_RED: &str = "\x1b[1;31m";
const BOLD_YELLOW: &str = "\x1b[1;33m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// The beginnings of lines that have a colour, in messages and in `doctor`.
const PAINTED: [(&str, &str); 6] = [
    ("error:", BOLD_RED),
    ("warning:", BOLD_YELLOW),
    ("note:", CYAN),
    ("= help:", CYAN),
    ("ok  ", GREEN),
    ("--  ", BOLD_YELLOW),
];

/// Colours the first words of lines, and the marks under a place in a request. The text has no escape sequences.
fn painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    for line in text.split_inclusive('\n') {
        let begin = line.len() - line.trim_start().len();
        let (indent, rest) = line.split_at(begin);
        let mark = rest.strip_prefix('|').filter(|marks| marks.trim_start().starts_with('^'));
        match PAINTED.iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, colour)) => {
                out.extend([indent, colour, word.trim_end(), PLAIN, &rest[word.trim_end().len()..]])
            }
            None if mark.is_some() => {
                let (marks, end) = rest.split_at(rest.trim_end().len());
                out.extend([indent, "|", RED, &marks[1..], PLAIN, end]);
            }
            None => out.push_str(line),
        }
    }
    out
}

/// Text for people on standard output, which has no escape sequences, with colours where they are wanted.
pub(crate) fn coloured(text: String) -> String {
    if has_colours(&std::io::stdout()) { painted(&text) } else { text }
}

/// Whether the terminal understands escape sequences. TERM says so.
pub(crate) fn has_escapes() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// The columns for text on standard output. `None`: it is no terminal, and lines may have any length.
pub(crate) fn stdout_columns() -> Option<usize> {
    let stdout = std::io::stdout();
    stdout.is_terminal().then(|| columns_of(&stdout))
}

/// At most `most` characters of a text. If some are left out, the last one is an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Writes a message to standard error, in place of the line of progress. Escape sequences in names of files and in
/// other users' requests are shown as text. A failed write is no reason to fail.
pub(crate) fn tell(text: Arguments<'_>) {
    // The value stays valid even if a thread panics while it holds the lock.
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr().lock();
    let text = format!("{text}");
    let text = base::terminal::text(&text);
    let text = if has_colours(&stderr) { painted(&text).into() } else { text };
    let cleared = clear(&mut shown, &mut stderr);
    let _ = cleared.and_then(|()| write!(stderr, "{text}")).and_then(|()| stderr.flush());
}

fn clear(shown: &mut usize, stderr: &mut impl Write) -> std::io::Result<()> {
    stderr.write_all(over(std::mem::take(shown), "", has_escapes()).as_bytes())
}

/// Shows a line on standard error, which is a terminal, in place of the previous one.
pub(crate) fn show_line(line: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr().lock();
    // A line that wraps could not be cleared.
    let line = cut(line, columns_of(&stderr).saturating_sub(1));
    let before = std::mem::replace(&mut *shown, line.chars().count());
    let _ = write!(stderr, "{}", over(before, &line, has_escapes())).and_then(|()| stderr.flush());
}

pub(crate) fn clear_line() {
    tell(format_args!(""));
}

/// The text that replaces a line of `before` columns by `line`. An empty `line` leaves only the cursor.
fn over(before: usize, line: &str, escapes: bool) -> String {
    match (before, escapes) {
        (0, _) => line.to_string(),
        (_, true) => format!("\r\x1b[K{line}"),
        (_, false) => {
            let rest = " ".repeat(before.saturating_sub(line.chars().count()));
            // Blanks overwrite the rest of the old line. Then the new line is written again, to put the cursor behind it.
            format!("\r{line}{rest}{}", if rest.is_empty() { String::new() } else { format!("\r{line}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_replaced_with_and_without_escapes() {
        let rows = [
            (0, "new", true, "new"),
            (0, "", false, ""),
            (5, "new", true, "\r\x1b[Knew"),
            (5, "new", false, "\rnew  \rnew"),
            (2, "new", false, "\rnew"),
            (3, "", true, "\r\x1b[K"),
            (3, "", false, "\r   \r"),
        ];
        for (before, line, escapes, expected) in rows {
            assert_eq!(over(before, line, escapes), expected, "{before} {line:?}");
        }
    }

    #[test]
    fn first_words_of_messages_and_marks_have_colours() {
        let text = "error: a\n  --> request:1:1\n   |\n 1 | error: x\n   | ^^^^^ here\n   = help: b\nok  c  d\nplain\n";
        let expected = "\x1b[1;31merror:\x1b[0m a\n  --> request:1:1\n   |\n 1 | error: x\n   |\x1b[31m ^^^^^ here\x1b[0m\n   \x1b[36m= help:\x1b[0m b\n\x1b[32mok\x1b[0m  c  d\nplain\n";
        assert_eq!(painted(text), expected);
    }

    #[test]
    fn long_texts_are_cut() {
        for (text, most, expected) in [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("äöüß", 4, "äöüß"), ("ab", 0, "…")]
        {
            assert_eq!(cut(text, most), expected);
        }
    }
}
