//! Tests of a record's fields: `http.status >= 400 and http.hostname ~ 'example'`.
//!
//! ```text
//! any    = all { ("or" | "||") all }          all  = not { ("and" | "&&") not }
//! not    = ("not" | "!") not | "(" any ")" | test
//! test   = FIELD | FIELD op VALUE | FIELD "in" "(" VALUE { "," VALUE } ")"
//! op     = "=" "==" "!=" "<" "<=" ">" ">=" "~" "!~" "contains"
//! ```
//!
//! A test of a field that the record does not have is false, whatever the operator; `not` inverts that. A test of a name
//! with several values is true if it is true of one value.
//!
//! This file has the tree and evaluates it. `expression/read.rs` parses a text, `expression/value.rs` tests one value
//! against one field.

mod read;
mod value;

use crate::parts::fields::{Column, known};
use filter::record::FieldValue;
use filter::{ParamError, Row, Schema};
use std::ops::Range;
use value::Value;

#[derive(Debug)]
pub(crate) struct Expression {
    root: Node,
    /// The fields that the expression names, and where each occurs first.
    fields: Vec<(String, Range<usize>)>,
}

#[derive(Debug)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
}

/// A test of one field.
#[derive(Debug)]
struct Test {
    /// The field's index in `Expression::fields`.
    field: usize,
    op: Op,
    /// One value, or the values of a list.
    values: Vec<(Value, Range<usize>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// The field is set; a flag: it is true.
    Is,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Matches,
    MatchesNot,
    Contains,
}

impl Expression {
    /// Parses a text. Errors point into it.
    pub(crate) fn parse(text: &str, key: &'static str) -> Result<Expression, ParamError> {
        read::read(text).map_err(|wrong| {
            let error = ParamError::new(key, wrong.message).within(wrong.at);
            wrong.help.into_iter().fold(error, ParamError::with_help)
        })
    }

