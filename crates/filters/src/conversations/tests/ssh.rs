//! The filter `ssh`: its records, and the blocks that it rejects.

use crate::conversations::ssh::KIND;
use crate::conversations::*;
use crate::json;
use crate::parts::handmade::{Piece, block, facts};
use proptest::prelude::*;
use protocols::ssh::Conversation;
use serde_json::{Value, json};
use testkit::{Chain, Outcome};

fn offer(cipher: &str) -> Vec<u8> {
    let lists = ["kex", "key", cipher, "c2", "m1", "m2", "none", "zlib", "", ""];
    let lists = lists.map(|list| [&(list.len() as u32).to_be_bytes()[..], list.as_bytes()].concat());
    let payload = [&[20][..], &[7; 16], &lists.concat(), &[0; 5]].concat();
    [&(payload.len() as u32 + 5).to_be_bytes()[..], &[4], &payload, &[0; 4]].concat()
}

fn said(line: &[u8]) -> Vec<u8> {
    [line, &offer("c1")].concat()
}

fn run(pieces: Vec<Piece>) -> Outcome {
    Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[]).then(&json::KIND, &[]).run()
}

fn found(outcome: &Outcome) -> Vec<Value> {
    let record = |line| serde_json::from_str::<Value>(line).unwrap()["ssh"].take();
    outcome.stdout.lines().map(record).collect()
}

fn both() -> Value {
    json!({
        "client": {"proto_version": "2.0", "software_version": "c",
            "hassh": {"hash": "c2cb1fe1c721da87c60fd6b5208daa17", "string": "kex;c1;m1;none"}},
        "server": {"proto_version": "1.99", "software_version": "s",
            "hassh": {"hash": "61970fb30a77b15227a3a4f2ad59f759", "string": "kex;c2;m2;zlib"}},
    })
}

#[test]
fn a_record_when_both_have_spoken() {
    let (client, server) = (said(b"SSH-2.0-c\r\n"), said(b"SSH-1.99-s comment\r\n"));
    let pieces = vec![
        block(1, Flags::FIRST, &server[..5], 0),
        block(0, Flags::FIRST, &client, 0),
        block(1, Flags::NONE, &server[5..], 0),
        block(0, Flags::NONE, b"encrypted", 0),
    ];
    let outcome = run(pieces);
    assert_eq!(found(&outcome), [both()]);
    assert_eq!(outcome.counters("ssh").blocks_rejected, 1);
    let line: Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&line["src_port"], &line["dest_port"]), (&json!(4000), &json!(80)));
}

#[test]
fn one_side() {
    let server = json!([{"server": {"proto_version": "2.0", "software_version": "s\\027"}}]);
    let outcome = run(vec![block(1, Flags::FIRST, b"SSH-2.0-s\x1b\r\n", 0)]);
    assert_eq!(json!(found(&outcome)), server);
    let outcome = run(vec![block(0, Flags::FIRST, b"GET / HTTP/1.1\r\n\x00", 0), block(1, Flags::FIRST, b"\x16", 0)]);
    assert_eq!((found(&outcome).len(), outcome.counters("ssh").blocks_rejected), (0, 2));
    let client = said(b"SSH-2.0-c\r\n");
    let outcome = run(vec![block(0, Flags::FIRST, &client[..20], 0), block(0, Flags::GAP_BEFORE, &client[30..], 10)]);
    assert_eq!(outcome.counters("ssh").events.get("ssh openings whose rest is missing"), 1);
    let client = json!([{"client": {"proto_version": "2.0", "software_version": "c"}}]);
    assert_eq!(json!(found(&outcome)), client);
}

#[test]
fn text_of_other_protocols_is_rejected() {
    let pieces =
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n", b"GET /SSH-2.0-x HTTP/1.1\r\n\r\n", b"OK\r\n"];
    let outcome = run((0..).zip(pieces).map(|(at, bytes)| block(at % 2, Flags::NONE, bytes, 0)).collect());
    assert_eq!((found(&outcome).len(), outcome.counters("ssh").blocks_rejected), (0, 4));
    let server = [&b"Welcome\r\n"[..], b"SSH-2.0-s\r\n"];
    let outcome = run(server.map(|bytes| block(1, Flags::NONE, bytes, 0)).to_vec());
    assert_eq!(json!(found(&outcome)), json!([{"server": {"proto_version": "2.0", "software_version": "s"}}]));
    assert_eq!(outcome.counters("ssh").blocks_rejected, 1);
}

/// `ssh` with memory for one side of a connection, but not for both.
static SMALL: Kind =
    Kind::new("ssh", "", |_, _| Ok(Instance::session(SessionKey::Connection, Talks::<Conversation>::new(60))))
        .takes(&[Type::Bytes])
        .rejects()
        .gives_records(Of::<Conversation>::SCHEMA)
        .mode(Mode::Session(SessionKey::Connection));

#[test]
fn what_sides_said_counts_as_kept_until_it_is_given() {
    let pieces = (0..2).flat_map(|connection| {
        let client = block(2 * connection, Flags::FIRST, &said(b"SSH-2.0-c\r\n"), 0);
        [client, block(2 * connection + 1, Flags::FIRST, &said(b"SSH-1.99-s\r\n"), 0)]
    });
    let outcome = Chain::pieces(Type::Bytes, None, pieces.collect())
        .streams(&[facts(4000, 6, 0), facts(4001, 6, 0)])
        .then(&SMALL, &[])
        .then(&json::KIND, &[])
        .run();
    // The server's algorithms have no room.
    let record = json!({"client": both()["client"], "server": {"proto_version": "1.99", "software_version": "s"}});
    assert_eq!(found(&outcome), [record.clone(), record]);
    assert_eq!(outcome.counters("ssh").events.get("texts left out for want of memory"), 4);
}

proptest! {
    /// The record does not depend on how the streams are cut into segments.
    #[test]
    fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..150, 0..12)) {
        let sides = [said(b"SSH-2.0-c\r\n"), said(b"SSH-1.99-s\r\n")];
        let mut pieces = Vec::new();
        for (class, bytes) in (0..).zip(&sides) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| *cut.min(&bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            pieces.extend(cuts.windows(2).map(|ends| block(class, Flags::NONE, &bytes[ends[0]..ends[1]], 0)));
        }
        prop_assert_eq!(found(&run(pieces)), [both()]);
    }

    #[test]
    fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5), like: bool) {
        let head: &[u8] = if like { b"SSH-2.0-x\r\n\0\0\0" } else { &[] };
        let pieces = (0..).zip(&blocks).map(|(at, bytes)| block(at % 2, Flags::NONE, &[head, bytes].concat(), 0));
        prop_assert!(found(&run(pieces.collect())).len() <= 1);
    }
}
