//! Fields of schemas, made from the tables of facts.

use super::eve::{NAME, eve_fields};
use filter::record::FIELDS_MAX;
use filter::{Field, FieldType, Schema};
use protocols::conversation::{About, Kind};

/// Fields of a schema.
#[derive(Clone, Copy, Debug)]
pub struct FactFields {
    list: [Field; FIELDS_MAX],
    count: usize,
}

impl FactFields {
    /// These fields.
    pub const fn new(fields: &[Field]) -> FactFields {
        FactFields { list: [Field::new("", FieldType::Number); FIELDS_MAX], count: 0 }.and(fields)
    }

    /// The common fields of records, and those of facts.
    pub const fn record(facts: &[About]) -> FactFields {
        FactFields::new(&eve_fields![]).facts(facts)
    }

    /// Adds fields at the end.
    pub const fn and(mut self, fields: &[Field]) -> FactFields {
        let mut at = 0;
        while at < fields.len() {
            self.list[self.count] = fields[at];
            self.count += 1;
            at += 1;
        }
        self
    }

    /// Adds the fields of facts. Those of one name are one.
    pub const fn facts(mut self, facts: &[About]) -> FactFields {
        let mut at = 0;
        while at < 2 * facts.len() {
            let About { field, kind, .. } = &facts[at / 2];
            let name = field[at % 2];
            if !name.is_empty() && !self.has(name) {
                self = self.insert(Field::new(name, field_type(*kind)));
            }
            at += 1;
        }
        self
    }

    /// Leaves out fields, and those within them.
    pub const fn without(self, names: &[&str]) -> FactFields {
        let mut rest = FactFields::new(&[]);
        let mut at = 0;
        while at < self.count {
            let mut name = 0;
            while name < names.len() && !is_of(self.list[at].name, names[name]) {
                name += 1;
            }
            if name == names.len() {
                rest = rest.and(&[self.list[at]]);
            }
            at += 1;
        }
        rest
    }

    /// The fields within `name`, without it and the dot behind it.
    pub const fn within(self, name: &str) -> FactFields {
        let mut inner = FactFields::new(&[]);
        let mut at = 0;
        while at < self.count {
            let Field { name: whole, kind } = self.list[at];
            if is_of(whole, name) {
                inner = inner.and(&[Field::new(whole.split_at(name.len() + 1).1, kind)]);
            }
            at += 1;
        }
        inner
    }

    /// A schema of these fields.
    pub const fn schema(&'static self, name: &'static str) -> Schema {
        Schema::new(name, self.list.split_at(self.count).0)
    }

    /// The same for an object within other rows.
    pub const fn object(&'static self, name: &'static str) -> Schema {
        Schema::object(name, self.list.split_at(self.count).0)
    }

    const fn has(&self, name: &str) -> bool {
        let mut at = 0;
        while at < self.count && !is_same(self.list[at].name, name) {
            at += 1;
        }
        at < self.count
    }

    /// Adds a field behind the last one that has most of the words before its name's last dot.
    const fn insert(mut self, field: Field) -> FactFields {
        let (mut most, mut place, mut at) = (0, self.count, 0);
        while at < self.count {
            let common = common_words(self.list[at].name.as_bytes(), field.name.as_bytes());
            if common > 0 && common >= most {
                (most, place) = (common, at + 1);
            }
            at += 1;
        }
        while at > place {
            self.list[at] = self.list[at - 1];
            at -= 1;
        }
        self.list[place] = field;
        self.count += 1;
        self
    }
}

const fn field_type(kind: Kind) -> FieldType {
    match kind {
        _ if kind.is_item() => FieldType::Rows(&NAME),
        Kind::Number => FieldType::Number,
        _ => FieldType::Text,
    }
}

/// The number of bytes that both begin with.
const fn common(one: &[u8], other: &[u8]) -> usize {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at
}

/// The length of the words, each with a dot behind it, that both names begin with.
const fn common_words(one: &[u8], other: &[u8]) -> usize {
    let mut words = common(one, other);
    while words > 0 && one[words - 1] != b'.' {
        words -= 1;
    }
    words
}

const fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && common(one.as_bytes(), other.as_bytes()) == one.len()
}

/// Whether the name is `of`, or within it.
const fn is_of(name: &str, of: &str) -> bool {
    let is_end = name.len() == of.len() || name.len() > of.len() && name.as_bytes()[of.len()] == b'.';
    is_end && common(name.as_bytes(), of.as_bytes()) == of.len()
}
