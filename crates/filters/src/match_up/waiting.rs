//! Records that wait for others with the same values.

use filter::Schema;
use filter::record::FieldValue;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Records of one key and kind that are looked at.
const LOOKED_AT: usize = 1024;

/// Memory cost of a held record, apart from its bytes and those of its key.
const OVERHEAD: u64 = 120;

/// The values of the fields, each behind its type and length.
pub(super) type Key = Arc<[u8]>;

/// The key of these values. `None`: one is missing.
pub(super) fn key<'a>(values: impl Iterator<Item = Option<FieldValue<'a>>>) -> Option<Key> {
    let mut key = Vec::new();
    let mut put = |kind: u8, bytes: &[u8]| {
        key.push(kind);
        key.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    for value in values {
        match value? {
            FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _) => {
                put(0, &number.to_le_bytes());
            }
            FieldValue::Flag(flag) => put(1, &[flag.into()]),
            FieldValue::Text(text) => put(2, text),
            FieldValue::Address(address) => put(3, address.to_string().as_bytes()),
            FieldValue::Rows(_) => return None,
        }
    }
    Some(key.into())
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) schema: &'static Schema,
    pub(super) time: u64,
    pub(super) bytes: Box<[u8]>,
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// Bytes of memory left.
    room: u64,
    /// The records of each key: of the second kind, and of the first.
    of: HashMap<Key, [VecDeque<Held>; 2]>,
    /// Each record's key and kind, the oldest at the front.
    order: VecDeque<(Key, bool)>,
}

impl Waiting {
    /// Holds this many bytes at most.
    pub(super) fn new(room: u64) -> Waiting {
        Waiting { room, of: HashMap::new(), order: VecDeque::new() }
    }

    /// The records of one kind with this key, of about this time.
    pub(super) fn near(&self, key: &Key, is_first: bool, time: u64, within: u64) -> impl Iterator<Item = &Held> {
        let all = self.of.get(key).into_iter().flat_map(move |kinds| &kinds[usize::from(is_first)]);
        let latest = self.of.get(key).map_or(0, |kinds| kinds[usize::from(is_first)].len().saturating_sub(LOOKED_AT));
        all.skip(latest).filter(move |held| held.time.abs_diff(time) <= within)
    }

    /// Has a record wait. Returns how many were forgotten.
    pub(super) fn put(&mut self, key: Key, is_first: bool, held: Held) -> u64 {
        let takes = OVERHEAD + (held.bytes.len() + key.len()) as u64;
        let mut forgotten = 0;
        while self.room < takes {
            if !self.forget() {
                return forgotten + 1;
            }
            forgotten += 1;
        }
        self.room -= takes;
        self.order.push_back((Arc::clone(&key), is_first));
        self.of.entry(key).or_default()[usize::from(is_first)].push_back(held);
        forgotten
    }

    /// Forgets the oldest record. `false`: there is none.
    fn forget(&mut self) -> bool {
        let Some((key, is_first)) = self.order.pop_front() else { return false };
        if let Some(kinds) = self.of.get_mut(&key) {
            let gone = kinds[usize::from(is_first)].pop_front();
            self.room += gone.map_or(0, |held| OVERHEAD + (held.bytes.len() + key.len()) as u64);
            if kinds.iter().all(VecDeque::is_empty) {
                self.of.remove(&key);
            }
        }
        true
    }
}
