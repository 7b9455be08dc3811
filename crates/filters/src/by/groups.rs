//! The groups of `by`: field values, with the counts and results of the records that have them.

use super::Measure;
use super::spread::Spread;
use crate::parts::fields::Column;
use filter::record::FieldValue;
use filter::{Field, Row, RowWriter};
use std::collections::HashMap;
use std::net::IpAddr;

/// One record whose fields are lists counts in at most this many groups.
const COMBINATIONS: usize = 64;

/// An owned copy of a field's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Value {
    Number(u64),
    Time(u64),
    Flag(bool),
    Text(Box<[u8]>),
    Address(IpAddr),
}

impl Value {
    fn of(value: &FieldValue<'_>) -> Option<Value> {
        Some(match value {
            FieldValue::Number(number) => Value::Number(*number),
            FieldValue::Time(time) => Value::Time(*time),
            FieldValue::Flag(flag) => Value::Flag(*flag),
            FieldValue::Text(text) => Value::Text((*text).into()),
            FieldValue::Address(address) => Value::Address(*address),
            FieldValue::Rows(_) => return None,
        })
    }

    /// Writes the value into `field`. Two schemas may give one field different types: the group's record then has the first
    /// type, and values of other types are left out.
    pub(super) fn write(&self, writer: &mut RowWriter, field: &Field) {
        use filter::FieldType::{Address, Flag, Number, Text, Time};
        match (self, field.kind) {
            (Value::Number(number) | Value::Time(number), Number | Time) => drop(writer.number(field.name, *number)),
            (Value::Flag(flag), Flag) => drop(writer.flag(field.name, *flag)),
            (Value::Text(text), Text) => drop(writer.text(field.name, text)),
            (Value::Address(address), Address) => drop(writer.address(field.name, *address)),
            // A text field takes a value of any type as text.
            (Value::Number(number) | Value::Time(number), Text) => drop(writer.text(field.name, number.to_string())),
            (Value::Flag(flag), Text) => drop(writer.text(field.name, flag.to_string())),
            (Value::Address(address), Text) => drop(writer.text(field.name, address.to_string())),
            _ => {}
        }
    }
}

/// The result of one measure in a group.
#[derive(Debug)]
enum Measured {
    Sum(u64),
    Average {
        sum: u128,
        count: u64,
    },
    Spread(Box<Spread>),
    /// No record of the group had the field.
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) count: u64,
    measured: Vec<Measured>,
}

impl Group {
    fn add(&mut self, row: &Row<'_>, columns: &[Option<Column>], measures: &[Measure]) {
        self.count += 1;
        self.measured.resize_with(measures.len(), || Measured::Nothing);
        for ((measured, column), measure) in self.measured.iter_mut().zip(columns).zip(measures) {
            let Some(column) = column else { continue };
            column.each(row, &mut |value| {
                if let FieldValue::Number(number) | FieldValue::Time(number) = value {
                    measured.add(number, *measure);
                }
                true
            });
        }
    }

    /// The results, in the order of the measures. `None`: no record of the group had the field.
    pub(super) fn measured(&self, measures: &[Measure]) -> impl Iterator<Item = Option<u64>> {
        let all = self.measured.iter().map(Measured::result).chain(std::iter::repeat(None));
        all.take(measures.len())
    }
}

impl Measured {
    fn add(&mut self, number: u64, measure: Measure) {
        if let Measured::Nothing = self {
            *self = match measure {
                Measure::Sum => Measured::Sum(0),
                Measure::Average => Measured::Average { sum: 0, count: 0 },
                Measure::Percentile => Measured::Spread(Box::default()),
            };
        }
        match self {
            Measured::Sum(sum) => *sum = sum.saturating_add(number),
            Measured::Average { sum, count } => (*sum, *count) = (*sum + u128::from(number), *count + 1),
            Measured::Spread(spread) => spread.add(number),
            Measured::Nothing => {}
        }
    }

