//! Records: rows of named, typed fields, encoded once into the producer's append ring and read in place.
//!
//! A kind declares its [`Schema`] (with EVE's names where EVE has one; a dot nests). A row names its schema, so rows of
//! several kinds can meet on one edge. Sinks render rows as JSON and the like.
//!
//! Layout of a row, little-endian, without padding:
//! - schema id, u32;
//! - field count, u32;
//! - presence bits, u64; a second u64 if there are more than 64 fields;
//! - 8 bytes for each field: a number, or offset u32 and length u32 of its bytes from the row's start;
//! - those bytes. A list is the rows of its items one after the other, each after its length, u32.
//!
//! A row may come from a peer, so reading checks every offset.

use crate::wanted::Wanted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// What the number of a duration counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole seconds.
    Seconds,
    /// Whole microseconds.
    Microseconds,
    /// Nanoseconds; as text, seconds with a fraction.
    Fraction,
}

impl Unit {
    /// The nanoseconds of a number of units, at most `u64::MAX`.
    pub fn nanoseconds(self, count: u64) -> u64 {
        count.saturating_mul(match self {
            Unit::Seconds => 1_000_000_000,
            Unit::Microseconds => 1_000,
            Unit::Fraction => 1,
        })
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// Unsigned number.
    Number,
    /// Nanoseconds since 1970 UTC.
    Time,
    /// The same; as text it is a time of Suricata's EVE: microseconds, and the offset of UTC.
    EveTime,
    /// How long something took.
    Duration(Unit),
    /// Yes or no.
    Flag,
    /// Text: bytes, in UTF-8 where they are valid.
    Text,
    /// An IPv4 or IPv6 address.
    Address,
    /// Rows of another schema.
    Rows(&'static Schema),
}

impl FieldType {
    /// Whether it is the same type.
    pub fn is(&self, other: &FieldType) -> bool {
        match (self, other) {
            (FieldType::Rows(one), FieldType::Rows(other)) => one.id == other.id,
            (FieldType::Duration(one), FieldType::Duration(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// The bytes that it adds to a schema's id: those of two types differ.
    const fn mark(&self) -> [u8; 5] {
        let (tag, of) = match self {
            FieldType::Number => (0, 0),
            FieldType::Time => (1, 0),
            FieldType::EveTime => (2, 0),
            FieldType::Duration(unit) => (3, *unit as u32),
            FieldType::Flag => (4, 0),
            FieldType::Text => (5, 0),
            FieldType::Address => (6, 0),
            FieldType::Rows(items) => (7, items.id),
        };
        let [a, b, c, d] = of.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Whether its values are numbers, which can be added and compared.
    pub fn is_number(&self) -> bool {
        matches!(self, FieldType::Number | FieldType::Time | FieldType::EveTime | FieldType::Duration(_))
    }
}

/// A named, typed field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name; `a.b` is b inside a. Fields with the same prefix follow each other.
    pub name: &'static str,
    /// Its type.
    pub kind: FieldType,
}

impl Field {
    /// A field of this name and type.
    pub const fn new(name: &'static str, kind: FieldType) -> Field {
        Field { name, kind }
    }
}

/// The JSON form of a list of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a list.
    List,
    /// As an object: the list has one row.
    Object,
    /// As an object with a key for each row: the first field is the key, the second one the value.
    Map,
}

/// The fields of the rows of one kind.
#[derive(Debug)]
pub struct Schema {
    /// Its name: EVE's event type, where it has one.
    pub name: &'static str,
    /// Its fields, at most 128.
    pub fields: &'static [Field],
    /// What lists of its rows are.
    pub form: Form,
    /// The fields that people read, besides the time and the addresses; behind the name of a list, a field of its rows.
    /// Empty: all of them.
    pub summary: &'static [&'static str],
    /// People read times since the first row, and not the time of day.
    pub from_first: bool,
    id: u32,
}

impl Schema {
    /// A schema; its id is a hash of its name and its fields' names and types.
    pub const fn new(name: &'static str, fields: &'static [Field]) -> Schema {
        assert!(fields.len() <= FIELDS_MAX, "a schema has 128 fields at most");
        let mut id = fnv(0x811c_9dc5, name.as_bytes());
        let mut index = 0;
        while index < fields.len() {
            id = fnv(fnv(fnv(id, b"|"), fields[index].name.as_bytes()), &fields[index].kind.mark());
            index += 1;
        }
        Schema { name, fields, form: Form::List, summary: &[], from_first: false, id }
    }

    /// Says which fields people read.
    ///
    /// # Panics
    /// When the schema has no field of such a name. That of a `static` is not compiled then.
    pub const fn summary(self, summary: &'static [&'static str]) -> Schema {
        let mut index = 0;
        while index < summary.len() {
            assert!(has(self.fields, summary[index].as_bytes()), "the schema has the fields of its summary");
            index += 1;
        }
        Schema { summary, ..self }
    }

    /// People read times since the first row.
    pub const fn from_first(self) -> Schema {
        Schema { from_first: true, ..self }
    }

    /// A schema whose rows stand alone inside another row: `a.b` there is b in the row of the field `a`.
    pub const fn object(name: &'static str, fields: &'static [Field]) -> Schema {
        Schema { form: Form::Object, ..Schema::new(name, fields) }
    }

    /// A schema of keys and values: its two fields.
    pub const fn map(name: &'static str, fields: &'static [Field; 2]) -> Schema {
        Schema { form: Form::Map, ..Schema::new(name, fields) }
    }

    /// The id with which its rows begin.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The index of the field with this name.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
}

/// Most schemas that the requests of one process can make.
const MADE_MAX: usize = 4096;

/// Most of them when a writer leaves fields out: the others are for filters that cannot do without.
const PROJECTED_MAX: usize = MADE_MAX / 2;

static MADE: Mutex<Vec<&'static Schema>> = Mutex::new(Vec::new());

/// The schema of this name and these fields, for filters whose parameters name their records' fields. It stays for
/// ever, and the same fields give the same schema: a process keeps one for each shape ever asked for. `summary` are the
/// fields that people read, empty: all. `None`: there are 4,096 others, or more fields than a schema has.
pub fn made(name: &'static str, fields: &[(String, FieldType)], summary: &[&'static str]) -> Option<&'static Schema> {
    made_among(&MADE, MADE_MAX, name, fields, summary)
}

/// The same, where there may be at most `most` schemas.
fn made_among(
    all: &Mutex<Vec<&'static Schema>>,
    most: usize,
    name: &'static str,
    fields: &[(String, FieldType)],
    summary: &[&'static str],
) -> Option<&'static Schema> {
    if fields.len() > FIELDS_MAX {
        return None;
    }
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |schema: &&&'static Schema| {
        let is_field =
            |(field, (name, kind)): (&Field, &(String, FieldType))| field.name == name && field.kind.is(kind);
        let is_alike = schema.name == name && schema.summary == summary && schema.fields.len() == fields.len();
        is_alike && schema.fields.iter().zip(fields).all(is_field)
    };
    if let Some(known) = all.iter().find(is_it) {
        return Some(known);
    }
    if all.len() >= most {
        return None;
    }
    let field = |(name, kind): &(String, FieldType)| Field::new(String::leak(name.clone()), *kind);
    let fields: Vec<Field> = fields.iter().map(field).collect();
    let summary = Vec::leak(summary.to_vec());
    let schema = Box::leak(Box::new(Schema::new(name, Vec::leak(fields)).summary(summary)));
    all.push(schema);
    Some(schema)
}

