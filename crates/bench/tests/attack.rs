//! Hostile traffic through what takes it apart: memory stays below the sum of the caps, each cap that is met is counted by name,
//! and of the honest traffic in between nothing is lost.
//!
//! `STREAMLINE_ATTACK=N` has captures of N MB (`cargo xtask attack N` runs it optimised). Each request runs in a process of its
//! own, whose memory is looked at.

use base::limits::{
    APPEND_REGION_BYTES, DECAP_HELD_BYTES, DNS_BUFFERED_BYTES, HTTP_HEAD_BYTES, RULES_FLOWS, RULES_MEMORY_BYTES,
    TCP_CONNECTIONS, TCP_DOUBTFUL_BYTES, TCP_HELD_BYTES, TLS_BUFFERED_BYTES,
};
use bench::attack::{self, HOST, Honest};
use bench::captures::Content;
use bench::in_process;
use bench::process::memory_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Says how many MB a capture has.
const SIZE: &str = "STREAMLINE_ATTACK";
const SMALL_MB: u64 = 5;
/// From this size on there is enough of all sorts for caps that no request lowers.
const LARGE_MB: u64 = 1000;

/// What the process of a request finds there: the request, and the file for what it has to say.
const RUN: &str = "STREAMLINE_ATTACKED";

/// Runs a request and writes down what became of it; does nothing without the variable.
#[test]
fn attacked_run() {
    let Ok(text) = std::env::var(RUN) else { return };
    let (path, request) = text.split_once('\n').unwrap();
    let (peak, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let now = memory_of(std::process::id()).map_or(0, |memory| memory.own);
                peak.fetch_max(now, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let ran = in_process::run(request);
        is_over.store(true, Ordering::Relaxed);
        ran
    });
    let ran = ran.unwrap_or_else(|error| panic!("{request}: {error}"));
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for node in &ran.report.nodes {
        let counters = &node.counters;
        counters
            .events
            .iter()
            .chain(counters.drops.iter())
            .for_each(|(name, count)| *counted.entry(name).or_default() += count);
    }
    let stdout = String::from_utf8(ran.stdout).unwrap();
    let said = json!({"memory": peak.load(Ordering::Relaxed), "counted": counted, "stdout": stdout});
    std::fs::write(path, said.to_string()).unwrap();
}

/// A capture, and what is honest in it.
struct Bed {
    folder: tempfile::TempDir,
    honest: Honest,
    is_large: bool,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let mb = std::env::var(SIZE).map_or(SMALL_MB, |text| text.parse().unwrap());
        let honest = attack::write_file(&folder.path().join("attack.pcap"), mb * 1_000_000, seed).unwrap();
        Bed { folder, honest, is_large: mb >= LARGE_MB }
    }

    /// Runs a request behind the capture; `DIR` in it is a folder of its own. Its memory stays below `memory` bytes, and the named
    /// events are counted.
    fn run(&self, request: &str, memory: u64, names: &[&str]) -> String {
        let path = self.folder.path();
        let request = request.replace("DIR", &path.display().to_string());
        let said = path.join("said.json");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "attacked_run", "--test-threads=1"]);
        command.env(RUN, format!("{}\npcap \"{}\" | {request}", said.display(), path.join("attack.pcap").display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stdout));
        let said: Value = serde_json::from_slice(&std::fs::read(said).unwrap()).unwrap();
        let peak = said["memory"].as_u64().unwrap();
        eprintln!("{request}: {} of {} MiB, {}", peak >> 20, memory >> 20, said["counted"]);
        assert!(peak <= memory, "{request}: {peak} bytes, more than {memory}");
        for name in names {
            assert!(said["counted"][name].as_u64() > Some(0), "{request}: no {name} among {}", said["counted"]);
        }
        said["stdout"].as_str().unwrap().to_string()
    }
}

