//! Folds lines that are longer than the terminal is wide between words, and lays what follows under the line's last column.

/// The text in lines of at most `columns` characters, as far as words allow. `None`: as it is.
pub(crate) fn folded(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_string() };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        fold(&mut out, line, columns);
        out.push_str(end);
    }
    out
}

fn fold(out: &mut String, mut line: &str, columns: usize) {
    let indent = hang(line, columns);
    // What stands on the line already, and where its words may be parted.
    let (mut room, mut from) = (columns, indent);
    while let Some(at) = fold_at(line, from, room) {
        let (head, rest) = line.split_at(at);
        out.push_str(head.trim_end());
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
        (line, room, from) = (rest.trim_start(), columns - indent, 0);
    }
    out.push_str(line);
}

/// The byte at which a line that is longer than `room` characters is parted: the last blank that fits behind the first
/// `from` characters, else the next one.
fn fold_at(line: &str, from: usize, room: usize) -> Option<usize> {
    let (over, _) = line.char_indices().nth(room)?;
    let from = line.char_indices().nth(from).map_or(line.len(), |(at, _)| at);
    let blanks = || line.match_indices(' ').map(|(at, _)| at).filter(|at| *at > from);
    blanks().take_while(|at| *at <= over).last().or_else(|| blanks().next()).filter(|at| !line[*at..].trim().is_empty())
}

/// The column under which the rest of a line stands: that of the text behind the last gap in its first half, else a little
/// more than where it begins.
fn hang(line: &str, columns: usize) -> usize {
    let text = line.trim_start();
    let begin = line.chars().count() - text.chars().count();
    let half: String = line.chars().take(columns / 2).collect();
    let behind_gap = half.rfind("  ").map(|at| half[..at].chars().count() + 2).filter(|at| *at > begin + 2);
    behind_gap.unwrap_or(begin + 2).min(columns / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_between_words_and_hang_under_their_last_column() {
        let check = |text: &str, columns: usize, expected: &str| assert_eq!(folded(text, Some(columns)), expected);
        check("short\n\nlines\n", 10, "short\n\nlines\n");
        check("one two three four\n", 10, "one two\n  three\n  four\n");
        check("a    one two three", 14, "a    one two\n     three");
        check("  key  one two three\n", 18, "  key  one two\n       three\n");
        check("averyveryverylongword and more\n", 10, "averyveryverylongword\n  and more\n");
        check("äöü äöü äöü", 7, "äöü äöü\n  äöü");
        assert_eq!(folded("one two three four\n", None), "one two three four\n");
    }
}
