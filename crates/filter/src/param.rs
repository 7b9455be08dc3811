//! Typed parameters of filters, with units and defaults, and their values.
//!
//! A filter declares [`Param`]s in its kind. The control plane checks a request's text against them and hands the
//! filter [`Params`]. There each value exists and has the declared type.

use std::fmt;
use std::ops::Range;

/// The type of a parameter's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// Any text.
    Text,
    /// A file or folder.
    Path,
    /// Any number of texts: the parameter may be given several times. A key that ends with a dot stands for all keys
    /// that begin with it: `policy.X=Y` is the text `X=Y` of `policy.`.
    List,
    /// A whole number; k M G are 1000, 1000², 1000³. Decimal, or hexadecimal after 0x.
    Number,
    /// Bytes; k M G are 1024, 1024², 1024³.
    Size,
    /// A duration with a unit: ns us ms s min h; a plain 0 needs none.
    Duration,
    /// yes or no.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamType::Text => f.write_str("text"),
            ParamType::Path => f.write_str("path"),
            ParamType::List => f.write_str("one or more texts"),
            ParamType::Number => f.write_str("number"),
            ParamType::Size => f.write_str("size"),
            ParamType::Duration => f.write_str("duration"),
            ParamType::Flag => f.write_str("yes or no"),
            ParamType::Choice(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// A parameter of a filter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in requests.
    pub key: &'static str,
    /// The type of its text.
    pub kind: ParamType,
    /// The default, as text of its type. `None`: no default.
    pub default: Option<&'static str>,
    /// It must be given.
    pub required: bool,
    /// It needs no key when it stands first.
    pub main: bool,
    /// One line for the manual.
    pub help: &'static str,
}

impl Param {
    /// An optional parameter without a default; the methods below change this.
    pub const fn new(key: &'static str, kind: ParamType, help: &'static str) -> Param {
        Param { key, kind, default: None, required: false, main: false, help }
    }

    /// Sets the default.
    pub const fn default(mut self, text: &'static str) -> Param {
        self.default = Some(text);
        self
    }

    /// The rest of `key` behind this parameter's own key. `None`: this key does not end with a dot, or `key` does not
    /// begin with it.
    pub fn rest_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(self.key).filter(|rest| self.key.ends_with('.') && !rest.is_empty())
    }

    /// Makes it required.
    pub const fn required(mut self) -> Param {
        self.required = true;
        self
    }

    /// Lets it stand first without a key.
    pub const fn main(mut self) -> Param {
        self.main = true;
        self
    }
}

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Of `Text`, `Path` and `Choice`.
    Text(String),
    /// Of `List`.
    List(Vec<String>),
    /// Of `Number`, `Size` (bytes) and `Duration` (ns).
    Number(u64),
    /// Of `Flag`.
    Flag(bool),
}

/// Why a value is wrong. The parameter is `key`, or known to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// The parameter, if the error is about one.
    pub key: Option<&'static str>,
    /// The wrong bytes of its value. `None`: all of it.
    pub within: Option<Range<u32>>,
    /// The error, in one line.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// The world is at fault (a missing file or library), not the request.
    pub system: bool,
}

impl ParamError {
    /// The value of `key` is wrong.
    pub fn new(key: &'static str, message: impl Into<String>) -> ParamError {
        ParamError { key: Some(key), within: None, message: message.into(), help: None, system: false }
    }

    /// The request is wrong, but not one parameter alone.
    pub fn of_request(message: impl Into<String>) -> ParamError {
        ParamError { key: None, within: None, message: message.into(), help: None, system: false }
    }

    /// The request is right, but the system is at fault: a file is missing, a folder cannot be written.
    pub fn system(message: impl Into<String>) -> ParamError {
        ParamError { key: None, within: None, message: message.into(), help: None, system: true }
    }

