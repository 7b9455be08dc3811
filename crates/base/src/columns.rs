//! Aligned columns of text, for people. Widths grow with the cells that are shown, so that lines can be written while more
//! come; where there is less room, the widest columns are cut.

/// Separates two columns.
const GAP: usize = 2;

/// The widest column before the last one, in characters. A longer text pushes the rest of its line, or is cut.
pub const COLUMN_MAX: usize = 60;

/// The fewest characters of a column before the last one that is cut.
const COLUMN_MIN: usize = 12;

/// The fewest characters of a head that is cut.
const HEAD_MIN: usize = 6;

/// The fewest characters of the last column that is cut.
const LAST_MIN: usize = 16;

/// The side at which the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Text that is cut where other texts have been: it tells lines apart, as addresses do.
    Key,
    /// Numbers, which are never cut.
    Right,
    /// Text that is never cut.
    Whole,
}

/// The columns of a table.
#[derive(Clone, Debug)]
pub struct Columns {
    align: Vec<Align>,
    /// The width of the head of each column.
    heads: Vec<usize>,
    /// The width of the widest cell of each column so far, without heads.
    widest: Vec<usize>,
    /// The width of each column; those of a table with less room are smaller.
    widths: Vec<usize>,
    room: Option<usize>,
}

impl Columns {
    /// Columns with cells aligned so.
    pub fn new(align: Vec<Align>) -> Columns {
        let widths = vec![0; align.len()];
        Columns { align, heads: widths.clone(), widest: widths.clone(), widths, room: None }
    }

    /// Makes room for the line of heads; where there is little, heads are cut before cells.
    pub fn head<Cell: AsRef<str>>(&mut self, heads: &[Cell]) {
        self.heads = heads.iter().map(|head| head.as_ref().chars().count()).collect();
    }

    /// Makes room for these cells.
    pub fn widen<Cell: AsRef<str>>(&mut self, cells: &[Cell]) {
        let last = self.widest.len().saturating_sub(1);
        for (at, (widest, cell)) in self.widest.iter_mut().zip(cells).enumerate() {
            let width = cell.as_ref().chars().count();
            *widest = (*widest).max(if at == last { width } else { width.min(COLUMN_MAX) });
        }
    }

    /// Makes lines at most `room` characters long. Heads are cut first, then the last column, then the widest others, and keys
    /// at last; the end of a line that is still longer is left out. `None`: lines may have any length. Holds until cells need
    /// more room.
    pub fn fit(&mut self, room: Option<usize>) {
        self.room = room;
        self.widths = self.widest.iter().zip(&self.heads).map(|(cell, head)| *cell.max(head)).collect();
        let Some((room, last)) = room.zip(self.widths.len().checked_sub(1)) else { return };
        let room = room.saturating_sub(GAP * last);
        let cells = &self.widest;
        shrink(&mut self.widths, room, |at| cells[at].max(HEAD_MIN));
        let excess = self.widths.iter().sum::<usize>().saturating_sub(room);
        self.widths[last] -= excess.min(self.widths[last].saturating_sub(LAST_MIN));
        for align in [Align::Left, Align::Key] {
            let can_shrink = |at: usize| at != last && self.align[at] == align;
            shrink(&mut self.widths, room, |at| if can_shrink(at) { COLUMN_MIN } else { usize::MAX });
        }
    }

    /// Appends the cells as a line without its end. If the columns were made to fit, longer cells are cut: the last one at
    /// its end, others in their middle.
    pub fn line<Cell: AsRef<str>>(&self, out: &mut Vec<u8>, cells: &[Cell]) {
        let begin = out.len();
        for (at, ((cell, width), align)) in cells.iter().zip(&self.widths).zip(&self.align).enumerate() {
            let (cell, is_last) = (cell.as_ref(), at + 1 == cells.len());
            let length = cell.chars().count();
            let pad = width.saturating_sub(length);
            out.resize(out.len() + if at > 0 { GAP } else { 0 } + if *align == Align::Right { pad } else { 0 }, b' ');
            match self.room.is_some() && length > *width {
                true if is_last => cut(out, cell, width.saturating_sub(1), 0, length),
                true => cut(out, cell, *width / 2, width.saturating_sub(1) - *width / 2, length),
                false => out.extend_from_slice(cell.as_bytes()),
            }
            if *align != Align::Right && !is_last {
                out.resize(out.len() + pad, b' ');
            }
        }
        let end = out[begin..].iter().rposition(|byte| *byte != b' ').map_or(begin, |last| begin + last + 1);
        out.truncate(end);
        if let Some(room) = self.room {
            cut_line(out, begin, room);
        }
    }
}

