//! `streamline bench`: each bench completes with tiny trials, reports its results in each form, and leaves nothing
//! behind. The results depend on the machine and are not tested.

use driver::ethtool::Offloads;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("bench").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// One size and tiny trials.
fn tiny<'a>(bench: &[&'a str]) -> Vec<&'a str> {
    [bench, &["--sizes", "64", "--trial", "100ms"]].concat()
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(arguments: &[&str]) -> Value {
    let output = command(&[arguments, &["--json"]].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", error_of(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row(arguments: &[&str]) -> Value {
    let document = document(arguments);
    assert_eq!(document["bench"], arguments[0], "{document}");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{document}");
    rows[0].clone()
}

fn positive(row: &Value, key: &str) -> u64 {
    let number = row[key].as_u64().unwrap_or(0);
    assert!(number > 0, "{key}: {row}");
    number
}

#[test]
fn generate_counts_what_arrives_at_the_other_end() {
    if !may_make_networks() {
        return;
    }
    for by in ["socket", "direct", "xdp"] {
        let row = row(&tiny(&["generate", "--by", by, "--trials", "1"]));
        assert_eq!(row["bytes"], 64);
        positive(&row, "frames_per_second");
    }
}

#[test]
fn capture_and_forward_find_a_rate_that_the_sender_reaches() {
    if !may_make_networks() {
        return;
    }
    let benches: [(&[&str], &str); 5] = [
        (&["capture"], "kernel"),
        (&["capture", "--by", "socket"], "socket"),
        (&["forward"], "kernel"),
        (&["forward", "--by", "kernel"], "kernel"),
        (&["forward", "--by", "user"], "user"),
    ];
    for (bench, place) in benches {
        // On a busy machine, frames may be lost at any rate.
        let row = row(&tiny(&[bench, &["--rate", "2000", "--resolution", "50%", "--loss", "50%"]].concat()));
        assert_eq!(row["where"], place, "{bench:?}: {row}");
        assert!(positive(&row, "frames_per_second") <= 2000, "{row}");
        positive(&row, "trials");
        assert_eq!(row["disordered"], 0, "{bench:?}: {row}");
    }
}

#[test]
fn a_rate_that_the_sender_does_not_reach_is_refused_and_says_so() {
    if !may_make_networks() {
        return;
    }
    let output = command(&tiny(&["capture", "--rate", "1G"])).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("sender-bound: the sender alone reaches"), "{text}");
}

