//! Records as aligned columns, for people. Lines wait until the widths of their columns are known: for many of them, on a
//! terminal for the rest of their batch, and in no case longer than the input is silent for a moment.

use super::lines::Lines;
use base::columns::{Align, Columns};
use filter::{Made, Status};
use std::time::{Duration, Instant};

/// Lines from which a table computes the widths of its columns.
const TABLE_LINES: usize = 1000;

/// Lines that wait are written when none has come for so long.
const SILENCE: Duration = Duration::from_millis(200);

/// A table and its lines that wait.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Columns,
    /// The line of heads, if it is still to be written.
    heads: Option<Vec<String>>,
    waiting: Vec<Vec<String>>,
    /// The end of the last batch with a line that waits.
    last: Option<Instant>,
}

impl Table {
    pub(crate) fn new(align: Vec<Align>) -> Table {
        Table { columns: Columns::new(align), heads: None, waiting: Vec::new(), last: None }
    }

    /// Adds the line of heads.
    pub(crate) fn head(&mut self, heads: Vec<String>) {
        self.columns.head(&heads);
        self.heads = Some(heads);
    }

    /// Makes room for cells that may come.
    pub(crate) fn widen(&mut self, cells: &[String]) {
        self.columns.widen(cells);
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, lines: &mut Lines, cells: Vec<String>) -> Made {
        self.waiting.push(cells);
        if self.waiting.len() >= TABLE_LINES { self.settle(lines) } else { Ok(Status::Done) }
    }

    /// Ends a batch. On a terminal its lines go on at once.
    pub(crate) fn batch_done(&mut self, lines: &mut Lines) -> Made {
        if lines.is_eager() {
            return self.settle(lines);
        }
        if !self.waiting.is_empty() {
            self.last = Some(Instant::now());
        }
        Ok(Status::Done)
    }

    /// The input pauses, and it is `now`.
    pub(crate) fn pause(&mut self, lines: &mut Lines, now: Instant) -> Made {
        match self.last {
            Some(last) if now.saturating_duration_since(last) >= SILENCE => self.settle(lines),
            _ => Ok(Status::Done),
        }
    }

    /// Adds the lines that wait to `lines`.
    pub(crate) fn settle(&mut self, lines: &mut Lines) -> Made {
        self.last = None;
        self.waiting.iter().for_each(|cells| self.columns.widen(cells));
        self.columns.fit(lines.columns());
        if let Some(heads) = self.heads.take() {
            let [begin, end] = if lines.has_bold_heads() { ["\x1b[1m", "\x1b[0m"] } else { [""; 2] };
            lines.buffer().extend_from_slice(begin.as_bytes());
            self.columns.line(lines.buffer(), &heads);
            lines.buffer().extend_from_slice(end.as_bytes());
            if lines.line_done()? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        for cells in self.waiting.drain(..) {
            self.columns.line(lines.buffer(), &cells);
            if lines.line_done()? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::Params;
    use filter::param::Value;

    #[test]
    fn lines_that_wait_are_written_after_a_silence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut params = Params::new();
        params.set("overwrite", Value::Flag(false));
        let mut lines = Lines::at("file", &path, &params).unwrap();
        let mut table = Table::new(vec![Align::Left, Align::Right]);
        table.head(vec!["a".into(), "b".into()]);
        table.push(&mut lines, vec!["one".into(), "1".into()]).unwrap();
        table.batch_done(&mut lines).unwrap();
        let now = table.last.unwrap();
        table.pause(&mut lines, now + SILENCE / 2).unwrap();
        assert!(lines.buffer().is_empty());
        table.pause(&mut lines, now + SILENCE).unwrap();
        assert_eq!(str::from_utf8(lines.buffer()), Ok("a    b\none  1\n"));
    }
}
