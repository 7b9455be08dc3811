//! The values of one field of many rows, as one array of Arrow.
//!
//! Fields `a.b` and `a.c` are one struct `a`; a list of rows is a list of structs, one of plain values a list of those, an
//! object a struct, a map a map. A struct of dots is null where none of its fields is set.

use super::text::readable;
use arrow_array::builder::{BooleanBuilder, Float64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field as ArrowField, FieldRef, Fields, TimeUnit};
use filter::record::{FieldValue, Form, Rows, Unit};
use filter::{FieldType, Row, Schema};
use std::sync::Arc;

/// Maximum depth of nested lists, as `json` has it. Deeper ones have no column.
pub(super) const LIST_DEPTH: usize = 4;

/// Times are of UTC.
const UTC: &str = "UTC";

/// A column that is being filled.
#[derive(Debug)]
pub(super) enum Column {
    Number(UInt64Builder),
    Time(TimestampNanosecondBuilder),
    /// Durations with a fraction, in seconds.
    Seconds(Float64Builder),
    Flag(BooleanBuilder),
    /// Texts and addresses.
    Text(StringBuilder),
    Object(Box<Object>),
    List(Box<List>),
}

/// Rows side by side: a struct, or the table itself.
#[derive(Debug)]
pub(super) struct Object {
    fields: Fields,
    members: Vec<Member>,
    nulls: NullBufferBuilder,
}

/// A column of an object, and where its values come from.
#[derive(Debug)]
struct Member {
    from: From,
    column: Column,
}

#[derive(Clone, Copy, Debug)]
enum From {
    /// The field at this index.
    Field(usize),
    /// The fields that follow a dot: the same row.
    Dots,
    /// The name of the schema.
    Name(&'static str),
}

/// Runs of items.
#[derive(Debug)]
pub(super) struct List {
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
    items: Column,
    form: Items,
    entry: FieldRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items {
    /// Each row is an item.
    Rows,
    /// The only field of each row is an item.
    Values,
    /// Each row is a key and a value.
    Pairs,
}

impl Column {
    /// A column for values of this type. `None`: they are nested too deeply.
    fn new(kind: FieldType, depth: usize) -> Option<Column> {
        Some(match kind {
            FieldType::Duration(Unit::Fraction) => Column::Seconds(Float64Builder::new()),
            FieldType::Number | FieldType::Duration(_) => Column::Number(UInt64Builder::new()),
            FieldType::Time | FieldType::EveTime => Column::Time(TimestampNanosecondBuilder::new().with_timezone(UTC)),
            FieldType::Flag => Column::Flag(BooleanBuilder::new()),
            FieldType::Text | FieldType::Address => Column::Text(StringBuilder::new()),
            FieldType::Rows(_) if depth == 0 => return None,
            FieldType::Rows(schema) if schema.form == Form::Object => {
                Column::Object(Box::new(Object::of(schema, depth - 1)))
            }
            FieldType::Rows(schema) => Column::List(Box::new(List::new(schema, depth - 1)?)),
        })
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            Column::Number(_) => DataType::UInt64,
            Column::Time(_) => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
            Column::Seconds(_) => DataType::Float64,
            Column::Flag(_) => DataType::Boolean,
            Column::Text(_) => DataType::Utf8,
            Column::Object(object) => DataType::Struct(object.fields.clone()),
            Column::List(list) if list.form == Items::Pairs => DataType::Map(list.entry.clone(), false),
            Column::List(list) => DataType::List(list.entry.clone()),
        }
    }

    /// Adds a value, or a null. A value of another type is a null: only a damaged row has one.
    fn push(&mut self, value: Option<FieldValue<'_>>) {
        match (self, value) {
            (Column::Number(column), Some(FieldValue::Number(number) | FieldValue::Duration(number, _))) => {
                column.append_value(number);
            }
            (Column::Number(column), _) => column.append_null(),
            (Column::Time(column), Some(FieldValue::Time(ns))) => column.append_option(i64::try_from(ns).ok()),
            (Column::Time(column), _) => column.append_null(),
            (Column::Seconds(column), Some(FieldValue::Duration(ns, _))) => column.append_value(ns as f64 / 1e9),
            (Column::Seconds(column), _) => column.append_null(),
            (Column::Flag(column), Some(FieldValue::Flag(flag))) => column.append_value(flag),
            (Column::Flag(column), _) => column.append_null(),
            (Column::Text(column), Some(FieldValue::Text(text))) => column.append_value(readable(text)),
            (Column::Text(column), Some(FieldValue::Address(address))) => {
                // The builder never refuses a text.
                let _ = std::fmt::Write::write_fmt(column, format_args!("{address}"));
                column.append_value("");
            }
            (Column::Text(column), _) => column.append_null(),
            (Column::Object(object), Some(FieldValue::Rows(mut rows))) => {
                let row = rows.next();
                object.push_whole(row.as_ref());
            }
            (Column::Object(object), _) => object.push_whole(None),
            (Column::List(list), Some(FieldValue::Rows(rows))) => list.push(Some(rows)),
            (Column::List(list), _) => list.push(None),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Number(column) => Arc::new(column.finish()),
            Column::Time(column) => Arc::new(column.finish()),
            Column::Seconds(column) => Arc::new(column.finish()),
            Column::Flag(column) => Arc::new(column.finish()),
            Column::Text(column) => Arc::new(column.finish()),
            Column::Object(object) => Arc::new(object.finish()),
            Column::List(list) => list.finish(),
        }
    }
}

impl Object {
    /// The columns of a schema's rows.
    pub(super) fn of(schema: &'static Schema, depth: usize) -> Object {
        let mut members = Vec::new();
        let fields: Vec<_> = schema.fields.iter().enumerate().map(|(place, field)| (place, field.name)).collect();
        // As in JSON: a record with a time is an event, and says of which type.
        let has_time = schema.field("timestamp").is_some();
        if has_time {
            members.push((
                "event_type",
                Member { from: From::Name(schema.name), column: Column::Text(StringBuilder::new()) },
            ));
        }
        add_members(schema, &fields, depth, &mut members);
        Object::new(members)
    }

