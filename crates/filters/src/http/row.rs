//! The record at the beginning of a message: its head, with EVE's field names.

use crate::parts::eve::eve_fields;
use filter::prelude::*;

pub(crate) static SCHEMA: Schema = Schema::new(
    "http",
    &eve_fields![
        Field::new("http.direction", FieldType::Text),
        Field::new("http.http_method", FieldType::Text),
        Field::new("http.hostname", FieldType::Text),
        Field::new("http.url", FieldType::Text),
        Field::new("http.protocol", FieldType::Text),
        Field::new("http.status", FieldType::Number),
        Field::new("http.http_content_type", FieldType::Text),
        Field::new("http.content_encoding", FieldType::Text),
        Field::new("http.http_user_agent", FieldType::Text),
        Field::new("http.http_refer", FieldType::Text),
        Field::new("http.filename", FieldType::Text),
        Field::new("http.ambiguous", FieldType::Text),
        Field::new("http.cut", FieldType::Text),
    ],
);

/// Sets a text; each folded line break becomes a space (RFC 9112 section 5.2).
pub(super) fn unfolded(row: &mut RowWriter, name: &str, value: &[u8]) {
    if memchr::memchr(b'\n', value).is_none() {
        row.text(name, value);
        return;
    }
    let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    row.text(name, lines.collect::<Vec<_>>().join(&b' '));
}
