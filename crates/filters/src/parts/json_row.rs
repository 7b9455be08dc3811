//! Rows as JSON objects, by their schema: `a.b` is b inside a, times are RFC 3339, lists are arrays. `json_text`
//! writes the texts of values.
//!
//! [`RowShapes`] prepares each schema once; rendering a row then only appends. A list whose schema has one field
//! without a name is an array of plain values: `["h2","http/1.1"]`. A schema may ask for its list as an object.

use crate::parts::json_text;
use filter::record::{FieldValue, Form, made_with_id, schema_id};
use filter::{Env, FieldType, Row, Schema};
use std::sync::Arc;

/// Maximum depth of nested lists.
const LIST_DEPTH: usize = 4;

/// The fields of a message after its metadata.
#[derive(Clone, Copy, Debug)]
pub struct MessageEnd {
    /// Bytes of body.
    pub length: u64,
    /// `complete`, `truncated` or `gap`.
    pub state: &'static str,
    /// A limit of the request truncated it, not the end of the input.
    pub limited: bool,
}

/// Appends the state of a message or file, and whether a limit truncated it.
pub(crate) fn append_state(out: &mut Vec<u8>, state: &str, limited: bool) {
    json_text::key(out, "state");
    json_text::text(out, state.as_bytes());
    if limited {
        json_text::key(out, "reason");
        json_text::text(out, b"limit");
    }
}

/// Renders rows of any schema of a plan.
#[derive(Debug)]
pub struct RowShapes {
    schemas: Arc<[&'static Schema]>,
    known: Vec<Shape>,
    /// Index in `known` of the last shape used.
    last: usize,
}

impl RowShapes {
    /// For rows of the schemas on this plan's edges.
    pub fn new(env: &Env) -> RowShapes {
        RowShapes { schemas: Arc::clone(&env.schemas), known: Vec::new(), last: 0 }
    }

    /// Appends the row as one JSON object; `false` if the bytes are no row of a known schema.
    #[inline]
    pub fn append(&mut self, out: &mut Vec<u8>, row: &[u8], end: Option<MessageEnd>) -> bool {
        let Some(shape) = schema_id(row).and_then(|id| self.shape(id)) else { return false };
        let Some(row) = Row::new(shape.schema, row) else { return false };
        shape.object(out, &row, end);
        true
    }

    fn shape(&mut self, id: u32) -> Option<&Shape> {
        if self.known.get(self.last).is_none_or(|shape| shape.schema.id() != id) {
            let known = self.known.iter().position(|shape| shape.schema.id() == id);
            self.last = match known {
                Some(place) => place,
                None => {
                    let schema =
                        self.schemas.iter().copied().find(|schema| schema.id() == id).or_else(|| made_with_id(id))?;
                    self.known.push(Shape::new(schema, LIST_DEPTH));
                    self.known.len() - 1
                }
            };
        }
        self.known.get(self.last)
    }
}

/// The prepared rendering of a schema.
#[derive(Debug)]
struct Shape {
    schema: &'static Schema,
    fields: Vec<FieldShape>,
    /// `event_type` stands before this field.
    event_at: Option<usize>,
    /// Rows are plain values.
    bare: bool,
}

#[derive(Debug)]
struct FieldShape {
    /// The objects around it.
    parents: Vec<&'static str>,
    /// `"name":`
    key: Vec<u8>,
    /// The index of the first of the fields up to this one that all have its parents.
    run: usize,
    append_time: fn(&mut Vec<u8>, u64),
    items: Option<Shape>,
}

impl Shape {
    fn new(schema: &'static Schema, depth: usize) -> Shape {
        let mut fields = Vec::<FieldShape>::with_capacity(schema.fields.len());
        for field in schema.fields {
            let mut parents: Vec<_> = field.name.split('.').collect();
            let mut key = Vec::new();
            json_text::text(&mut key, parents.pop().unwrap_or_default().as_bytes());
            key.push(b':');
            let items = match field.kind {
                FieldType::Rows(schema) if depth > 0 => Some(Shape::new(schema, depth - 1)),
                _ => None,
            };
            let run = match fields.last() {
                Some(before) if before.parents == parents => before.run,
                _ => fields.len(),
            };
            let append_time = match field.kind {
                FieldType::EveTime => packet::time::append_eve_json,
                _ => packet::time::append_json,
            };
            fields.push(FieldShape { parents, key, run, append_time, items });
        }
        // Only a record with a time is an event; a measurement, such as that of `count`, is not.
        let event_at =
            schema.field("timestamp").map(|time| schema.field("flow_id").map_or(time, |flow| flow.max(time)) + 1);
        let bare = matches!(schema.fields, [field] if field.name.is_empty());
        Shape { schema, fields, event_at, bare }
    }

