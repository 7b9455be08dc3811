//! `cargo xtask fmt [--check]`: runs rustfmt on every Rust file of the repository. `cargo fmt` follows `mod`, and so
//! misses the files inside the macro `filters! { ... }`.

use crate::{Failure, Outcome, files, process};
use std::collections::BTreeSet;
use std::path::Path;

/// Files of one call of rustfmt: the length of a command line is limited.
const CHUNK_FILES: usize = 200;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let check = match arguments {
        [] => false,
        [one] if one == "--check" => true,
        _ => return Err(Failure::Usage("`fmt` takes `--check` or nothing".into())),
    };
    let paths: Vec<String> = files::list(root, &["*.rs"])?.into_iter().collect();
    let mut other = BTreeSet::new();
    for chunk in paths.chunks(CHUNK_FILES) {
        let mut command = process::program(root, "rustfmt", &["--edition", "2024"]);
        if check {
            other.extend(not_formatted(command.args(["--check", "-l"]).args(chunk), root)?);
        } else {
            process::run(command.args(chunk))?;
        }
    }
    for path in &other {
        eprintln!("{path}:1: not formatted; run `cargo xtask fmt`");
    }
    if other.is_empty() { Ok(()) } else { Err(Failure::Failed(format!("{} files are not formatted", other.len()))) }
}

/// The files that `rustfmt --check -l` names.
fn not_formatted(command: &mut std::process::Command, root: &Path) -> Result<BTreeSet<String>, Failure> {
    let output = command.output().map_err(|error| process::absent(command, &error))?;
    let names = relative(&String::from_utf8_lossy(&output.stdout), root);
    // It fails if files differ, and then prints names. Without names it failed for another reason.
    if !output.status.success() && names.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("rustfmt failed: {}\n{}", output.status, said.trim_end())));
    }
    Ok(names)
}

/// The paths in rustfmt's output, relative to the repository's folder. A file that another file names in a `mod` occurs
/// more than once.
fn relative(output: &str, root: &Path) -> BTreeSet<String> {
    let names = output.lines().map(Path::new);
    names.map(|name| name.strip_prefix(root).unwrap_or(name).display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_once() {
        let names = relative("/x/crates/b.rs\n/x/a.rs\n/x/crates/b.rs\nc.rs\n", Path::new("/x"));
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a.rs", "c.rs", "crates/b.rs"]);
    }

    #[test]
    fn other_arguments_are_an_error() {
        for arguments in [&["--chek"][..], &["--check", "x"]] {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert!(matches!(run(Path::new("."), &arguments), Err(Failure::Usage(_))));
        }
    }
}
