//! A field's value that outlives its record.

use filter::record::FieldValue;
use filter::{Field, RowWriter};
use std::net::IpAddr;

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
    pub(super) fn of(value: &FieldValue<'_>) -> Option<Value> {
        Some(match value {
            FieldValue::Number(number) | FieldValue::Duration(number, _) => Value::Number(*number),
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
        use filter::FieldType::{Address, Duration, EveTime, Flag, Number, Text, Time};
        match (self, field.kind) {
            (Value::Number(number) | Value::Time(number), Number | Time | EveTime | Duration(_)) => {
                writer.number(field.name, *number);
            }
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
