//! The crates of the workspace and their dependencies, from `cargo metadata`.

use crate::{Failure, process};
use serde_json::Value;
use std::path::Path;

/// The crates, and those that a plain `cargo run` considers.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Sorted by name.
    pub packages: Vec<Package>,
    pub default_members: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Package {
    pub name: String,
    /// Its folder, from the repository's folder.
    pub folder: String,
    /// The crates of the workspace that it depends on, and how.
    pub arrows: Vec<Arrow>,
    pub targets: Vec<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub to: String,
    /// Whether it is only for tests, examples and benches.
    pub for_tests: bool,
}

/// A library, program, test or example of a crate.
#[derive(Debug)]
pub(crate) struct Target {
    pub name: String,
    /// `lib`, `bin`, `test`, `example`, `bench`, `custom-build`, `cdylib` ...
    pub kinds: Vec<String>,
    /// Its main file, from the repository's folder.
    pub file: String,
}

impl Target {
    pub fn is(&self, kind: &str) -> bool {
        self.kinds.iter().any(|one| one == kind)
    }

    /// Whether it is part of the product, and not only a test, example, measurement or build script.
    pub fn is_product(&self) -> bool {
        !["test", "example", "bench", "custom-build"].iter().any(|kind| self.is(kind))
    }
}

impl Workspace {
    /// Asks cargo, without downloads or dependency resolution.
    pub fn read(root: &Path, manifest: &str) -> Result<Workspace, Failure> {
        let arguments = ["metadata", "--format-version", "1", "--no-deps", "--manifest-path", manifest];
        let json = process::output(&mut process::cargo(root, &arguments))?;
        let root = root.canonicalize().map_err(|error| Failure::Failed(format!("{}: {error}", root.display())))?;
        Workspace::from_json(&json, &root)
            .ok_or_else(|| Failure::Failed("`cargo metadata` prints something else than it did with Rust 1.95".into()))
    }

    /// Reads the output of `cargo metadata`. `None`: a necessary part is missing.
    fn from_json(json: &str, root: &Path) -> Option<Workspace> {
        let json: Value = serde_json::from_str(json).ok()?;
        let packages = json["packages"].as_array()?;
        let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
        let defaults = json["workspace_default_members"].as_array()?;
        let default_members = packages.iter().filter(|package| defaults.contains(&package["id"]));
        let default_members = default_members.filter_map(|package| text(&package["name"])).collect();
        let packages = packages.iter().map(|package| Package::from_json(package, &names, root));
        let mut packages: Vec<Package> = packages.collect::<Option<_>>()?;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Some(Workspace { packages, default_members })
    }

    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    fn from_json(json: &Value, names: &[&str], root: &Path) -> Option<Package> {
        let mut arrows = Vec::new();
        for dependency in json["dependencies"].as_array()? {
            let to = text(&dependency["name"])?;
            if dependency["path"].is_string() && names.contains(&to.as_str()) {
                arrows.push(Arrow { to, for_tests: dependency["kind"] == "dev" });
            }
        }
        let targets = json["targets"].as_array()?.iter().map(|target| {
            let kinds = target["kind"].as_array()?.iter().map(text).collect::<Option<_>>()?;
            Some(Target { name: text(&target["name"])?, kinds, file: from_root(&target["src_path"], root)? })
        });
        let manifest = from_root(&json["manifest_path"], root)?;
        let folder = manifest.strip_suffix("Cargo.toml")?.trim_end_matches('/').to_string();
        Some(Package { name: text(&json["name"])?, folder, arrows, targets: targets.collect::<Option<_>>()? })
    }
}

fn text(json: &Value) -> Option<String> {
    json.as_str().map(str::to_string)
}

/// A path from cargo, relative to the repository's folder.
fn from_root(json: &Value, root: &Path) -> Option<String> {
    let path = Path::new(json.as_str()?);
    path.strip_prefix(root).unwrap_or(path).to_str().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{
        "packages": [
            {"name": "b", "id": "1", "manifest_path": "/x/crates/b/Cargo.toml", "targets": [
                {"name": "b", "kind": ["lib"], "src_path": "/x/crates/b/src/lib.rs"},
                {"name": "t", "kind": ["test"], "src_path": "/x/crates/b/tests/t.rs"}],
             "dependencies": [
                {"name": "a", "kind": null, "path": "/x/crates/a"},
                {"name": "a", "kind": "build", "path": "/x/crates/a"},
                {"name": "libc", "kind": null},
                {"name": "kit", "kind": "dev", "path": "/x/crates/kit"},
                {"name": "outside", "kind": null, "path": "/y"}]},
            {"name": "a", "id": "2", "manifest_path": "/x/crates/a/Cargo.toml", "targets": [], "dependencies": []},
            {"name": "kit", "id": "3", "manifest_path": "/x/crates/kit/Cargo.toml", "targets": [], "dependencies": []}],
        "workspace_default_members": ["2"]}"#;

    #[test]
    fn arrows_are_between_crates_of_the_workspace() {
        let workspace = Workspace::from_json(JSON, Path::new("/x")).unwrap();
        let b = workspace.package("b").unwrap();
        let arrow = |to: &str, for_tests| Arrow { to: to.into(), for_tests };
        assert_eq!(b.arrows, [arrow("a", false), arrow("a", false), arrow("kit", true)]);
        assert_eq!(b.folder, "crates/b");
        let products: Vec<_> = b.targets.iter().filter(|one| one.is_product()).map(|one| one.file.as_str()).collect();
        assert_eq!(products, ["crates/b/src/lib.rs"]);
        assert_eq!(workspace.default_members, ["a"]);
        assert_eq!(
            workspace.packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "kit"]
        );
    }

    #[test]
    fn other_output_is_an_error() {
        for json in ["", "[]", r#"{"packages": [{"name": "a"}], "workspace_default_members": []}"#] {
            assert!(Workspace::from_json(json, Path::new("/x")).is_none(), "{json}");
        }
    }
}
