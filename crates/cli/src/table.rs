//! Tables for people: one head, and rows of cells. On a terminal, a row takes one line.

use crate::terminal;
use base::columns::{Align, Columns};

pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

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
        let align = self.heads.iter().map(|head| if head.starts_with('>') { Align::Right } else { Align::Left });
        let heads: Vec<String> = self.heads.iter().map(|head| head.trim_start_matches('>').to_string()).collect();
        let mut shown = Columns::new(align.collect());
        shown.head(&heads);
        self.rows.iter().for_each(|cells| shown.widen(cells));
        shown.fit(columns);
        let mut text = Vec::new();
        for cells in [&heads].into_iter().chain(&self.rows) {
            shown.line(&mut text, cells);
            text.push(b'\n');
        }
        String::from_utf8(text).expect("cells are texts")
    }
}

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
        assert_eq!(table.within(Some(13)).lines().last().unwrap(), "long name  1…");
        assert!(table.within(None).ends_with("than there is room\n"));
    }
}
