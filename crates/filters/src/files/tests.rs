//! Tests of `files`: from blocks to folders.

use super::*;
use crate::count;
use crate::parts::handmade::{MESSAGES, Piece, block, facts, meta};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use testkit::{Chain, Outcome};

const FIRST: Flags = Flags::FIRST;
const LAST: Flags = Flags::LAST;
const MID: Flags = Flags::NONE;
const GAP: Flags = Flags::GAP_BEFORE;
const META: Flags = Flags::META.with(Flags::FIRST);

/// Reads the index in `dir`, by file, and checks that it lists all files and describes them correctly.
fn read(dir: &Path) -> BTreeMap<String, Value> {
    let index = fs::read_to_string(dir.join("index.jsonl")).expect("an index");
    let mut rows = BTreeMap::new();
    for line in index.lines() {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let name = row["file"].as_str().unwrap().to_string();
        let bytes = fs::read(dir.join(&name)).unwrap();
        assert_eq!(row["size"], json!(bytes.len()), "{name}");
        if let Some(digest) = row["sha256"].as_str() {
            let mut expected = Vec::new();
            packet::text::append_hex(&mut expected, &<sha2::Sha256 as sha2::Digest>::digest(&bytes));
            assert_eq!(digest.as_bytes(), expected, "{name}");
        }
        assert!(rows.insert(name, row).is_none());
    }
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "index.jsonl");
    names.sort();
    assert_eq!(names, rows.keys().cloned().collect::<Vec<_>>());
    rows
}

fn run(chain: Chain, dir: &Path, given: &[(&str, &str)]) -> Outcome {
    let mut given = given.to_vec();
    given.push(("dir", dir.to_str().unwrap()));
    chain.then(&KIND, &given).run()
}

fn streams(pieces: Vec<Piece>) -> Chain {
    Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(1000, 6, 0), facts(1000, 6, 1), facts(2000, 6, 0)])
}

/// Compares each file's content, state and gaps.
fn check(chain: Chain, given: &[(&str, &str)], expected: &[(&str, &str, &str, Value)]) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("out");
    assert_eq!(run(chain, &dir, given).failure, None);
    let rows = read(&dir);
    let found: Vec<_> = rows
        .iter()
        .map(|(name, row)| {
            let text = fs::read_to_string(dir.join(name)).unwrap();
            (name.clone(), text, row["state"].as_str().unwrap().to_string(), row["gaps"].clone())
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, text, state, gaps)| (name.to_string(), text.to_string(), state.to_string(), gaps.clone()))
        .collect();
    assert_eq!(found, expected);
}

const CLIENT: &str = "010.000.000.001.01000-010.000.000.002.00080";
const SERVER: &str = "010.000.000.002.00080-010.000.000.001.01000";

#[test]
fn each_direction_is_a_file() {
    let truncated = LAST.with(Flags::TRUNCATED);
    check(
        streams(vec![
            block(0, FIRST, b"GET ", 0),
            block(1, FIRST, b"200 ", 0),
            block(0, MID, b"/", 0),
            block(2, FIRST.with(LAST), b"again", 0),
            block(3, FIRST.with(LAST), b"", 0),
            block(0, LAST, b"", 0),
            block(1, GAP, b"OK", 100),
            block(1, GAP, b"", 5),
            block(1, truncated, b"!", 0),
            block(4, FIRST, b"unfinished", 0),
            block(5, FIRST, b"", 0),
        ]),
        &[],
        &[
            (CLIENT, "GET /", "complete", json!([])),
            (&format!("{CLIENT}c1"), "again", "complete", json!([])),
            ("010.000.000.001.02000-010.000.000.002.00080", "unfinished", "truncated", json!([])),
            (SERVER, "200 OK!", "truncated", json!([[4, 100], [6, 5]])),
        ],
    );
    check(
        streams(vec![block(1, FIRST, b"abc", 0), block(1, LAST.with(GAP), b"def", 9)]),
        &[("hash", "no")],
        &[(SERVER, "abcdef", "gap", json!([[3, 9]]))],
    );
}

