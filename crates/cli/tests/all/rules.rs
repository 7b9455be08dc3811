//! Suricata's own tests of rules: cases of rules, a capture and the alerts to expect. Those whose result differs and is
//! argued stand in `rules.allow`, one `CASE reason` a line; a case that is refused counts as such.

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::shared;

/// Cases whose rules must at least load, of 504.
const LOADED: usize = 402;
/// Cases that must at least pass.
const PASSED: usize = 341;

enum Outcome {
    Passed,
    Refused,
    Failed(String),
}

#[test]
fn suricatas_cases() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::fs::read_dir(shared::data().join("rules")).unwrap();
    let argued = std::fs::read_to_string(here.join("tests/rules.allow")).unwrap();
    let argued: HashMap<&str, &str> = argued.lines().skip(1).filter_map(|line| line.split_once(' ')).collect();
    let mut cases: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    let (mut passed, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in &cases {
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        match (run(case), argued.contains_key(&*name)) {
            (Outcome::Passed, _) => passed += 1,
            (Outcome::Refused, _) => refused += 1,
            (Outcome::Failed(_), true) => {}
            (Outcome::Failed(why), false) => wrong.push(format!("{name}: {why}")),
        }
    }
    eprintln!("{} cases: {passed} passed, {refused} refused, {} argued", cases.len(), argued.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (loaded, least) = if shared::is_whole() { (LOADED, PASSED) } else { (cases.len(), cases.len()) };
    assert!(cases.len() - refused >= loaded, "{refused} refused");
    assert!(passed >= least, "{passed} passed");
}

fn run(case: &Path) -> Outcome {
    let [capture, rules] = ["pcap", "rules"].map(|extension| case.with_extension(extension));
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(case).unwrap()).unwrap();
    let mut request = format!("pcap \"{}\" | rules \"{}\"", capture.display(), rules.display());
    for (name, value) in expected["options"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap();
        let file = case.with_file_name(value).display().to_string();
        request.push_str(&format!(" {name}=\"{}\"", if name == "threshold" { &file } else { value }));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_streamline"))
        .args(["run", "--local", "--stats", "none", &request])
        .output()
        .unwrap();
    match output.status.code() {
        Some(0) => {}
        Some(2) => return Outcome::Refused,
        code => return Outcome::Failed(format!("exit {code:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for alert in expected["alerts"].as_array().unwrap() {
        let wanted = alert["match"].as_object().unwrap();
        // Numbers of packets are those of another count.
        let fits = |event: &&Value| {
            wanted.iter().filter(|(key, _)| *key != "pcap_cnt").all(|(key, value)| is(event, key, value))
        };
        let found = events.iter().filter(fits).count() as u64;
        if Some(found) != alert["count"].as_u64() {
            return Outcome::Failed(format!("{found} alerts, not {}, of {wanted:?}", alert["count"]));
        }
    }
    Outcome::Passed
}

/// Whether the dotted names have this value in the event.
fn is(event: &Value, key: &str, wanted: &Value) -> bool {
    let at = |path: &str| {
        // `a.b[0]` is `a.b.0`.
        let path = path.replace('[', ".").replace(']', "");
        path.split('.').fold(event, |value, part| match part.parse::<usize>() {
            Ok(index) if value.is_array() => &value[index],
            _ => &value[part],
        })
    };
    if let Some(is_there) = [("has-key", true), ("not-has-key", false)].into_iter().find(|(name, _)| *name == key) {
        let paths = wanted.as_array().map_or(std::slice::from_ref(wanted), Vec::as_slice);
        return paths.iter().all(|path| at(path.as_str().unwrap()).is_null() != is_there.1);
    }
    let found = at(key);
    let text = |value: &Value| match value {
        Value::String(text) => text.to_lowercase(),
        other => other.to_string().to_lowercase(),
    };
    found == wanted || text(found) == text(wanted)
}
