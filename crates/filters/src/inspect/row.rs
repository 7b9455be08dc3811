//! Writes one row: its time, its schema's name, and its fields as `name=value`.

use crate::parts::frame_line::say;
use crate::parts::json_text;
use crate::parts::printable::word;
use filter::record::{FieldValue, schema_id};
use filter::{Env, Row};

/// Deepest level of lists inside lists that is shown.
const LIST_DEPTH: usize = 4;

/// Fields of a message's row that the line of the block shows already.
const SAID: [&str; 7] = ["timestamp", "flow_id", "src_ip", "src_port", "dest_ip", "dest_port", "proto"];

/// Appends a row that is a block of its own.
pub(super) fn append(out: &mut Vec<u8>, env: &Env, bytes: &[u8]) {
    let Some(row) = read(out, env, bytes) else { return };
    if let Some(FieldValue::Time(ns)) = row.named("timestamp") {
        super::time(out, ns);
    }
    append_fields(out, &row, &SAID[..1]);
}

/// Appends the row of a message to the line of its block.
pub(super) fn append_meta(out: &mut Vec<u8>, env: &Env, bytes: &[u8]) {
    let Some(row) = read(out, env, bytes) else { return };
    append_fields(out, &row, &SAID);
}

fn read<'a>(out: &mut Vec<u8>, env: &Env, bytes: &'a [u8]) -> Option<Row<'a>> {
    let schema = schema_id(bytes).and_then(|id| env.schema(id));
    let row = schema.and_then(|schema| Row::new(schema, bytes));
    if row.is_none() {
        say(out, format_args!("a record of no known schema, {} bytes", bytes.len()));
    }
    row
}

/// Appends the schema's name and the set fields, except those in `without`.
fn append_fields(out: &mut Vec<u8>, row: &Row<'_>, without: &[&str]) {
    let name = row.schema().name;
    out.extend_from_slice(name.as_bytes());
    for (place, field) in row.schema().fields.iter().enumerate() {
        let Some(value) = row.get(place).filter(|_| !without.contains(&field.name)) else { continue };
        let inside = field.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        say(out, format_args!(" {}=", inside.unwrap_or(field.name)));
        append_value(out, value, LIST_DEPTH);
    }
}

fn append_value(out: &mut Vec<u8>, value: FieldValue<'_>, depth: usize) {
    match value {
        FieldValue::Number(number) => say(out, format_args!("{number}")),
        FieldValue::Time(ns) => out.extend_from_slice(&packet::time::rfc3339(ns)),
        FieldValue::Duration(count, unit) => json_text::duration(out, count, unit),
        FieldValue::Flag(flag) => out.extend_from_slice(if flag { b"yes" } else { b"no" }),
        FieldValue::Text(text) => word(out, text),
        FieldValue::Address(address) => say(out, format_args!("{address}")),
        FieldValue::Rows(_) if depth == 0 => out.extend_from_slice(b"[...]"),
        FieldValue::Rows(rows) => {
            out.push(b'[');
            for (index, row) in rows.enumerate() {
                out.extend_from_slice(if index > 0 { b", " } else { b"" });
                append_item(out, &row, depth);
            }
            out.push(b']');
        }
    }
}

/// Appends an item of a list: its fields, separated by spaces.
fn append_item(out: &mut Vec<u8>, row: &Row<'_>, depth: usize) {
    let mut written = false;
    for (place, field) in row.schema().fields.iter().enumerate() {
        let Some(value) = row.get(place) else { continue };
        out.extend_from_slice(if written { b" " } else { b"" });
        if !field.name.is_empty() {
            say(out, format_args!("{}=", field.name));
        }
        append_value(out, value, depth - 1);
        written = true;
    }
}
