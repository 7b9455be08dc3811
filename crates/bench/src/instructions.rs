//! Instructions a packet of each stage of `pcap | decap | tcp | http | eve`, against `tests/instructions.golden`: 3 % more and
//! this fails. Less is told.
//!
//!     cargo test --profile counted -p bench --lib instructions
//!
//! Tests of the library, since cargo builds the program for a test in a file of its own.
//!
//! Packets are those of web traffic: most are full, one body in four is coded with gzip. What a run takes anyway is no packet's:
//! a capture is read, and one twice as long.

use crate::captures::{Capture, Store};
use crate::in_process;
use std::path::Path;
use testkit::instructions::{can_be_counted, check, of_test};

/// The variable that names the request to count.
const RUN: &str = "STREAMLINE_COUNTED";

/// The part by which a count may exceed that of the golden file.
const MORE: f64 = 0.03;

/// Each stage, and the request that ends with it; `F` stands for the capture.
const STAGES: [(&str, &str); 5] = [
    ("pcap", "pcap F | drop"),
    ("decap", "pcap F | decap | drop"),
    ("tcp", "pcap F | decap | tcp | drop"),
    ("http", "pcap F | decap | tcp | http | drop"),
    ("eve", "pcap F | decap | tcp | http | eve"),
];

/// The run that valgrind counts; does nothing without the variable.
#[test]
fn counted_run() {
    let Ok(request) = std::env::var(RUN) else { return };
    in_process::run(&request).unwrap_or_else(|error| panic!("{request}: {error}"));
}

#[test]
fn instructions_a_packet_and_stage_stay() {
    if !can_be_counted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path()).unwrap();
    let captures = [6_000_000, 12_000_000].map(|bytes| store.http(8, bytes).unwrap());
    let of_packet = |request: &str| {
        let count = |capture: &Capture| {
            let path = format!("\"{}\"", capture.path.display());
            of_test("instructions::counted_run", RUN, &request.replacen('F', &path, 1))
        };
        (count(&captures[1]) - count(&captures[0])) as f64 / (captures[1].frames - captures[0].frames) as f64
    };
    let mut before = 0.0;
    let found = STAGES.map(|(name, request)| {
        let all = of_packet(request);
        (name, all - std::mem::replace(&mut before, all))
    });
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.golden"), &found, MORE);
}