    /// Narrows the error to these bytes of the value.
    #[must_use]
    pub fn within(mut self, bytes: Range<usize>) -> ParamError {
        // No text here has 4 GiB.
        let short = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.within = Some(short(bytes.start)..short(bytes.end));
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> ParamError {
        self.help = Some(help.into());
        self
    }
}

impl ParamType {
    /// Checks a text against this type. The error says what was expected.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            ParamType::Path if text.is_empty() => Err("the path is empty".to_string()),
            ParamType::Text | ParamType::Path => Ok(Value::Text(text.to_string())),
            ParamType::List => Ok(Value::List(vec![text.to_string()])),
            ParamType::Number => number(text).map(Value::Number),
            ParamType::Size => size(text).map(Value::Number),
            ParamType::Duration => duration_ns(text).map(Value::Number),
            ParamType::Flag => match text {
                "yes" => Ok(Value::Flag(true)),
                "no" => Ok(Value::Flag(false)),
                _ => Err(format!("`{text}` is neither yes nor no")),
            },
            ParamType::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_string())),
            ParamType::Choice(words) => Err(format!("`{text}` is not one of {}", words.join(", "))),
        }
    }

    /// Writes a number of this type, so that [`parse`](ParamType::parse) reads it again.
    pub fn print(self, number: u64) -> String {
        match self {
            ParamType::Duration => in_units(number, &DURATIONS),
            ParamType::Size => in_units(number, &SIZES),
            _ => number.to_string(),
        }
    }
}

/// Parses a whole number; k M G are powers of 1000.
fn number(text: &str) -> Result<u64, String> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| format!("`{text}` is not a hexadecimal number"));
    }
    scaled(text, &[("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)])
        .ok_or_else(|| format!("`{text}` is not a number such as 12, 5k or 2M"))
}

/// Units of sizes in bytes, smallest first.
const SIZES: [(&str, u64); 5] = [("", 1), ("K", 1 << 10), ("k", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];

/// Parses a size in bytes; k (or K) M G are powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    scaled(text, &SIZES).ok_or_else(|| format!("`{text}` is not a size such as 64k, 10M or 1G"))
}

/// Units of durations in nanoseconds, smallest first.
const DURATIONS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration in nanoseconds. Error: what is wrong, for the one who wrote `text`.
pub fn duration_ns(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    scaled(text, &DURATIONS).ok_or_else(|| format!("`{text}` is not a duration such as 10ms, 2s or 5min"))
}

/// Parses a number, perhaps with a fraction, and a unit: `1.5s`. `None`: it is something else, does not fit, or is no
/// whole number in the smallest unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(*factor);
    };
    let parts = 10_u64.checked_pow(fraction.len() as u32)?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(*factor).filter(|part| part.is_multiple_of(parts))?;
    whole.parse::<u64>().ok()?.checked_mul(*factor)?.checked_add(part / parts)
}

/// Writes a number in the largest of these units that divides it.
fn in_units(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| number > 0 && number.is_multiple_of(*factor);
    match units.iter().rev().find(fits) {
        Some((unit, factor)) => format!("{}{unit}", number / factor),
        None => number.to_string(),
    }
}

/// The checked values of one filter, by key. Each declared parameter with a default has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Params {
    values: Vec<(&'static str, Value)>,
    records: Option<u32>,
    come: Vec<u32>,
}

impl Params {
    /// No values; [`Params::set`] adds some.
    pub fn new() -> Params {
        Params::default()
    }

    /// Says which records the filter makes: the id of the schema that its [`Records`](crate::kind::Records) gave.
    pub fn set_records(&mut self, schema: u32) {
        self.records = Some(schema);
    }

    /// The id of the schema of the records that the filter makes, where its parameters and what comes to it say that.
    pub fn records(&self) -> Option<u32> {
        self.records
    }

    /// Says which records may come to the filter: the ids of their schemas.
    pub fn set_come(&mut self, schemas: Vec<u32>) {
        self.come = schemas;
    }

    /// The ids of the schemas of the records that may come; none: they are not known.
    pub fn come(&self) -> &[u32] {
        &self.come
    }

    /// Sets a value; a list is extended, any other value replaced.
    pub fn set(&mut self, key: &'static str, value: Value) {
        match (self.values.iter_mut().find(|(known, _)| *known == key), value) {
            (Some((_, Value::List(list))), Value::List(more)) => list.extend(more),
            (Some((_, old)), value) => *old = value,
            (None, value) => self.values.push((key, value)),
        }
    }

