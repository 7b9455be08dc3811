//! The record at the beginning of a message: its head, with EVE's field names.

use crate::parts::fact_fields::FactFields;
use filter::prelude::*;
use protocols::conversation::Fact as _;
use protocols::http::Fact;

pub(crate) static SCHEMA: Schema = const { &FactFields::record(Fact::ALL) }.schema("http").summary(&[
    "http.http_method",
    "http.status",
    "http.hostname",
    "http.url",
]);

/// Sets a text; each folded line break becomes a space (RFC 9112 section 5.2).
pub(super) fn unfolded(row: &mut RowWriter, name: &str, value: &[u8]) {
    if memchr::memchr(b'\n', value).is_none() {
        row.text(name, value);
        return;
    }
    let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    row.text(name, lines.collect::<Vec<_>>().join(&b' '));
}
