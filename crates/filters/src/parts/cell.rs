//! A field's value as the text of a table's cell, on a line of its own or between separators.

use crate::parts::json_text;
use filter::record::FieldValue;
use packet::time::rfc3339;
use std::io::Write;

/// How the text of a cell is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// One line: tab, line feed and backslash are escaped.
    Line,
    /// Tab and line feed stay as they are.
    Plain,
    Json,
}

/// Appends a value.
pub(crate) fn append(cell: &mut Vec<u8>, value: &FieldValue<'_>, style: Style) {
    // Writing into memory does not fail.
    match (value, style) {
        (FieldValue::Number(number), _) => json_text::number(cell, *number),
        (FieldValue::Time(ns), Style::Json) => packet::time::append_json(cell, *ns),
        (FieldValue::Time(ns), _) => cell.extend_from_slice(&rfc3339(*ns)),
        (FieldValue::Duration(count, unit), _) => json_text::duration(cell, *count, *unit),
        (FieldValue::Flag(flag), _) => drop(write!(cell, "{flag}")),
        (FieldValue::Text(text), Style::Json) => json_text::text(cell, text),
        (FieldValue::Text(text), _) => printable(cell, text, style),
        (FieldValue::Address(address), Style::Json) => json_text::address(cell, *address),
        (FieldValue::Address(address), _) => json_text::plain_address(cell, *address),
        (FieldValue::Rows(rows), _) => json_text::number(cell, rows.clone().count() as u64),
    }
}

/// Makes a text safe for a terminal: control characters and bytes that are not UTF-8 become `\xHH`.
fn printable(cell: &mut Vec<u8>, text: &[u8], style: Style) {
    if text.iter().all(|byte| matches!(byte, b' '..=b'[' | b']'..=b'~')) {
        return cell.extend_from_slice(text);
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut room = [0; 4];
            let bytes = character.encode_utf8(&mut room).as_bytes();
            match (character, style) {
                ('\t', Style::Line) => cell.extend_from_slice(b"\\t"),
                ('\n', Style::Line) => cell.extend_from_slice(b"\\n"),
                ('\\', Style::Line) => cell.extend_from_slice(b"\\\\"),
                ('\t' | '\n', _) => cell.extend_from_slice(bytes),
                _ if base::terminal::is_unfit(character) => bytes.iter().for_each(|byte| hexadecimal(cell, *byte)),
                _ => cell.extend_from_slice(bytes),
            }
        }
        chunk.invalid().iter().for_each(|byte| hexadecimal(cell, *byte));
    }
}

fn hexadecimal(cell: &mut Vec<u8>, byte: u8) {
    let _ = write!(cell, "\\x{byte:02x}");
}
