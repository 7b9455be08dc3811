//! Tables for people: one head, rows of cells, each column as wide as its widest cell. The last column holds free text; on a
//! terminal it is cut, so that a row takes one line.

use crate::terminal;

pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// The least columns of the last column, however wide the other columns are.
const LAST_COLUMN: usize = 16;

impl Table {
    /// A table with these heads. A head that begins with `>` marks a column of numbers, aligned to the right.
    pub(crate) fn new(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Each cell is one line, whatever text it quotes.
    ///
    /// # Panics
    /// If the number of cells differs from the number of heads.
    pub(crate) fn row<const CELLS: usize>(&mut self, cells: [String; CELLS]) {
        assert_eq!(self.heads.len(), CELLS, "a cell for each head");
        self.rows.push(cells.iter().map(|cell| base::terminal::line(cell).into_owned()).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table for standard output. Empty if it has no rows.
    pub(crate) fn text(&self) -> String {
        self.within(terminal::stdout_columns())
    }

    /// The table in at most `columns` columns; `None`: as wide as it is.
    pub(crate) fn within(&self, columns: Option<usize>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let heads: Vec<String> = self.heads.iter().map(|head| head.trim_start_matches('>').to_string()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&heads]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..heads.len()).map(width).collect();
        if let (Some((last, before)), Some(columns)) = (widths.split_last_mut(), columns) {
            let taken: usize = before.iter().map(|width| width + GAP.len()).sum();
            *last = (*last).min(columns.saturating_sub(taken).max(LAST_COLUMN));
        }
        let mut text = String::new();
        for row in [&heads].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&widths).zip(&self.heads).map(|((cell, width), head)| {
                let (cell, width) = (terminal::cut(cell, *width), *width);
                if head.starts_with('>') { format!("{cell:>width$}") } else { format!("{cell:width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// Separates two columns.
const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells_and_the_last_is_cut() {
        let mut table = Table::new(&["name", ">count", "text"]);
        assert!(table.is_empty() && table.within(None).is_empty(), "a head alone says nothing");
        table.row(["a".into(), "5".into(), "short".into()]);
        table.row(["long name".into(), "12345".into(), "a text that is longer than there is room".into()]);
        let cut = "\
name       count  text
a              5  short
long name  12345  a text that is long…
";
        assert_eq!(table.within(Some(38)), cut);
        assert_eq!(table.within(Some(3)).lines().last().unwrap(), "long name  12345  a text that is …");
        assert!(table.within(None).ends_with("than there is room\n"));
    }
}
