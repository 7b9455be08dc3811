//! Faults of live capture, and the consequences that they must not have: readers that die, stop or are hostile, daemons
//! that die, devices that vanish, and a system without resources. The tests use their own namespaces, and are skipped
//! where those cannot be made.
//!
//! `STREAMLINE_KILLS=1000` and `STREAMLINE_CYCLES=1000` repeat the tests more often; `STREAMLINE_STOP=30` stops a
//! reader for 30 seconds. `cargo xtask crash` sets them.

mod bed;
mod deaths;
mod hostile;
mod maps;
mod openings;

/// A section of CRASH.md must have a row for each test in the files `whole`. It may name other tests only from the
/// files `others`.
fn check(section: &str, whole: &[&str], others: &[&str]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let read = |file: &&str| text(&format!("crates/{file}"));
    let tests: String = whole.iter().chain(others).map(read).collect();
    let table = text("CRASH.md");
    let section = table.split("\n## ").find(|found| found.starts_with(section)).expect("there is a section");
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let named = rows.flat_map(|row| row.rsplit('|').nth(1).unwrap_or_default().split(','));
    let named: Vec<&str> = named.map(|name| name.trim().trim_matches('`')).collect();
    assert!(named.len() > 10, "rows are found: {named:?}");
    for name in &named {
        assert!(tests.contains(&format!("fn {name}(")), "there is no test `{name}`");
    }
    for text in whole.iter().map(read) {
        for test in text.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            assert!(named.contains(&test), "CRASH.md has no row for `{test}`");
        }
    }
}

#[test]
fn each_row_of_crash_md_on_live_capture_names_a_test() {
    let whole = ["cli/tests/faults/deaths.rs", "cli/tests/faults/openings.rs"];
    let others = [
        "cli/tests/faults/hostile.rs",
        "cli/tests/faults/maps.rs",
        "capture/tests/registry/changes.rs",
        "streamline/tests/kernel_faults.rs",
        "cli/tests/live/consume.rs",
        "cli/tests/live/parser.rs",
    ];
    check("Live capture", &whole, &others);
}

#[test]
fn each_row_of_crash_md_on_flows_names_a_test() {
    let others = ["buffer/tests/crash/flow_points.rs", "net/src/tests/restore.rs", "net/src/process/ledger.rs"];
    check("Flows", &["cli/tests/live/restarts.rs"], &others);
}