/// Takes from the widest columns, down to the least width of each, until all fit.
fn shrink(widths: &mut [usize], room: usize, least: impl Fn(usize) -> usize) {
    while widths.iter().sum::<usize>() > room
        && let Some((_, width)) =
            widths.iter_mut().enumerate().filter(|(at, width)| **width > least(*at)).max_by_key(|(_, width)| **width)
    {
        *width -= 1;
    }
}

/// Leaves at most `room` characters behind `begin`; if some are left out, the last one is an ellipsis.
fn cut_line(out: &mut Vec<u8>, begin: usize, room: usize) {
    let is_begin = |byte: &u8| byte & 0xc0 != 0x80;
    let mut starts = (begin..out.len()).filter(|at| is_begin(&out[*at])).skip(room.saturating_sub(1));
    if let (Some(last), Some(_)) = (starts.next(), starts.next()) {
        out.truncate(last);
        out.extend_from_slice("…".as_bytes());
    }
}

/// Appends the first and last characters of a text of `length` characters, and an ellipsis between them.
fn cut(out: &mut Vec<u8>, text: &str, first: usize, last: usize, length: usize) {
    let at = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    out.extend_from_slice(&text.as_bytes()[..at(first)]);
    out.extend_from_slice("…".as_bytes());
    out.extend_from_slice(&text.as_bytes()[at(length - last)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(room: Option<usize>, rows: &[[&str; 3]], expected: &str) {
        let mut columns = Columns::new(vec![Align::Left, Align::Right, Align::Left]);
        rows.iter().for_each(|row| columns.widen(row));
        columns.fit(room);
        let mut out = Vec::new();
        for row in rows {
            columns.line(&mut out, row);
            out.push(b'\n');
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn keys_are_cut_last() {
        let fitted = |room: usize| {
            let mut columns = Columns::new(vec![Align::Key, Align::Left, Align::Left]);
            columns.widen(&["145.254.160.237:3372", "pagead2.googlesyndication.com", "/a"]);
            columns.fit(Some(room));
            columns.widths
        };
        assert_eq!(fitted(47), [20, 21, 2]);
        assert_eq!(fitted(37), [19, 12, 2]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [["name", "count", "text"], ["ä", "5", ""], ["long name", "12345", "a text that is longer"]];
        check(None, &rows, "name       count  text\nä              5\nlong name  12345  a text that is longer\n");
        let long = "x".repeat(COLUMN_MAX + 1);
        check(None, &[[&long, "1", "a"]], &format!("{long}  1  a\n"));
    }

    #[test]
    fn the_last_column_is_cut_first_and_then_the_widest() {
        let rows = [["2001:db8:1:2:3:4:5:6", "12345", "a text that is longer than there is room"]];
        check(Some(50), &rows, "2001:db8:1:2:3:4:5:6  12345  a text that is longe…\n");
        check(Some(38), &rows, "2001:d…:4:5:6  12345  a text that is …\n");
        check(Some(30), &rows, "2001:d…4:5:6  12345  a text t…\n");
        check(Some(15), &rows, "2001:d…4:5:6  …\n");
        check(Some(100), &rows, "2001:db8:1:2:3:4:5:6  12345  a text that is longer than there is room\n");
    }

    #[test]
    fn heads_are_cut_before_cells() {
        let mut columns = Columns::new(vec![Align::Right, Align::Left]);
        let (head, row) = (["bytes_toserver", "state"], ["1234567", "established, or closed"]);
        columns.head(&head);
        columns.widen(&row);
        columns.fit(Some(33));
        let mut out = Vec::new();
        columns.line(&mut out, &head);
        out.push(b'\n');
        columns.line(&mut out, &row);
        assert_eq!(String::from_utf8(out).unwrap(), "byte…rver  state\n  1234567  established, or closed");
    }

    #[test]
    fn cells_that_come_later_widen_their_columns() {
        let mut columns = Columns::new(vec![Align::Left, Align::Left]);
        let mut out = Vec::new();
        for row in [["a", "b"], ["abc", "b"], ["a", "b"]] {
            columns.widen(&row);
            columns.fit(Some(80));
            columns.line(&mut out, &row);
            out.push(b'\n');
        }
        assert_eq!(String::from_utf8(out).unwrap(), "a  b\nabc  b\na    b\n");
    }
}
