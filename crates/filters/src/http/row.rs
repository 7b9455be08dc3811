//! The record at the beginning of a message: its head, with EVE's field names.

use super::exit::Exit;
use crate::parts::eve::{begin_row, eve_fields};
use filter::prelude::*;
use protocols::http::asked::Question;
use protocols::http::head::{Head, media_type};
use protocols::http::start::StartLine;
use protocols::mime::parameter;

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

/// What a record says of the head itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notes<'a> {
    /// Why clients disagree about the message; empty: they agree.
    pub(super) ambiguous: &'a str,
    /// The value that is cut, which the record leaves out; `None`: the head is whole.
    pub(super) cut: Option<&'a str>,
}

/// Gives the record of a message. `question`: the request of a response, as far as it is known.
pub(super) fn give_row(
    head: &Head<'_>,
    notes: Notes<'_>,
    question: Question<'_>,
    time: u64,
    class: Class,
    flags: Flags,
    exit: &mut Exit<'_>,
) {
    let facts = exit.streams.get(class);
    let row = &mut exit.shared.row;
    begin_row(row, time, class, facts);
    let (direction, protocol, status) = match head.start {
        StartLine::Request { protocol, .. } => ("request", protocol, None),
        StartLine::Response { protocol, status } => ("response", protocol, status),
    };
    let mut text = |name: &str, value: Option<&[u8]>| {
        if let Some(value) = value {
            unfolded(row, name, value);
        }
    };
    text("http.direction", Some(direction.as_bytes()));
    text("http.http_method", question.method);
    text("http.hostname", question.host);
    text("http.url", question.url);
    text("http.protocol", Some(protocol).filter(|protocol| !protocol.is_empty()));
    text("http.http_content_type", head.content_type.map(media_type));
    text("http.content_encoding", head.content_encoding);
    text("http.http_user_agent", head.user_agent);
    text("http.http_refer", head.referer);
    let name = head.disposition.and_then(|value| parameter(value, b"filename"));
    text("http.filename", name.as_deref().filter(|name| !name.is_empty()));
    text("http.ambiguous", Some(notes.ambiguous.as_bytes()).filter(|reasons| !reasons.is_empty()));
    text("http.cut", notes.cut.map(str::as_bytes));
    if let Some(status) = status {
        row.number("http.status", u64::from(status));
    }
    exit.push_row(time, class, flags);
}

/// Sets a text; each folded line break becomes a space (RFC 9112 section 5.2).
fn unfolded(row: &mut RowWriter, name: &str, value: &[u8]) {
    if memchr::memchr(b'\n', value).is_none() {
        row.text(name, value);
        return;
    }
    let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    row.text(name, lines.collect::<Vec<_>>().join(&b' '));
}
