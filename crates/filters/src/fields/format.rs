//! A record's fields as one line of text.

use crate::parts::cell::{Style, append};
use crate::parts::fields::Column;
use crate::parts::json_text;
use filter::Row as Record;

/// Lines from which a table computes the widths of its columns.
const TABLE_LINES: usize = 1000;

/// The widest column of a table, in characters. A longer text pushes the rest of its line.
const COLUMN_MAX: usize = 60;

/// The format of a line.
#[derive(Debug)]
pub(super) enum Format {
    Tsv,
    Csv,
    Json,
    /// Aligned columns.
    Table(Table),
}

/// The state of a table.
#[derive(Debug)]
pub(super) struct Table {
    /// Cells of the lines that wait for the widths. Empty once the widths are known.
    waiting: Vec<Vec<Vec<u8>>>,
    widths: Vec<usize>,
    is_known: bool,
}

/// The fields of one record.
#[derive(Debug)]
pub(super) struct Row {
    names: Vec<String>,
    style: Style,
    /// The text of each field. Empty: the record does not have the field.
    cells: Vec<Vec<u8>>,
}

impl Row {
    pub(super) fn new(names: &[String], format: &Format) -> Row {
        let style = match format {
            Format::Tsv | Format::Table(_) => Style::Line,
            Format::Csv => Style::Plain,
            Format::Json => Style::Json,
        };
        Row { names: names.to_vec(), style, cells: vec![Vec::new(); names.len()] }
    }

    /// Sets the cells to the names.
    pub(super) fn set_names(&mut self) {
        for (cell, name) in self.cells.iter_mut().zip(&self.names) {
            cell.clear();
            cell.extend_from_slice(name.as_bytes());
        }
    }

    /// Sets the cells to the fields at `columns` of a record.
    pub(super) fn set(&mut self, record: &Record<'_>, columns: &[Option<Column>]) {
        let style = self.style;
        for (cell, column) in self.cells.iter_mut().zip(columns) {
            cell.clear();
            let Some(column) = column else { continue };
            let mut count = 0;
            let is_array = style == Style::Json && matches!(column, Column::Each(..));
            column.each(record, &mut |value| {
                cell.extend_from_slice(match (count, is_array) {
                    (0, true) => b"[",
                    (0, false) => b"",
                    _ => b",",
                });
                count += 1;
                append(cell, &value, style);
                true
            });
            if is_array && count > 0 {
                cell.push(b']');
            }
        }
    }
}

/// RFC 4180 section 2, rules 5 to 7.
fn csv(out: &mut Vec<u8>, cell: &[u8]) {
    if !cell.iter().any(|byte| b",\"\n\r".contains(byte)) {
        return out.extend_from_slice(cell);
    }
    out.push(b'"');
    for &byte in cell {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

fn separated(out: &mut Vec<u8>, row: &Row, separator: u8, cell: fn(&mut Vec<u8>, &[u8])) {
    for (at, text) in row.cells.iter().enumerate() {
        if at > 0 {
            out.push(separator);
        }
        cell(out, text);
    }
}

impl Format {
    pub(super) fn table(columns: usize) -> Format {
        Format::Table(Table { waiting: Vec::new(), widths: vec![0; columns], is_known: false })
    }

    /// Appends a row's line without a line end. `false`: the table does not know its widths yet.
    pub(super) fn append(&mut self, out: &mut Vec<u8>, row: &Row) -> bool {
        match self {
            Format::Tsv => separated(out, row, b'\t', |out, cell| out.extend_from_slice(cell)),
            Format::Csv => separated(out, row, b',', csv),
            Format::Json => {
                out.push(b'{');
                for (name, json) in row.names.iter().zip(&row.cells).filter(|(_, json)| !json.is_empty()) {
                    json_text::key(out, name);
                    out.extend_from_slice(json);
                }
                out.push(b'}');
            }
            Format::Table(table) => return table.append(out, row),
        }
        true
    }

    /// Appends the lines that still wait, with line ends.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if let Format::Table(table) = self {
            table.settle(out);
        }
    }
}

impl Table {
    fn append(&mut self, out: &mut Vec<u8>, row: &Row) -> bool {
        if self.is_known {
            self.line(out, &row.cells);
            return true;
        }
        for (width, cell) in self.widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(columns(cell)).min(COLUMN_MAX);
        }
        self.waiting.push(row.cells.clone());
        if self.waiting.len() >= TABLE_LINES {
            self.settle(out);
        }
        false
    }

    /// Fixes the widths, and writes the lines that wait.
    fn settle(&mut self, out: &mut Vec<u8>) {
        self.is_known = true;
        for cells in std::mem::take(&mut self.waiting) {
            self.line(out, &cells);
            out.push(b'\n');
        }
    }

    fn line(&self, out: &mut Vec<u8>, cells: &[Vec<u8>]) {
        for (at, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            out.extend_from_slice(cell);
            if at + 1 < cells.len() {
                out.resize(out.len() + width.saturating_sub(columns(cell)) + 2, b' ');
            }
        }
    }
}

fn columns(cell: &[u8]) -> usize {
    String::from_utf8_lossy(cell).chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::{Field, FieldType, RowWriter, Schema};

    static SCHEMA: Schema = Schema::new(
        "x",
        &[Field::new("a", FieldType::Text), Field::new("b", FieldType::Number), Field::new("c", FieldType::Time)],
    );

    fn check(mut format: Format, text: &[u8], expected: &str) {
        let names = ["a", "b", "c"].map(String::from);
        let mut row = Row::new(&names, &format);
        let mut writer = RowWriter::new(&SCHEMA);
        writer.text("a", text).number("b", 7);
        let columns = [Some(Column::Field(0)), Some(Column::Field(1)), Some(Column::Field(2))];
        row.set(&Record::new(&SCHEMA, writer.row()).unwrap(), &columns);
        let mut out = Vec::new();
        let is_there = format.append(&mut out, &row);
        format.finish(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(is_there, !matches!(format, Format::Table(_)));
    }

    #[test]
    fn lines() {
        let text = b"a\t\"b\",\\\n\x1b\xff";
        check(Format::Tsv, text, "a\\t\"b\",\\\\\\n\\x1b\\xff\t7\t");
        check(Format::Csv, text, "\"a\t\"\"b\"\",\\\n\\x1b\\xff\",7,");
        check(Format::Json, text, r#"{"a":"a\t\"b\",\\\n\u001b\\xff","b":7}"#);
        check(Format::table(3), b"ab", "ab  7  \n");
        check(Format::Csv, b"plain", "plain,7,");
    }
}
