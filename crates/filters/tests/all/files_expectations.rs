//! Compares the files that `files` writes for every shared capture with the results of tcpflow, tshark and an
//! independent reader: each direction of each TCP connection, and each HTTP body.

use crate::shared_captures;
use filter::Kind;
use filters::{decap, files, http, pcap, tcp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use testkit::{Chain, shared};

/// Captures with streams that are not read, and the protocol that hides them.
const OUT_OF_REACH: [(&str, &str); 1] = [("mercury__pcaps__emix.pcap", "SOCKS")];

/// Captures in which this program correctly finds more than the others; `tcp_expectations.rs` says why.
const MORE: [&str; 1] = ["pcap2har__out-of-order.pcap"];

/// A digest to ignore. tshark and tcpflow take the next responses for the body of an answer to HEAD whose request is
/// not in the capture (pcapplusplus__650HttpResponses.pcap).
const NO_BODY: &str = "69fb2228958794742c477b62d3f209e3c6aefc6f571f61ab703dd5c7d00c0bef";

/// The number of files by size and content.
type Files = BTreeMap<(u64, String), u32>;

fn one(files: &mut Files, size: &Value, digest: &Value) {
    *files.entry((size.as_u64().unwrap_or(0), digest.as_str().unwrap_or_default().to_string())).or_default() += 1;
}

/// The files that are in `some` more often than in `others`.
fn beyond(some: &Files, others: &Files) -> Vec<(u64, String)> {
    let more = some.iter().filter(|(file, count)| **count > others.get(file).copied().unwrap_or(0));
    more.map(|(file, _)| file.clone()).collect()
}

/// The files that an index lists. Checks that each file is as the index says.
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

/// Compares the files that `files` writes behind these filters with an expectation. `wanted` reads from the expectation
/// the required files, and whether further files are forbidden.
fn check(kinds: &[&'static Kind], wanted: fn(&Value) -> (Files, bool), least: usize) {
    let folder = shared::data();
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
    assert!(checked >= shared::part(least), "only {checked} captures have any");
}

/// Directions of connections that a second tool confirmed.
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

/// Bodies that a second tool confirmed, with chunking and content coding removed. Coded bytes that end early are left
/// out: they have no fixed result.
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
