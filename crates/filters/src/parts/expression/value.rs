//! A value of an expression, read as every type that it can have, and its test against a field.

use super::Op;
use crate::parts::networks::Networks;
use filter::FieldType;
use filter::record::{FieldValue, Unit};
use memchr::memmem;
use regex_automata::meta;
use std::cmp::Ordering;

/// Limit of a regular expression's automaton, and of its cache, in bytes.
const PATTERN_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Value {
    text: String,
    number: Option<u64>,
    time: Option<u64>,
    /// A number with a unit of time, in ns.
    duration: Option<u64>,
    flag: Option<bool>,
    networks: Option<Networks>,
    pattern: Option<(meta::Regex, Box<meta::Cache>)>,
}

impl Value {
    pub(super) fn read(text: String) -> Value {
        let hexadecimal = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Value {
            number: hexadecimal.or_else(|| number(&text)),
            time: packet::time::parse(&text),
            duration: filter::param::duration_ns(&text).ok(),
            flag: match text.as_str() {
                "true" | "yes" => Some(true),
                "false" | "no" => Some(false),
                _ => None,
            },
            networks: Networks::of_networks(&text).ok(),
            pattern: None,
            text,
        }
    }

    /// A regular expression on bytes, as the filter `match` reads it.
    pub(super) fn pattern(text: &str) -> Result<Value, String> {
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(PATTERN_BYTES))
            .onepass_size_limit(Some(PATTERN_BYTES))
            .hybrid_cache_capacity(PATTERN_BYTES);
        let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
        let built = meta::Builder::new().configure(config).syntax(syntax).build(text).map_err(|error| {
            match error.syntax_error() {
                Some(error) => {
                    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").into()
                }
                None => error.to_string(),
            }
        })?;
        let cache = Box::new(built.create_cache());
        Ok(Value { pattern: Some((built, cache)), ..Value::read(text.to_string()) })
    }

    /// Why the value cannot be compared with a field of type `kind`. `None`: it can.
    pub(super) fn misfit(&self, kind: &FieldType, op: Op) -> Option<String> {
        let is_pattern = matches!(op, Op::Matches | Op::MatchesNot);
        let is_order = matches!(op, Op::Less | Op::AtMost | Op::More | Op::AtLeast);
        let (what, is_one) = match kind {
            FieldType::Text => return None,
            FieldType::Number => ("a number", self.number.is_some()),
            FieldType::Time | FieldType::EveTime => ("a time", self.time.is_some()),
            FieldType::Duration(unit) => ("a duration", self.duration_in(*unit).is_some()),
            FieldType::Flag => ("yes or no", self.flag.is_some()),
            FieldType::Address => ("an address", self.networks.is_some()),
            FieldType::Rows(_) => {
                return Some("is a list: name a field of its rows, or test only whether it is there".into());
            }
        };
        if is_pattern {
            return Some(format!("is {what}; only texts match expressions"));
        }
        if op == Op::Contains {
            return Some(format!("is {what}; only texts contain others"));
        }
        if !is_one {
            return Some(format!("is {what}, and `{}` is none", self.text));
        }
        (is_order && matches!(kind, FieldType::Address | FieldType::Flag))
            .then(|| format!("is {what}, and has no order"))
    }

    /// In ns, if it is a duration: one with its own unit, or a number in the unit of the field.
    fn duration_in(&self, unit: Unit) -> Option<u64> {
        let plain = || match unit {
            // Seconds since 1970 are read in the same way.
            Unit::Fraction => self.time,
            _ => self.number.map(|count| unit.nanoseconds(count)),
        };
        self.duration.or_else(plain)
    }

    /// Whether the field passes the test.
    pub(super) fn is_met(&mut self, field: &FieldValue<'_>, op: Op) -> bool {
        match (field, op) {
            (FieldValue::Text(text), Op::Matches | Op::MatchesNot) => {
                let Some((pattern, cache)) = &mut self.pattern else { return false };
                let input = regex_automata::Input::new(text).earliest(true);
                pattern.search_half_with(cache, &input).is_some() == (op == Op::Matches)
            }
            (FieldValue::Text(text), Op::Contains) => memmem::find(text, self.text.as_bytes()).is_some(),
            (FieldValue::Text(text), _) => orders(op, (*text).cmp(self.text.as_bytes())),
            (FieldValue::Number(number), _) => self.number.is_some_and(|value| orders(op, number.cmp(&value))),
            (FieldValue::Time(time), _) => self.time.is_some_and(|value| orders(op, time.cmp(&value))),
            (FieldValue::Duration(count, unit), _) => {
                self.duration_in(*unit).is_some_and(|value| orders(op, unit.nanoseconds(*count).cmp(&value)))
            }
            (FieldValue::Flag(flag), _) => self.flag.is_some_and(|value| orders(op, flag.cmp(&value))),
            (FieldValue::Address(address), Op::Equal | Op::Unequal) => {
                self.networks.as_ref().is_some_and(|networks| networks.has(*address) == (op == Op::Equal))
            }
            (FieldValue::Address(_) | FieldValue::Rows(_), _) => false,
        }
    }
}

/// A number with the suffixes that requests use: k, M and G are powers of 1,000.
fn number(text: &str) -> Option<u64> {
    let (digits, scale) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 1_000),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| all_digits)?.checked_mul(scale)
}

fn orders(op: Op, found: Ordering) -> bool {
    match op {
        Op::Equal => found.is_eq(),
        Op::Unequal => found.is_ne(),
        Op::Less => found.is_lt(),
        Op::AtMost => found.is_le(),
        Op::More => found.is_gt(),
        Op::AtLeast => found.is_ge(),
        Op::Is | Op::Matches | Op::MatchesNot | Op::Contains => false,
    }
}
