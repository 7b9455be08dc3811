//! No allocation per block in steady state: a capture twice as long costs no more allocations. A program of its
//! own: allocations are counted in all of it.

use bench::captures::{Capture, Store};
use bench::in_process;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const FLOWS: usize = 8;

struct Row {
    /// `F` stands for the capture.
    request: &'static str,
    expected: fn(&Capture) -> u64,
    key: &'static str,
}

const fn row(request: &'static str, key: &'static str, expected: fn(&Capture) -> u64) -> Row {
    Row { request, expected, key }
}

const ROWS: &[Row] = &[
    row("pcap F | count", "blocks", |capture| capture.frames),
    row("pcap F | port |80 count", "blocks", |capture| capture.web_frames),
    row("pcap F | {proto tcp and port 80} | count", "blocks", |capture| capture.web_frames),
    row("pcap F | bpf \"tcp port 80\" | count", "blocks", |capture| capture.web_frames),
    row("pcap F | match \"GET /file/\" | count", "blocks", |_| FLOWS as u64),
    row("pcap F | tcp | count", "bytes", |capture| capture.streams.iter().map(|content| content.size).sum()),
];

/// The only test in this program, since another one would add its own allocations.
#[test]
fn allocations_do_not_grow_with_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path()).unwrap();
    // About 7,000 and 14,000 frames; the first capture already has every stream and every size of batch.
    let captures = [10_000_000, 20_000_000].map(|bytes| store.large_flows(FLOWS, bytes).unwrap());
    for Row { request: text, expected, key } in ROWS {
        let run =
            |capture: &Capture| in_process::run(&text.replacen('F', &format!("\"{}\"", capture.path.display()), 1));
        // The first run is not counted: it makes things that a process makes once (the expression compiler).
        match run(&captures[0]) {
            Err(error) if error.contains("libpcap") => {
                eprintln!("skipped, no libpcap here: {text}");
                continue;
            }
            first => first.map(drop).unwrap_or_else(|error| panic!("{text}: {error}")),
        }
        let counts = captures.each_ref().map(|capture| {
            let region = Region::new(ALLOCATOR);
            let ran = run(capture).unwrap_or_else(|error| panic!("{text}: {error}"));
            let change = region.change();
            let printed: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
            assert_eq!(printed[*key].as_u64(), Some(expected(capture)), "{text}");
            change.allocations + change.reallocations
        });
        assert_eq!(counts[1], counts[0], "{text}: allocations with twice the blocks");
    }
}
