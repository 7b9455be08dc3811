//! The units in `dist`, as systemd reads them. Skipped where its tools are not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `None`, with a message: the program is not installed.
fn run(command: &mut Command) -> Option<Output> {
    let output = command.output();
    if let Err(error) = &output {
        eprintln!("skipped: {}: {error}", command.get_program().display());
    }
    output.ok()
}

#[test]
fn systemd_understands_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_streamline");
    let units = ["streamline.service", "streamline.socket"].map(|name| {
        let path = folder.path().join(name);
        std::fs::write(&path, text(&format!("dist/{name}")).replace("/usr/bin/streamline", program)).unwrap();
        path
    });
    let Some(output) = run(Command::new("systemd-analyze").arg("verify").args(units)) else { return };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("streamline"), "{said}");
    let users = root().join("dist/streamline.sysusers.conf");
    let Some(output) = run(Command::new("systemd-sysusers").arg("--dry-run").arg(users)) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A unit that permits fewer calls than the daemon's own guard would make the daemon fail, though it works when started
/// by hand.
#[test]
fn the_service_permits_every_call_that_the_daemons_guard_permits() {
    let Some(output) = run(Command::new("systemd-analyze").arg("syscall-filter")) else { return };
    let listed = String::from_utf8(output.stdout).unwrap();
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut last = "";
    for line in listed.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')) {
        match line.strip_prefix("    ") {
            Some(call) => sets.entry(last).or_default().push(call),
            None => last = line,
        }
    }
    fn add<'a>(word: &'a str, sets: &BTreeMap<&str, Vec<&'a str>>, calls: &mut BTreeSet<&'a str>) {
        match sets.get(word) {
            Some(within) => within.iter().for_each(|word| add(word, sets, calls)),
            None => drop(calls.insert(word)),
        }
    }
    let unit = text("dist/streamline.service");
    let mut permitted = BTreeSet::new();
    for line in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (taken_away, words) = line.strip_prefix('~').map_or((false, line), |words| (true, words));
        let mut calls = BTreeSet::new();
        words.split_whitespace().for_each(|word| add(word, &sets, &mut calls));
        permitted = match taken_away {
            true => &permitted - &calls,
            false => &permitted | &calls,
        };
    }
    let sources = ["crates/guard/src/calls.rs", "crates/daemon/src/confine/calls.rs"].map(text).concat();
    let name =
        |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_string();
    let made: BTreeSet<String> = sources.split("libc::SYS_").skip(1).map(name).collect();
    // The calls that set up the guards, and that take the inherited socket.
    let first = ["seccomp", "landlock_restrict_self", "capset", "prctl", "prlimit64", "pidfd_getfd"].map(String::from);
    let missing: Vec<_> = made.iter().chain(&first).filter(|call| !permitted.contains(call.as_str())).collect();
    assert!(made.len() > 60 && missing.is_empty(), "the service does not permit {missing:?}");
}
