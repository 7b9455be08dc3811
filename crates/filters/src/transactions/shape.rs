//! Makes one record of a request and its response. Its schema follows from theirs: all fields except the one that
//! tells requests from responses.

use filter::prelude::*;
use filter::record::{FieldValue, Form, list_push, made};

/// The body of a request or response.
pub(super) static FILE: Schema = Schema::new(
    "file",
    &[
        Field::new("direction", FieldType::Text),
        Field::new("content_type", FieldType::Text),
        Field::new("filename", FieldType::Text),
        Field::new("size", FieldType::Number),
        Field::new("missing", FieldType::Number),
        Field::new("state", FieldType::Text),
        Field::new("start", FieldType::Time),
        Field::new("end", FieldType::Time),
        Field::new("sha256", FieldType::Text),
    ],
);

/// A request or response: its record, and the body of a message.
pub(super) struct Part<'a> {
    pub row: Row<'a>,
    /// Time of its first block.
    pub begin: u64,
    /// `None`: it is a record and not a message.
    pub body: Option<&'a Body>,
}

#[derive(Debug, Default)]
pub(super) struct Body {
    pub length: u64,
    /// Bytes missing inside.
    pub missing: u64,
    pub is_truncated: bool,
    /// Times of its first and last bytes.
    pub start: u64,
    pub end: u64,
    pub hash: Option<sha2::Sha256>,
}

impl Body {
    fn state(&self) -> &'static str {
        match self {
            Body { is_truncated: true, .. } => "truncated",
            Body { missing: 1.., .. } => "gap",
            _ => "complete",
        }
    }
}

/// The prepared layout of the records of one schema.
pub(super) struct Shape {
    pub schema: &'static Schema,
    made: &'static Schema,
    /// The field that tells requests from responses; `None`: each record stands alone.
    way: Option<usize>,
    /// Fields of a request that its response repeats.
    repeats: Vec<usize>,
    fields: Vec<Source>,
    length: &'static str,
    request_length: &'static str,
    state: &'static str,
    content_type: Option<usize>,
    filename: Option<usize>,
    status: Option<usize>,
    version: Option<usize>,
    files: Vec<u8>,
    file: RowWriter,
    writer: RowWriter,
}

/// The source of a field of the record.
struct Source {
    name: &'static str,
    place: usize,
    /// The same field for the other direction.
    turned: usize,
    /// If there is a response, the value comes from it and not from the request.
    is_of_response: bool,
    /// The field's name if the request has its own.
    of_request: Option<&'static str>,
}

/// The field of this schema that tells requests from responses.
fn way(schema: &Schema) -> Option<usize> {
    ["direction", "type"].iter().find_map(|end| schema.field(&format!("{}.{end}", schema.name)))
}

/// Whether these messages are neither requests nor responses. Each stands alone.
pub(super) fn is_alone(schema: &Schema) -> bool {
    matches!(schema.name, "smb" | "smtp")
}

