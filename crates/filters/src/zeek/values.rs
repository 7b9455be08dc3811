//! The values of a record by name.

use filter::Row;
use filter::record::FieldValue;
use std::net::IpAddr;

#[derive(Clone, Copy)]
pub(super) struct Values<'a>(pub Row<'a>);

impl<'a> Values<'a> {
    pub fn number(self, name: &str) -> Option<u64> {
        self.0.number(name)
    }

    pub fn text(self, name: &str) -> Option<&'a [u8]> {
        self.0.text(name)
    }

    pub fn is(self, name: &str) -> bool {
        matches!(self.0.named(name), Some(FieldValue::Flag(true)))
    }

    pub fn address(self, name: &str) -> Option<IpAddr> {
        match self.0.named(name)? {
            FieldValue::Address(address) => Some(address),
            _ => None,
        }
    }

    pub fn rows(self, name: &str) -> impl Iterator<Item = Values<'a>> + Clone {
        let rows = match self.0.named(name) {
            Some(FieldValue::Rows(rows)) => Some(rows),
            _ => None,
        };
        rows.into_iter().flatten().map(Values)
    }

    pub fn flow_id(self) -> u64 {
        self.number("flow_id").unwrap_or(0)
    }
}