    fn object(&self, out: &mut Vec<u8>, row: &Row<'_>, end: Option<MessageEnd>) {
        out.push(b'{');
        let message = [self.schema.name];
        let mut open: &[&str] = &[];
        // The run of the field before, whose parents are open.
        let mut run = None;
        let mut event_at = self.event_at;
        for place in row.places() {
            let (Some(field), Some(value)) = (self.fields.get(place), row.get(place)) else { continue };
            if event_at.take_if(|at| *at <= place).is_some() {
                self.event_type(out, &mut open);
                run = None;
            }
            if run != Some(field.run) {
                change_parents(out, &mut open, &field.parents);
                run = Some(field.run);
            }
            json_text::comma(out);
            out.extend_from_slice(&field.key);
            match value {
                FieldValue::Time(ns) => (field.append_time)(out, ns),
                value => append_value(out, value, field.items.as_ref()),
            }
        }
        if event_at.is_some() {
            self.event_type(out, &mut open);
        }
        if let Some(end) = end {
            change_parents(out, &mut open, &message);
            json_text::key(out, "length");
            json_text::number(out, end.length);
            append_state(out, end.state, end.limited);
        }
        change_parents(out, &mut open, &[]);
        out.push(b'}');
    }

    fn event_type<'a>(&'a self, out: &mut Vec<u8>, open: &mut &'a [&'a str]) {
        change_parents(out, open, &[]);
        json_text::key(out, "event_type");
        json_text::text(out, self.schema.name.as_bytes());
    }
}