    /// Adds the default of each parameter that was not given. The error is a required parameter that is missing.
    ///
    /// # Panics
    /// When a kind declares a default that its own type refuses. That is a mistake in our code, and every test of that
    /// kind finds it.
    pub fn fill_defaults(&mut self, declared: &'static [Param]) -> Result<(), &'static Param> {
        for param in declared {
            if self.get(param.key).is_some() {
                continue;
            }
            match param.default {
                Some(text) => self.set(param.key, param.kind.parse(text).expect("a default has its parameter's type")),
                None if param.required => return Err(param),
                None => {}
            }
        }
        Ok(())
    }

    /// The value of `key`. `None`: it has none.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(key, value)| (*key, value))
    }

    /// The text of `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of `key`; empty if it was not given.
    pub fn list(&self, key: &str) -> &[String] {
        match self.get(key) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    /// The number, bytes or nanoseconds of `key`.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether `key` is yes. `false` if it was not given.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Value::Flag(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        use ParamType::{Duration, Flag, Number, Size};
        let rows = [
            (Number, "12", Some(12)),
            (Number, "5k", Some(5_000)),
            (Number, "0x800", Some(2048)),
            (Number, "", None),
            (Number, "-1", None),
            (Number, "99999999999999999999", None),
            (Number, "18446744073709551615G", None),
            (Size, "64k", Some(65_536)),
            (Size, "1G", Some(1 << 30)),
            (Size, "1K", Some(1024)),
            (Duration, "10ms", Some(10_000_000)),
            (Duration, "2min", Some(120_000_000_000)),
            (Duration, "0", Some(0)),
            (Duration, "1.5s", Some(1_500_000_000)),
            (Duration, "0.25us", Some(250)),
            (Duration, "1.5ns", None),
            (Duration, "1.s", None),
            (Duration, ".5s", None),
            (Duration, "1.5.5s", None),
            (Duration, "1.00000000000000000000000s", None),
            (Size, "1.5k", Some(1536)),
            (Number, "1.5", None),
            (Duration, "5", None),
            (Flag, "maybe", None),
            (ParamType::Path, "", None),
        ];
        for (kind, text, expected) in rows {
            assert_eq!(kind.parse(text).ok(), expected.map(Value::Number), "{kind} {text}");
        }
    }

    #[test]
    fn numbers_are_printed_as_people_write_them() {
        use ParamType::{Duration, Number, Size};
        let rows = [
            (Duration, 500_000_000, "500ms"),
            (Duration, 30_000_000_000, "30s"),
            (Duration, 90_000_000_000, "90s"),
            (Duration, 120_000_000_000, "2min"),
            (Duration, 7_200_000_000_000, "2h"),
            (Duration, 1_500, "1500ns"),
            (Duration, u64::MAX, "18446744073709551615ns"),
            (Duration, 0, "0"),
            (Size, 64 << 20, "64M"),
            (Size, 3 << 10, "3k"),
            (Size, 1025, "1025"),
            (Size, 0, "0"),
            (Number, 5000, "5000"),
        ];
        for (kind, number, text) in rows {
            assert_eq!(kind.print(number), text);
            assert_eq!(kind.parse(text), Ok(Value::Number(number)), "{text}");
        }
        let mut number = 1u64;
        while let Some(next) = number.checked_mul(7).and_then(|number| number.checked_add(3)) {
            for kind in [Duration, Size, Number] {
                assert_eq!(kind.parse(&kind.print(number)), Ok(Value::Number(number)));
            }
            number = next;
        }
    }

    #[test]
    fn defaults_fill_what_was_not_said() {
        static DECLARED: [Param; 3] = [
            Param::new("file", ParamType::List, "").required().main(),
            Param::new("hash", ParamType::Flag, "").default("yes"),
            Param::new("dir", ParamType::Path, ""),
        ];
        let mut params = Params::new();
        assert_eq!(params.fill_defaults(&DECLARED).map_err(|param| param.key), Err("file"));
        params.set("file", ParamType::List.parse("a").unwrap());
        params.set("file", ParamType::List.parse("b").unwrap());
        params.fill_defaults(&DECLARED).unwrap();
        assert_eq!(
            (params.list("file"), params.flag("hash"), params.text("dir")),
            (&["a".to_string(), "b".to_string()][..], true, None)
        );
    }
}