    /// The names of the fields, in the order of [`holds`](Self::holds)'s `columns`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.fields.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Checks names and values against the schemas of the records that may come.
    pub(crate) fn check(&self, schemas: &[&'static Schema], key: &'static str) -> Result<(), ParamError> {
        let kinds = self.fields.iter().map(|(name, at)| known(name, schemas, key, at.clone()));
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        let mut wrong = None;
        self.root.each_test(&mut |test| {
            for (value, at) in &test.values {
                let why = if schemas.is_empty() { None } else { value.misfit(&kinds[test.field], test.op) };
                if let (None, Some(why)) = (&wrong, why) {
                    let (name, _) = &self.fields[test.field];
                    wrong = Some(ParamError::new(key, format!("`{name}` {why}")).within(at.clone()));
                }
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    /// Whether the expression is true of a row. `columns`: where the row has each field.
    pub(crate) fn holds(&mut self, row: &Row<'_>, columns: &[Option<Column>]) -> bool {
        self.root.holds(row, columns)
    }
}

impl Node {
    fn each_test(&self, see: &mut dyn FnMut(&Test)) {
        match self {
            Node::Any(parts) | Node::All(parts) => parts.iter().for_each(|part| part.each_test(see)),
            Node::Not(part) => part.each_test(see),
            Node::Test(test) => see(test),
        }
    }

    fn holds(&mut self, row: &Row<'_>, columns: &[Option<Column>]) -> bool {
        match self {
            Node::Any(parts) => parts.iter_mut().any(|part| part.holds(row, columns)),
            Node::All(parts) => parts.iter_mut().all(|part| part.holds(row, columns)),
            Node::Not(part) => !part.holds(row, columns),
            Node::Test(test) => test.holds(row, columns),
        }
    }
}

impl Test {
    fn holds(&mut self, row: &Row<'_>, columns: &[Option<Column>]) -> bool {
        let Some(Some(column)) = columns.get(self.field) else { return false };
        let (op, values) = (self.op, &mut self.values);
        let mut found = false;
        column.each(row, &mut |field| {
            found = match op {
                Op::Is => !matches!(field, FieldValue::Flag(false)),
                _ => values.iter_mut().any(|(value, _)| value.is_met(&field, op)),
            };
            !found
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::fields::find;
    use filter::record::list_push;
    use filter::{Field, FieldType, RowWriter, Unit};

    static ANSWERS: Schema =
        Schema::new("answers", &[Field::new("rdata", FieldType::Text), Field::new("ttl", FieldType::Number)]);
    static EVENT: Schema = Schema::new(
        "http",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("src_ip", FieldType::Address),
            Field::new("http.status", FieldType::Number),
            Field::new("http.hostname", FieldType::Text),
            Field::new("http.url", FieldType::Text),
            Field::new("http.chunked", FieldType::Flag),
            Field::new("answers", FieldType::Rows(&ANSWERS)),
            Field::new("flow.age", FieldType::Duration(Unit::Seconds)),
            Field::new("latency_us", FieldType::Duration(Unit::Microseconds)),
            Field::new("rtt", FieldType::Duration(Unit::Fraction)),
        ],
    );

    fn row() -> RowWriter {
        let mut answers = Vec::new();
        for (rdata, ttl) in [("1.1.1.1", 60), ("2.2.2.2", 300)] {
            list_push(&mut answers, RowWriter::new(&ANSWERS).text("rdata", rdata).number("ttl", ttl).row());
        }
        let mut writer = RowWriter::new(&EVENT);
        writer.time("timestamp", 1_767_323_045_678_901_234).address("src_ip", "10.1.2.3".parse().unwrap());
        writer.number("http.status", 404).text("http.hostname", "www.example.com").flag("http.chunked", false);
        writer.rows("answers", &answers);
        writer.number("flow.age", 90).number("latency_us", 200_001).number("rtt", 1_500_000_000);
        writer
    }

    #[test]
    fn answers() {
        let rows = [
            ("http.status >= 400", true),
            ("http.status >= 400 and http.hostname ~ 'example'", true),
            ("http.status<400 or http.hostname=='www.example.com'", true),
            ("http.status = 0x194", true),
            ("http.status in (200, 404)", true),
            ("http.status in (200)", false),
            ("not http.status = 404", false),
            ("!(http.status = 404) || http.status != 500", true),
            ("http.hostname != www.example.com", false),
            ("http.hostname contains example", true),
            ("http.hostname !~ '^www'", false),
            ("http.hostname ~ 'EXAMPLE'", false),
            ("http.hostname ~ '(?i)EXAMPLE'", true),
            ("http.hostname > 'www.a' and http.hostname < 'www.f'", true),
            ("http.url", false),
            ("http.url = ''", false),
            ("http.url != 'x'", false),
            ("not http.url", true),
            ("http.hostname", true),
            ("http.chunked", false),
            ("http.chunked = false", true),
            ("http.chunked = no", true),
            ("http.chunked != true", true),
            ("src_ip = 10.1.2.3", true),
            ("src_ip = 10.0.0.0/8", true),
            ("src_ip = 10.1.0.0/24", false),
            ("src_ip != 10.1.0.0/24", true),
            ("src_ip in (::1, 10.1.0.0/16)", true),
            ("src_ip = fe80::/10", false),
            ("answers.ttl > 200", true),
            ("answers.ttl > 400", false),
            ("answers.rdata = '1.1.1.1' and answers.ttl = 300", true),
            ("timestamp >= 2026-01-02", true),
            ("timestamp < '2026-01-02T03:04:05.7'", true),
            ("timestamp > 1767323046", false),
            ("flow.age > 1min", true),
            ("flow.age > 1.5min", false),
            ("flow.age = 1.5min and flow.age = 90 and flow.age = 90000ms", true),
            ("flow.age < 300000h", true),
            ("latency_us > 200ms", true),
            ("latency_us > 201ms or latency_us = 200", false),
            ("latency_us in (1s, 200001us)", true),
            ("rtt = 1.5s and rtt = 1.5 and rtt > 1 and rtt < 1501ms", true),
            ("event_type = http", true),
            ("http.status = 404 and http.url or event_type = http", true),
            ("http.status = 404 and (http.url or event_type = dns)", false),
        ];
        let writer = row();
        let row = Row::new(&EVENT, writer.row()).unwrap();
        for (text, expected) in rows {
            let mut expression = Expression::parse(text, "expr").unwrap();
            expression.check(&[&EVENT], "expr").unwrap_or_else(|error| panic!("{text}: {}", error.message));
            let columns: Vec<_> =
                expression.names().iter().map(|name| find(name, &EVENT).map(|(column, _)| column)).collect();
            assert_eq!(expression.holds(&row, &columns), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        let rows: [(&str, &str, Range<usize>); 24] = [
            ("", "an expression is missing", 0..0),
            ("http.status >=", "a value is missing", 14..14),
            ("http.status = 5 6", "`and` or `or` is missing", 16..17),
            ("(http.status = 5", "`)` is missing", 16..16),
            ("http.status = 5)", "`)` closes nothing", 15..16),
            ("= 5", "a field is missing", 0..1),
            ("http.status => 5", "a value is missing", 13..14),
            ("http.status & 5", "`&` is no operator", 12..13),
            ("http.hostname = 'x", "the text does not end", 16..18),
            ("http.hostname ~ '('", "`(` is no regular expression", 16..19),
            ("http.status in 5", "`(` is missing", 15..16),
            ("http.status in ()", "a value is missing", 16..17),
            ("http.stauts = 5", "has a field `http.stauts`", 0..11),
            ("http.status = abc", "`http.status` is a number, and `abc` is none", 14..17),
            ("src_ip = 10.0.0.0/33", "`src_ip` is an address, and `10.0.0.0/33` is none", 9..20),
            ("src_ip < 10.0.0.1", "`src_ip` is an address, and has no order", 9..17),
            ("src_ip ~ '10'", "`src_ip` is an address; only texts match expressions", 9..13),
            ("timestamp > yesterday", "`timestamp` is a time, and `yesterday` is none", 12..21),
            ("flow.age > 1mile", "`flow.age` is a duration, and `1mile` is none", 11..16),
            ("flow.age ~ 1", "`flow.age` is a duration; only texts match expressions", 11..12),
            ("http.status = 5s", "`http.status` is a number, and `5s` is none", 14..16),
            ("http.chunked = 5", "`http.chunked` is yes or no", 15..16),
            ("answers = 5", "`answers` is a list", 10..11),
            ("http.status contains 5", "only texts contain", 21..22),
        ];
        for (text, message, at) in rows {
            let error = Expression::parse(text, "expr").and_then(|one| one.check(&[&EVENT], "expr")).unwrap_err();
            assert!(error.message.contains(message), "{text}: {}", error.message);
            assert_eq!(error.within, Some(at.start as u32..at.end as u32), "{text}: {}", error.message);
        }
        let deep = "(".repeat(1000) + "http.status";
        assert!(Expression::parse(&deep, "expr").unwrap_err().message.contains("nested"));
        let long = vec!["http.status"; 5000].join(" or ");
        assert!(Expression::parse(&long, "expr").unwrap_err().message.contains("tests"));
    }
}