/// The schema of the joined records; `None` if `schema` has no requests and responses.
pub(super) fn schema_of(schema: &'static Schema, of_messages: bool) -> Option<&'static Schema> {
    let way = way(schema);
    if way.is_none() && !is_alone(schema) {
        return None;
    }
    let mut fields: Vec<(String, FieldType)> = Vec::new();
    let own = |name: &str| name.contains('.');
    let known = schema.fields.iter().enumerate().filter(|(place, _)| Some(*place) != way);
    for (_, field) in known {
        if own(field.name) && fields.last().is_some_and(|(name, _)| !own(name)) {
            fields.push((ANSWERED.into(), FieldType::Flag));
            fields.push((LATENCY.into(), FieldType::Duration(Unit::Microseconds)));
        }
        if let Some(name) = of_request(field) {
            fields.push((name, field.kind));
        }
        fields.push((field.name.into(), field.kind));
    }
    if of_messages {
        for end in [LENGTH, REQUEST_LENGTH] {
            fields.push((format!("{}.{end}", schema.name), FieldType::Number));
        }
        fields.push((format!("{}.{STATE}", schema.name), FieldType::Text));
        fields.push((FILES.into(), FieldType::Rows(&FILE)));
    }
    // People read what they read of requests and responses, and how long the answer took.
    let is_there = |name: &&&str| {
        fields.iter().any(|(known, _)| {
            name.strip_prefix(known.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let summary: Vec<_> = [LATENCY].iter().chain(schema.summary).filter(is_there).copied().collect();
    made(schema.name, &fields, &summary)
}

/// The name of the request's map where the record has that of the response by its own name: `http.request_headers`.
fn of_request(field: &Field) -> Option<String> {
    let (before, end) = field.name.rsplit_once('.')?;
    let is_map = matches!(field.kind, FieldType::Rows(Schema { form: Form::Map, .. }));
    is_map.then(|| format!("{before}.request_{end}"))
}

const ANSWERED: &str = "answered";
const LATENCY: &str = "latency_us";
const LENGTH: &str = "length";
const REQUEST_LENGTH: &str = "request_length";
const STATE: &str = "state";
const FILES: &str = "files";

impl Shape {
    pub fn new(schema: &'static Schema, of_messages: bool) -> Option<Shape> {
        let (made, way) = (schema_of(schema, of_messages)?, way(schema));
        let own = |end: &str| format!("{}.{end}", schema.name);
        let place = |end: &str| schema.field(&own(end));
        // Empty where the joined records have no such field; nothing sets it then.
        let made_name = |name: &str| made.field(name).map_or("", |place| made.fields[place].name);
        let source = |(place, field): (usize, &'static Field)| {
            let other = match field.name.split_once('_') {
                Some(("src", end)) => schema.field(&format!("dest_{end}")),
                Some(("dest", end)) => schema.field(&format!("src_{end}")),
                _ => None,
            };
            let is_of_response =
                ["http_content_type", "content_encoding", "filename"].iter().any(|end| own(end) == field.name);
            Source {
                name: field.name,
                place,
                turned: other.unwrap_or(place),
                is_of_response,
                of_request: of_request(field).map(|name| made_name(&name)),
            }
        };
        let fields = schema.fields.iter().enumerate().filter(|(place, _)| Some(*place) != way);
        Some(Shape {
            schema,
            made,
            way,
            repeats: ["id", "url", "http_method"].iter().filter_map(|end| place(end)).collect(),
            fields: fields.map(source).collect(),
            length: made_name(&own(LENGTH)),
            request_length: made_name(&own(REQUEST_LENGTH)),
            state: made_name(&own(STATE)),
            content_type: place("http_content_type"),
            filename: place("filename"),
            status: place("status"),
            version: place("version"),
            files: Vec::new(),
            file: RowWriter::new(&FILE),
            writer: RowWriter::new(made),
        })
    }

    pub fn is_alone(&self) -> bool {
        self.way.is_none()
    }

    fn way_of<'a>(&self, row: &Row<'a>) -> Option<FieldValue<'a>> {
        row.get(self.way?)
    }

    pub fn is_request(&self, row: &Row<'_>) -> bool {
        matches!(self.way_of(row), Some(FieldValue::Text(b"request" | b"client_hello")))
    }

    /// Whether it is a response that another one follows (RFC 9110, 15.2).
    pub fn is_interim(&self, row: &Row<'_>) -> bool {
        let status = self.status.and_then(|place| row.get(place));
        matches!(status, Some(FieldValue::Number(100 | 102..=199)))
    }

    /// Whether it is a certificate, which adds to the response before it.
    pub fn is_certificate(&self, row: &Row<'_>) -> bool {
        matches!(self.way_of(row), Some(FieldValue::Text(b"certificate")))
    }

    /// Whether a certificate may follow this response. That of TLS 1.3 is encrypted (RFC 8446, 2).
    pub fn awaits_certificate(&self, row: &Row<'_>) -> bool {
        let version = self.version.and_then(|place| row.get(place));
        matches!(self.way_of(row), Some(FieldValue::Text(b"server_hello")))
            && !matches!(version, Some(FieldValue::Text(b"TLS 1.3")))
    }

    pub fn is_answer(&self, request: &Row<'_>, response: &Row<'_>) -> bool {
        self.repeats.iter().all(|place| match (request.get(*place), response.get(*place)) {
            (Some(FieldValue::Text(one)), Some(FieldValue::Text(other))) => one == other,
            (Some(FieldValue::Number(one)), Some(FieldValue::Number(other))) => one == other,
            (one, other) => one.is_none() && other.is_none(),
        })
    }

    /// The record of a request, response and certificate, as far as they exist.
    pub fn make(&mut self, [request, response, certificate]: [Option<&Part<'_>>; 3]) -> &[u8] {
        let Shape { writer, made, way, fields, files, file, .. } = self;
        writer.begin();
        for source in &*fields {
            let mut into = |name: &'static str, part: Option<&Part<'_>>, place: usize| {
                let value = part.and_then(|part| part.row.get(place));
                value.is_some_and(|value| {
                    writer.copy(name, &value);
                    true
                })
            };
            if let Some(name) = &source.of_request {
                into(name, request, source.place);
                into(source.name, response, source.place);
                continue;
            }
            let mut of = |part, place| into(source.name, part, place);
            // Addresses and times come from the request; otherwise the response's values win.
            let is_common = !source.name.contains('.');
            let _ = match (is_common, source.is_of_response && response.is_some()) {
                (true, _) => of(request, source.place) || of(response, source.turned),
                (false, true) => of(response, source.place),
                (false, false) => [certificate, response, request].into_iter().any(|part| of(part, source.place)),
            };
        }
        if made.field(ANSWERED).is_some() && way.is_some() {
            writer.flag(ANSWERED, response.is_some());
            if let (Some(request), Some(response)) = (request, response) {
                writer.number(LATENCY, response.begin.saturating_sub(request.begin) / 1000);
            }
        }
        files.clear();
        let mut state = "complete";
        for (part, direction, length) in
            [(request, "to_server", self.request_length), (response, "to_client", self.length)]
        {
            let Some((part, body)) = part.and_then(|part| Some((part, part.body?))) else { continue };
            writer.number(length, body.length);
            if body.state() != "complete" && state != "truncated" {
                state = body.state();
            }
            if body.length + body.missing == 0 {
                continue;
            }
            file.begin();
            file.text("direction", direction);
            for (name, place) in [("content_type", self.content_type), ("filename", self.filename)] {
                if let Some(value) = place.and_then(|place| part.row.get(place)) {
                    file.copy(name, &value);
                }
            }
            file.number("size", body.length).number("missing", body.missing).text("state", body.state());
            file.time("start", body.start).time("end", body.end);
            if let Some(hash) = &body.hash {
                use sha2::Digest;
                let mut text = Vec::with_capacity(64);
                packet::text::append_hex(&mut text, &hash.clone().finalize());
                file.text("sha256", text);
            }
            list_push(files, file.row());
        }
        if made.field(FILES).is_some() {
            writer.text(self.state, state);
            if !files.is_empty() {
                writer.rows(FILES, files);
            }
        }
        writer.row()
    }
}
