//! Compares what the program finds in captures with what tcpdump, tshark, tcpflow and a reference reader found there.
//!
//! `expectations.allow` lists accepted differences, one `CAPTURE PART reason` a line.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::shared;

/// Expressions of one capture.
const EXPRESSIONS: usize = 24;

/// A capture, and what others found in it.
struct Case {
    capture: PathBuf,
    expected: Value,
}

impl Case {
    /// Whether every peer reads the whole file. `capinfos` does not know some link types.
    fn is_sound(&self) -> bool {
        let Some(packets) = self.expected["packets"].as_object() else { return true };
        let counts: BTreeSet<String> = packets
            .iter()
            .filter(|(peer, count)| *peer != "capinfos" || !count.is_null())
            .map(|(_, n)| n.to_string())
            .collect();
        let errors = self.expected["format"]["errors"].as_array().is_some_and(|errors| !errors.is_empty());
        counts.len() == 1 && counts.iter().all(|count| count.parse::<u64>().is_ok()) && !errors
    }

    /// Runs the request behind this capture. Returns its lines of JSON.
    fn run(&self, request: &str) -> Result<Vec<Value>, String> {
        let request = format!("pcap \"{}\" | {request}", self.capture.display());
        let output =
            Command::new(env!("CARGO_BIN_EXE_streamline")).args(["run", "--local", &request]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let may_be = |status: i32| status == 0 || (1..=2).contains(&status) && !self.is_sound();
        if said.contains("panicked at") || !output.status.code().is_some_and(may_be) {
            return Err(format!("{}: {request}: {said}", output.status));
        }
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(lines.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// Counts of blocks, in the order of the branches of the request.
    fn counts(&self, request: &str) -> Result<Vec<u64>, String> {
        Ok(self.run(request)?.iter().filter_map(|line| line["blocks"].as_u64()).collect())
    }

    /// Length and digest of the files that the request writes. The files are read: the index must not lie.
    fn files(&self, request: &str) -> Result<Vec<(u64, String)>, String> {
        let folder = tempfile::tempdir().unwrap();
        self.run(&format!("{request} | files dir=\"{}\"", folder.path().display()))?;
        let index = fs::read_to_string(folder.path().join("index.jsonl")).unwrap_or_default();
        let rows = index.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows = rows.filter(|row| row["size"].as_u64() > Some(0));
        rows.map(|row| {
            let name = row["file"].as_str().unwrap();
            let path = folder.path().join(name).canonicalize().map_err(|error| format!("{name}: {error}"))?;
            let is_inside = path.starts_with(folder.path().canonicalize().unwrap());
            let bytes = fs::read(&path).unwrap();
            let found = (bytes.len() as u64, format!("{:x}", Sha256::digest(&bytes)));
            let told = (row["size"].as_u64().unwrap(), row["sha256"].as_str().unwrap().to_string());
            if is_inside && found == told { Ok(found) } else { Err(format!("the index is wrong about {name}")) }
        })
        .collect()
    }
}

/// Checks each capture. `one` returns whether there was something to compare; in the whole collection that is so for
/// `least` captures.
fn check(part: &str, least: usize, one: impl Fn(&Case) -> Result<bool, String>) {
    let allowed = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expectations.allow")).unwrap();
    let is_allowed = |name: &str| allowed.lines().any(|line| line.starts_with(&format!("{name} {part} ")));
    let (mut compared, mut wrong) = (0, Vec::new());
    let data = shared::data();
    for entry in fs::read_dir(data.join("expected")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let expected = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        match one(&Case { capture: data.join("captures").join(name), expected }) {
            Ok(is_compared) => compared += usize::from(is_compared),
            Err(_) if is_allowed(name) => {}
            Err(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    eprintln!("{compared} captures compared");
    assert!(wrong.is_empty(), "{} captures differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= shared::part(least), "only {compared} captures compared");
}

/// How often each value is there.
fn counted<T: Ord>(values: impl IntoIterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    values.into_iter().for_each(|value| *counts.entry(value).or_default() += 1);
    counts
}

/// Fails where a wanted value is missing, or, if `exact`, another one is there.
fn compare<T: Ord + std::fmt::Debug>(
    wanted: BTreeMap<T, u64>,
    found: BTreeMap<T, u64>,
    exact: bool,
) -> Result<bool, String> {
    let beyond = |some: &BTreeMap<T, u64>, others: &BTreeMap<T, u64>| {
        some.iter()
            .find(|(value, count)| others.get(value).is_none_or(|other| other < count))
            .map(|(value, _)| format!("{value:?}"))
    };
    match (beyond(&wanted, &found), beyond(&found, &wanted)) {
        (Some(missing), _) => Err(format!("{missing} is missing")),
        (None, Some(extra)) if exact => Err(format!("{extra} is too much")),
        _ => Ok(!wanted.is_empty()),
    }
}

#[test]
fn as_many_packets() {
    check("count", 150, |case| {
        if !case.is_sound() {
            return Ok(false);
        }
        compare_counts(&case.counts("count")?, &[case.expected["packets"]["tcpdump"].as_u64().unwrap()])
    });
}

fn compare_counts(found: &[u64], expected: &[u64]) -> Result<bool, String> {
    if found == expected { Ok(true) } else { Err(format!("{found:?} packets, not {expected:?}")) }
}

#[test]
fn expressions_pass_as_many_as_tcpdumps() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
    if (Case { capture: web, expected: Value::Null }).counts("bpf tcp | count").is_err() {
        eprintln!("skipped: no libpcap");
        return;
    }
    check("bpf", 150, |case| {
        if !case.is_sound() {
            return Ok(false);
        }
        let all = case.expected["bpf"].as_object().unwrap().iter();
        let all: BTreeMap<&str, u64> = all
            .filter_map(|(text, count)| Some((text.as_str(), count.as_u64()?)))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        // Those that pass something, and some of the others.
        let chosen = all.iter().enumerate().filter(|(at, (_, count))| **count > 0 || at % 8 == 0);
        let (texts, counts): (Vec<&str>, Vec<u64>) =
            chosen.map(|(_, (text, count))| (*text, *count)).take(EXPRESSIONS).unzip();
        let filters: Vec<String> = texts.iter().map(|text| format!("bpf {} | count", Value::from(*text))).collect();
        let Some(first) = filters.first() else { return Ok(false) };
        compare_counts(&case.counts(first)?, &counts[..1])?;
        let together = case.counts(&format!("{{ {} + drop }}", filters.join(" + ")))?;
        compare_counts(&together, &counts).map_err(|why| format!("{why}, of {texts:?}"))
    });
}

#[test]
fn streams_have_the_same_bytes() {
    check("tcp", 100, |case| {
        let streams = case.expected["tcp_streams"].as_array().unwrap();
        let directions = streams.iter().flat_map(|stream| stream["dirs"].as_object().unwrap().values());
        let directions: Vec<&Value> = directions.filter(|one| one["bytes"].as_u64() > Some(0)).collect();
        let agreed = |one: &&&Value| one["agree"].as_array().is_some_and(|peers| !peers.is_empty());
        let identity = |one: &&Value| (one["bytes"].as_u64().unwrap(), one["sha256"].as_str().unwrap().to_string());
        let wanted = counted(directions.iter().filter(agreed).map(identity));
        if wanted.is_empty() {
            return Ok(false);
        }
        let is_exact = directions.iter().all(|one| agreed(&one)) && is_empty(&case.expected["tcp_streams_unconfirmed"]);
        compare(wanted, counted(case.files("tcp")?), is_exact)
    });
}

/// Whether this is nothing, in Python's sense.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        other => other.is_null() || *other == Value::Bool(false),
    }
}

/// Bodies with chunking and content coding undone. One whose coded bytes end early has no fixed result.
#[test]
fn bodies_have_the_same_bytes() {
    check("http", 30, |case| {
        let http = &case.expected["http1"];
        let messages = http["messages"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let bodies: Vec<&Value> = messages.filter(|message| message["len"].as_u64() > Some(0)).collect();
        let is_fixed = |message: &&&Value| {
            !is_empty(&message["confirmed_by"]) && message["decoded_complete"] != Value::Bool(false)
        };
        let fixed: Vec<&&Value> = bodies.iter().filter(is_fixed).collect();
        let digests = fixed
            .iter()
            .filter(|message| message["decoded_len"] != 0)
            .map(|message| message.get("decoded_sha256").unwrap_or(&message["sha256"]).as_str().unwrap().to_string());
        let wanted = counted(digests);
        if wanted.is_empty() {
            return Ok(false);
        }
        let is_exact = fixed.len() == bodies.len() && is_empty(&http["tshark_only"]) && is_empty(&http["tcpflow_only"]);
        compare(wanted, counted(case.files("http")?.into_iter().map(|(_, digest)| digest)), is_exact)
    });
}

#[test]
fn questions_have_the_same_names() {
    check("dns", 16, |case| names(case, "dns", "rrname", "dns", 2));
}

#[test]
fn client_hellos_have_the_same_names() {
    check("tls", 8, |case| names(case, "tls", "sni", "tls_client_hello", 1));
}

/// Compares the texts under `key` with those in a column of tshark's table. Some others may be there, in print.
fn names(case: &Case, filter: &str, key: &str, table: &str, column: usize) -> Result<bool, String> {
    let plain = |name: &str| name.to_lowercase().trim_end_matches('.').to_string();
    let rows = case.expected["tshark_app"][table].as_array().map_or(&[][..], Vec::as_slice);
    let name = |row: &Value| row[column].as_str().filter(|name| !name.is_empty() && *name != "<Root>").map(plain);
    let known: BTreeSet<String> = rows.iter().filter_map(name).collect();
    let wanted: BTreeSet<String> = rows.iter().filter(|row| table != "dns" || row[1] == "Q").filter_map(name).collect();
    if wanted.is_empty() {
        return Ok(false);
    }
    let mut found = BTreeSet::new();
    case.run(&format!("{filter} | json"))?
        .iter()
        .for_each(|line| under(line, key, &mut |name| _ = found.insert(plain(name))));
    if let Some(missing) = wanted.difference(&found).next() {
        return Err(format!("{missing} is missing"));
    }
    let beyond: Vec<&String> = found.difference(&known).collect();
    let is_odd = beyond.iter().any(|name| name.contains(char::is_control));
    if beyond.len() > wanted.len() || is_odd { Err(format!("{beyond:?} are too much")) } else { Ok(true) }
}

/// Every text under this key, at any depth.
fn under(value: &Value, key: &str, tell: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == key => tell(text),
            _ => under(value, key, tell),
        }),
        Value::Array(items) => items.iter().for_each(|item| under(item, key, tell)),
        _ => {}
    }
}
