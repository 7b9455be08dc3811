//! The record at the beginning of a message: its head, with EVE's field names.

use super::fields::FIELDS;
use crate::parts::fact_fields::FactFields;
use filter::prelude::*;
use protocols::conversation::Fact as _;
use protocols::http::Fact;

pub(crate) static SCHEMA: Schema = const { &FactFields::record(Fact::ALL).and(&FIELDS) }.schema("http").summary(&[
    "http.http_method",
    "http.status",
    "http.hostname",
    "http.url",
]);
