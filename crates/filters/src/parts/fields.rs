//! Fields of records by name: `http.status`, `src_ip`, `dns.answers.rdata`. A name means the field of that name in every
//! schema that has it. Behind the name of a list, a name means that field of each row in the list, so it may have several
//! values.

use base::nearest;
use filter::record::{FieldValue, Form, made_with_id, schema_id};
use filter::{Env, FieldType, ParamError, Row, Schema};
use std::ops::Range;
use std::sync::Arc;

/// The name of a record's schema: EVE's event type.
const EVENT_TYPE: &str = "event_type";

/// The column of a name in rows of one schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The name of the schema.
    EventType,
    /// The field at this index.
    Field(usize),
    /// A column of each row of the list at this index.
    Each(usize, Box<Column>),
    /// A column of the value that the map at this index has for this key. The case of letters does not matter.
    Entry(usize, String, Box<Column>),
}

/// The column of a name in rows of `schema`, and its type. `None`: the schema has no such field.
pub(crate) fn find(name: &str, schema: &'static Schema) -> Option<(Column, FieldType)> {
    if name == EVENT_TYPE {
        return Some((Column::EventType, FieldType::Text));
    }
    if let Some(at) = schema.field(name) {
        let kind = schema.fields[at].kind;
        return match kind {
            // The name of a list of plain values means its values.
            FieldType::Rows(items) if matches!(items.fields, [field] if field.name.is_empty()) => {
                Some((Column::Each(at, Box::new(Column::Field(0))), items.fields[0].kind))
            }
            _ => Some((Column::Field(at), kind)),
        };
    }
    schema.fields.iter().enumerate().find_map(|(at, field)| {
        let FieldType::Rows(items) = field.kind else { return None };
        let rest = name.strip_prefix(field.name)?.strip_prefix('.')?;
        if let (Form::Map, [_, value]) = (items.form, items.fields) {
            // The rest is the key, also if it has dots.
            let (inner, kind) = find(value.name, items)?;
            return (!rest.is_empty()).then(|| (Column::Entry(at, rest.into(), Box::new(inner)), kind));
        }
        let (inner, kind) = find(rest, items)?;
        Some((Column::Each(at, Box::new(inner)), kind))
    })
}

/// Collects the names of all fields of a schema, even inside lists.
fn names_of(schema: &'static Schema, before: &str, names: &mut Vec<String>) {
    for field in schema.fields.iter().filter(|field| !field.name.is_empty()) {
        let name = format!("{before}{}", field.name);
        if let FieldType::Rows(items) = field.kind
            && items.form != Form::Map
        {
            names_of(items, &format!("{name}."), names);
        }
        names.push(name);
    }
}

/// All names in records of these schemas.
pub(crate) fn names(schemas: &[&'static Schema]) -> Vec<String> {
    let mut names = vec![EVENT_TYPE.to_string()];
    schemas.iter().for_each(|schema| names_of(schema, "", &mut names));
    names.sort();
    names.dedup();
    names
}

/// The type of the field `name`, by the first schema that has it. `key` and `within`: where the request has the name.
/// Without schemas any name is valid, and its type is text.
pub(crate) fn known(
    name: &str,
    schemas: &[&'static Schema],
    key: &'static str,
    within: Range<usize>,
) -> Result<FieldType, ParamError> {
    if let Some((_, kind)) = schemas.iter().find_map(|schema| find(name, schema)) {
        return Ok(kind);
    }
    if schemas.is_empty() {
        return Ok(FieldType::Text);
    }
    let names = names(schemas);
    let error = ParamError::new(key, format!("no record that comes here has a field `{name}`")).within(within);
    let ends_so = |known: &&String| known.rsplit('.').next() == name.rsplit('.').next();
    let guess = nearest(name, names.iter().map(String::as_str));
    Err(match guess.or_else(|| names.iter().find(ends_so).map(String::as_str)) {
        Some(guess) => error.with_help(format!("did you mean `{guess}`?")),
        None => error.with_help(format!("`streamline schema` lists them; here are, among others: {}", few(&names))),
    })
}

fn few(names: &[String]) -> String {
    names.iter().take(8).cloned().collect::<Vec<_>>().join(", ")
}

impl Column {
    /// Passes the values there to `see`, until it returns `false`. Returns the last answer of `see`.
    pub(crate) fn each<'a>(&self, row: &Row<'a>, see: &mut dyn FnMut(FieldValue<'a>) -> bool) -> bool {
        match self {
            Column::EventType => see(FieldValue::Text(row.schema().name.as_bytes())),
            Column::Field(at) => row.get(*at).is_none_or(see),
            Column::Each(at, inner) => match row.get(*at) {
                Some(FieldValue::Rows(mut rows)) => rows.all(|item| inner.each(&item, see)),
                _ => true,
            },
            Column::Entry(at, key, inner) => match row.get(*at) {
                Some(FieldValue::Rows(mut rows)) => rows.all(|entry| {
                    let is_it = matches!(entry.get(0), Some(FieldValue::Text(name)) if name.eq_ignore_ascii_case(key.as_bytes()));
                    !is_it || inner.each(&entry, see)
                }),
                _ => true,
            },
        }
    }

    /// Whether a row may have several values there.
    pub(crate) fn is_many(&self) -> bool {
        matches!(self, Column::Each(..) | Column::Entry(..))
    }

    /// The first value there.
    pub(crate) fn first<'a>(&self, row: &Row<'a>) -> Option<FieldValue<'a>> {
        let mut found = None;
        self.each(row, &mut |value| {
            found = Some(value);
            false
        });
        found
    }
}

