//! The third-party crates in the programs, as `cargo metadata` and `Cargo.lock` name them.

use crate::{Failure, process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The installed packages.
const INSTALLED: [&str; 6] = ["cli", "pcap-shim", "socket-shim", "capi", "capi-request", "capi-net"];

/// A crate that is built in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Component {
    pub name: String,
    pub version: String,
    /// An expression of SPDX, where the crate states one.
    pub licence: Option<String>,
    /// SHA-256 of the crate's archive, in hexadecimal digits.
    pub digest: Option<String>,
    /// Where its `Cargo.toml` lies.
    pub manifest: PathBuf,
}

/// All of them, sorted by name and version.
pub(super) fn of(root: &Path) -> Result<Vec<Component>, Failure> {
    let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let mut command = process::cargo(root, &arguments);
    let json = process::output(command.args(super::FEATURES.iter().flat_map(|feature| ["--features", feature])))?;
    let said = serde_json::from_str(&json)
        .map_err(|error| Failure::Failed(format!("`cargo metadata` prints no JSON: {error}")))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))
        .map_err(|error| Failure::Failed(format!("Cargo.lock: {error}")))?;
    Ok(built_in(&said, &digests(&lock)))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

fn built_in(said: &Value, digests: &BTreeMap<(String, String), String>) -> Vec<Component> {
    let by_id = |values: &Value| -> BTreeMap<String, Value> {
        list(values).iter().map(|value| (word(value, "id"), value.clone())).collect()
    };
    let (packages, nodes) = (by_id(&said["packages"]), by_id(&said["resolve"]["nodes"]));
    let is_installed = |id: &&String| INSTALLED.iter().any(|name| packages[*id]["name"] == **name);
    let mut waiting: Vec<String> = packages.keys().filter(is_installed).cloned().collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        // Neither build scripts nor tests are part of a program.
        let is_built_in = |arrow: &&Value| list(&arrow["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let arrows = nodes.get(&id).map_or(&[][..], |node| list(&node["deps"]));
        waiting.extend(arrows.iter().filter(is_built_in).map(|arrow| word(arrow, "pkg")));
    }
    // Crates of the workspace have no source.
    let foreign = reached.iter().filter_map(|id| packages.get(id)).filter(|package| !package["source"].is_null());
    let mut components: Vec<Component> = foreign.map(|package| component(package, digests)).collect();
    components.sort();
    components
}

fn component(package: &Value, digests: &BTreeMap<(String, String), String>) -> Component {
    let (name, version) = (word(package, "name"), word(package, "version"));
    Component {
        digest: digests.get(&(name.clone(), version.clone())).cloned(),
        licence: package["license"].as_str().map(String::from),
        manifest: word(package, "manifest_path").into(),
        name,
        version,
    }
}

/// The digests in the text of a `Cargo.lock`, by name and version.
fn digests(lock: &str) -> BTreeMap<(String, String), String> {
    let values = |entry: &str| {
        let value = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.map(|rest| rest.trim_end_matches('"').to_string())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_built_in_is_found() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source, "manifest_path": name});
        let arrow = |to: &str, kind: Value| json!({"pkg": to, "dep_kinds": [{"kind": kind}]});
        let said = json!({
            "packages": [
                package("cli", Value::Null), package("room", Value::Null), package("inner", "registry".into()),
                package("tested", "registry".into()), package("other", "registry".into()),
            ],
            "resolve": {"nodes": [
                {"id": "cli", "deps": [arrow("room", Value::Null), arrow("tested", "dev".into())]},
                {"id": "room", "deps": [arrow("inner", Value::Null)]},
            ]},
        });
        let lock =
            "version = 4\n\n[[package]]\nname = \"inner\"\nversion = \"1.0.0\"\nsource = \"r\"\nchecksum = \"ab\"\n";
        let found = Component {
            name: "inner".into(),
            version: "1.0.0".into(),
            licence: Some("MIT".into()),
            digest: Some("ab".into()),
            manifest: "inner".into(),
        };
        assert_eq!(built_in(&said, &digests(lock)), [found]);
    }
}