    fn result(&self) -> Option<u64> {
        match self {
            Measured::Sum(sum) => Some(*sum),
            Measured::Average { sum, count } => {
                let count = u128::from(*count).max(1);
                Some(((sum + count / 2) / count) as u64)
            }
            Measured::Spread(spread) => spread.percentile(99),
            Measured::Nothing => None,
        }
    }
}

/// A group's value for each field. `None`: its records do not have the field.
type Key = Vec<Option<Value>>;

#[derive(Debug)]
pub(super) struct Groups {
    /// Number of fields in a key.
    keys: usize,
    most: usize,
    groups: HashMap<Key, Group>,
    /// Room for the key of a record that has only one.
    key: Key,
}

impl Groups {
    pub(super) fn new(keys: usize, most: u64) -> Groups {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Groups { keys, most, groups: HashMap::new(), key: Key::new() }
    }

    /// Counts a record. `columns` are first the fields to group by, then those to measure. Returns how many groups counted
    /// the record, and how many more had no room.
    pub(super) fn add(&mut self, row: &Row<'_>, columns: &[Option<Column>], measures: &[Measure]) -> (u64, u64) {
        let (keys, measured) = columns.split_at_checked(self.keys).unwrap_or((columns, &[]));
        let mut key = std::mem::take(&mut self.key);
        let (mut counted, mut over) = (0, 0);
        let mut count = |key: &Key| {
            let fits = self.count(key, row, measured, measures);
            counted += u64::from(fits);
            over += u64::from(!fits);
        };
        if only_key(row, keys, &mut key) {
            count(&key);
        } else {
            all_keys(row, keys).iter().for_each(count);
        }
        self.key = key;
        (counted, over)
    }

    /// Counts a record in the group of this key. `false`: there is no room for another group.
    fn count(&mut self, key: &Key, row: &Row<'_>, columns: &[Option<Column>], measures: &[Measure]) -> bool {
        let is_full = self.groups.len() >= self.most;
        let group = match self.groups.get_mut(key) {
            Some(group) => group,
            None if is_full => return false,
            None => self.groups.entry(key.clone()).or_default(),
        };
        group.add(row, columns, measures);
        true
    }

    /// Removes all groups and returns the `most` largest, largest first. Groups of one size stand in the order of their
    /// values.
    pub(super) fn take(&mut self, most: usize) -> Vec<(Key, Group)> {
        let mut all: Vec<_> = std::mem::take(&mut self.groups).into_iter().collect();
        all.sort_unstable_by(|(one, a), (other, b)| b.count.cmp(&a.count).then_with(|| one.cmp(other)));
        all.truncate(most);
        all
    }
}

/// Writes a record's only key into `key`. `false`: a field may have several values.
fn only_key(row: &Row<'_>, keys: &[Option<Column>], key: &mut Key) -> bool {
    key.clear();
    keys.iter().all(|column| {
        let mut value = None;
        if let Some(column) = column {
            if let Column::Each(..) = column {
                return false;
            }
            column.each(row, &mut |found| {
                value = Value::of(&found);
                true
            });
        }
        key.push(value);
        true
    })
}

/// All keys of a record: each combination of the values of its fields, up to a bound.
fn all_keys(row: &Row<'_>, keys: &[Option<Column>]) -> Vec<Key> {
    let mut all = vec![Vec::with_capacity(keys.len())];
    for column in keys {
        let mut values = Vec::new();
        if let Some(column) = column {
            column.each(row, &mut |value| {
                values.push(Value::of(&value));
                values.len() * all.len() < COMBINATIONS
            });
        }
        // A value that occurs twice counts once.
        values.sort();
        values.dedup();
        if values.is_empty() {
            values.push(None);
        }
        let longer = all
            .iter()
            .flat_map(|key| values.iter().map(|value| key.iter().cloned().chain([value.clone()]).collect::<Key>()));
        all = longer.collect();
    }
    all
}