/// The schema with this id that [`made`] gave.
pub fn made_with_id(id: u32) -> Option<&'static Schema> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|schema| schema.id == id).copied()
}

/// Whether one of the fields, or one of the rows in a list, has this name.
const fn has(fields: &[Field], name: &[u8]) -> bool {
    let mut index = 0;
    while index < fields.len() {
        let field = fields[index].name.as_bytes();
        if name.len() >= field.len() && is_same(name.split_at(field.len()).0, field) {
            let rest = name.split_at(field.len()).1;
            match fields[index].kind {
                _ if rest.is_empty() => return true,
                FieldType::Rows(items) if rest[0] == b'.' && has(items.fields, rest.split_at(1).1) => return true,
                _ => {}
            }
        }
        index += 1;
    }
    false
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

/// FNV-1a, 32 bits.
const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

/// Most fields of a schema: each has one presence bit.
pub const FIELDS_MAX: usize = 128;

/// Bytes before the fields of a row with so many.
const fn head_bytes(fields: usize) -> usize {
    if fields <= 64 { 16 } else { 24 }
}

/// The schema id at the beginning of a row.
pub fn schema_id(row: &[u8]) -> Option<u32> {
    row.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Writes rows into a buffer, one after the other; the buffer is kept. [`RowWriter::want`] says which fields the rows
/// have; setting another one does nothing.
#[derive(Debug)]
pub struct RowWriter {
    /// The fields that may be set.
    schema: &'static Schema,
    /// The schema of the rows: some or all of these fields, in the same order.
    written: &'static Schema,
    /// For each field that may be set: its place in the rows, or [`LEFT_OUT`].
    places: [u8; FIELDS_MAX],
    /// The set of fields that `written` was made for.
    wanted: u64,
    bytes: Vec<u8>,
    /// Behind the field that was set last in this row.
    cursor: usize,
    /// For each cursor: the field that was set next when a row last came there. Most rows are set alike. Empty for short
    /// schemas.
    next: Vec<Next>,
}

/// A field that was set, and the text in memory that named it.
#[derive(Clone, Copy, Debug)]
struct Next {
    name: &'static str,
    field: u8,
}

/// Fields from which a writer remembers their order: in a shorter schema, each field is found as quickly.
const REMEMBERED_FROM: usize = 8;

/// No field was set yet. It is no field's name.
const NOT_YET: Next = Next { name: "not yet", field: LEFT_OUT };

/// The place of a field that rows do not have.
const LEFT_OUT: u8 = u8::MAX;
const _: () = assert!(FIELDS_MAX < LEFT_OUT as usize);

/// The places of a schema's fields in rows of this schema.
const ALL_PLACES: [u8; FIELDS_MAX] = {
    let mut places = [0; FIELDS_MAX];
    let mut at = 0;
    while at < FIELDS_MAX {
        places[at] = at as u8;
        at += 1;
    }
    places
};

impl RowWriter {
    /// A writer of rows of this schema, with an empty row begun.
    pub fn new(schema: &'static Schema) -> RowWriter {
        let mut writer = RowWriter {
            schema,
            written: schema,
            places: ALL_PLACES,
            wanted: Wanted::ALL.id(),
            bytes: Vec::new(),
            cursor: 0,
            next: Vec::new(),
        };
        writer.begin();
        writer
    }

    /// From the next row on, leaves out the fields that are not wanted. Rows then have a schema of the same name with
    /// fewer fields, which [`made_with_id`] finds. Best called once for each batch. Returns whether the set of fields
    /// may have changed; a new writer leaves out nothing.
    #[inline]
    pub fn want(&mut self, wanted: &Wanted) -> bool {
        let is_another = self.wanted != wanted.id();
        if is_another {
            self.project(wanted);
        }
        is_another
    }

    #[cold]
    fn project(&mut self, wanted: &Wanted) {
        self.wanted = wanted.id();
        (self.written, self.places) = (self.schema, ALL_PLACES);
        let is_wanted = |field: &&Field| wanted.has(field.name);
        let left: Vec<_> =
            self.schema.fields.iter().filter(is_wanted).map(|field| (field.name.to_string(), field.kind)).collect();
        if left.len() == self.schema.fields.len() {
            return;
        }
        // Without room for another schema, rows have all fields.
        let Some(written) = made_among(&MADE, PROJECTED_MAX, self.schema.name, &left, &[]) else { return };
        self.written = written;
        let mut next = 0;
        for (place, field) in self.places.iter_mut().zip(self.schema.fields) {
            *place = LEFT_OUT;
            if wanted.has(field.name) {
                *place = next;
                next += 1;
            }
        }
    }

    /// Whether rows have this field.
    ///
    /// # Panics
    /// When the schema has no field of this name: a mistake in our code.
    pub fn wants(&self, name: &str) -> bool {
        let place = self.schema.field(name).unwrap_or_else(|| self.no_field(name));
        self.places[place] != LEFT_OUT
    }

    /// Begins a new row without fields.
    pub fn begin(&mut self) {
        self.cursor = 0;
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.written.id.to_le_bytes());
        self.bytes.extend_from_slice(&(self.written.fields.len() as u32).to_le_bytes());
        let count = self.written.fields.len();
        self.bytes.resize(head_bytes(count) + 8 * count, 0);
    }

    /// The bytes of the present row.
    pub fn row(&self) -> &[u8] {
        &self.bytes
    }

    /// The place of a field in the row. `None`: it is left out.
    ///
    /// # Panics
    /// When the schema has no field of this name: a mistake in our code.
    #[inline]
    fn place(&mut self, name: &'static str) -> Option<usize> {
        // One text in memory does not change.
        let field = match self.next.get(self.cursor) {
            Some(next) if std::ptr::eq(next.name, name) => next.field.into(),
            _ => self.find(name),
        };
        self.cursor = field + 1;
        let place = self.places[field];
        (place != LEFT_OUT).then_some(place.into())
    }

    /// The index of a field that was not set next in the last row.
    #[inline(never)]
    fn find(&mut self, name: &'static str) -> usize {
        let is_it = |field: &Field| field.name == name;
        let (before, behind) = self.schema.fields.split_at(self.cursor);
        // Most fields are set in the order of the schema.
        let found = match behind.iter().position(is_it) {
            Some(place) => before.len() + place,
            None => before.iter().position(is_it).unwrap_or_else(|| self.no_field(name)),
        };
        if self.schema.fields.len() >= REMEMBERED_FROM {
            self.next.resize(self.schema.fields.len() + 1, NOT_YET);
            self.next[self.cursor] = Next { name, field: found as u8 };
        }
        found
    }

    #[cold]
    fn no_field(&self, name: &str) -> usize {
        panic!("schema {} has no field {name}", self.schema.name)
    }

    fn set(&mut self, place: usize, value: u64) {
        let slot = head_bytes(self.written.fields.len()) + 8 * place;
        self.bytes[slot..slot + 8].copy_from_slice(&value.to_le_bytes());
        self.bytes[8 + place / 8] |= 1 << (place % 8);
    }

    #[inline]
    fn put(&mut self, name: &'static str, value: u64) {
        if let Some(place) = self.place(name) {
            self.set(place, value);
        }
    }

    fn put_bytes(&mut self, name: &'static str, bytes: &[u8]) {
        let Some(place) = self.place(name) else { return };
        let (offset, len) = (self.bytes.len() as u64, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self.set(place, offset | len << 32);
    }

    /// Sets a number, or a duration in its units.
    pub fn number(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.put(name, value);
        self
    }

    /// Sets a time in ns since 1970 UTC.
    pub fn time(&mut self, name: &'static str, ns: u64) -> &mut Self {
        self.put(name, ns);
        self
    }

    /// Sets a flag.
    pub fn flag(&mut self, name: &'static str, value: bool) -> &mut Self {
        self.put(name, u64::from(value));
        self
    }

    /// Sets a text.
    pub fn text(&mut self, name: &'static str, value: impl AsRef<[u8]>) -> &mut Self {
        self.put_bytes(name, value.as_ref());
        self
    }

    /// Sets an address.
    pub fn address(&mut self, name: &'static str, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(address) => self.put_bytes(name, &address.octets()),
            IpAddr::V6(address) => self.put_bytes(name, &address.octets()),
        }
        self
    }

    /// Sets a list; `rows` was filled by [`list_push`].
    pub fn rows(&mut self, name: &'static str, rows: &[u8]) -> &mut Self {
        self.put_bytes(name, rows);
        self
    }

    /// Sets a field to the value of another field of the same type.
    pub fn copy(&mut self, name: &'static str, value: &FieldValue<'_>) -> &mut Self {
        match value {
            FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _) => {
                self.number(name, *number)
            }
            FieldValue::Flag(flag) => self.flag(name, *flag),
            FieldValue::Text(text) => self.text(name, text),
            FieldValue::Address(address) => self.address(name, *address),
            FieldValue::Rows(rows) => self.rows(name, rows.bytes),
        }
    }
}