    fn new(members: Vec<(&str, Member)>) -> Object {
        let field = |(name, member): &(&str, Member)| ArrowField::new(*name, member.column.data_type(), true);
        let fields = members.iter().map(field).collect();
        let members = members.into_iter().map(|(_, member)| member).collect();
        Object { fields, members, nulls: NullBufferBuilder::new(0) }
    }

    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Adds a row, or nulls. Gives whether any value is set.
    pub(super) fn push(&mut self, row: Option<&Row<'_>>) -> bool {
        let mut is_any = false;
        for Member { from, column } in &mut self.members {
            match (*from, column) {
                (From::Dots, Column::Object(object)) => is_any |= object.push_dots(row),
                (From::Name(name), column) => column.push(row.map(|_| FieldValue::Text(name.as_bytes()))),
                (From::Field(place), column) => {
                    let value = row.and_then(|row| row.get(place));
                    is_any |= value.is_some();
                    column.push(value);
                }
                (From::Dots, column) => column.push(None),
            }
        }
        is_any
    }

    fn push_dots(&mut self, row: Option<&Row<'_>>) -> bool {
        let is_any = self.push(row);
        self.nulls.append(is_any);
        is_any
    }

    fn push_whole(&mut self, row: Option<&Row<'_>>) {
        self.push(row);
        self.nulls.append(row.is_some());
    }

    /// The columns so far, and begins again.
    pub(super) fn columns(&mut self) -> Vec<ArrayRef> {
        self.members.iter_mut().map(|member| member.column.finish()).collect()
    }

    fn finish(&mut self) -> StructArray {
        let columns = self.columns();
        StructArray::new(self.fields.clone(), columns, self.nulls.finish())
    }
}

/// Adds the columns of these fields: places in the schema, and the rest of each name.
fn add_members<'a>(
    schema: &'static Schema,
    fields: &[(usize, &'a str)],
    depth: usize,
    members: &mut Vec<(&'a str, Member)>,
) {
    let mut groups: Vec<(&str, Vec<(usize, &str)>)> = Vec::new();
    for (place, name) in fields {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        match groups.iter_mut().find(|(known, _)| *known == first) {
            Some((_, inside)) => inside.push((*place, rest)),
            None => groups.push((first, vec![(*place, rest)])),
        }
    }
    for (name, inside) in groups {
        let whole = inside.iter().find(|(_, rest)| rest.is_empty()).map(|(place, _)| *place);
        let member = match whole {
            Some(place) => {
                Column::new(schema.fields[place].kind, depth).map(|column| Member { from: From::Field(place), column })
            }
            None => {
                let mut within = Vec::new();
                add_members(schema, &inside, depth, &mut within);
                Some(Member { from: From::Dots, column: Column::Object(Box::new(Object::new(within))) })
            }
        };
        members.extend(member.map(|member| (name, member)));
    }
}

impl List {
    fn new(schema: &'static Schema, depth: usize) -> Option<List> {
        let (form, items) = match (schema.form, schema.fields) {
            (Form::Map, [key, value]) => (Items::Pairs, pairs(key, value, depth)?),
            (_, [field]) if field.name.is_empty() => (Items::Values, Column::new(field.kind, depth)?),
            _ => (Items::Rows, Column::Object(Box::new(Object::of(schema, depth)))),
        };
        // The names that Arrow's own readers give them.
        let name = if form == Items::Pairs { "entries" } else { "item" };
        let entry = Arc::new(ArrowField::new(name, items.data_type(), form != Items::Pairs));
        Some(List { offsets: vec![0], nulls: NullBufferBuilder::new(0), items, form, entry })
    }

    fn push(&mut self, rows: Option<Rows<'_>>) {
        self.nulls.append(rows.is_some());
        let mut count = 0;
        for row in rows.into_iter().flatten() {
            match (self.form, &mut self.items) {
                (Items::Pairs, _) if !matches!(row.get(0), Some(FieldValue::Text(_))) => continue,
                (Items::Rows | Items::Pairs, Column::Object(object)) => object.push_whole(Some(&row)),
                (_, items) => items.push(row.get(0)),
            }
            count += 1;
        }
        self.offsets.push(self.offsets.last().unwrap_or(&0) + count);
    }

    fn finish(&mut self) -> ArrayRef {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(&mut self.offsets, vec![0])));
        let (nulls, entry) = (self.nulls.finish(), self.entry.clone());
        match &mut self.items {
            Column::Object(pairs) if self.form == Items::Pairs => {
                Arc::new(MapArray::new(entry, offsets, pairs.finish(), nulls, false))
            }
            items => Arc::new(ListArray::new(entry, offsets, items.finish(), nulls)),
        }
    }
}

/// The two columns of a map, under the names that Arrow gives them.
fn pairs(key: &filter::Field, value: &filter::Field, depth: usize) -> Option<Column> {
    let member = |place, kind| Some(Member { from: From::Field(place), column: Column::new(kind, depth)? });
    let members = [member(0, key.kind)?, member(1, value.kind)?];
    let fields = Fields::from(vec![
        ArrowField::new("keys", members[0].column.data_type(), false),
        ArrowField::new("values", members[1].column.data_type(), true),
    ]);
    Some(Column::Object(Box::new(Object { fields, members: members.into(), nulls: NullBufferBuilder::new(0) })))
}
