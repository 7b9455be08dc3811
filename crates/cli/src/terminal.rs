//! What this program knows of the terminal it writes to, and the one line on it that changes.
//!
//! That line is progress, on standard error. Everything else that is told goes through [`tell`], which takes the line away
//! first, whichever thread tells it.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

/// Columns that are assumed where a terminal does not say how many it has.
const COLUMNS: usize = 80;

/// Columns of the line that stands on standard error now; 0 where none does.
static SHOWN: Mutex<usize> = Mutex::new(0);

/// Does the terminal understand escape sequences? By the variable TERM, as everywhere.
pub(crate) fn has_escapes() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// How many columns a text on standard output may have; none where that is no terminal and may have any number.
pub(crate) fn stdout_columns() -> Option<usize> {
    let stdout = std::io::stdout();
    stdout.is_terminal().then(|| columns_of(&stdout))
}

fn columns_of(terminal: impl std::os::fd::AsFd) -> usize {
    let said = rustix::termios::tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if said == 0 { COLUMNS } else { said }
}

/// At most so many characters of a text, the last an ellipsis where some are left out.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Writes to standard error what people are to see, in place of the line of progress. What it quotes (names of files, requests
/// of other users) is shown and not obeyed. That it cannot be told is no reason to fail.
pub(crate) fn tell(text: Arguments<'_>) {
    // Nothing that panics under it leaves it half made.
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr().lock();
    let clear = over(std::mem::take(&mut *shown), "", has_escapes());
    let text = format!("{text}");
    let _ = write!(stderr, "{clear}{}", base::terminal::text(&text)).and_then(|()| stderr.flush());
}

/// Puts a line on standard error, which is a terminal, in place of the one before.
pub(crate) fn show_line(line: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr().lock();
    // A line that wraps could not be taken away again.
    let line = cut(line, columns_of(&stderr).saturating_sub(1));
    let before = std::mem::replace(&mut *shown, line.chars().count());
    let _ = write!(stderr, "{}", over(before, &line, has_escapes())).and_then(|()| stderr.flush());
}

/// Takes the line away.
pub(crate) fn clear_line() {
    tell(format_args!(""));
}

/// What puts a line in the place of one of so many columns; of an empty line, nothing stays but the cursor.
fn over(before: usize, line: &str, escapes: bool) -> String {
    match (before, escapes) {
        (0, _) => line.to_string(),
        (_, true) => format!("\r\x1b[K{line}"),
        (_, false) => {
            let rest = " ".repeat(before.saturating_sub(line.chars().count()));
            // Blanks go over what is left of the line, and the cursor back behind the new one.
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
    fn long_texts_are_cut() {
        for (text, most, expected) in [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("äöüß", 4, "äöüß"), ("ab", 0, "…")]
        {
            assert_eq!(cut(text, most), expected);
        }
    }
}