/// Adds a finished row to the bytes of a list.
pub fn list_push(list: &mut Vec<u8>, row: &[u8]) {
    list.extend_from_slice(&(row.len() as u32).to_le_bytes());
    list.extend_from_slice(row);
}

/// A field's value, read in place.
#[derive(Clone, Debug)]
pub enum FieldValue<'a> {
    /// Unsigned number.
    Number(u64),
    /// Nanoseconds since 1970 UTC.
    Time(u64),
    /// A number of these units.
    Duration(u64, Unit),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(&'a [u8]),
    /// An address.
    Address(IpAddr),
    /// Rows.
    Rows(Rows<'a>),
}

/// A row, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    schema: &'static Schema,
    bytes: &'a [u8],
}

impl<'a> Row<'a> {
    /// Reads `bytes` as a row of `schema`. `None`: it is not one.
    pub fn new(schema: &'static Schema, bytes: &'a [u8]) -> Option<Row<'a>> {
        let count = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let fits = count == schema.fields.len() && bytes.len() >= head_bytes(count) + 8 * count;
        (schema_id(bytes)? == schema.id && fits).then_some(Row { schema, bytes })
    }

    /// Its schema.
    pub fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// The indices of the fields that are set, in order.
    pub fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.schema.fields.len();
        let word = |at: usize| {
            self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let second = if count > 64 { word(16) } else { 0 };
        let mut bits = u128::from(second) << 64 | u128::from(word(8));
        std::iter::from_fn(move || {
            let place = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (place < count).then_some(place)
        })
    }

    /// The value of the field at this index. `None`: it is not set, or is damaged.
    #[inline]
    pub fn get(&self, place: usize) -> Option<FieldValue<'a>> {
        let field = self.schema.fields.get(place)?;
        if self.bytes[8 + place / 8] & (1 << (place % 8)) == 0 {
            return None;
        }
        let slot =
            u64::from_le_bytes(*self.bytes.get(head_bytes(self.schema.fields.len()) + 8 * place..)?.first_chunk()?);
        let bytes = || {
            let (offset, len) = (slot as u32 as usize, (slot >> 32) as usize);
            self.bytes.get(offset..offset.checked_add(len)?)
        };
        Some(match field.kind {
            FieldType::Number => FieldValue::Number(slot),
            FieldType::Time | FieldType::EveTime => FieldValue::Time(slot),
            FieldType::Duration(unit) => FieldValue::Duration(slot, unit),
            FieldType::Flag => FieldValue::Flag(slot != 0),
            FieldType::Text => FieldValue::Text(bytes()?),
            FieldType::Address => FieldValue::Address(match bytes()? {
                &[a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
                bytes => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
            }),
            FieldType::Rows(schema) => FieldValue::Rows(Rows { schema, bytes: bytes()? }),
        })
    }

    /// The value of the field with this name.
    pub fn named(&self, name: &str) -> Option<FieldValue<'a>> {
        self.get(self.schema.field(name)?)
    }

    /// The text of the field with this name.
    pub fn text(&self, name: &str) -> Option<&'a [u8]> {
        match self.named(name)? {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number of the field with this name; of a duration its number of units.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.named(name)? {
            FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _) => Some(number),
            _ => None,
        }
    }
}