/// The contents of all files in a folder.
fn contents(folder: &Path) -> Vec<Content> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| Content::of(&std::fs::read(path).unwrap())).collect()
}

const MB: u64 = 1 << 20;

/// What a request takes that keeps nothing: buffers, tables, the program.
const EMPTY: u64 = 24 * MB;

/// What `decap` and `tcp` may keep, and a logger of HTTP, TLS and DNS besides, where the request says nothing.
const PACKETS: u64 = DECAP_HELD_BYTES + TCP_HELD_BYTES + TCP_DOUBTFUL_BYTES + TCP_CONNECTIONS as u64 * CONNECTION_BYTES;
const PARSERS: u64 = HTTP_BYTES + (TLS_BUFFERED_BYTES + DNS_BUFFERED_BYTES) as u64;

/// A connection in the tables of `tcp` and of the engine, and in those of `rules`.
const CONNECTION_BYTES: u64 = 600;

/// The default of `http memory=`.
const HTTP_BYTES: u64 = 1 << 30;

#[test]
fn honest_bodies_are_whole() {
    let bed = Bed::new(1);
    let request = "decap memory=256k | tcp connections=500 memory=256k | http | files dir=DIR/bodies hash=no";
    let mut names = vec![
        "fragmented packets given up to make room",
        "connections evicted",
        "held segments dropped to make room",
        "bodies cut at max-ratio",
    ];
    if bed.is_large {
        names.extend(["segments in doubt", "heads too long"]);
    }
    // Each connection may be in a head; memory for blocks that are held is taken by the region.
    let heads = 500 * (CONNECTION_BYTES + HTTP_HEAD_BYTES as u64);
    bed.run(request, EMPTY + 2 * APPEND_REGION_BYTES as u64 + TCP_DOUBTFUL_BYTES + heads, &names);
    let mut found = contents(&bed.folder.path().join("bodies"));
    found.sort_unstable();
    for body in &bed.honest.bodies {
        assert!(found.binary_search(body).is_ok(), "{body:?} is not among {} files", found.len());
    }
}

/// With so little memory honest messages suffer as well; what they suffer is counted.
#[test]
fn heads_keep_to_their_memory() {
    let bed = Bed::new(4);
    let limit = EMPTY + DECAP_HELD_BYTES + TCP_HELD_BYTES + TCP_DOUBTFUL_BYTES + MB;
    bed.run("decap | tcp | http memory=1M | drop", limit, &["heads not read for want of memory"]);
}

#[test]
fn honest_requests_are_logged() {
    let bed = Bed::new(2);
    let names: &[&str] = match bed.is_large {
        true => &["tls hellos given up for want of memory", "too many unfinished dns messages", "heads too long"],
        false => {
            &["tls hellos whose rest is missing", "dns messages whose rest is missing", "requests without a response"]
        }
    };
    let log = bed.run("eve", EMPTY + PACKETS + PARSERS, names);
    let is_honest = |line: &&str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["event_type"] == "http" && event["http"]["hostname"] == HOST
    };
    assert_eq!(log.lines().filter(is_honest).count(), bed.honest.bodies.len());
}

#[test]
fn honest_requests_match_their_rule() {
    let bed = Bed::new(3);
    let rules = format!("alert http any any -> any any (msg:\"honest\"; http.host; content:\"{HOST}\"; sid:1;)\n");
    std::fs::write(bed.folder.path().join("honest.rules"), rules).unwrap();
    let names: &[&str] = match bed.is_large {
        true => &["flows of rules forgotten for want of memory", "fragmented packets given up to make room"],
        false => &["fragmented packets unfinished", "segments out of order"],
    };
    let rules = RULES_MEMORY_BYTES as u64 + RULES_FLOWS as u64 * CONNECTION_BYTES;
    let alerts = bed.run("rules DIR/honest.rules | json", EMPTY + PACKETS + rules, names);
    assert_eq!(alerts.lines().count(), bed.honest.bodies.len());
}
