//! What a filter's record says of the bytes of a protocol, and what an alert of `rules` says of them, is the same.
//!
//! A row of `agreement/protocols.rs` is a protocol. Its captures are read as they are, and in variants
//! (`agreement/variants.rs`): without each packet, up to each packet, and with each segment cut in two. The values of
//! each connection are compared field by field, as sets: an alert has what is known at its time, so a value may be in
//! several alerts.

mod made;
mod protocols;
mod variants;

use self::protocols::{PROTOCOLS, Protocol, Value, of_facts};
use filter::Type;
use filters::{decap, json};
use inspection::rules;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use testkit::{Chain, shared};
use variants::{Capture, Piece};

/// The values of each connection, by the ends of the connection and by name.
type Said = BTreeMap<(String, &'static str), BTreeSet<String>>;

/// Adds every text and number under `path`, at any depth of lists.
fn collect(value: &Json, path: &[&str], found: &mut BTreeSet<String>) {
    match (value, path) {
        (Json::Array(items), _) => items.iter().for_each(|item| collect(item, path, found)),
        (Json::Object(fields), [first, rest @ ..]) => {
            fields.get(*first).into_iter().for_each(|it| collect(it, rest, found));
        }
        (Json::String(text), []) => drop(found.insert(text.clone())),
        (Json::Null | Json::Object(_), _) | (_, [_, ..]) => {}
        (value, []) => drop(found.insert(value.to_string())),
    }
}

fn values(row: &Json, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(row, &name.split('.').collect::<Vec<_>>(), &mut found);
    found
}

/// The ends of the connection of a row, whichever of them sent.
fn connection(row: &Json) -> String {
    let end = |ip: &str, port: &str| format!("{} {}", row[ip], row[port]);
    let mut ends = [end("src_ip", "src_port"), end("dest_ip", "dest_port")];
    ends.sort();
    ends.join(" ")
}

/// Collects the values of rows of JSON. `names`: the names of a value in a row.
fn said(rows: &str, protocol: &Protocol, names: impl Fn(&Json, &Value) -> &'static [&'static str]) -> Said {
    let mut said = Said::new();
    for row in rows.lines().map(|row| serde_json::from_str::<Json>(row).unwrap()) {
        for value in protocol.values {
            let found: BTreeSet<_> = names(&row, value).iter().flat_map(|name| values(&row, name)).collect();
            if !found.is_empty() {
                said.entry((connection(&row), value.alert[0])).or_default().extend(found);
            }
        }
    }
    said
}

fn records(protocol: &Protocol, link: u16, pieces: &[Piece]) -> Said {
    let mut all = Said::new();
    for maker in protocol.makers {
        let params: &[(&str, &str)] = if maker.name == "tcp" { &[("checksum", "no")] } else { &[] };
        let chain = Chain::pieces(Type::Frame, Some(link), pieces.to_vec()).then(&decap::KIND, &[]).then(maker, params);
        let rows = chain.then(protocol.kind, protocol.params).then(&json::KIND, &[]).run().stdout;
        let has = |row: &Json, (field, text): (&str, &str)| values(row, field).contains(text);
        let names = |row: &Json, value: &Value| match value.only {
            Some(only) if !has(row, only) => &[][..],
            _ => value.record,
        };
        for (place, found) in said(&rows, protocol, names) {
            all.entry(place).or_default().extend(found);
        }
    }
    all
}

fn alerts(protocol: &Protocol, rules_file: &Path, link: u16, pieces: &[Piece]) -> Said {
    let chain = Chain::pieces(Type::Frame, Some(link), pieces.to_vec());
    let rows = chain.then(&rules::KIND, &[("file", rules_file.to_str().unwrap())]).then(&json::KIND, &[]).run().stdout;
    said(&rows, protocol, |_, value| value.alert)
}

/// The values of which different things are said, by protocol and name in alerts, each with an example.
type Differing = BTreeMap<(&'static str, &'static str), String>;

/// Compares what is said of a capture and of its variants at every `step`-th packet. Returns whether anything is.
fn compare(
    protocol: &Protocol,
    rules_file: &Path,
    name: &str,
    capture: &Capture,
    step: usize,
    differing: &mut Differing,
) -> bool {
    let link = capture.link.0;
    for (at, (what, pieces)) in capture.variants(step).into_iter().enumerate() {
        let (records, alerts) = (records(protocol, link, &pieces), alerts(protocol, rules_file, link, &pieces));
        if at == 0 && records.is_empty() && alerts.is_empty() {
            return false;
        }
        for place in records.keys().chain(alerts.keys()) {
            let (record, alert) = (records.get(place), alerts.get(place));
            if record != alert {
                differing.entry((protocol.name, place.1)).or_insert_with(|| {
                    let ends = &place.0;
                    format!("{name} {what}, {ends}:\n    record {record:?}\n    alert  {alert:?}")
                });
            }
        }
    }
    true
}

/// Writes a file with the rules of a protocol.
fn write_rules(protocol: &Protocol, folder: &Path) -> PathBuf {
    let file = folder.join(protocol.name);
    let rule = |(sid, options)| format!("alert {} any any -> any any ({options} sid:{sid};)\n", protocol.name);
    std::fs::write(&file, (1..).zip(protocol.rules).map(rule).collect::<String>()).unwrap();
    file
}

/// Fails for values of which record and alert say different things.
fn check(differing: &Differing) {
    let wrong = differing.iter().map(|((protocol, value), example)| format!("{protocol} {value}: {example}"));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn records_and_alerts_of_bundled_captures_agree() {
    let folder = tempfile::tempdir().unwrap();
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    let mut differing = Differing::new();
    for protocol in PROTOCOLS {
        let rules_file = write_rules(protocol, folder.path());
        for (name, step) in protocol.captures {
            let capture = Capture::read(&bundled.join(name)).unwrap();
            compare(protocol, &rules_file, name, &capture, *step, &mut differing);
        }
        for (number, make) in protocol.made.iter().enumerate() {
            compare(protocol, &rules_file, &format!("made by hand, {number}"), &make(), 1, &mut differing);
        }
    }
    let talks = Capture::read(&bundled.join("talks.pcap")).unwrap().connections();
    for protocol in of_facts() {
        let rules_file = write_rules(&protocol, folder.path());
        let mut are_there = false;
        for capture in &talks {
            are_there |= compare(&protocol, &rules_file, "talks.pcap", capture, 1, &mut differing);
        }
        assert!(are_there, "no connection of talks.pcap is of {}", protocol.name);
    }
    check(&differing);
}

#[test]
fn records_and_alerts_of_shared_captures_agree() {
    /// Larger captures are not read.
    const CAPTURE_BYTES: u64 = 12_000;
    /// The approximate number of packets of a capture at which variants are made.
    const PACKETS: usize = 3;
    let Some(shared) = shared::whole() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut differing = Differing::new();
    let talks = of_facts();
    let protocols = PROTOCOLS.iter().chain(&talks);
    let rules: Vec<_> = protocols.map(|protocol| (protocol, write_rules(protocol, folder.path()))).collect();
    for file in shared::sorted(&shared.join("captures")) {
        if file.metadata().unwrap().len() > CAPTURE_BYTES {
            continue;
        }
        let Some(capture) = Capture::read(&file) else { continue };
        let (name, step) = (file.file_name().unwrap().to_string_lossy(), capture.pieces.len() / PACKETS + 1);
        for (protocol, rules_file) in &rules {
            compare(protocol, rules_file, &name, &capture, step, &mut differing);
        }
    }
    check(&differing);
}
