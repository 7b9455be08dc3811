//! A record's fields as one line of text.

use crate::parts::cell::{Style, append};
use crate::parts::fields::Column;
use crate::parts::json_text;
use crate::parts::lines::Lines;
use crate::parts::table::Table;
use base::columns::Align;
use filter::{Made, Row as Record};

/// The format of a line.
#[derive(Debug)]
pub(super) enum Format {
    Tsv,
    Csv,
    Json,
    /// Aligned columns.
    Table(Table),
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

    fn texts(&self) -> Vec<String> {
        self.cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    }

    /// Sets the cells to the fields at `columns` of a record.
    pub(super) fn set(&mut self, record: &Record<'_>, columns: &[Option<Column>]) {
        let style = self.style;
        for (cell, column) in self.cells.iter_mut().zip(columns) {
            cell.clear();
            let Some(column) = column else { continue };
            let mut count = 0;
            let is_array = style == Style::Json && column.is_many();
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
        Format::Table(Table::new(vec![Align::Left; columns]))
    }

    /// Adds a row's line. That of a table may wait.
    pub(super) fn line(&mut self, lines: &mut Lines, row: &Row) -> Made {
        let out = lines.buffer();
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
            Format::Table(table) => return table.push(lines, row.texts()),
        }
        lines.line_done()
    }

    /// The table, which has lines that wait.
    pub(super) fn as_table(&mut self) -> Option<&mut Table> {
        match self {
            Format::Table(table) => Some(table),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fields::KIND;
    use crate::parts::handmade::block;
    use filter::prelude::*;
    use testkit::Chain;

    static SCHEMA: Schema = Schema::new(
        "x",
        &[Field::new("a", FieldType::Text), Field::new("b", FieldType::Number), Field::new("c", FieldType::Time)],
    );

    fn check(format: &str, text: &[u8], expected: &str) {
        let mut writer = RowWriter::new(&SCHEMA);
        writer.text("a", text).number("b", 7);
        let rows = vec![block(0, Flags::NONE, writer.row(), 0)];
        let chain = Chain::pieces(Type::Record, None, rows).schema(&SCHEMA);
        let given = [("field", "a"), ("field", "b"), ("field", "c"), ("format", format), ("header", "no")];
        assert_eq!(chain.then(&KIND, &given).run().stdout, format!("{expected}\n"));
    }

    #[test]
    fn lines() {
        let text = b"a\t\"b\",\\\n\x1b\xff";
        check("tsv", text, "a\\t\"b\",\\\\\\n\\x1b\\xff\t7\t");
        check("csv", text, "\"a\t\"\"b\"\",\\\n\\x1b\\xff\",7,");
        check("json", text, r#"{"a":"a\t\"b\",\\\n\u001b\\xff","b":7}"#);
        check("table", b"ab", "ab  7");
        check("csv", b"plain", "plain,7,");
    }
}
