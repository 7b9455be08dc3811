//! The groups of `by`: field values, with the counts and results of the records that have them.

use super::measure::{Aggregate, Measured};
use super::value::Value;
use crate::parts::fields::Column;
use filter::Row;
use std::collections::HashMap;

/// One record whose fields are lists counts in at most this many groups.
const COMBINATIONS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) count: u64,
    measured: Vec<Measured>,
}

impl Group {
    fn add(&mut self, row: &Row<'_>, columns: &[Option<Column>], measures: &[&'static Aggregate]) {
        self.count += 1;
        self.measured.resize_with(measures.len(), || Measured::Nothing);
        for ((measured, column), measure) in self.measured.iter_mut().zip(columns).zip(measures) {
            let Some(column) = column else { continue };
            column.each(row, &mut |value| {
                if let Measured::Nothing = measured {
                    *measured = measure.begin();
                }
                measured.add(&value);
                true
            });
        }
    }

    /// The results, in the order of the measures. `None`: no record of the group had the field.
    pub(super) fn measured(&self, measures: &[&'static Aggregate]) -> impl Iterator<Item = Option<Value>> {
        let all = self.measured.iter().map(Measured::result).chain(std::iter::repeat(None));
        all.take(measures.len())
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
    pub(super) fn add(
        &mut self,
        row: &Row<'_>,
        columns: &[Option<Column>],
        measures: &[&'static Aggregate],
    ) -> (u64, u64) {
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
    fn count(&mut self, key: &Key, row: &Row<'_>, columns: &[Option<Column>], measures: &[&'static Aggregate]) -> bool {
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
            if column.is_many() {
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
