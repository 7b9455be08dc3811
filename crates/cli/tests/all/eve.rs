//! What `eve` writes of the bundled captures, and of the shared ones where they are there, is what Suricata's schema permits:
//! every field is in `eve_schema.txt` with its type, and what the schema requires is there.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// By path, with `[]` for the items of a list: the type.
fn published() -> BTreeMap<&'static str, &'static str> {
    let lines = include_str!("../eve_schema.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').unwrap()).collect()
}

fn check(value: &Value, path: &str, published: &BTreeMap<&str, &str>, wrong: &mut Vec<String>) {
    let of = match value {
        Value::Object(_) => "object",
        Value::Array(items) if items.is_empty() => "no items",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::Null => "null",
    };
    let is_right = path.is_empty() || published.get(path).is_some_and(|known| *known == of);
    if !is_right {
        wrong.push(format!("{path}: {of}, not {:?}", published.get(path)));
    }
    let below = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| check(value, &below(name), published, wrong)),
        Value::Array(items) => items.iter().for_each(|item| check(item, &format!("{path}[]"), published, wrong)),
        _ => {}
    }
}

/// `2026-01-02T03:04:05.678901+0000`: the schema has `^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d+[+\-]\d+$`.
fn is_time(text: &str) -> bool {
    let like = "dddd-dd-ddTdd:dd:dd.dddddd+dddd";
    text.len() == like.len()
        && text.chars().zip(like.chars()).all(|(c, like)| if like == 'd' { c.is_ascii_digit() } else { c == like })
}

fn events(capture: &Path) -> Vec<Value> {
    let run = || {
        Command::new(env!("CARGO_BIN_EXE_streamline"))
            .args(["run", "--local", "-q", "-r", capture.to_str().unwrap(), "eve"])
            .output()
            .unwrap()
    };
    let (first, again) = (run(), run());
    assert_eq!(first.stdout, again.stdout, "{}: one input, one output", capture.display());
    let text = String::from_utf8(first.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let shared = shared.join("data/captures");
    if !shared.is_dir() {
        eprintln!("skipped, there is no {}", shared.display());
    }
    let mut found = Vec::new();
    for folder in [root.join("captures"), shared] {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng")));
    }
    found.sort();
    found
}

#[test]
fn events_are_those_of_the_published_schema() {
    let published = published();
    let mut kinds = BTreeMap::<String, u64>::new();
    let mut wrong = Vec::new();
    for capture in captures() {
        for event in events(&capture) {
            let mut faults = Vec::new();
            check(&event, "", &published, &mut faults);
            let kind = event["event_type"].as_str().unwrap_or_default().to_string();
            if !event["timestamp"].as_str().is_some_and(is_time) || event.get(&kind).is_none() {
                faults.push("no time, or nothing of its type".into());
            }
            wrong.extend(faults.iter().map(|fault| format!("{}: {fault}: {event}", capture.display())));
            *kinds.entry(kind).or_default() += 1;
        }
    }
    assert!(wrong.is_empty(), "{} faults, such as\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    let known: Vec<&str> = kinds.keys().map(String::as_str).collect();
    assert_eq!(known, ["dns", "fileinfo", "flow", "ftp", "http", "sip", "smb", "smtp", "ssh", "tls"], "{kinds:?}");
}
