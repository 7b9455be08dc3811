//! What a group keeps beside its count: one [`Measured`] for each aggregate that the request names.
//!
//! [`AGGREGATES`] is the table of them: a new one is a row there, a parameter of `by` and a variant here.

use super::deviation::Deviation;
use super::distinct::Distinct;
use super::spread::Spread;
use super::value::Value;
use filter::FieldType;
use filter::record::{FieldValue, Unit};

/// An aggregate of a field's values in a group.
#[derive(Debug)]
pub(super) struct Aggregate {
    /// The parameter that names its fields, and the beginning of the names of its results.
    pub(super) key: &'static str,
    takes: Takes,
    /// The type of its results, by the type of the field.
    gives: fn(FieldType) -> FieldType,
    begin: fn() -> Measured,
}

/// The fields that an aggregate can measure.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Numbers,
    Times,
    Any,
}

pub(super) static AGGREGATES: [Aggregate; 12] = [
    Aggregate { key: "sum", takes: Takes::Numbers, gives: same, begin: || Measured::Sum(0) },
    Aggregate { key: "avg", takes: Takes::Numbers, gives: same, begin: || Measured::Average { sum: 0, count: 0 } },
    Aggregate { key: "min", takes: Takes::Numbers, gives: same, begin: || Measured::Least(u64::MAX) },
    Aggregate { key: "max", takes: Takes::Numbers, gives: same, begin: || Measured::Most(0) },
    Aggregate { key: "median", takes: Takes::Numbers, gives: same, begin: || Measured::Percentile(50, Box::default()) },
    Aggregate { key: "p99", takes: Takes::Numbers, gives: same, begin: || Measured::Percentile(99, Box::default()) },
    Aggregate { key: "stddev", takes: Takes::Numbers, gives: length, begin: || Measured::Deviation(Box::default()) },
    Aggregate { key: "distinct", takes: Takes::Any, gives: count, begin: || Measured::Distinct(Box::default()) },
    Aggregate { key: "first", takes: Takes::Any, gives: same, begin: || Measured::First(None) },
    Aggregate { key: "last", takes: Takes::Any, gives: same, begin: || Measured::Last(None) },
    Aggregate { key: "interval", takes: Takes::Times, gives: length, begin: || Measured::Interval(Box::default()) },
    Aggregate { key: "jitter", takes: Takes::Times, gives: length, begin: || Measured::Jitter(Box::default()) },
];

fn same(kind: FieldType) -> FieldType {
    match kind {
        FieldType::EveTime => FieldType::Time,
        kind => kind,
    }
}

/// The difference of two values.
fn length(kind: FieldType) -> FieldType {
    match kind {
        FieldType::Time | FieldType::EveTime => FieldType::Duration(Unit::Fraction),
        kind => kind,
    }
}

fn count(_: FieldType) -> FieldType {
    FieldType::Number
}

impl Aggregate {
    /// The type of the results of a field of this type. Error: why it has none.
    pub(super) fn of(&self, kind: FieldType) -> Result<FieldType, &'static str> {
        match (self.takes, kind) {
            (_, FieldType::Rows(_)) => Err("is a list: name a field of its rows"),
            (Takes::Numbers, kind) if !kind.is_number() => Err("is no number"),
            (Takes::Times, kind) if !matches!(kind, FieldType::Time | FieldType::EveTime) => Err("is no time"),
            (_, kind) => Ok((self.gives)(kind)),
        }
    }

    /// The type that an unknown field is taken for.
    pub(super) fn any_field(&self) -> FieldType {
        match self.takes {
            Takes::Numbers => FieldType::Number,
            Takes::Times => FieldType::Time,
            Takes::Any => FieldType::Text,
        }
    }

    pub(super) fn begin(&self) -> Measured {
        (self.begin)()
    }
}

/// The state of an aggregate in a group.
#[derive(Debug)]
pub(super) enum Measured {
    Sum(u64),
    Average {
        sum: u128,
        count: u64,
    },
    Least(u64),
    Most(u64),
    Percentile(u64, Box<Spread>),
    Deviation(Box<Deviation>),
    Distinct(Box<Distinct>),
    First(Option<Value>),
    Last(Option<Value>),
    Interval(Box<Between>),
    Jitter(Box<Between>),
    /// No record of the group had the field.
    Nothing,
}

/// The times between values, in whichever order they come.
#[derive(Debug, Default)]
pub(super) struct Between {
    last: Option<u64>,
    times: Deviation,
}

impl Between {
    fn add(&mut self, time: u64) {
        if let Some(last) = self.last.replace(time) {
            self.times.add(time.abs_diff(last));
        }
    }
}

impl Measured {
    pub(super) fn add(&mut self, value: &FieldValue<'_>) {
        match self {
            Measured::Distinct(values) => return values.add(value),
            Measured::First(Some(_)) | Measured::Nothing => return,
            Measured::First(kept) | Measured::Last(kept) => return *kept = Value::of(value),
            _ => {}
        }
        let (FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _)) = *value else {
            return;
        };
        match self {
            Measured::Sum(sum) => *sum = sum.saturating_add(number),
            Measured::Average { sum, count } => (*sum, *count) = (*sum + u128::from(number), *count + 1),
            Measured::Least(least) => *least = number.min(*least),
            Measured::Most(most) => *most = number.max(*most),
            Measured::Percentile(_, spread) => spread.add(number),
            Measured::Deviation(deviation) => deviation.add(number),
            Measured::Interval(between) | Measured::Jitter(between) => between.add(number),
            Measured::Distinct(_) | Measured::First(_) | Measured::Last(_) | Measured::Nothing => {}
        }
    }

    /// `None`: the values were too few.
    pub(super) fn result(&self) -> Option<Value> {
        let number = match self {
            Measured::Sum(number) | Measured::Least(number) | Measured::Most(number) => Some(*number),
            Measured::Average { sum, count } => {
                let count = u128::from(*count).max(1);
                Some(((sum + count / 2) / count) as u64)
            }
            Measured::Percentile(percent, spread) => spread.percentile(*percent),
            Measured::Deviation(deviation) => deviation.deviation(),
            Measured::Distinct(values) => Some(values.count()),
            Measured::Interval(between) => between.times.mean(),
            Measured::Jitter(between) => between.times.deviation(),
            Measured::First(value) | Measured::Last(value) => return value.clone(),
            Measured::Nothing => None,
        };
        number.map(Value::Number)
    }
}