#[test]
fn the_index_says_who_sent_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut piece = block(1, FIRST.with(LAST), b"abc", 0);
    piece.0.time = 1;
    assert_eq!(run(streams(vec![piece]), folder.path(), &[]).failure, None);
    let expected = r#"{"file":"010.000.000.002.00080-010.000.000.001.01000","kind":"stream","timestamp":"1970-01-01T00:00:00.000000001Z","src_ip":"10.0.0.2","src_port":80,"dest_ip":"10.0.0.1","dest_port":1000,"size":3,"sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","state":"complete","gaps":[]}"#;
    assert_eq!(fs::read_to_string(folder.path().join("index.jsonl")).unwrap().trim_end(), expected);
}

#[test]
fn a_size_can_be_limited() {
    let pieces = || {
        vec![
            block(0, FIRST, b"abcd", 0),
            block(0, GAP, b"ef", 3),
            block(0, GAP, b"gh", 3),
            block(0, LAST, b"ij", 0),
            block(1, FIRST.with(LAST), b"abcde", 0),
        ]
    };
    let limit = |text| [("max-size", text)];
    check(
        streams(pieces()),
        &limit("5"),
        &[(CLIENT, "abcde", "truncated", json!([[4, 3]])), (SERVER, "abcde", "complete", json!([]))],
    );
    check(
        streams(pieces()),
        &limit("4"),
        &[(CLIENT, "abcd", "truncated", json!([])), (SERVER, "abcd", "truncated", json!([]))],
    );
}

#[test]
fn each_body_of_a_message_is_a_file() {
    let pieces = vec![
        block(1, META, &meta("/a", "text/html; charset=utf-8"), 0),
        block(3, META.with(LAST), &meta("/empty", "text/html"), 0),
        block(1, MID, b"<html>", 0),
        block(5, META, &meta("/../../b", "x/../y"), 0),
        block(5, GAP, b"b", 7),
        block(1, LAST, b"</html>", 0),
        block(1, META, &meta("/c", "image/png"), 0),
        block(1, LAST, b"png", 0),
        block(5, LAST, b"", 0),
    ];
    let chain = || {
        let chain = Chain::pieces(Type::Message, None, pieces.clone());
        chain.streams(&[facts(1000, 6, 0), facts(2000, 6, 0), facts(3000, 6, 0)]).then(&MESSAGES, &[])
    };
    let other = "010.000.000.002.00080-010.000.000.001.03000";
    let names = [
        format!("http-00000001-response-{SERVER}.html"),
        format!("http-00000002-response-{other}.body"),
        format!("http-00000003-response-{SERVER}.png"),
    ];
    check(
        chain(),
        &[],
        &[
            (&names[0], "<html></html>", "complete", json!([])),
            (&names[1], "b", "gap", json!([[0, 7]])),
            (&names[2], "png", "complete", json!([])),
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(chain(), folder.path(), &[]).failure, None);
    let row = &read(folder.path())[&names[1]];
    let said = ["kind", "direction", "url", "status", "http_content_type", "src_port"].map(|key| row[key].clone());
    assert_eq!(json!(said), json!(["http", "response", "/../../b", 200, "x/../y", 80]));
}

#[test]
fn each_datagram_is_a_file() {
    let whole = FIRST.with(LAST);
    let pieces = vec![
        block(0, whole, b"one", 0),
        block(0, whole, b"", 0),
        block(1, whole.with(Flags::TRUNCATED), b"two", 0),
        block(0, whole, b"three", 0),
    ];
    check(
        Chain::pieces(Type::Message, None, pieces).streams(&[facts(1000, 17, 0)]),
        &[],
        &[
            (&format!("datagram-00000001-{CLIENT}"), "one", "complete", json!([])),
            (&format!("datagram-00000002-{SERVER}"), "two", "truncated", json!([])),
            (&format!("datagram-00000003-{CLIENT}"), "three", "complete", json!([])),
        ],
    );
}

#[test]
fn each_frame_or_record_is_a_file() {
    let frames = [(0, b"frame".to_vec()), (1, Vec::new()), (2, b"other".to_vec())];
    check(
        Chain::frames(1, &frames),
        &[],
        &[("frame-00000001", "frame", "complete", json!([])), ("frame-00000002", "other", "complete", json!([]))],
    );
    check(
        Chain::frames(1, &frames).then(&count::KIND, &[]),
        &[],
        &[("record-00000001.json", "{\"blocks\":3,\"bytes\":10,\"wire_bytes\":10}\n", "complete", json!([]))],
    );
}

#[test]
fn an_input_without_blocks_leaves_an_empty_index() {
    check(streams(Vec::new()), &[], &[]);
    check(Chain::frames(1, &[]), &[], &[]);
}

#[test]
fn a_class_that_no_stream_has_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(streams(vec![block(u32::MAX, FIRST, b"x", 0)]), folder.path(), &[]);
    assert_eq!(outcome.counters("files").drops.get("no stream class"), 1);
}

