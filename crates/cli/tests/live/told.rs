//! `explain` agrees with `run` for every request: where each filter runs, and which packets of a device do not come up.

use crate::net::*;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::network::{Pair, may_make_networks};

const TAILS: [&str; 23] = [
    "drop",
    "bpf \"udp port 53\" | drop",
    "bpf \"ip6 protochain 6\" | drop",
    "bpf \"udp\" | bpf \"ip6 protochain 17\" | drop",
    "bpf \"len - 14 > 100 >> udp[0]\" | drop",
    "{ bpf \"udp port 53\" | drop + bpf \"udp port 80\" | count | drop }",
    "{ bpf \"ip6 protochain 6\" | drop + bpf \"tcp\" | drop }",
    "bpf \"ip\" | { bpf \"udp\" | drop + tcp | drop }",
    "bpf \"ip\" | { drop + bpf \"udp\" | { drop + sample 3 | drop } }",
    "{ bpf \"udp\" | drop + inspect }",
    "{ bpf \"udp port 53\" and port 53 } | drop",
    "{ bpf \"udp\" or port 53 } | drop",
    "not bpf \"udp\" | drop",
    "sample 10 | drop",
    "sample 10 | bpf \"udp\" | drop",
    "bpf \"udp\" | sample 10 | count",
    "{ count + tcp | drop }",
    "port 53 | drop",
    "{ proto udp | vlan 7 | drop + tcp | count }",
    "not { host 10.0.0.1 or vlan } | count | drop",
    "{ net 10.0.0.0/8 and not bpf \"tcp\" or ether arp } | tcp | drop",
    "host 10.0.0.1 | sample 3 | drop",
    "not { port |80 bpf \"tcp\" } | drop",
];

/// The names of (filters in the kernel, filters in the application).
type Told = (BTreeSet<String>, BTreeSet<String>);

fn streamline(pair: &Pair, folder: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    pair.near.namespace.enter(move || Running::start(command)).unwrap()
}

fn explained(pair: &Pair, folder: &Path, request: &str) -> Told {
    let output = streamline(pair, folder, &["explain", "--local", "--json", request]).end();
    assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut spaces = Told::default();
    let nodes = told["nodes"].as_array().unwrap();
    let leads_to =
        |id: &Value| nodes.iter().any(|node| node["edges"].as_array().unwrap().iter().any(|edge| edge["to"] == *id));
    for node in nodes {
        // Operands of a selection in the kernel are part of its program.
        let is_operand = !leads_to(&node["id"]) && !node["input"].as_array().unwrap().is_empty();
        if is_operand && node["space"] == "kernel" {
            continue;
        }
        let into = if node["space"] == "kernel" { &mut spaces.0 } else { &mut spaces.1 };
        into.insert(node["filter"].as_str().unwrap().into());
    }
    spaces
}

/// The part in the kernel is one source up here, for each edge that leaves it.
fn reported(report: &Value) -> Told {
    let mut spaces = Told::default();
    for filter in report["filters"].as_array().unwrap() {
        let name = filter["filter"].as_str().unwrap();
        if filter["space"] == "kernel" {
            spaces.0.extend(name.split(" + ").flat_map(|way| way.split(" | ")).map(String::from));
        } else {
            spaces.1.insert(name.into());
        }
    }
    spaces
}

fn hears(reader: &Running) -> bool {
    let status = format!("/proc/{}/status", reader.0.as_ref().unwrap().id());
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok()).unwrap_or(0);
    caught & 1 << (Signal::INT.as_raw() - 1) != 0
}

/// Checks each source with all tails, this number at a time.
fn check(sources: &[(&str, usize)]) {
    let (pair, folder) = (Pair::new(), tempfile::tempdir().unwrap());
    for (source, at_a_time) in sources {
        let source = source.replace('D', &pair.near.name);
        for tails in TAILS.chunks(*at_a_time) {
            let requests: Vec<String> = tails.iter().map(|tail| format!("{source} | {tail}")).collect();
            let start =
                |request: &str| streamline(&pair, folder.path(), &["run", "--local", "--stats", "json", request]);
            let readers: Vec<Running> = requests.iter().map(|request| start(request)).collect();
            for (request, reader) in requests.iter().zip(readers) {
                let (mut reader, mut report) = (Some(reader), None);
                until(&format!("`{request}` runs"), || {
                    let mut begun = reader.take().unwrap_or_else(|| start(request));
                    until("it has begun", || hears(&begun) || begun.has_ended());
                    let output = begun.interrupt();
                    // The kernel frees a queue some time after its owner has closed it.
                    if !output.status.success() {
                        eprintln!("{request}: {}", String::from_utf8_lossy(&output.stderr));
                        return false;
                    }
                    report = Some(succeeded(&output));
                    true
                });
                let (told, done) = (explained(&pair, folder.path(), request), reported(report.as_ref().unwrap()));
                assert_eq!(told, done, "`{request}`: what is told, and what is done: {report:?}");
            }
        }
    }
}

#[test]
fn explain_says_where_filters_of_devices_run_that_many_read() {
    if may_make_networks() {
        check(
            &["ethernet D", "ethernet D by=kernel", "ethernet D by=socket", "af_packet D", "tuntap made%d"]
                .map(|source| (source, TAILS.len())),
        );
    }
}

#[test]
fn explain_says_where_filters_run_of_what_is_taken_away() {
    if may_make_networks() {
        check(&[("ethernet D mode=consume everything=yes", 1)]);
    }
}

#[test]
fn explain_says_where_filters_run_of_what_af_xdp_takes() {
    if may_make_networks() {
        check(&[("af_xdp D", 1)]);
    }
}
