//! What `enrich` adds, and that a damaged database adds nothing.

use super::*;
use filter::record::list_push;
use std::net::{IpAddr, Ipv4Addr};
use testkit::Chain;

static ANSWER: Schema = Schema::new(
    "answer",
    &[
        Field::new("rrtype", FieldType::Text),
        Field::new("ttl", FieldType::Number),
        Field::new("rdata", FieldType::Text),
    ],
);

static DNS: Schema = Schema::new(
    "dns",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("dns.type", FieldType::Text),
        Field::new("dns.rrname", FieldType::Text),
        Field::new("dns.answers", FieldType::Rows(&ANSWER)),
    ],
);

static FLOW: Schema = Schema::new(
    "flow",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("src_ip", FieldType::Address),
        Field::new("src_port", FieldType::Number),
        Field::new("dest_ip", FieldType::Address),
        Field::new("dest_port", FieldType::Number),
        Field::new("proto", FieldType::Text),
    ],
);

const SECOND: u64 = 1_000_000_000;

/// The record of an answer: `name` has `address`.
fn answer(seconds: u64, name: &str, address: [u8; 4], ttl: u64) -> (Descriptor, Vec<u8>) {
    let mut list = Vec::new();
    let address = Ipv4Addr::from(address).to_string();
    for (kind, data) in [("CNAME", "other.example"), ("A", &address)] {
        let mut row = RowWriter::new(&ANSWER);
        list_push(&mut list, row.text("rrtype", kind).number("ttl", ttl).text("rdata", data).row());
    }
    let mut row = RowWriter::new(&DNS);
    row.time("timestamp", seconds * SECOND).text("dns.type", "response").text("dns.rrname", name);
    row.rows("dns.answers", &list);
    (Descriptor { time: seconds * SECOND, ..Descriptor::default() }, row.row().to_vec())
}

fn flow(seconds: u64, [source, target]: [[u8; 4]; 2], port: u64) -> (Descriptor, Vec<u8>) {
    let mut row = RowWriter::new(&FLOW);
    row.time("timestamp", seconds * SECOND).address("src_ip", IpAddr::from(source)).number("src_port", 50_000);
    row.address("dest_ip", IpAddr::from(target)).number("dest_port", port).text("proto", "UDP");
    (Descriptor { time: seconds * SECOND, ..Descriptor::default() }, row.row().to_vec())
}

