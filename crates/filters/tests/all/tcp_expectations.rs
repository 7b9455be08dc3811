//! Runs `tcp` on the shared captures. tshark, tcpflow and an independent reader made the expected streams.

use crate::shared_captures;
use filter::prelude::*;
use filters::{decap, pcap, tcp};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use testkit::{Chain, Outcome, shared};

/// The number of directions by length and hash.
type Directions = BTreeMap<(u64, String), i64>;

/// Differences that are right: capture, bytes of the direction that the expectations lack, and why.
const ARGUED: [(&str, u64, &str); 1] = [(
    "pcap2har__out-of-order.pcap",
    309_716,
    "the server answers a repeated SYN with a second SYN/ACK and another sequence number, which the client never \
     acknowledges; the reference reader follows it and loses the direction, tcpflow gives these bytes",
)];

fn run(capture: &Path, given: &[(&str, &str)]) -> Outcome {
    let file = capture.to_str().expect("a name in UTF-8");
    Chain::source(&pcap::KIND, &[("file", file)]).then(&decap::KIND, &[]).then(&tcp::KIND, given).run()
}

/// The directions that have bytes. `agreed`: only those that a second tool has too.
fn expected(expectation: &Value, agreed: bool) -> Directions {
    let mut directions = Directions::new();
    let streams = expectation["tcp_streams"].as_array().into_iter().flatten();
    for direction in streams.flat_map(|stream| stream["dirs"].as_object().into_iter().flat_map(|dirs| dirs.values())) {
        let bytes = direction["bytes"].as_u64().expect("a number");
        let is_agreed = direction["agree"].as_array().is_some_and(|peers| !peers.is_empty());
        if bytes > 0 && (is_agreed || !agreed) {
            let hash = direction["sha256"].as_str().expect("a hash").to_string();
            *directions.entry((bytes, hash)).or_default() += 1;
        }
    }
    directions
}

/// The directions in the output, with gaps closed. Also checks what must hold for every stream.
fn found(outcome: &Outcome) -> Directions {
    let mut states = BTreeMap::<u32, (bool, bool)>::new();
    for block in &outcome.blocks {
        let descriptor = &block.descriptor;
        let (opened, done) = states.entry(descriptor.class.0).or_default();
        assert_eq!(descriptor.has(Flags::FIRST), !*opened, "FIRST once, in front: {descriptor:?}");
        assert!(!*done, "nothing after LAST: {descriptor:?}");
        *opened = true;
        *done = descriptor.has(Flags::LAST);
        assert!(block.from_source || block.bytes.is_empty(), "copied: {descriptor:?}");
        assert!(block.stream.is_some(), "no facts: {descriptor:?}");
        assert_eq!(descriptor.wire() > descriptor.len, descriptor.has(Flags::GAP_BEFORE), "{descriptor:?}");
    }
    for (class, (_, done)) in &states {
        assert!(*done && states.contains_key(&(class ^ 1)), "both directions of {class} end");
    }
    let mut directions = Directions::new();
    for bytes in outcome.by_class().into_values().filter(|bytes| !bytes.is_empty()) {
        let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        *directions.entry((bytes.len() as u64, hash)).or_default() += 1;
    }
    directions
}

/// The directions that are in `one` more often than in `other`.
fn beyond(one: &Directions, other: &Directions) -> Vec<(u64, String)> {
    let rest = |(key, count): (&(u64, String), &i64)| {
        let count = count - other.get(key).copied().unwrap_or_default();
        (count > 0).then(|| key.clone())
    };
    one.iter().filter_map(rest).collect()
}

/// The differences in one capture, in words.
fn differences(name: &str, outcome: &Outcome, expectation: &Value) -> Vec<String> {
    let (all, agreed) = (expected(expectation, false), expected(expectation, true));
    let found = found(outcome);
    let exact = all == agreed && expectation["tcp_streams_unconfirmed"] == 0;
    let mut differences = Vec::new();
    for (bytes, hash) in beyond(&agreed, &found) {
        differences.push(format!("missing: {bytes} bytes, {}", &hash[..12]));
    }
    if exact {
        let argued = |bytes: u64| ARGUED.iter().any(|(known, size, _)| (*known, *size) == (name, bytes));
        for (bytes, hash) in beyond(&found, &agreed).into_iter().filter(|(bytes, _)| !argued(*bytes)) {
            differences.push(format!("too many: {bytes} bytes, {}", &hash[..12]));
        }
    }
    differences
}

#[test]
fn streams_are_those_the_peers_found() {
    let folder = shared::data();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for path in shared_captures::sorted(&folder.join("expected")) {
        let name = path.file_stem().expect("a name").to_str().expect("in UTF-8");
        let expectation: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let has_streams = expectation["tcp_streams"].as_array().is_some_and(|streams| !streams.is_empty());
        if !has_streams {
            continue;
        }
        compared += 1;
        let outcome = run(&folder.join("captures").join(name), shared_captures::JOINED);
        wrong
            .extend(differences(name, &outcome, &expectation).iter().map(|difference| format!("{name}: {difference}")));
    }
    assert!(compared > shared::part(80), "only {compared} captures with streams");
    assert!(wrong.is_empty(), "of {compared} captures:\n{}", wrong.join("\n"));
}

/// Three connections with the same addresses and ports in different VLANs, and in different networks of VXLAN.
#[test]
fn connections_in_different_vlans_and_tunnels_are_apart() {
    let Some(folder) = shared_captures::whole() else { return };
    let rows = [("zeek__vlan-collisions.pcap", "vlan"), ("zeek__vxlan-overlapping-http-get.pcap", "tunnel")];
    for (name, key) in rows {
        let count = |given: &[(&str, &str)]| {
            let outcome = run(&folder.join("captures").join(name), given);
            let connections = outcome.counters("tcp").events.get("connections");
            (connections, outcome.by_class().values().filter(|bytes| bytes.len() == 136).count())
        };
        assert_eq!((count(&[]), count(&[(key, "ignore")])), ((3, 3), (1, 1)), "{name}");
    }
}