/// Closes objects that are not in `wanted` and opens those that are missing.
fn change_parents<'a>(out: &mut Vec<u8>, open: &mut &'a [&'a str], wanted: &'a [&'a str]) {
    let common = open.iter().zip(wanted).take_while(|(one, other)| one == other).count();
    out.resize(out.len() + open.len() - common, b'}');
    for name in &wanted[common..] {
        json_text::key(out, name);
        out.push(b'{');
    }
    *open = wanted;
}

fn append_value(out: &mut Vec<u8>, value: FieldValue<'_>, items: Option<&Shape>) {
    match value {
        FieldValue::Number(number) => json_text::number(out, number),
        FieldValue::Time(ns) => packet::time::append_json(out, ns),
        FieldValue::Duration(count, unit) => json_text::duration(out, count, unit),
        FieldValue::Flag(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        FieldValue::Text(text) => json_text::text(out, text),
        FieldValue::Address(address) => json_text::address(out, address),
        FieldValue::Rows(mut rows) if items.is_some_and(|items| items.schema.form == Form::Object) => {
            match items.zip(rows.next()) {
                Some((shape, row)) => shape.object(out, &row, None),
                None => out.extend_from_slice(b"{}"),
            }
        }
        FieldValue::Rows(rows) if items.is_some_and(|items| items.schema.form == Form::Map) => {
            out.push(b'{');
            for row in rows {
                let (Some(FieldValue::Text(key)), Some(value)) = (row.get(0), row.get(1)) else { continue };
                json_text::comma(out);
                json_text::text(out, key);
                out.push(b':');
                append_value(out, value, items.and_then(|shape| shape.fields[1].items.as_ref()));
            }
            out.push(b'}');
        }
        FieldValue::Rows(rows) => {
            out.push(b'[');
            if let Some(shape) = items {
                for row in rows {
                    json_text::comma(out);
                    match row.get(0) {
                        Some(value) if shape.bare => append_value(out, value, None),
                        _ => shape.object(out, &row, None),
                    }
                }
            }
            out.push(b']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::record::list_push;
    use filter::{Field, RowWriter};

    static NAMES: Schema = Schema::new("names", &[Field::new("", FieldType::Text)]);
    static ANSWERS: Schema =
        Schema::new("answers", &[Field::new("rrname", FieldType::Text), Field::new("ttl", FieldType::Number)]);
    static EVENT: Schema = Schema::new(
        "dns",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("flow_id", FieldType::Number),
            Field::new("src_ip", FieldType::Address),
            Field::new("dns.id", FieldType::Number),
            Field::new("dns.flags.aa", FieldType::Flag),
            Field::new("dns.flags.tc", FieldType::Flag),
            Field::new("dns.answers", FieldType::Rows(&ANSWERS)),
            Field::new("names", FieldType::Rows(&NAMES)),
        ],
    );
    static MEASURE: Schema =
        Schema::new("count", &[Field::new("blocks", FieldType::Number), Field::new("bytes", FieldType::Number)]);

    fn check(
        schema: &'static Schema,
        end: Option<MessageEnd>,
        fill: impl FnOnce(&mut RowWriter) -> &mut RowWriter,
        expected: &str,
    ) {
        let mut writer = RowWriter::new(schema);
        fill(&mut writer);
        let mut shapes = RowShapes { schemas: [&MEASURE, &EVENT].into(), known: Vec::new(), last: 0 };
        let mut out = Vec::new();
        for _ in 0..2 {
            out.clear();
            assert!(shapes.append(&mut out, writer.row(), end));
            assert_eq!(String::from_utf8_lossy(&out), expected);
            serde_json::from_slice::<serde_json::Value>(&out).unwrap();
        }
    }

    #[test]
    fn rows() {
        check(&MEASURE, None, |row| row, "{}");
        check(&MEASURE, None, |row| row.number("blocks", 2).number("bytes", 30), r#"{"blocks":2,"bytes":30}"#);
        check(&EVENT, None, |row| row, r#"{"event_type":"dns"}"#);
        let time = r#""timestamp":"1970-01-01T00:00:00.000000001Z""#;
        check(
            &EVENT,
            None,
            |row| row.time("timestamp", 1).number("flow_id", 9).flag("dns.flags.tc", true),
            &format!(r#"{{{time},"flow_id":9,"event_type":"dns","dns":{{"flags":{{"tc":true}}}}}}"#),
        );
        let (mut answers, mut names) = (Vec::new(), Vec::new());
        let mut answer = RowWriter::new(&ANSWERS);
        list_push(&mut answers, answer.text("rrname", "a").number("ttl", 5).row());
        answer.begin();
        list_push(&mut answers, answer.number("ttl", 6).row());
        let mut name = RowWriter::new(&NAMES);
        list_push(&mut names, name.text("", "h2").row());
        name.begin();
        list_push(&mut names, name.text("", "\"").row());
        check(
            &EVENT,
            None,
            |row| {
                row.time("timestamp", 1).address("src_ip", "10.0.0.1".parse().unwrap()).number("dns.id", 3);
                row.flag("dns.flags.aa", false).rows("dns.answers", &answers).rows("names", &names)
            },
            &format!(r#"{{{time},"event_type":"dns","src_ip":"10.0.0.1","dns":{{"id":3,"flags":{{"aa":false}},"#,)
                .chars()
                .chain(r#""answers":[{"rrname":"a","ttl":5},{"ttl":6}]},"names":["h2","\""]}"#.chars())
                .collect::<String>(),
        );
    }

    #[test]
    fn the_end_of_a_message_stands_beside_its_fields() {
        let end = Some(MessageEnd { length: 7, state: "gap", limited: false });
        let tail = r#""length":7,"state":"gap"}}"#;
        check(&EVENT, end, |row| row, &format!(r#"{{"event_type":"dns","dns":{{{tail}"#));
        check(
            &EVENT,
            end,
            |row| row.number("dns.id", 3).flag("dns.flags.aa", true),
            &format!(r#"{{"event_type":"dns","dns":{{"id":3,"flags":{{"aa":true}},{tail}"#),
        );
        let end = Some(MessageEnd { length: 7, state: "truncated", limited: true });
        let tail = r#""length":7,"state":"truncated","reason":"limit"}}"#;
        check(&EVENT, end, |row| row, &format!(r#"{{"event_type":"dns","dns":{{{tail}"#));
    }

    #[test]
    fn what_is_not_a_row_is_refused() {
        let mut shapes = RowShapes { schemas: [&MEASURE].into(), known: Vec::new(), last: 0 };
        let mut out = Vec::new();
        for bytes in [&b""[..], b"abc", RowWriter::new(&EVENT).row(), &RowWriter::new(&MEASURE).row()[..20]] {
            assert!(!shapes.append(&mut out, bytes, None));
        }
        assert!(out.is_empty());
    }
}
