//! The crates that differ from the branch that a change is for: what `cargo xtask ci --quick` checks.

use crate::workspace::{Package, Workspace};
use crate::{Failure, Outcome, process};
use std::path::Path;

/// The branches that a change may be for. The first that is there counts.
const BRANCHES: [&str; 2] = ["origin/main", "main"];

/// Files of which each crate is built.
const OF_ALL: [&str; 2] = ["Cargo.toml", "Cargo.lock"];

/// Runs cargo for the changed crates: `--package NAME` for each stands behind the first word.
pub(crate) fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let workspace = Workspace::read(root, "Cargo.toml")?;
    let names = crates(&paths(root)?, &workspace.packages);
    if names.is_empty() {
        eprintln!("ci: no crate has changed");
        return Ok(());
    }
    let packages = names.iter().flat_map(|name| ["--package", name]);
    let arguments: Vec<&str> =
        arguments[..1].iter().copied().chain(packages).chain(arguments[1..].iter().copied()).collect();
    process::run(process::cargo(root, &arguments).envs(environment.iter().copied()))
}

/// The paths of files that are committed on this branch alone, or not committed.
fn paths(root: &Path) -> Result<Vec<String>, Failure> {
    let safe = format!("safe.directory={}", root.display());
    let git = |arguments: &[&str]| process::output(process::program(root, "git", &["-c", &safe]).args(arguments));
    let begin = BRANCHES.iter().find_map(|branch| git(&["merge-base", "HEAD", branch]).ok());
    let begin = begin.as_deref().map_or("HEAD", str::trim);
    let (differ, new) = (git(&["diff", "--name-only", begin])?, git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(differ.lines().chain(new.lines()).map(String::from).collect())
}

/// The names of the packages that have some of these files.
fn crates<'a>(paths: &[String], packages: &'a [Package]) -> Vec<&'a str> {
    let all = paths.iter().any(|path| OF_ALL.contains(&&path[..]));
    let has = |package: &Package, path: &String| Path::new(path).starts_with(&package.folder);
    let changed = packages.iter().filter(|package| all || paths.iter().any(|path| has(package, path)));
    changed.map(|package| &package.name[..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_changed_when_a_file_of_it_has() {
        let package =
            |name: &str| Package { name: name.into(), folder: format!("crates/{name}"), ..Package::default() };
        let packages = [package("net"), package("socket"), package("socket-host")];
        let rows: [(&[&str], &[&str]); 4] = [
            (&["README.md"], &[]),
            (&["crates/socket/src/lib.rs", "docs/walks.md"], &["socket"]),
            (&["crates/socket-host/Cargo.toml", "crates/net/src/a.rs"], &["net", "socket-host"]),
            (&["Cargo.lock"], &["net", "socket", "socket-host"]),
        ];
        for (paths, expected) in rows {
            let paths: Vec<String> = paths.iter().map(|path| path.to_string()).collect();
            assert_eq!(crates(&paths, &packages), expected, "{paths:?}");
        }
    }
}
