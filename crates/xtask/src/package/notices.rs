//! The licences of third-party crates in the programs.

use crate::{Failure, process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The installed packages. Their dependencies need a notice.
const INSTALLED: [&str; 6] = ["cli", "pcap-shim", "socket-shim", "capi", "capi-request", "capi-net"];

/// A text: each crate with its licence, and then each text of a licence that lies beside one, once.
pub(super) fn text(root: &Path) -> Result<String, Failure> {
    let arguments = ["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let json = process::output(&mut process::cargo(root, &arguments))?;
    let said = serde_json::from_str(&json)
        .map_err(|error| Failure::Failed(format!("`cargo metadata` prints no JSON: {error}")))?;
    Ok(of(&said, |manifest| licences(Path::new(manifest).parent().unwrap_or(root))))
}

/// `licences`: the texts that lie beside a manifest.
fn of(said: &Value, licences: impl Fn(&str) -> Vec<String>) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let packages: BTreeMap<String, Value> =
        list(&said["packages"]).into_iter().map(|package| (word(&package, "id"), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&said["resolve"]["nodes"]).into_iter().map(|node| (word(&node, "id"), node)).collect();
    let is_installed = |id: &&String| INSTALLED.iter().any(|name| packages[*id]["name"] == **name);
    let mut waiting: Vec<String> = packages.keys().filter(is_installed).cloned().collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        // Neither build scripts nor tests are part of a program.
        let is_built_in = |arrow: &Value| list(&arrow["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let arrows = nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default();
        waiting.extend(arrows.iter().filter(|arrow| is_built_in(arrow)).map(|arrow| word(arrow, "pkg")));
    }
    let mut named = BTreeSet::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Crates of the workspace have no source.
    for package in reached.iter().filter_map(|id| packages.get(id)).filter(|package| !package["source"].is_null()) {
        let name = format!("{} {}", word(package, "name"), word(package, "version"));
        named.insert(format!("{name}: {}", package["license"].as_str().unwrap_or("see below")));
        for text in licences(&word(package, "manifest_path")) {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let mut notice = String::from("Streamline has code of these crates in it:\n\n");
    named.iter().for_each(|line| notice += &format!("{line}\n"));
    for (text, of) in texts {
        let of: Vec<String> = of.into_iter().collect();
        notice += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), of.join(", "), text.trim());
    }
    notice
}

/// The texts of licences in a folder.
fn licences(folder: &Path) -> Vec<String> {
    const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let is_licence = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        NAMES.iter().any(|known| name.starts_with(known))
    };
    paths.iter().filter(is_licence).filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_built_in_has_a_notice() {
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
        let text = of(&said, |manifest| vec![format!("terms of {manifest}")]);
        assert!(text.contains("\ninner 1.0.0: MIT\n") && text.contains("terms of inner"), "{text}");
        assert!(!["tested", "other", "room"].iter().any(|name| text.contains(name)), "{text}");
    }
}