/// The rows of a list field, in order; ends at the first damaged one.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    schema: &'static Schema,
    bytes: &'a [u8],
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        let (len, rest) = self.bytes.split_first_chunk()?;
        let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.bytes = rest;
        Row::new(self.schema, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    static ANSWER: Schema = Schema::new("answer", &[Field::new("rdata", FieldType::Text)]);
    static DNS: Schema = Schema::new(
        "dns",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("src_ip", FieldType::Address),
            Field::new("dns.rrname", FieldType::Text),
            Field::new("dns.id", FieldType::Number),
            Field::new("dns.tc", FieldType::Flag),
            Field::new("dns.answers", FieldType::Rows(&ANSWER)),
        ],
    );

    fn sample() -> Vec<u8> {
        let mut list = Vec::new();
        let mut answer = RowWriter::new(&ANSWER);
        for text in ["one", "two"] {
            answer.begin();
            list_push(&mut list, answer.text("rdata", text).row());
        }
        let mut row = RowWriter::new(&DNS);
        row.time("timestamp", 5).address("src_ip", IpAddr::V6(Ipv6Addr::LOCALHOST)).text("dns.rrname", "a.example");
        row.number("dns.id", u64::MAX).rows("dns.answers", &list);
        row.row().to_vec()
    }

    #[test]
    fn a_row_reads_as_it_was_written() {
        let bytes = sample();
        let row = Row::new(&DNS, &bytes).unwrap();
        assert_eq!(row.number("timestamp"), Some(5));
        assert_eq!(row.number("dns.id"), Some(u64::MAX));
        assert_eq!(row.text("dns.rrname"), Some(&b"a.example"[..]));
        assert!(row.named("dns.tc").is_none());
        assert!(matches!(row.named("src_ip"), Some(FieldValue::Address(IpAddr::V6(Ipv6Addr::LOCALHOST)))));
        let Some(FieldValue::Rows(rows)) = row.named("dns.answers") else { panic!("a list") };
        let texts: Vec<_> = rows.filter_map(|row| row.text("rdata")).collect();
        assert_eq!(texts, [b"one", b"two"]);
        assert!(Row::new(&ANSWER, &bytes).is_none(), "another schema");
        let mut copy = RowWriter::new(&DNS);
        for (place, field) in DNS.fields.iter().enumerate() {
            if let Some(value) = row.get(place) {
                copy.copy(field.name, &value);
            }
        }
        assert_eq!(copy.row().len(), bytes.len());
        let copy = Row::new(&DNS, copy.row()).unwrap();
        assert_eq!(format!("{:?}", copy.named("dns.answers")), format!("{:?}", row.named("dns.answers")));
        assert_eq!((copy.number("dns.id"), copy.text("dns.rrname")), (row.number("dns.id"), row.text("dns.rrname")));
    }

    #[test]
    fn rows_have_the_fields_that_are_wanted() {
        let mut writer = RowWriter::new(&DNS);
        let mut check = |wanted: &Wanted, expected: &[&str]| {
            writer.want(wanted);
            writer.begin();
            writer.time("timestamp", 5).text("dns.rrname", "a.example").number("dns.id", 9).rows("dns.answers", b"");
            let schema = made_with_id(schema_id(writer.row()).unwrap()).unwrap_or(&DNS);
            let row = Row::new(schema, writer.row()).unwrap();
            let names: Vec<_> = schema.fields.iter().map(|field| field.name).collect();
            assert_eq!((schema.name, &names[..]), ("dns", expected));
            for name in ["timestamp", "dns.rrname", "dns.id", "dns.answers"] {
                assert_eq!(row.named(name).is_some(), expected.contains(&name), "{name}");
                assert_eq!(writer.wants(name), expected.contains(&name), "{name}");
            }
            if expected.contains(&"dns.rrname") {
                assert_eq!(row.text("dns.rrname"), Some(&b"a.example"[..]));
            }
        };
        check(&Wanted::fields(["dns.rrname".into(), "src_ip".into()]), &["src_ip", "dns.rrname"]);
        check(&Wanted::fields(["dns.answers.rdata".into()]), &["dns.answers"]);
        check(&Wanted::none(), &[]);
        check(Wanted::ALL, &["timestamp", "src_ip", "dns.rrname", "dns.id", "dns.tc", "dns.answers"]);
    }

    #[test]
    fn rows_may_be_set_in_any_order() {
        const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        static FIELDS: [Field; NAMES.len()] = {
            let mut fields = [Field::new("", FieldType::Number); NAMES.len()];
            let mut at = 0;
            while at < NAMES.len() {
                fields[at].name = NAMES[at];
                at += 1;
            }
            fields
        };
        static WIDE: Schema = Schema::new("wide", &FIELDS);
        let mut writer = RowWriter::new(&WIDE);
        for order in [&[0, 1, 2, 8][..], &[8, 3, 0], &[0, 8, 1], &[3], &[0, 1, 2, 8], &[0, 2]].repeat(2) {
            writer.begin();
            for place in order {
                writer.number(NAMES[*place], *place as u64);
            }
            let row = Row::new(&WIDE, writer.row()).unwrap();
            let mut expected = order.to_vec();
            expected.sort_unstable();
            assert!(row.places().eq(expected), "{order:?}");
            assert!(row.places().all(|place| row.number(NAMES[place]) == Some(place as u64)), "{order:?}");
        }
    }

    #[test]
    fn made_schemas_of_other_types_have_other_ids() {
        let types = [
            FieldType::Number,
            FieldType::Time,
            FieldType::EveTime,
            FieldType::Duration(Unit::Seconds),
            FieldType::Duration(Unit::Microseconds),
            FieldType::Flag,
            FieldType::Text,
            FieldType::Address,
            FieldType::Rows(&ANSWER),
            FieldType::Rows(&DNS),
        ];
        for kind in types {
            let schema = made("types", &[("a".into(), kind)], &[]).unwrap();
            assert!(std::ptr::eq(made_with_id(schema.id()).unwrap(), schema), "{kind:?}");
        }
    }

    #[test]
    fn schemas_that_writers_project_leave_room_for_others() {
        let all = Mutex::new(Vec::new());
        let fields = [("a".to_string(), FieldType::Number)];
        let made = |most, name| made_among(&all, most, name, &fields, &[]).is_some();
        assert!(made(1, "one") && made(1, "one"), "a known one takes no room");
        assert!(!made(1, "two") && made(2, "two"), "there is room for those who cannot do without");
    }

    proptest! {
        #[test]
        fn a_damaged_row_never_panics(at in 0usize..200, value: u8, cut in 0usize..200) {
            let mut bytes = sample();
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            bytes.truncate(cut.max(1));
            if let Some(row) = Row::new(&DNS, &bytes) {
                for place in 0..DNS.fields.len() {
                    if let Some(FieldValue::Rows(rows)) = row.get(place) {
                        prop_assert!(rows.count() <= bytes.len());
                    }
                }
            }
        }
    }
}
