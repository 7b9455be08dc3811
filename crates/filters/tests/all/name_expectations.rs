//! Compares the names in DNS questions and TLS client hellos of every shared capture with those that tshark found.

use crate::shared_captures;
use filter::Kind;
use filters::{decap, dns, json, pcap, tcp, tls, udp};
use serde_json::Value;
use std::collections::BTreeSet;
use testkit::{Chain, shared};

/// Captures with names inside a protocol that is not read. The limit on other names holds there too.
const OUT_OF_REACH: [(&str, &str); 2] =
    [("ipfixprobe__functional__inputs__tls.pcap", "QUIC"), ("mercury__pcaps__emix.pcap", "QUIC")];

/// Captures with LLMNR questions, which `dns` reads and tshark lists elsewhere.
const OF_LLMNR: [&str; 1] = ["suricata-verify__output-eve-ftp-data.pcap"];

/// A name in the form for comparison: lower case, without the last dot.
fn plain(name: &str) -> String {
    name.to_lowercase().trim_end_matches('.').to_string()
}

/// Every text under this key, at any depth.
fn under(value: &Value, key: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => drop(found.insert(plain(text))),
                    value => under(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, key, found)),
        _ => {}
    }
}

/// Compares the names under `key` that `kind` gives for streams of `makers` with a column of a tshark table. All of
/// tshark's must be found (`questions`: only those in questions), and at most as many again.
struct Expectation<'a> {
    table: &'static str,
    column: usize,
    questions: bool,
    kind: &'static Kind,
    makers: &'a [&'static Kind],
    key: &'static str,
}

fn check(what: &Expectation<'_>, least: usize) {
    let folder = shared::data();
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in shared_captures::sorted(&folder.join("expected")) {
        let expected: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let rows = expected["tshark_app"][what.table].as_array().map_or(&[][..], Vec::as_slice);
        let rows: Vec<_> = rows
            .iter()
            .filter_map(|row| Some((row[1].as_str() == Some("Q"), row[what.column].as_str()?)))
            .filter(|(_, name)| !matches!(*name, "" | "<Root>"))
            .collect();
        let known: BTreeSet<_> = rows.iter().map(|(_, name)| plain(name)).collect();
        let wanted = rows.iter().filter(|(question, _)| *question || !what.questions);
        let wanted: BTreeSet<_> = wanted.map(|(_, name)| plain(name)).collect();
        if wanted.is_empty() {
            continue;
        }
        let capture = folder.join("captures").join(file.file_stem().unwrap());
        let mut found = BTreeSet::new();
        for maker in what.makers {
            let chain = Chain::source(&pcap::KIND, &[("file", capture.to_str().unwrap())]);
            let outcome =
                chain.then(&decap::KIND, &[]).then(maker, &[]).then(what.kind, &[]).then(&json::KIND, &[]).run();
            for line in outcome.stdout.lines() {
                under(&serde_json::from_str(line).unwrap(), what.key, &mut found);
            }
        }
        let name = capture.file_name().unwrap().to_string_lossy().into_owned();
        let missing: Vec<_> = wanted.difference(&found).collect();
        let beyond: Vec<_> = found.difference(&known).collect();
        let out_of_reach = OUT_OF_REACH.iter().find(|(capture, _)| *capture == name);
        if let (Some((_, why)), false) = (out_of_reach, missing.is_empty()) {
            eprintln!("{name}: {} of {} names are in {why}", missing.len(), wanted.len());
        } else if !missing.is_empty() {
            wrong.push(format!("{name}: {} of {} missing, such as {:?}", missing.len(), wanted.len(), missing[0]));
        }
        let many = beyond.len() > wanted.len() && !OF_LLMNR.contains(&&*name);
        if many || beyond.iter().any(|name| name.chars().any(char::is_control)) {
            wrong.push(format!(
                "{name}: {} names that nobody else sees: {:?}",
                beyond.len(),
                &beyond[..beyond.len().min(5)]
            ));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= shared::part(least), "only {checked} captures have names");
}

#[test]
fn names_in_dns_questions() {
    let makers = [&udp::KIND, &tcp::KIND];
    check(
        &Expectation { table: "dns", column: 2, questions: true, kind: &dns::KIND, makers: &makers, key: "rrname" },
        17,
    );
}

#[test]
fn names_in_tls_client_hellos() {
    let makers = [&tcp::KIND];
    let table = "tls_client_hello";
    check(&Expectation { table, column: 1, questions: false, kind: &tls::KIND, makers: &makers, key: "sni" }, 10);
}
