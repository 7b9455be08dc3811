//! What `files` writes of every shared capture, against what tcpflow, tshark and an independent reader made of it: each
//! direction of each TCP connection, each body of an HTTP message.

mod shared_captures;

use filter::Kind;
use filters::{decap, files, http, pcap, tcp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use testkit::Chain;

/// Captures with streams that are not read, and where those are.
const OUT_OF_REACH: [(&str, &str); 1] = [("mercury__pcaps__emix.pcap", "SOCKS")];

/// Captures of which more is right than others made of them; `tcp_expectations.rs` says why.
const MORE: [&str; 1] = ["pcap2har__out-of-order.pcap"];

/// The digest of a body that is none: tshark and tcpflow take it for the body of an answer to HEAD, whose request is not in
/// the capture (pcapplusplus__650HttpResponses.pcap). It is the next responses.
const NO_BODY: &str = "69fb2228958794742c477b62d3f209e3c6aefc6f571f61ab703dd5c7d00c0bef";

/// How many files there are of each size and content.
type Files = BTreeMap<(u64, String), u32>;

fn one(files: &mut Files, size: &Value, digest: &Value) {
    *files.entry((size.as_u64().unwrap_or(0), digest.as_str().unwrap_or_default().to_string())).or_default() += 1;
}

/// What is in `some` more often than in `others`.
fn beyond(some: &Files, others: &Files) -> Vec<(u64, String)> {
    let more = some.iter().filter(|(file, count)| **count > others.get(file).copied().unwrap_or(0));
    more.map(|(file, _)| file.clone()).collect()
}

/// The files that an index lists, after checking that each is what the index says.
fn listed(dir: &Path) -> Files {
    let mut files = Files::new();
    for line in std::fs::read_to_string(dir.join("index.jsonl")).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let bytes = std::fs::read(dir.join(row["file"].as_str().unwrap())).unwrap();
        let digest = <sha2::Sha256 as sha2::Digest>::digest(&bytes);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((row["size"].as_u64(), row["sha256"].as_str()), (Some(bytes.len() as u64), Some(&digest[..])));
        one(&mut files, &row["size"], &row["sha256"]);
    }
    let count: u32 = files.values().sum();
    assert_eq!(dir.read_dir().unwrap().count() as u32, count + 1, "files that are not listed");
    files
}

/// Compares what `files` writes behind these filters with what `wanted` reads from an expectation: the files there must
/// be, and whether there may be no others.
fn check(kinds: &[&'static Kind], wanted: fn(&Value) -> (Files, bool), least: usize) {
    let Some(folder) = shared_captures::folder() else { return };
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in shared_captures::sorted(&folder.join("expected")) {
        let (wanted, exact) = wanted(&serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
        if wanted.is_empty() {
            continue;
        }
        let capture = folder.join("captures").join(file.file_stem().unwrap());
        let name = capture.file_name().unwrap().to_string_lossy().into_owned();
        let temporary = tempfile::tempdir().unwrap();
        let out = temporary.path().join("out");
        let chain = Chain::source(&pcap::KIND, &[("file", capture.to_str().unwrap())]);
        let chain = kinds.iter().fold(chain.then(&decap::KIND, &[]), |chain, kind| {
            chain.then(kind, if kind.name == "tcp" { shared_captures::JOINED } else { &[] })
        });
        chain.then(&files::KIND, &[("dir", out.to_str().unwrap())]).run();
        let found = listed(&out);
        let (missing, extra) = (beyond(&wanted, &found), beyond(&found, &wanted));
        let out_of_reach = OUT_OF_REACH.iter().find(|(capture, _)| *capture == name);
        if let (Some((_, why)), false) = (out_of_reach, missing.is_empty()) {
            eprintln!("{name}: {} of {} are in {why}", missing.len(), wanted.len());
        } else if !missing.is_empty() {
            wrong.push(format!("{name}: {} of {} missing, first {:?}", missing.len(), wanted.len(), missing[0]));
        }
        if exact && !extra.is_empty() && !MORE.contains(&&name[..]) {
            wrong.push(format!("{name}: {} too many, first {:?}", extra.len(), extra[0]));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= least, "only {checked} captures have any");
}

/// Directions of connections of which somebody else made the same.
fn directions(expected: &Value) -> (Files, bool) {
    let (mut files, mut exact) = (Files::new(), expected["tcp_streams_unconfirmed"].as_u64() == Some(0));
    let streams = expected["tcp_streams"].as_array().map_or(&[][..], Vec::as_slice);
    for direction in
        streams.iter().flat_map(|stream| stream["dirs"].as_object().into_iter().flat_map(|dirs| dirs.values()))
    {
        let agreed = direction["agree"].as_array().is_some_and(|peers| !peers.is_empty());
        match direction["bytes"].as_u64() {
            None | Some(0) => {}
            Some(_) if agreed => one(&mut files, &direction["bytes"], &direction["sha256"]),
            Some(_) => exact = false,
        }
    }
    (files, exact)
}

/// Bodies with chunking and content coding undone that somebody else made the same of; coded bytes that end early have no
/// fixed result.
fn bodies(expected: &Value) -> (Files, bool) {
    let http = &expected["http1"];
    let messages = http["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let is_some = |value: &Value| value.as_array().is_some_and(|items| !items.is_empty());
    let (mut files, mut exact) = (Files::new(), !is_some(&http["tshark_only"]) && !is_some(&http["tcpflow_only"]));
    for message in messages.iter().filter(|message| message["len"].as_u64().is_some_and(|len| len > 0)) {
        let is_none = message["sha256"] == NO_BODY;
        if is_none || !is_some(&message["confirmed_by"]) || message["decoded_complete"] == false {
            exact = false;
            continue;
        }
        let decoded = !message["decoded_sha256"].is_null();
        let [size, digest] = if decoded { ["decoded_len", "decoded_sha256"] } else { ["len", "sha256"] };
        if message[size] != 0 {
            one(&mut files, &message[size], &message[digest]);
        }
    }
    (files, exact)
}

#[test]
fn directions_of_connections() {
    check(&[&tcp::KIND], directions, 107);
}

#[test]
fn bodies_of_messages() {
    check(&[&tcp::KIND, &http::KIND], bodies, 37);
}