#[test]
fn the_devices_that_are_named_are_used() {
    if !may_make_networks() {
        return;
    }
    let here = testkit::network::quiet_namespace();
    let pair = Pair::named([(&here, "one"), (&here, "two")], 1).unwrap();
    let there = |arguments: &[&str]| {
        let mut command = command(arguments);
        pair.near.namespace.enter(move || command.output().unwrap()).unwrap()
    };
    let output = there(&tiny(&["generate", "--device", "one", "--json"]));
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(pair.far.link().counters.get("rx_packets").unwrap() > 0);
    let sent = |end: &testkit::network::End| end.link().counters.get("tx_packets").unwrap();
    assert_eq!(sent(&pair.far), 0, "nothing is sent on the device that only receives");
    let output = there(&tiny(&["capture", "--from", "one", "--to", "two", "--rate", "1k", "--loss", "50%"]));
    assert!(output.status.success(), "{}", error_of(&output));
    assert_eq!(sent(&pair.far), 0, "nor on one that captures");
    pair.near.set_up(false);
    let output = there(&tiny(&["generate", "--device", "one"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).starts_with("error: `one` is down"), "{}", error_of(&output));
}

#[test]
fn forward_goes_through_the_devices_that_are_named_or_says_why_not() {
    if !may_make_networks() {
        return;
    }
    let here = testkit::network::quiet_namespace();
    let pair = |near, far| Pair::named([(&here, near), (&here, far)], 1).unwrap();
    let (first, second) = (pair("sender", "in"), pair("out", "receiver"));
    let devices = ["--from", "sender", "--in", "in", "--out", "out", "--to", "receiver"];
    let there = |more: &[&str]| {
        let bench = [&["forward"], &devices[..], &["--rate", "1k", "--loss", "50%", "--json"], more].concat();
        let mut command = command(&tiny(&bench));
        here.enter(move || command.output().unwrap()).unwrap()
    };
    let place = |output: &Output| {
        assert!(output.status.success(), "{}", error_of(output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["rows"][0]["where"].clone()
    };
    let output = there(&["--by", "kernel"]);
    assert_eq!(output.status.code(), Some(1));
    let why = "the kernel does not forward from `in` to `out`: ";
    assert!(error_of(&output).starts_with(&format!("error: {why}")), "{}", error_of(&output));
    assert!(error_of(&output).contains("GRO"), "{}", error_of(&output));
    let output = there(&[]);
    assert_eq!(place(&output), "user");
    assert!(error_of(&output).starts_with(&format!("note: {why}")), "{}", error_of(&output));
    second.far.set_offloads(Offloads { gro: true, ..Offloads::NONE });
    assert_eq!(place(&there(&[])), "kernel");
    assert!(first.far.link().xdp.is_none(), "its program goes with it");
}

#[test]
fn a_device_that_goes_away_is_an_error() {
    if !may_make_networks() {
        return;
    }
    for bench in [&["generate", "--device", "near"][..], &["capture", "--from", "far", "--to", "near"]] {
        let here = testkit::network::quiet_namespace();
        let pair = Pair::named([(&here, "near"), (&here, "far")], 1).unwrap();
        let mut command = command(&[bench, &["--trial", "60s"]].concat());
        let child = here.enter(move || command.spawn().unwrap()).unwrap();
        let began = Instant::now();
        while pair.far.link().counters.get("rx_packets") == Some(0)
            && pair.near.link().counters.get("rx_packets") == Some(0)
        {
            assert!(began.elapsed() < Duration::from_secs(10), "{bench:?} sends");
            std::thread::sleep(Duration::from_millis(10));
        }
        pair.near.remove();
        let output = ends_soon(child);
        assert_eq!(output.status.code(), Some(1), "{bench:?}: {}", error_of(&output));
        assert!(error_of(&output).contains("was removed"), "{bench:?}: {}", error_of(&output));
    }
}

#[test]
fn pipeline_finds_the_work_that_fits_and_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("work.svg");
    let request = ["pipeline", "WORK | count", "--rate", "10k", "--svg", svg.to_str().unwrap()];
    // A busy machine may not reach the rate within a tenth of a second. The bench then says so, and the test runs it again.
    let mut row = row(&tiny(&request));
    for _ in 0..5 {
        if row["note"].is_null() {
            break;
        }
        row = self::row(&tiny(&request));
    }
    assert_eq!((&row["frames_per_second"], &row["ns_a_frame"]), (&10_000.into(), &100_000.into()), "{row}");
    assert!(positive(&row, "work_ns") <= 100_000, "{row}");
    assert!(std::fs::read_to_string(svg).unwrap().contains(">work<"));
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
    let replay = ["pipeline", "tcp | WORK | count", "--rate", "1k", "--replay", capture.to_str().unwrap()];
    let document = document(&[&replay[..], &["--trial", "100ms"]].concat());
    assert_eq!(document["rows"][0]["bytes"], Value::Null, "{document}");
    positive(&document["rows"][0], "work_ns");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    let rows: [(&[&str], &str); 9] = [
        (&["generate", "--sizes", "63"], "expected `mix` or a number from 64 to 1518"),
        (&["generate", "--trial", "0"], "a trial lasts 20ms to 600s"),
        (&["generate", "--svg", "/nosuch/x.svg"], "cannot write /nosuch/x.svg: "),
        (&["generate", "--device", "nosuch"], "there is no device `nosuch`"),
        (&["capture", "--loss", "60%"], "from 0 to 50%"),
        (&["capture", "--from", "lo", "--to", "lo"], "`lo` cannot be both --from and --to"),
        (&["forward", "--from", "a", "--to", "b", "--in", "a", "--out", "c"], "is another device"),
        (&["pipeline", "count"], "it lacks the word WORK"),
        (&["pipeline", "WORK | nosuch", "--sizes", "64"], "no filter `nosuch`"),
    ];
    for (arguments, expected) in rows {
        let output = command(arguments).output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}");
        assert!(error_of(&output).contains(expected), "{arguments:?}: {}", error_of(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn without_rights_it_says_what_would_help() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped (rights): only root can give rights up");
    }
    use std::os::unix::process::CommandExt;
    let output = command(&["generate"]).uid(65534).gid(65534).output();
    // Other users may be unable to read the program's folder.
    let Ok(output) = output else { return eprintln!("skipped: another user cannot run {PROGRAM}") };
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("which takes root\n   = help: run it as root, or name devices"), "{output:?}");
}

fn ends_soon(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(5) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// In every phase.
#[test]
fn ctrl_c_ends_it_at_once_and_leaves_nothing() {
    if !may_make_networks() {
        return;
    }
    for bench in [&["generate"][..], &["capture"], &["forward"], &["forward", "--by", "user"]] {
        for wait_ms in [300, 1500, 4000] {
            let arguments = [bench, &["--trial", "60s", "--warm-up", "1s"]].concat();
            let child = command(&arguments).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(wait_ms));
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            let asked = Instant::now();
            let output = ends_soon(child);
            assert!(asked.elapsed() < Duration::from_secs(3), "{bench:?} took {:?}", asked.elapsed());
            assert_eq!(output.status.code(), Some(0), "{bench:?}: {}", error_of(&output));
            assert!(error_of(&output).contains("warning: stopped before all sizes were measured"), "{bench:?}");
        }
    }
    // Its devices are in namespaces without names, which vanish with their last process.
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.windows(16).any(|part| part == b"--trial\x0060s\x00--wa"))
    });
    assert_eq!(left.count(), 0, "no process is left");
}