/// Names, and their columns in rows of each schema.
#[derive(Debug)]
pub(crate) struct Names {
    names: Vec<String>,
    schemas: Arc<[&'static Schema]>,
    known: Vec<(&'static Schema, Vec<Option<Column>>)>,
    /// The entry of `known` used last.
    last: usize,
}

impl Names {
    pub(crate) fn new(names: Vec<String>, env: &Env) -> Names {
        Names { names, schemas: Arc::clone(&env.schemas), known: Vec::new(), last: 0 }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The row in `bytes`, and the column of each name in it. `None`: the bytes are not a row of a known schema.
    pub(crate) fn row<'a>(&mut self, bytes: &'a [u8]) -> Option<(Row<'a>, &[Option<Column>])> {
        let id = schema_id(bytes)?;
        if self.known.get(self.last).is_none_or(|(schema, _)| schema.id() != id) {
            self.last = match self.known.iter().position(|(schema, _)| schema.id() == id) {
                Some(at) => at,
                None => {
                    let known = self.schemas.iter().copied().find(|schema| schema.id() == id);
                    let schema = known.or_else(|| made_with_id(id))?;
                    let columns = self.names.iter().map(|name| find(name, schema).map(|(column, _)| column)).collect();
                    self.known.push((schema, columns));
                    self.known.len() - 1
                }
            };
        }
        let (schema, columns) = &self.known[self.last];
        Some((Row::new(schema, bytes)?, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::record::list_push;
    use filter::{Field, RowWriter};

    static NAMES: Schema = Schema::new("names", &[Field::new("", FieldType::Text)]);
    static ANSWERS: Schema = Schema::new("answers", &[Field::new("rdata", FieldType::Text)]);
    static MAP: Schema =
        Schema::map("map", &[Field::new("key", FieldType::Text), Field::new("values", FieldType::Rows(&NAMES))]);
    static EVENT: Schema = Schema::new(
        "dns",
        &[
            Field::new("src_port", FieldType::Number),
            Field::new("dns.id", FieldType::Number),
            Field::new("dns.answers", FieldType::Rows(&ANSWERS)),
            Field::new("alpn", FieldType::Rows(&NAMES)),
            Field::new("dns.extra", FieldType::Rows(&MAP)),
        ],
    );

    #[test]
    fn names_lead_to_values() {
        let list = |schema: &'static Schema, name: &'static str, texts: &[&str]| {
            let mut list = Vec::new();
            for text in texts {
                list_push(&mut list, RowWriter::new(schema).text(name, text).row());
            }
            list
        };
        let (answers, names) = (list(&ANSWERS, "rdata", &["1.2.3.4", "::1"]), list(&NAMES, "", &["h2"]));
        let mut map = Vec::new();
        for (key, values) in [("server", ["x"].as_slice()), ("Set-Cookie", &["a", "b"])] {
            let values = list(&NAMES, "", values);
            list_push(&mut map, RowWriter::new(&MAP).text("key", key).rows("values", &values).row());
        }
        let mut writer = RowWriter::new(&EVENT);
        writer.rows("dns.extra", &map);
        writer.number("dns.id", 7).rows("dns.answers", &answers).rows("alpn", &names);
        let row = Row::new(&EVENT, writer.row()).unwrap();
        let rows: [(&str, &[&str]); 10] = [
            ("dns.id", &["Number(7)"]),
            ("src_port", &[]),
            ("event_type", &["dns"]),
            ("dns.answers.rdata", &["1.2.3.4", "::1"]),
            ("alpn", &["h2"]),
            ("dns.answers", &["rows"]),
            ("dns.extra", &["rows"]),
            ("dns.extra.Server", &["x"]),
            ("dns.extra.set-cookie", &["a", "b"]),
            ("dns.extra.no.such", &[]),
        ];
        for (name, expected) in rows {
            let (column, _) = find(name, &EVENT).unwrap();
            let mut found = Vec::new();
            assert!(column.each(&row, &mut |value| {
                found.push(match value {
                    FieldValue::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                    FieldValue::Rows(_) => "rows".into(),
                    other => format!("{other:?}"),
                });
                true
            }));
            assert_eq!(found, expected, "{name}");
        }
        for name in ["dns.answers.ttl", "dns.extra."] {
            assert_eq!(find(name, &EVENT).map(|(column, _)| column), None);
        }
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let check = |name: &str, help: &str| {
            let error = known(name, &[&EVENT], "fields", 3..5).unwrap_err();
            assert_eq!((error.within, error.help.as_deref()), (Some(3..5), Some(help)), "{name}");
        };
        check("dns.idd", "did you mean `dns.id`?");
        check("rdata", "did you mean `dns.answers.rdata`?");
        check(
            "nothing.like.it",
            "`streamline schema` lists them; here are, among others: alpn, dns.answers, dns.answers.rdata, dns.extra, dns.id, event_type, src_port",
        );
        assert!(known("anything", &[], "fields", 0..1).is_ok());
    }
}
