//! Tests of `dns`: from blocks to records, rendered as JSON.

use super::*;
use crate::json;
use crate::parts::handmade::{Piece, block, facts};
use packet::Flow;
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::{Chain, Outcome};

/// A name on the wire.
fn name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// A header: id 7, `flags`, and the counts of the four sections.
fn header(flags: u16, counts: [u16; 4]) -> Vec<u8> {
    [[7, flags].as_slice(), &counts].concat().into_iter().flat_map(u16::to_be_bytes).collect()
}

fn question(text: &str, kind: u8) -> Vec<u8> {
    [name(text), vec![0, kind, 0, 1]].concat()
}

/// A record whose name is a pointer to offset 12.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[0xc0, 12, 0, kind, 0, 1, 0, 0, 1, 44, 0, data.len() as u8], data].concat()
}

fn query(text: &str) -> Vec<u8> {
    [header(0x0100, [1, 0, 0, 0]), question(text, 1)].concat()
}

fn chain(pieces: Vec<Piece>, protocol: u8, ports: [u16; 2]) -> Outcome {
    chain_of(&[], pieces, protocol, ports)
}

fn chain_of(given: &[(&str, &str)], pieces: Vec<Piece>, protocol: u8, ports: [u16; 2]) -> Outcome {
    let mut facts = facts(1, protocol, 0);
    facts.flow = Flow { source_port: ports[0], target_port: ports[1], ..facts.flow };
    let of = if protocol == protocol::UDP { Type::Message } else { Type::Bytes };
    Chain::pieces(of, None, pieces).streams(&[facts]).then(&KIND, given).then(&json::KIND, &[]).run()
}

fn records(outcome: &Outcome) -> Vec<Value> {
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Compares the `dns` object in the record of one datagram.
fn check(message: &[u8], expected: Value) {
    let whole = Flags::FIRST.with(Flags::LAST);
    let outcome = chain(vec![block(0, whole, message, 0)], protocol::UDP, [4000, 53]);
    let found: Vec<_> = records(&outcome).into_iter().map(|mut record| record["dns"].take()).collect();
    assert_eq!(found, [expected]);
}

#[test]
fn messages() {
    check(
        &query("www.example.org"),
        json!({"type": "request", "id": 7, "flags": "100", "rd": true, "opcode": 0, "rrname": "www.example.org", "rrtype": "A"}),
    );
    // Labels may hold any bytes, even dots and control characters.
    let label = [header(0, [1, 0, 0, 0]), vec![6], b"a.b\\\x1b ".to_vec(), name("x"), vec![0, 16, 0, 1]].concat();
    check(
        &label,
        json!({"type": "request", "id": 7, "flags": "0", "opcode": 0, "rrname": "a.b\\\\\\027 .x", "rrtype": "TXT"}),
    );
    let two = [header(0, [2, 0, 0, 0]), question("a.local", 12), question("b.local", 28)].concat();
    let queries = json!([{"rrname": "a.local", "rrtype": "PTR"}, {"rrname": "b.local", "rrtype": "AAAA"}]);
    check(
        &two,
        json!({"type": "request", "id": 7, "flags": "0", "opcode": 0, "rrname": "a.local", "rrtype": "PTR", "queries": queries}),
    );
    let answers = [
        record(1, &[192, 0, 2, 1]),
        record(5, &[1, b'b', 0xc0, 16]),
        record(15, &[0, 10, 0xc0, 12]),
        record(16, b"\x03v=1\x02 x"),
        record(33, &[0, 1, 0, 2, 0, 80, 0xc0, 12]),
        record(43, &[1, 0, 8, 2, 0xab]),
        record(44, &[4, 1, 0xcd]),
        record(52, &[3, 1, 1, 0xef]),
        record(65, b"\0\x01\0\0\x01\0\x06\x02h3\x02h2\0\x03\0\x02\x01\xbb\0\x04\0\x04\xc0\0\x02\x01\0\x09\0\x01\xaa"),
        record(35, b"\0\x01\0\x02\x01u\0\x03!a!\0"),
        record(200, &[0xde, 0xad]),
        record(1, &[1, 2]),
    ];
    let authority = record(6, &[name("ns.x"), name("me.x"), vec![0, 0, 0, 9], vec![0; 16]].concat());
    let response = [header(0x8783, [1, 12, 1, 0]), question("www.x", 1), answers.concat(), authority].concat();
    let answer = |kind: &str, data: &str| json!({"name": "www.x", "rrtype": kind, "ttl": 300, "rdata": data});
    check(
        &response,
        json!({
            "type": "response", "id": 7, "flags": "8783", "aa": true, "tc": true, "rd": true, "ra": true, "opcode": 0,
            "rcode": "NXDOMAIN", "rrname": "www.x", "rrtype": "A",
            "answers": [
                answer("A", "192.0.2.1"), answer("CNAME", "b.x"), answer("MX", "10 www.x"), answer("TXT", "v=1 x"),
                answer("SRV", "1 2 80 www.x"),
                answer("DS", "256 8 2 ab"), answer("SSHFP", "4 1 cd"), answer("TLSA", "3 1 1 ef"),
                answer("HTTPS", "1 . alpn=h3,h2 port=443 ipv4hint=192.0.2.1 key9=aa"),
                answer("NAPTR", "1 2 \"u\" \"\" \"!a!\" ."), answer("TYPE200", "\\# 2 dead"), answer("A", "\\# 2 0102"),
            ],
            "authorities": [answer("SOA", "ns.x me.x 9")],
        }),
    );
    // A cut message gives the records before the cut.
    let cut = [header(0x8380, [1, 2, 0, 0]), question("www.x", 1), record(1, &[192, 0, 2, 1]), vec![0xc0]].concat();
    check(
        &cut,
        json!({
            "type": "response", "id": 7, "flags": "8380", "tc": true, "rd": true, "ra": true, "opcode": 0, "rcode": "NOERROR",
            "rrname": "www.x", "rrtype": "A", "answers": [answer("A", "192.0.2.1")],
        }),
    );
}

#[test]
fn lists_are_bounded() {
    let many = [header(0x8000, [1, 300, 0, 0]), question("x", 1), record(1, &[1, 2, 3, 4]).repeat(300)].concat();
    let outcome = chain(vec![block(1, Flags::FIRST.with(Flags::LAST), &many, 0)], protocol::UDP, [4000, 53]);
    assert_eq!(records(&outcome)[0]["dns"]["answers"].as_array().unwrap().len(), DNS_ROWS);
    assert_eq!(outcome.counters("dns").events.get("dns records not listed"), 300 - DNS_ROWS as u64);
}

#[test]
fn what_is_not_dns_is_rejected() {
    let check = |bytes: &[u8], ports: [u16; 2], records_expected: usize| {
        let outcome = chain(vec![block(0, Flags::FIRST.with(Flags::LAST), bytes, 0)], protocol::UDP, ports);
        assert_eq!(records(&outcome).len(), records_expected, "{bytes:?} {ports:?}");
        assert_eq!(outcome.counters("dns").blocks_rejected, 1 - records_expected as u64);
    };
    for (ports, expected) in [([53, 4000], 1), ([4000, 5353], 1), ([5355, 4000], 1), ([4000, 54], 0)] {
        check(&query("x"), ports, expected);
    }
    let pieces = vec![block(0, Flags::FIRST.with(Flags::LAST), &query("x"), 0)];
    let outcome = chain_of(&[("ports", "53,5355:5400")], pieces, protocol::UDP, [5360, 80]);
    assert_eq!(records(&outcome).len(), 1);
    check(b"", [4000, 53], 0);
    check(b"not a message at all", [4000, 53], 0);
    check(&query("x")[..11], [4000, 53], 0);
}

/// Messages of a stream, each behind its length.
fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [&(message.len() as u16).to_be_bytes()[..], message].concat()).collect()
}

