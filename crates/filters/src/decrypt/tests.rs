//! The connections of captures/https.pcap, whole, cut, with bytes or secrets missing.

use super::*;
use crate::parts::handmade::{Piece, block, facts};
use crate::{pcap, tcp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use testkit::{Chain, Outcome};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/");

fn path(name: &str) -> String {
    format!("{FOLDER}{name}")
}

/// The streams of the capture, as `tcp` gives them. Each connection has a number of its own, in their order.
fn pieces() -> Vec<Piece> {
    let outcome = Chain::source(&pcap::KIND, &[("file", &path("https.pcap"))]).then(&tcp::KIND, &[]).run();
    assert_eq!(outcome.failure, None);
    let mut ports = Vec::new();
    let piece = |block: testkit::chain::Block| {
        let port = block.stream.expect("it has one").flow.source_port;
        let number = ports.iter().position(|known| *known == port).unwrap_or_else(|| {
            ports.push(port);
            ports.len() - 1
        });
        let class = Class::of_stream(number as u32, block.descriptor.class.direction());
        (Descriptor { class, ..block.descriptor }, block.bytes)
    };
    outcome.blocks.into_iter().map(piece).collect()
}

fn run(pieces: Vec<Piece>, keys: &str) -> Outcome {
    let streams: Vec<_> = (0..4).map(|number| facts(4000 + number, 6, 0)).collect();
    Chain::pieces(Type::Bytes, None, pieces).streams(&streams).then(&KIND, &[("keylog", keys)]).run()
}

fn events(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    outcome.counters("decrypt").events.iter().collect()
}

fn text_of(outcome: &Outcome, class: u32) -> String {
    String::from_utf8_lossy(outcome.by_class().get(&class).map_or(&[][..], Vec::as_slice)).into_owned()
}

#[test]
fn what_the_ends_said() {
    let outcome = run(pieces(), &path("https.keys"));
    assert_eq!(events(&outcome), []);
    for (class, begins, ends) in [
        // HTTP/2, HTTP/1.1 by TLS 1.3 and 1.2, and with an update of keys between two requests.
        (0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        (2, "GET /page.html HTTP/1.1\r\n", "\r\n\r\n"),
        (3, "HTTP/1.1 200 OK\r\n", "<p>A secret page.</p>\n"),
        (5, "HTTP/1.1 200 OK\r\n", "{\"answer\": 42}\n"),
        (6, "GET /page.html HTTP/1.1\r\n", "Connection: close\r\n\r\n"),
        (7, "HTTP/1.1 200 OK\r\n", "{\"answer\": 42}\n"),
    ] {
        let text = text_of(&outcome, class);
        assert!(text.starts_with(begins) && text.ends_with(ends), "{class}: {text}");
    }
    for class in 0..8 {
        let blocks: Vec<_> = outcome.blocks.iter().filter(|block| block.descriptor.class.0 == class).collect();
        let has = |flag| blocks.iter().map(|block| block.descriptor.has(flag)).collect::<Vec<bool>>();
        let (first, last) = (has(Flags::FIRST), has(Flags::LAST));
        assert!(first[0] && first[1..].iter().all(|is_first| !is_first), "{class}: {first:?}");
        let (end, before) = last.split_last().unwrap();
        assert!(*end && before.iter().all(|is_last| !is_last), "{class}: {last:?}");
    }
}

/// The pieces cut into others of at most `size` bytes, except those with which a connection begins.
fn cut(pieces: Vec<Piece>, size: usize) -> Vec<Piece> {
    let cut = |(descriptor, bytes): Piece| -> Vec<Piece> {
        if bytes.len() <= size || descriptor.has(Flags::FIRST) {
            return vec![(descriptor, bytes)];
        }
        let mut parts: Vec<Piece> =
            bytes.chunks(size).map(|bytes| block(descriptor.class.0, Flags::NONE, bytes, 0)).collect();
        let last = if descriptor.has(Flags::LAST) { Flags::LAST } else { Flags::NONE };
        parts.last_mut().unwrap().0.add_flags(last);
        parts
    };
    pieces.into_iter().flat_map(cut).collect()
}

#[test]
fn it_does_not_matter_how_records_are_cut() {
    let whole = run(pieces(), &path("https.keys")).by_class();
    for size in [1, 7, 100] {
        let outcome = run(cut(pieces(), size), &path("https.keys"));
        assert_eq!(outcome.by_class(), whole, "{size}");
        assert_eq!(events(&outcome), []);
    }
}

#[test]
fn other_streams_go_through() {
    let pieces = vec![
        block(0, Flags::FIRST, b"GET / HTTP/1.1\r\n", 0),
        block(1, Flags::FIRST, b"\x16\x03", 0),
        block(0, Flags::LAST.with(Flags::GAP_BEFORE), b"\r\n", 3),
    ];
    let outcome = run(pieces, &path("https.keys"));
    assert_eq!(text_of(&outcome, 0), "GET / HTTP/1.1\r\n\r\n");
    assert_eq!(text_of(&outcome, 1), "\x16\x03");
    assert_eq!(outcome.blocks.iter().map(|block| block.descriptor.gap()).sum::<u32>(), 3);
}

#[test]
fn what_stands_before_a_hello_comes_out() {
    let mut all = pieces();
    let hello = all.iter().position(|(descriptor, _)| descriptor.class.0 == 2).unwrap();
    all[hello].0.set_flags(Flags::NONE);
    all.insert(hello, block(2, Flags::FIRST, b"CONNECT example.test:443 HTTP/1.1\r\n\r\n", 0));
    let text = text_of(&run(all, &path("https.keys")), 2);
    assert!(text.starts_with("CONNECT example.test:443 HTTP/1.1\r\n\r\nGET /page.html HTTP/1.1\r\n"), "{text}");
}

#[test]
fn without_a_secret_or_with_a_wrong_one_nothing_comes_out() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let outcome = run(pieces(), log.path().to_str().unwrap());
    assert!(outcome.by_class().values().all(Vec::is_empty));
    let bytes = outcome.counters("decrypt").events.get("bytes of tls not decrypted");
    assert!(bytes > 2000, "{bytes}");
    assert_eq!(outcome.counters("decrypt").events.get("tls connections without a secret in the key log"), 4);
    // The last digit of each secret is another one.
    let right = std::fs::read_to_string(path("https.keys")).unwrap();
    let wrong = |line: &str| {
        let (rest, digit) = line.split_at(line.len() - 1);
        format!("{rest}{}\n", if digit == "0" { "1" } else { "0" })
    };
    std::fs::write(log.path(), right.lines().map(wrong).collect::<String>()).unwrap();
    let outcome = run(pieces(), log.path().to_str().unwrap());
    assert!(outcome.by_class().values().all(Vec::is_empty));
    assert!(outcome.counters("decrypt").events.get("tls records not decrypted") > 8);
    assert!(Chain::pieces(Type::Bytes, None, vec![]).then(&KIND, &[("keylog", "/nowhere/x")]).refusal().is_some());
}

/// Of the connection with two responses, bytes are missing in the record of the first one.
#[test]
fn missing_bytes_within_a_record_cost_that_record() {
    let whole = run(pieces(), &path("https.keys"));
    let mut all = pieces();
    let is_response =
        |at: &usize| all[*at].0.class.0 == 7 && all[*at].1.len() > 200 && all[*at].1.starts_with(&[23, 3, 3]);
    let page = (0..all.len()).filter(is_response).rev().nth(1).unwrap();
    let bytes = all[page].1.clone();
    let (front, back) = (bytes[..60].to_vec(), bytes[100..].to_vec());
    all[page] = block(7, Flags::NONE, &front, 0);
    all.insert(page + 1, block(7, Flags::GAP_BEFORE, &back, 40));
    let outcome = run(all, &path("https.keys"));
    let (before, after) = (text_of(&whole, 7), text_of(&outcome, 7));
    assert!(after.len() < before.len() && before.contains(&after) && after.ends_with("{\"answer\": 42}\n"), "{after}");
    let gaps: u32 = outcome.blocks.iter().map(|block| block.descriptor.gap()).sum();
    assert_eq!(gaps as usize, before.len() - after.len());
    // Where the next record begins is not known: the rest is counted.
    let mut all = pieces();
    all[page] = block(7, Flags::GAP_BEFORE, &bytes, 1000);
    let outcome = run(all, &path("https.keys"));
    assert!(!text_of(&outcome, 7).contains("HTTP/1.1"));
    assert_eq!(outcome.counters("decrypt").events.get("tls directions given up behind missing bytes"), 1);
    let is_last = |block: &&testkit::chain::Block| block.descriptor.class.0 == 7 && block.descriptor.has(Flags::LAST);
    assert!(outcome.blocks.iter().find(is_last).unwrap().descriptor.has(Flags::TRUNCATED));
}

/// Secrets that are known only from the given block on.
struct Late {
    log: KeyLog,
    is_there: bool,
    contents: BTreeMap<usize, Vec<u8>>,
    counted: Vec<&'static str>,
}

impl Ends for Late {
    fn secret(&mut self, random: &[u8; 32], label: Label) -> Option<Secret> {
        self.log.find(random, label).filter(|_| self.is_there)
    }

    fn contents(&mut self, side: Side, bytes: &[u8], _gap: u32) {
        self.contents.entry(side.index()).or_default().extend_from_slice(bytes);
    }

    fn count(&mut self, event: &'static str, count: u64) {
        if count > 0 {
            self.counted.push(event);
        }
    }
}

/// Feeds one connection of the capture, whose secrets come before block `late`.
fn with_secrets_at(number: u32, late: usize) -> Late {
    let log = KeyLog::open(Path::new(&path("https.keys"))).unwrap();
    let mut ends = Late { log, is_there: false, contents: BTreeMap::new(), counted: Vec::new() };
    let (carried, mut scratch, mut connection) = (Carried::new(1 << 20), Vec::new(), Connection::default());
    let all: Vec<Piece> = pieces().into_iter().filter(|(block, _)| block.class.connection() == number).collect();
    for (at, (block, bytes)) in all.iter().enumerate() {
        ends.is_there |= at == late;
        let side = Side::to_server(block.class.direction() == 0);
        if connection.takes(side, bytes) {
            connection.retry(&carried, &mut scratch, &mut ends);
            connection.feed(side, bytes, 0, &carried, &mut scratch, &mut ends);
        }
    }
    for side in [Side::Client, Side::Server] {
        connection.end(side, &carried, &mut scratch, &mut ends);
    }
    assert_eq!(carried.bytes(), 0);
    ends
}

#[test]
fn records_wait_for_their_secret() {
    let whole = run(pieces(), &path("https.keys")).by_class();
    for number in 0..4 {
        for late in 0..6 {
            let ends = with_secrets_at(number, late);
            let said = |side: usize| ends.contents.get(&side).cloned().unwrap_or_default();
            assert_eq!((said(0), said(1)), (whole[&(2 * number)].clone(), whole[&(2 * number + 1)].clone()));
            assert!(ends.counted.is_empty());
        }
    }
}

/// Megabytes without a secret are not kept.
#[test]
fn what_waits_is_bounded() {
    let hellos: Vec<Piece> = pieces().into_iter().filter(|(block, _)| block.class.connection() == 0).take(3).collect();
    let record = [&[23, 3, 3, 0x40, 0][..], &[7; 0x4000]].concat();
    let more = (0..100).map(|_| block(1, Flags::NONE, &record, 0));
    let log = tempfile::NamedTempFile::new().unwrap();
    let outcome = run(hellos.into_iter().chain(more).collect(), log.path().to_str().unwrap());
    let events = &outcome.counters("decrypt").events;
    assert!(events.get("bytes of tls not decrypted") > 100 * 0x4000);
    assert_eq!(events.get("tls connections without a secret in the key log"), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damaged and lost blocks cause no panic and leave no memory.
    #[test]
    fn damaged_connections(damage in proptest::collection::vec((0usize..49, 0usize..2000, any::<u8>(), 0u32..3), 1..6)) {
        let mut all = pieces();
        for (at, place, byte, gap) in damage {
            let at = at % all.len();
            let (descriptor, bytes) = &mut all[at];
            if let Some(damaged) = bytes.get_mut(place) {
                *damaged = byte;
            }
            if gap > 0 && !descriptor.has(Flags::FIRST) {
                descriptor.add_flags(Flags::GAP_BEFORE);
                descriptor.set_wire(bytes.len() as u32 + gap * 20);
            }
        }
        let outcome = run(all, &path("https.keys"));
        prop_assert_eq!(outcome.failure, None);
    }
}
