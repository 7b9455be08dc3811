//! What must go on working for others: `cargo xtask msrv` builds the program with the oldest compiler that is promised,
//! `cargo xtask semver REVISION` compares the library's API with that of an earlier revision. Both need the network once,
//! so `ci` does not run them.

use crate::{Failure, Outcome, process};
use std::path::Path;

/// Checks the program with the compiler that `rust-version` names.
pub(crate) fn msrv(root: &Path, arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err(Failure::Usage("`msrv` takes nothing".into()));
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"));
    let manifest = manifest.map_err(|error| Failure::Failed(format!("Cargo.toml: {error}")))?;
    let toolchain = oldest(&manifest).ok_or_else(|| Failure::Failed("Cargo.toml names no rust-version".into()))?;
    // A target of its own: two compilers in one would build everything twice.
    let arguments = ["run", &toolchain, "cargo", "check", "--locked", "-p", "cli", "--target-dir", "target/msrv"];
    process::run(&mut process::program(root, "rustup", &arguments))
}

/// The compiler's release that a workspace promises: `rust-version` with its third number.
fn oldest(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version"))?;
    let version = line.split('"').nth(1)?;
    Some(if version.matches('.').count() == 1 { format!("{version}.0") } else { version.to_string() })
}

/// Compares the API of `streamline` with that of a revision, by cargo-semver-checks.
pub(crate) fn semver(root: &Path, arguments: &[String]) -> Outcome {
    let [revision] = arguments else {
        return Err(Failure::Usage("`semver` takes a revision: what programs were built against".into()));
    };
    let installed = process::output(&mut process::program(root, "cargo", &["semver-checks", "--version"]));
    installed.map_err(|_| Failure::Failed("run `cargo install --locked cargo-semver-checks` first".into()))?;
    let arguments = ["semver-checks", "-p", "streamline", "--baseline-rev", revision];
    process::run(&mut process::program(root, "cargo", &arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_compiler_has_three_numbers() {
        let rows = [
            ("[workspace.package]\nrust-version = \"1.95\"\n", Some("1.95.0")),
            ("rust-version = \"1.95.1\"", Some("1.95.1")),
            ("[package]\n", None),
        ];
        for (manifest, expected) in rows {
            assert_eq!(oldest(manifest).as_deref(), expected, "{manifest}");
        }
    }
}