fn names(outcome: &Outcome) -> Vec<String> {
    records(outcome).iter().map(|record| record["dns"]["rrname"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_gap_costs_the_messages_it_touches() {
    let messages = ["one", "two", "three", "four"].map(query);
    let bytes = stream(&messages);
    let outcome = chain(
        vec![
            block(0, Flags::FIRST, &bytes[..30], 0),
            // Lost: the rest of `two`, and the beginning of `three`. This block has a middle part of `three`.
            block(0, Flags::GAP_BEFORE, &bytes[50..60], 20),
            block(0, Flags::LAST, &stream(&messages[3..]), 0),
        ],
        protocol::TCP,
        [4000, 53],
    );
    assert_eq!(names(&outcome), ["one", "four"]);
    assert_eq!(outcome.counters("dns").events.get("dns messages whose rest is missing"), 1);
    assert_eq!(outcome.counters("dns").blocks_rejected, 1);
}

#[test]
fn a_stream_of_something_else_is_not_kept() {
    let outcome = chain(
        vec![block(0, Flags::FIRST, &[0x7f; 500], 0), block(0, Flags::LAST, &[0; 500], 0)],
        protocol::TCP,
        [4000, 53],
    );
    assert_eq!((names(&outcome).len(), outcome.counters("dns").blocks_rejected), (0, 2));
    let outcome = chain(vec![block(0, Flags::FIRST, &stream(&[query("x")]), 0)], protocol::TCP, [4000, 80]);
    assert_eq!((names(&outcome).len(), outcome.counters("dns").blocks_rejected), (0, 1));
}

proptest! {
    /// The segments of a stream do not change its messages.
    #[test]
    fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..140, 0..12)) {
        let texts = ["one.example", "two.example", "a.very.long.name.of.a.host.example", "four"];
        let bytes = stream(&texts.map(query));
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| block(0, Flags::NONE, &bytes[ends[0]..ends[1]], 0)).collect();
        prop_assert_eq!(names(&chain(pieces, protocol::TCP, [4000, 53])), texts);
    }

    /// Any bytes become records or are rejected.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400), udp: bool) {
        let number = if udp { protocol::UDP } else { protocol::TCP };
        let start = header(0x0100, [1, 0, 0, 0]);
        for bytes in [bytes.clone(), [start.clone(), bytes.clone()].concat(), stream(&[[start, bytes].concat()])] {
            let outcome = chain(vec![block(0, Flags::FIRST.with(Flags::LAST), &bytes, 0)], number, [53, 53]);
            prop_assert!(records(&outcome).len() <= 1 + bytes.len() / 17);
        }
    }
}

/// A length in front of something else still says where the next message begins, whole or in pieces.
#[test]
fn junk_between_messages_hides_none() {
    let bytes = stream(&[query("one"), b"abcde".to_vec(), query("two")]);
    for size in [1, 7, bytes.len()] {
        let pieces = bytes.chunks(size).map(|piece| block(0, Flags::NONE, piece, 0)).collect();
        assert_eq!(names(&chain(pieces, protocol::TCP, [4000, 53])), ["one", "two"], "{size}");
    }
}
