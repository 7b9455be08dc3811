//! Compares the bodies of `tcp | http` for every shared capture with those of tshark, tcpflow and another reader.
//!
//! The rule is that of the shared checker: compare bodies without chunking and content coding, as a multiset of
//! digests. A body that no second tool found, or whose coded bytes end early, is optional. Other bodies are forbidden
//! if all are confirmed.

use crate::shared_captures;
use filter::prelude::*;
use filters::{decap, http, pcap, tcp};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use testkit::{Chain, Outcome, shared};

/// A digest to ignore. tshark and tcpflow take the next responses for the body of an answer to HEAD whose request is
/// not in the capture (pcapplusplus__650HttpResponses.pcap).
const NO_BODY: &str = "69fb2228958794742c477b62d3f209e3c6aefc6f571f61ab703dd5c7d00c0bef";

/// Number of non-empty bodies by digest.
type Bodies = BTreeMap<String, usize>;

fn found(outcome: &Outcome) -> Bodies {
    let (mut open, mut bodies) = (BTreeMap::<u32, Vec<u8>>::new(), Bodies::new());
    for block in &outcome.blocks {
        let body = open.entry(block.descriptor.class.0).or_default();
        if !block.descriptor.has(Flags::META) {
            body.extend_from_slice(&block.bytes);
        }
        if block.descriptor.has(Flags::LAST) {
            let body = open.remove(&block.descriptor.class.0).unwrap_or_default();
            if !body.is_empty() {
                *bodies.entry(Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect()).or_default() +=
                    1;
            }
        }
    }
    bodies
}

/// The required bodies, and whether further bodies are forbidden.
fn wanted(http: &Value) -> (Bodies, bool) {
    let none = Vec::new();
    let list = |key: &str| http[key].as_array().unwrap_or(&none);
    let bodies: Vec<_> = list("messages")
        .iter()
        .filter(|message| message["len"].as_u64() > Some(0) && message["sha256"] != NO_BODY)
        .collect();
    let confirmed = |message: &&&Value| message["confirmed_by"].as_array().is_some_and(|peers| !peers.is_empty());
    let complete = |message: &&&Value| message["decoded_complete"] != false;
    let fixed: Vec<_> = bodies.iter().filter(confirmed).filter(complete).collect();
    let mut wanted = Bodies::new();
    for message in fixed.iter().filter(|message| message["decoded_len"] != 0) {
        let digest = message["decoded_sha256"].as_str().or(message["sha256"].as_str()).unwrap_or_default();
        *wanted.entry(digest.to_string()).or_default() += 1;
    }
    let exact = fixed.len() == bodies.len() && list("tshark_only").is_empty() && list("tcpflow_only").is_empty();
    (wanted, exact)
}

/// Number of bodies in `some` that are not in `others`.
fn beyond(some: &Bodies, others: &Bodies) -> usize {
    some.iter().map(|(digest, count)| count.saturating_sub(others.get(digest).copied().unwrap_or(0))).sum()
}

#[test]
fn bodies_of_every_shared_capture() {
    let folder = shared::data();
    let (mut captures, mut bodies, mut wrong) = (0, 0, Vec::new());
    for file in shared_captures::sorted(&folder.join("expected")) {
        let expected: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let (wanted, exact) = wanted(&expected["http1"]);
        let capture = folder.join("captures").join(file.file_stem().unwrap());
        let name = capture.file_name().unwrap().to_string_lossy();
        if wanted.is_empty() {
            continue;
        }
        let chain = Chain::source(&pcap::KIND, &[("file", capture.to_str().unwrap())]);
        let outcome =
            chain.then(&decap::KIND, &[]).then(&tcp::KIND, shared_captures::JOINED).then(&http::KIND, &[]).run();
        let found = found(&outcome);
        let (missing, extra) = (beyond(&wanted, &found), beyond(&found, &wanted));
        if missing > 0 || exact && extra > 0 {
            wrong.push(format!("{name}: {missing} of {} missing, {extra} too many", wanted.values().sum::<usize>()));
        }
        captures += 1;
        bodies += wanted.values().sum::<usize>();
    }
    assert!(wrong.is_empty(), "{} captures differ:\n{}", wrong.len(), wrong.join("\n"));
    let least = if shared::is_whole() { 1000 } else { captures };
    assert!(captures >= shared::part(30) && bodies >= least, "{bodies} bodies of {captures} captures");
    eprintln!("{bodies} bodies of {captures} captures agree");
}
