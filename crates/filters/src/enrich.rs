//! Adds to records what is known of their addresses and ports: names seen in DNS, places, networks, services.
//!
//! - `enrich/shape.rs`: which fields records of one schema get, and how a record gets them.
//! - `enrich/names.rs`: the names that DNS gave to addresses.
//! - `enrich/database.rs`: a file of places or networks.

mod database;
mod names;
mod shape;

use crate::parts::outlet::Outlet;
use base::limits::DNS_NAME_SECONDS;
use database::Database;
use filter::prelude::*;
use filter::record::{made_with_id, schema_id};
use names::Seen;
use shape::{Adds, Shape};
use std::sync::Arc;

/// What `enrich` is.
pub static KIND: Kind = Kind::new("enrich", "adds names, places, networks and services to records", make)
    .also(&["geoip", "resolve", "lookup", "asn"])
    .help(
        "Adds fields to each record that has `src_ip`, `dest_ip` or a port. `dns=yes` adds `src_name` and `dest_name`: the \
         names that a client last asked for when DNS gave it the address. They come from the records of `dns`, so these must come here too: \
         `{ dns + flows } | enrich dns=yes`. A name holds from its answer on for the TTL, an hour at least, because connections \
         outlive answers; a flow is looked up by its start. `services=yes` adds `service`, the usual name of the port that was called. \
         `geoip=FILE` adds `src_country`, `dest_country` (the code) and `src_city`, `dest_city` (in English) from a database in MaxMind's format \
         with countries or cities; `asn=FILE` adds `src_asn`, `dest_asn`, `src_as_org` and `dest_as_org` from one with autonomous \
         systems.\n\n\
         At most `names` names are kept; the oldest is forgotten, and counted. Addresses that a database does not have are \
         without the fields.",
    )
    .params(&[
        Param::new("dns", ParamType::Flag, "add the names that DNS gave").default("no"),
        Param::new("services", ParamType::Flag, "add the name of the port").default("no"),
        Param::new("geoip", ParamType::Path, "a database of countries or cities"),
        Param::new("asn", ParamType::Path, "a database of autonomous systems"),
        Param::new("names", ParamType::Number, "names kept, at most").default("64k"),
    ])
    .takes(&[Type::Record])
    .gives(Type::Record)
    .mode(Mode::Serial)
    .reads_fields(|params| shape::reads(&Adds::of(params)))
    .keeps_names()
    .names_fields(check_of)
    .examples(&[
        Example { request: "pcap browse.pcap | { dns + flows } | enrich dns=yes | where \"event_type = flow\" | fields dest_ip dest_name", output: NAMES },
        Example { request: "pcap dns.pcap | flows | enrich services=yes | by proto service", output: SERVICES },
    ]);

const NAMES: &str =
    "dest_ip\tdest_name\n65.208.228.223\t\n145.253.2.203\t\n216.239.59.99\tpagead2.googlesyndication.com\n";
const SERVICES: &str =
    "{\"proto\":\"TCP\",\"service\":\"domain\",\"count\":1}\n{\"proto\":\"UDP\",\"service\":\"domain\",\"count\":1}\n";

const _: () = assert!(DNS_NAME_SECONDS == 3600, "the manual says so");

fn check_of(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    let adds = Adds::of(params);
    if adds.is_nothing() {
        return Err(ParamError::of_request("it would add nothing")
            .with_help("enrich dns=yes, services=yes, geoip=FILE or asn=FILE, or several of them"));
    }
    let made = schemas.iter().map(|schema| shape::schema(schema, &adds)).collect::<Result<Vec<_>, _>>()?;
    if !made.is_empty() && made.iter().zip(schemas).all(|(after, before)| after.fields.len() == before.fields.len()) {
        return Err(ParamError::of_request("no record that comes here has an address or a port to look up")
            .with_help("`packets`, `flows` and the protocols give some"));
    }
    Ok(made)
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let database = |key| params.text(key).map(|path| Database::open(path, key)).transpose();
    Ok(Instance::filter(Enrich {
        adds: Adds::of(params),
        known: Known {
            names: Seen::new(params.number("names").unwrap_or(0)),
            geoip: database("geoip")?,
            asn: database("asn")?,
        },
        schemas: Arc::clone(&env.schemas),
        shapes: Vec::new(),
    }))
}

/// Names, places and networks of addresses.
struct Known {
    names: Seen,
    geoip: Option<Database>,
    asn: Option<Database>,
}

struct Enrich {
    adds: Adds,
    known: Known,
    schemas: Arc<[&'static Schema]>,
    shapes: Vec<Shape>,
}

impl Enrich {
    /// The place of the shape of these records. `None`: they are not of a known schema.
    fn shape(&mut self, id: u32) -> Option<usize> {
        let known = self.shapes.iter().position(|shape| shape.before.id() == id);
        known.or_else(|| {
            let schema = self.schemas.iter().copied().find(|schema| schema.id() == id).or_else(|| made_with_id(id))?;
            self.shapes.push(Shape::new(schema, &self.adds)?);
            Some(self.shapes.len() - 1)
        })
    }
}

impl Filter for Enrich {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (_, block) in batch.iter() {
            let bytes = outlet.bytes(block);
            let place = schema_id(bytes).and_then(|id| self.shape(id));
            let Some(shape) = place.and_then(|place| self.shapes.get_mut(place)) else {
                outlet.drop_block("not a record");
                continue;
            };
            let Some(row) = Row::new(shape.before, bytes) else {
                outlet.drop_block("not a record");
                continue;
            };
            if self.adds.dns {
                outlet.count("names forgotten", self.known.names.learn(&row, block.time));
            }
            outlet.count("addresses of a damaged database", shape.fill(&row, block.time, &self.adds, &self.known));
            outlet.record(&shape.writer, block.time, block.class);
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests;
