//! Which fields records of one schema get, and how a record gets them.

use super::Known;
use crate::parts::port_names::port_name;
use filter::prelude::*;
use filter::record::{FieldValue, made};
use std::net::IpAddr;

/// The names and places that the request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adds {
    pub(super) dns: bool,
    pub(super) services: bool,
    pub(super) geoip: bool,
    pub(super) asn: bool,
}

impl Adds {
    pub(super) fn of(params: &Params) -> Adds {
        Adds {
            dns: params.flag("dns"),
            services: params.flag("services"),
            geoip: params.text("geoip").is_some(),
            asn: params.text("asn").is_some(),
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        !(self.dns || self.services || self.geoip || self.asn)
    }
}

/// The addresses of a record, and the names of the fields that each gets.
struct Side {
    address: &'static str,
    name: &'static str,
    country: &'static str,
    city: &'static str,
    asn: &'static str,
    as_org: &'static str,
}

static SIDES: [Side; 2] = [
    Side {
        address: "src_ip",
        name: "src_name",
        country: "src_country",
        city: "src_city",
        asn: "src_asn",
        as_org: "src_as_org",
    },
    Side {
        address: "dest_ip",
        name: "dest_name",
        country: "dest_country",
        city: "dest_city",
        asn: "dest_asn",
        as_org: "dest_as_org",
    },
];

const SERVICE: &str = "service";

/// The ports that tell a service: the port of the server comes first.
const PORTS: [&str; 2] = ["dest_port", "src_port"];

/// When the record's connection began.
const TIMES: [&str; 2] = ["flow.start", "timestamp"];

/// The fields that are read.
pub(super) fn reads(adds: &Adds) -> Vec<String> {
    let of_dns = ["dns.type", "dns.rrname", "dns.answers"];
    let always = SIDES.iter().map(|side| side.address).chain(PORTS).chain(TIMES).chain(["proto"]);
    always.chain(of_dns.into_iter().filter(|_| adds.dns)).map(String::from).collect()
}

/// The fields that are added to records of this schema.
fn added(schema: &Schema, adds: &Adds) -> Vec<(&'static str, FieldType)> {
    let mut fields = Vec::new();
    for side in SIDES.iter().filter(|side| schema.field(side.address).is_some()) {
        let all = [
            (adds.dns, side.name, FieldType::Text),
            (adds.geoip, side.country, FieldType::Text),
            (adds.geoip, side.city, FieldType::Text),
            (adds.asn, side.asn, FieldType::Number),
            (adds.asn, side.as_org, FieldType::Text),
        ];
        fields.extend(all.into_iter().filter(|(is_added, ..)| *is_added).map(|(_, name, kind)| (name, kind)));
    }
    if adds.services && PORTS.iter().any(|port| schema.field(port).is_some()) {
        fields.push((SERVICE, FieldType::Text));
    }
    fields
}

/// The schema of these records with the added fields.
pub(super) fn schema(schema: &'static Schema, adds: &Adds) -> Result<&'static Schema, ParamError> {
    let mut fields: Vec<(String, FieldType)> =
        schema.fields.iter().map(|field| (field.name.to_string(), field.kind)).collect();
    for (name, kind) in added(schema, adds) {
        match schema.field(name).map(|place| schema.fields[place].kind) {
            None => fields.push((name.to_string(), kind)),
            Some(known) if known.is(&kind) => {}
            Some(_) => return Err(ParamError::of_request(format!("records have another `{name}` already"))),
        }
    }
    if fields.len() == schema.fields.len() {
        return Ok(schema);
    }
    made(schema.name, &fields, schema.summary)
        .ok_or_else(|| ParamError::of_request(format!("records of `{}` would have more than 128 fields", schema.name)))
}

/// How records of one schema get their fields.
pub(super) struct Shape {
    pub(super) before: &'static Schema,
    pub(super) writer: RowWriter,
    sides: Vec<(&'static Side, usize)>,
    has_service: bool,
}

impl Shape {
    /// `None`: there is no room for the schema.
    pub(super) fn new(before: &'static Schema, adds: &Adds) -> Option<Shape> {
        let place = |side: &'static Side| Some((side, before.field(side.address)?));
        Some(Shape {
            before,
            writer: RowWriter::new(schema(before, adds).ok()?),
            sides: SIDES.iter().filter_map(place).collect(),
            has_service: added(before, adds).iter().any(|(name, _)| *name == SERVICE),
        })
    }

    /// Writes a record with the added fields that are known. Returns the number of damaged places that it met in databases.
    pub(super) fn fill(&mut self, row: &Row<'_>, time: u64, adds: &Adds, known: &Known) -> u64 {
        let writer = &mut self.writer;
        writer.begin();
        for (place, field) in self.before.fields.iter().enumerate() {
            if let Some(value) = row.get(place) {
                writer.copy(field.name, &value);
            }
        }
        let time = TIMES.iter().find_map(|name| row.number(name)).unwrap_or(time);
        let mut damaged = 0;
        for (side, place) in &self.sides {
            let Some(FieldValue::Address(address)) = row.get(*place) else { continue };
            if adds.dns
                && let Some(name) = known.names.name(address, time)
            {
                writer.text(side.name, name);
            }
            damaged += u64::from(put_places(writer, side, address, known).is_err());
        }
        if self.has_service {
            let is_udp = row.text("proto") == Some(b"UDP");
            let ports = PORTS.iter().filter_map(|name| u16::try_from(row.number(name)?).ok());
            if let Some(name) = ports.filter_map(|port| port_name(port, is_udp)).next() {
                writer.text(SERVICE, name);
            }
        }
        damaged
    }
}

/// Writes what the databases say. Error: one is damaged.
fn put_places(writer: &mut RowWriter, side: &Side, address: IpAddr, known: &Known) -> Result<(), ()> {
    if let Some(database) = &known.geoip {
        // Where a network is registered is the next best to where it is used.
        for key in ["country", "registered_country"] {
            if let Some(country) = database.text(address, &[key, "iso_code"])? {
                writer.text(side.country, country);
                break;
            }
        }
        if let Some(city) = database.text(address, &["city", "names", "en"])? {
            writer.text(side.city, city);
        }
    }
    if let Some(database) = &known.asn {
        if let Some(number) = database.number(address, &["autonomous_system_number"])? {
            writer.number(side.asn, number);
        }
        if let Some(name) = database.text(address, &["autonomous_system_organization"])? {
            writer.text(side.as_org, name);
        }
    }
    Ok(())
}