#[test]
fn a_stream_that_begins_anew_is_another_file() {
    check(
        streams(vec![block(0, FIRST, b"one", 0), block(0, FIRST, b"two", 0), block(0, LAST, b"", 0)]),
        &[],
        &[(CLIENT, "one", "truncated", json!([])), (&format!("{CLIENT}-00000003"), "two", "complete", json!([]))],
    );
}

#[test]
fn an_index_is_not_overwritten_unless_asked() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("out");
    let given = [("dir", dir.to_str().unwrap())];
    let chain = || streams(vec![block(0, FIRST.with(LAST), b"first run", 0), block(1, FIRST.with(LAST), b"old", 0)]);
    assert!(chain().then(&KIND, &given).refusal().is_none());
    assert!(!dir.exists(), "asking creates nothing");
    assert_eq!(run(chain(), &dir, &[]).failure, None);
    let refused = chain().then(&KIND, &given).refusal().unwrap();
    assert!(
        refused.message.ends_with("holds the index of an earlier run")
            && refused.help.unwrap().contains("overwrite=yes")
    );

    // Files that the index does not list stay, and so do files elsewhere.
    fs::write(dir.join("mine.txt"), "mine").unwrap();
    fs::write(folder.path().join("outside"), "outside").unwrap();
    let mut index = fs::read_to_string(dir.join("index.jsonl")).unwrap();
    index.push_str("{\"file\":\"../outside\"}\n{\"file\":\"gone\"}\n");
    index.push_str(&"x".repeat(5000));
    fs::write(dir.join("index.jsonl"), index).unwrap();
    let again = streams(vec![block(0, FIRST.with(LAST), b"second run", 0)]);
    assert_eq!(run(again, &dir, &[("overwrite", "yes")]).failure, None);
    assert_eq!(fs::read_to_string(dir.join("mine.txt")).unwrap(), "mine");
    assert!(folder.path().join("outside").exists());
    fs::remove_file(dir.join("mine.txt")).unwrap();
    let rows = read(&dir);
    assert_eq!(rows.keys().collect::<Vec<_>>(), [CLIENT]);
    assert_eq!(fs::read_to_string(dir.join(CLIENT)).unwrap(), "second run");
}

#[test]
fn a_file_that_is_there_is_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(CLIENT), "mine").unwrap();
    let outside = folder.path().join("outside");
    std::os::unix::fs::symlink(&outside, folder.path().join(SERVER)).unwrap();
    let pieces = vec![block(0, FIRST.with(LAST), b"new", 0), block(1, FIRST.with(LAST), b"newer", 0)];
    assert_eq!(run(streams(pieces), folder.path(), &[]).failure, None);
    assert_eq!(fs::read_to_string(folder.path().join(CLIENT)).unwrap(), "mine");
    assert!(!outside.exists());
    fs::remove_file(folder.path().join(CLIENT)).unwrap();
    fs::remove_file(folder.path().join(SERVER)).unwrap();
    assert_eq!(read(folder.path()).len(), 2);
}

