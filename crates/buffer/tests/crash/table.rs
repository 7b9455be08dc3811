//! `CRASH.md` names each store to shared memory, with the consequences of a death there and the test that shows them. A
//! store without a row, a row without a store, or a missing test fails here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders with stores to shared words and bytes. Checks every Rust file below them.
const FOLDERS: [&str; 3] = ["ring", "keeper", "flow"];

/// Calls that store: to words, to bytes, or on behalf of their caller.
const STORES: [&str; 7] =
    [".store(", ".fetch_add(", ".fetch_or(", ".swap(", ".compare_exchange(", ".copy_in(", "doorbell::ring("];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("a folder can be read").path())
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The targets of the stores in a line of code: `head` of `self.words.writer.0.head.store(x, y)`.
fn stores(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let mut found = Vec::new();
    for call in STORES {
        for (at, _) in code.match_indices(call) {
            let word =
                |text: &str| text.rsplit(|one: char| !(one.is_alphanumeric() || one == '_')).next().map(String::from);
            let name = match call {
                "doorbell::ring(" => "ring".to_string(),
                // `self.page.position.0.store`: the number is no name.
                _ => word(code[..at].trim_end_matches(|one: char| one == '.' || one.is_ascii_digit()))
                    .unwrap_or_default(),
            };
            found.push(format!("{name}{}", call.trim_start_matches("doorbell::ring").trim_end_matches('(')));
        }
    }
    found
}

type Counts = BTreeMap<(String, String), usize>;

fn in_code() -> Counts {
    let mut counts = Counts::new();
    let source = here().join("src");
    let files = FOLDERS.iter().flat_map(|folder| rust_files(&source.join(folder)));
    for path in files.filter(|path| !path.ends_with("tests.rs") && !path.ends_with("model.rs")) {
        let text = std::fs::read_to_string(&path).expect("a source file is text");
        let text = text.split("mod tests {").next().unwrap_or_default();
        let file = path.strip_prefix(&source).expect("below the source").display().to_string();
        for store in text.lines().flat_map(stores) {
            *counts.entry((file.clone(), store)).or_default() += 1;
        }
    }
    counts
}

/// Rows of the table: file, store, how often, tests.
fn rows() -> Vec<[String; 4]> {
    let text = std::fs::read_to_string(here().join("../../CRASH.md")).expect("CRASH.md stands at the root");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    text.lines()
        .map(cells)
        .filter(|cells| cells.get(1).is_some_and(|file| file.ends_with(".rs")))
        .map(|cells| {
            assert_eq!(cells.len(), 10, "a row has eight cells: {cells:?}");
            [1, 2, 3, 8].map(|cell: usize| cells[cell].clone())
        })
        .collect()
}

#[test]
fn each_store_has_a_row_in_crash_md() {
    let mut in_table = Counts::new();
    for [file, store, count, _] in rows() {
        *in_table.entry((file, store)).or_default() += count.parse::<usize>().expect("a count");
    }
    let in_code = in_code();
    assert!(in_code.len() > 20, "stores are found: {in_code:?}");
    for (store, count) in &in_code {
        assert_eq!(in_table.get(store), Some(count), "{store:?}: in CRASH.md, and in the code");
    }
    for store in in_table.keys() {
        assert!(in_code.contains_key(store), "{store:?} is in CRASH.md, but not in the code");
    }
}

#[test]
fn each_row_of_crash_md_names_a_test() {
    let text: String =
        rust_files(&here().join("tests")).iter().map(|path| std::fs::read_to_string(path).expect("text")).collect();
    for [file, store, _, tests] in rows() {
        assert!(!tests.is_empty());
        for test in tests.split(',').map(str::trim) {
            assert!(text.contains(&format!("fn {test}(")), "{file} {store}: there is no test `{test}`");
        }
    }
}