/// `expected`: what each flow's record has beside its own fields. Returns the events counted.
fn check(records: Vec<(Descriptor, Vec<u8>)>, given: &[(&str, &str)], expected: &[&str]) -> Vec<(&'static str, u64)> {
    let outcome = Chain::pieces(Type::Record, None, records).schema(&DNS).schema(&FLOW).then(&KIND, given).run();
    let mut found = Vec::new();
    for block in &outcome.blocks {
        let id = schema_id(&block.bytes).unwrap();
        let schema = made_with_id(id).unwrap_or(&DNS);
        let row = Row::new(schema, &block.bytes).unwrap();
        if schema.name != "flow" {
            continue;
        }
        let added = schema.fields.iter().enumerate().skip(FLOW.fields.len()).filter_map(|(place, field)| {
            let text = match row.get(place)? {
                filter::record::FieldValue::Text(text) => String::from_utf8_lossy(text).into_owned(),
                filter::record::FieldValue::Number(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            Some(format!("{}={text}", field.name))
        });
        found.push(added.collect::<Vec<_>>().join(" "));
    }
    assert_eq!(found, expected, "{given:?}");
    let events = &outcome.counters("enrich").events;
    ["names forgotten", "addresses of a damaged database"].map(|name| (name, events.get(name))).to_vec()
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];

#[test]
fn addresses_have_the_name_that_a_client_asked_for_while_it_holds() {
    let (web, mail) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let records = vec![
        flow(1, [CLIENT, web], 80),
        answer(2, "www.example", web, 60),
        answer(2, "mail.example", mail, 7200),
        flow(3, [CLIENT, web], 80),
        flow(3, [web, mail], 25),
        flow(3602, [CLIENT, web], 80),
        flow(3603, [CLIENT, web], 80),
        flow(3603, [CLIENT, mail], 25),
        flow(1, [CLIENT, mail], 25),
    ];
    let names = [
        "",
        "dest_name=www.example",
        "src_name=www.example dest_name=mail.example",
        "dest_name=www.example",
        "",
        "dest_name=mail.example",
        "",
    ];
    let counted = check(records, &[("dns", "yes")], &names);
    assert!(counted.iter().all(|(_, count)| *count == 0), "{counted:?}");
}

#[test]
fn the_oldest_name_is_forgotten_when_there_are_too_many() {
    let address = |last| [192, 0, 2, last];
    let mut records: Vec<_> = (0..4).map(|last| answer(1, &format!("n{last}"), address(last), 60)).collect();
    records.extend((0..4).map(|last| flow(2, [CLIENT, address(last)], 80)));
    let counted = check(records, &[("dns", "yes"), ("names", "2")], &["", "", "dest_name=n2", "dest_name=n3"]);
    assert_eq!(counted[0], ("names forgotten", 2));
}

#[test]
fn ports_have_names() {
    let ports = [53, 514, 50_001].map(|port| flow(1, [CLIENT, CLIENT], port)).to_vec();
    check(ports, &[("services", "yes")], &["service=domain", "service=syslog", ""]);
}

/// A value of a database.
enum Datum {
    Text(&'static str),
    Number(u32),
    Short(u16),
    Long(u64),
    Map(Vec<(&'static str, Datum)>),
}

impl Datum {
    /// "MaxMind DB File Format Specification", version 2.0, "Output Data Section".
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Datum::Text(text) => {
                out.push(2 << 5 | text.len().min(29) as u8);
                out.extend(text.len().checked_sub(29).map(|more| more as u8));
                out.extend_from_slice(text.as_bytes());
            }
            Datum::Number(number) => {
                out.push(6 << 5 | 4);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Datum::Short(number) => {
                out.push(5 << 5 | 2);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Datum::Long(number) => {
                // The type is written behind the length.
                out.extend_from_slice(&[8, 9 - 7]);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Datum::Map(entries) => {
                out.push(7 << 5 | entries.len() as u8);
                for (key, value) in entries {
                    Datum::Text(key).append(out);
                    value.append(out);
                }
            }
        }
    }
}

/// A database of IPv4 networks, each an address, the bits of its prefix, and what is said of it.
fn database(networks: &[([u8; 4], u32, Datum)]) -> Vec<u8> {
    let mut nodes: Vec<[Option<u32>; 2]> = vec![[None; 2]];
    let (mut leaves, mut data) = (Vec::new(), Vec::new());
    for (address, bits, datum) in networks {
        let mut node = 0;
        for bit in 0..*bits {
            let side = (u32::from_be_bytes(*address) >> (31 - bit) & 1) as usize;
            if bit + 1 == *bits {
                leaves.push((node, side, data.len() as u32));
            } else {
                let next = nodes[node][side].unwrap_or(nodes.len() as u32);
                if next as usize == nodes.len() {
                    nodes.push([None; 2]);
                }
                nodes[node][side] = Some(next);
                node = next as usize;
            }
        }
        datum.append(&mut data);
    }
    let count = nodes.len() as u32;
    leaves.into_iter().for_each(|(node, side, offset)| nodes[node][side] = Some(count + 16 + offset));
    let mut out = Vec::new();
    for record in nodes.iter().flatten() {
        out.extend_from_slice(&record.unwrap_or(count).to_be_bytes()[1..]);
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let facts = vec![
        ("node_count", Datum::Number(count)),
        ("record_size", Datum::Short(24)),
        ("ip_version", Datum::Short(4)),
        ("binary_format_major_version", Datum::Short(2)),
        ("binary_format_minor_version", Datum::Short(0)),
        ("build_epoch", Datum::Long(0)),
        ("database_type", Datum::Text("Test")),
        ("languages", Datum::Map(Vec::new())),
        ("description", Datum::Map(Vec::new())),
    ];
    let begin = out.len();
    Datum::Map(facts).append(&mut out);
    // The languages are a list, of which the type is written behind its length.
    let key = out[begin..].windows(9).position(|bytes| bytes == b"languages").unwrap();
    out.splice(begin + key + 9..begin + key + 10, [0, 11 - 7]);
    out
}

fn places() -> Vec<u8> {
    let text = |key, text| (key, Datum::Text(text));
    let map = |key, entries| (key, Datum::Map(entries));
    database(&[
        (
            [192, 0, 2, 0],
            24,
            Datum::Map(vec![
                map("city", vec![map("names", vec![text("de", "Köln"), text("en", "Cologne")])]),
                map("country", vec![text("iso_code", "DE")]),
                ("autonomous_system_number", Datum::Number(64_500)),
                text("autonomous_system_organization", "Example Net"),
            ]),
        ),
        ([198, 51, 100, 0], 24, Datum::Map(vec![map("registered_country", vec![text("iso_code", "NL")])])),
    ])
}

#[test]
fn databases_tell_places_and_networks() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), places()).unwrap();
    let path = file.path().to_str().unwrap();
    let flows = vec![flow(1, [[192, 0, 2, 7], [198, 51, 100, 1]], 80), flow(1, [CLIENT, CLIENT], 80)];
    let counted = check(
        flows,
        &[("geoip", path), ("asn", path)],
        &["src_country=DE src_city=Cologne src_asn=64500 src_as_org=Example Net dest_country=NL", ""],
    );
    assert_eq!(counted[1], ("addresses of a damaged database", 0));
}

#[test]
fn a_damaged_database_never_panics() {
    let whole = places();
    for at in 0..whole.len() {
        for damaged in [whole[..at].to_vec(), [&whole[..at], &[whole[at] ^ 0xff], &whole[at + 1..]].concat()] {
            let Ok(database) = Database::read(damaged) else { continue };
            for address in [[192, 0, 2, 7], [198, 51, 100, 1], CLIENT] {
                let _ = database.text(address.into(), &["city", "names", "en"]);
                let _ = database.number(address.into(), &["autonomous_system_number"]);
            }
        }
    }
}

#[test]
fn mistakes_are_told() {
    let error = |given: &[(&'static str, &str)], schemas: &[&'static Schema]| {
        let mut params = Params::new();
        for (key, text) in given {
            params.set(key, KIND.params.iter().find(|param| param.key == *key).unwrap().kind.parse(text).unwrap());
        }
        check_of(&params, schemas).unwrap_err().message
    };
    static NOTHING: Schema = Schema::new("nothing", &[Field::new("count", FieldType::Number)]);
    assert_eq!(error(&[], &[&FLOW]), "it would add nothing");
    assert!(error(&[("dns", "yes")], &[&NOTHING]).contains("no record that comes here"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Database::open(file.path().to_str().unwrap(), "geoip").unwrap_err();
    assert!(error.message.contains("is no database in MaxMind's format"), "{}", error.message);
    assert!(Database::open("/nonexistent/x.mmdb", "geoip").unwrap_err().message.contains("cannot read"));
}