#[test]
fn what_cannot_be_written_is_said_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let chain = || streams(vec![block(0, FIRST.with(LAST), b"x", 0)]);
    let refused = chain().then(&KIND, &[("dir", file.to_str().unwrap())]).refusal().unwrap();
    assert!(refused.message.ends_with("is not a folder"));
    let below = file.join("out");
    let refused = chain().then(&KIND, &[("dir", below.to_str().unwrap())]).refusal().unwrap();
    assert_eq!(refused.message, format!("cannot create files in `{}`: Not a directory", below.display()));
}

/// Many streams of several writes each, more than may be open: files are closed and opened again.
#[test]
fn many_streams_at_once() {
    const STREAMS: u32 = 300;
    const BLOCKS: u8 = 5;
    // Together more than all files may hold.
    let bytes = (base::limits::FILES_PENDING_BYTES / u64::from(STREAMS) / 4) as usize;
    let facts: Vec<_> = (0..STREAMS).map(|number| facts(number as u16, 6, 0)).collect();
    let mut pieces = Vec::new();
    for round in 0..BLOCKS {
        for number in 0..STREAMS {
            let flags = [if round == 0 { FIRST } else { MID }, if round + 1 == BLOCKS { LAST } else { MID }];
            let mut bytes = vec![round; bytes];
            bytes[0] = number as u8;
            pieces.push(block(2 * number, flags[0].with(flags[1]), &bytes, 0));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let chain = Chain::pieces(Type::Bytes, None, pieces).streams(&facts);
    let outcome = run(chain, folder.path(), &[("hash", "no")]);
    assert_eq!(outcome.failure, None);
    let rows = read(folder.path());
    assert_eq!(rows.len(), STREAMS as usize);
    for (number, name) in rows.keys().enumerate() {
        let content = fs::read(folder.path().join(name)).unwrap();
        for (round, part) in content.chunks(bytes).enumerate() {
            let sound = part[0] == number as u8 && part[1..].iter().all(|byte| usize::from(*byte) == round);
            assert!(sound && part.len() == bytes, "{name}, round {round}");
        }
        assert_eq!(content.len(), bytes * usize::from(BLOCKS));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Any mix of blocks of several streams, long or short, ended or not, written in rounds or at once: each file has the
    /// bytes of its stream in order, and a line in the index.
    #[test]
    fn rounds_write_what_a_file_at_a_time_would(
        blocks in proptest::collection::vec((0..6_u32, prop_oneof![1..2000_usize, 50_000..400_000_usize], 0..12_u8), 1..150),
        hash in any::<bool>(),
    ) {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut expected: BTreeMap<String, (Vec<u8>, &str)> = BTreeMap::new();
        let (mut facts_of, mut classes) = (Vec::new(), [None; 6]);
        for (number, (stream, len, last)) in blocks.into_iter().enumerate() {
            // One block in twelve ends its stream. The next begins another stream.
            let is_first = classes[stream as usize].is_none();
            let class = *classes[stream as usize].get_or_insert_with(|| {
                facts_of.push(facts(facts_of.len() as u16 + 1, 6, 0));
                2 * (facts_of.len() as u32 - 1)
            });
            if last == 0 {
                classes[stream as usize] = None;
            }
            let bytes: Vec<u8> = (0..len).map(|at| (at >> 8) as u8 ^ number as u8).collect();
            let flags = [if is_first { FIRST } else { MID }, if last == 0 { LAST } else { MID }];
            let name = format!("010.000.000.001.{:05}-010.000.000.002.00080", class / 2 + 1);
            let (whole, state) = expected.entry(name).or_insert((Vec::new(), "truncated"));
            whole.extend(&bytes);
            if last == 0 {
                *state = "complete";
            }
            pieces.push(block(class, flags[0].with(flags[1]), &bytes, 0));
        }
        let folder = tempfile::tempdir().unwrap();
        let chain = Chain::pieces(Type::Bytes, None, pieces).streams(&facts_of);
        let outcome = run(chain, folder.path(), &[("hash", if hash { "yes" } else { "no" })]);
        prop_assert_eq!(outcome.failure, None);
        let rows = read(folder.path());
        prop_assert_eq!(rows.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, (whole, state)) in &expected {
            prop_assert!(fs::read(folder.path().join(name)).unwrap() == *whole, "{}", name);
            prop_assert_eq!(rows[name]["state"].as_str(), Some(*state));
            prop_assert_eq!(rows[name]["sha256"].is_string(), hash);
        }
    }
}

/// 2,500 open messages, each with two texts of 20 kB: their kept metadata is bounded, and escaped only in the index.
#[test]
fn metadata_of_open_messages_is_bounded() {
    const OPEN: usize = 2500;
    let long = meta(&"u".repeat(20_000), &"\u{1}".repeat(20_000));
    let begun = (0..OPEN as u32).map(|class| block(class, META, &long, 0));
    let ended = (0..OPEN as u32).map(|class| block(class, LAST, b"body", 0));
    let pieces = begun.chain(ended).collect();
    let chain = Chain::pieces(Type::Message, None, pieces).streams(&vec![facts(7, 6, 0); OPEN / 2]);
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(chain.then(&MESSAGES, &[]), folder.path(), &[]);
    assert_eq!(outcome.failure, None);
    let index = fs::read_to_string(folder.path().join("index.jsonl")).unwrap();
    assert!(index.lines().all(|line| line.contains(r#""gaps":[],"direction":"response""#)));
    let is_kept =
        |line: &&str| line.contains(r#"uuu...[3616 bytes more]","status":200,"http_content_type":"\u0001\u0001"#);
    let (with, without): (Vec<&str>, Vec<&str>) = index.lines().partition(is_kept);
    assert_eq!(with.len() + without.len(), OPEN);
    assert!(without.iter().all(|line| line.ends_with(r#""direction":"response"}"#)));
    let kept_bytes = base::limits::META_KEPT_BYTES;
    assert!((kept_bytes / 33_000..=kept_bytes / 32_768).contains(&with.len()), "{}", with.len());
    let events = &outcome.counters("files").events;
    assert_eq!(events.get("metadata left out"), without.len() as u64);
    assert_eq!(events.get("metadata texts shortened"), 2 * OPEN as u64);
}

/// Each content is stored once, even over several runs. Each sighting has a side-car.
#[test]
fn a_store_has_each_content_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let given = [("store", store.to_str().unwrap())];
    let pieces = || {
        vec![
            block(2, FIRST, b"\x89PNG\r\n\x1a\n", 0),
            block(2, LAST, b"end", 0),
            block(3, FIRST.with(LAST), b"\x89PNG\r\n\x1a\nend", 0),
            block(4, FIRST.with(LAST), b"text", 0),
        ]
    };
    for again in [0, 3] {
        let outcome = streams(pieces()).then(&KIND, &given).run();
        assert_eq!(outcome.failure, None);
        let counters = outcome.counters("files");
        assert_eq!(counters.events.get("files stored already"), if again == 0 { 1 } else { 3 });
    }
    let mut found = BTreeMap::new();
    for folder in fs::read_dir(&store).unwrap() {
        let folder = folder.unwrap().path();
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            found.insert(path.strip_prefix(&store).unwrap().to_str().unwrap().to_string(), fs::read(&path).unwrap());
        }
    }
    let digest = |bytes: &[u8]| {
        let mut hex = Vec::new();
        packet::text::append_hex(&mut hex, &<sha2::Sha256 as sha2::Digest>::digest(bytes));
        String::from_utf8(hex).unwrap()
    };
    for (content, magic, seen) in [(&b"\x89PNG\r\n\x1a\nend"[..], json!("image/png"), 2), (b"text", Value::Null, 1)] {
        let digest = digest(content);
        let path = format!("{}/{digest}", &digest[..2]);
        assert_eq!(found.remove(&path).as_deref(), Some(content));
        let side_cars: Vec<_> =
            found.extract_if(.., |name, _| name.starts_with(&path) && name.ends_with(".json")).collect();
        assert_eq!(side_cars.len(), seen);
        for (_, line) in side_cars {
            let row: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!((&row["file"], &row["sha256"], &row["magic"]), (&json!(path), &json!(digest), &magic));
        }
    }
    assert_eq!(found, BTreeMap::new());
}
