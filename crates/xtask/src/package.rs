//! `cargo xtask package`: the program for people without Rust.
//!
//! - here — the command line, the builds, and the digests of the packages
//! - [`staged`] — the files of a package in a folder, as they lie below `/`
//! - [`formats`] — deb, rpm, tar and an OCI image of such folders
//! - [`trial`] — installs, runs and removes them where no Rust is
//! - [`components`] — the third-party crates that are built in
//! - [`notices`] — their licences
//! - [`bill`] — the same crates for scanners: a bill of materials
//!
//! Two builds of one commit give the same bytes, wherever they run: paths of the machine are cut from the programs,
//! and every time is that of the commit. `--twice` shows it: a clone elsewhere makes the same packages once more.

mod bill;
mod components;
mod formats;
mod notices;
mod staged;
mod trial;

use crate::install::{self, Profile};
use crate::{Failure, Outcome, process};
use formats::{FORMATS, Format};
use staged::Staged;
use std::path::{Path, PathBuf};

/// What a plain build leaves out, and packages have.
const FEATURES: &[&str] = &["cli/arrow"];

/// The facts that all formats share.
struct Made<'a> {
    root: &'a Path,
    /// Where packages go.
    out: PathBuf,
    /// Where files are laid out.
    work: PathBuf,
    /// Seconds since 1970 of the commit.
    time: String,
    /// The same, as RFC 3339 has it.
    date: String,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug)]
struct Wanted {
    out: Option<PathBuf>,
    formats: Vec<&'static Format>,
    /// Try those that are there, and make none.
    tries: bool,
    /// Make them a second time, elsewhere, and compare.
    twice: bool,
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let Wanted { out, formats, tries, twice } = parse(arguments)?;
    let out =
        std::path::absolute(out.unwrap_or_else(|| root.join("target/package/out"))).map_err(|e| failed(root, &e))?;
    let time = process::output(&mut process::program(root, "git", &["log", "-1", "--format=%ct"]))?.trim().to_string();
    let stamp = format!("@{time}");
    let date = process::output(&mut process::program(root, "date", &["-u", "-d", &stamp, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let made = Made { root, work: root.join("target/package"), time, date: date.trim().to_string(), out };
    if tries {
        return trial::run(&made);
    }
    make(&made, &formats)?;
    if twice { again(&made, &formats) } else { Ok(()) }
}

fn make(made: &Made<'_>, formats: &[&'static Format]) -> Outcome {
    std::fs::create_dir_all(&made.out).map_err(|error| failed(&made.out, &error))?;
    let mut whole: Option<Staged> = None;
    let mut alone: Option<Staged> = None;
    for format in formats {
        let staged = if format.is_static { &mut alone } else { &mut whole };
        let staged = match staged {
            Some(staged) => staged,
            None => staged.insert(stage(made, format.is_static)?),
        };
        println!("{}", (format.make)(made, staged)?.display());
    }
    sums(&made.out)
}

/// Makes the packages of the commit in a clone, and compares their digests.
fn again(made: &Made<'_>, formats: &[&'static Format]) -> Outcome {
    let (clone, out) = (made.work.join("again"), made.work.join("again-out"));
    for folder in [&clone, &out] {
        let _ = std::fs::remove_dir_all(folder);
    }
    process::run(process::program(made.root, "git", &["clone", "--quiet", "."]).arg(&clone))?;
    let mut second = process::cargo(&clone, &["xtask", "package", "--out"]);
    process::run(second.arg(&out).args(formats.iter().map(|format| format.name)))?;
    let mut compare = process::program(&out, "sha256sum", &["--check", "--ignore-missing"]);
    process::run(compare.arg(made.out.join("SHA256SUMS")))
}

/// Builds the files of a package, and lays them out.
fn stage(made: &Made<'_>, is_static: bool) -> Result<Staged, Failure> {
    let home = process::home_of_cargo();
    let mut flags = format!("--remap-path-prefix={}=. --remap-path-prefix={home}=cargo", made.root.display());
    if is_static {
        flags += " -C target-feature=+crt-static";
    }
    let target = made.work.join(if is_static { "static" } else { "shared" });
    let environment = [("RUSTFLAGS", flags.as_str()), ("CARGO_TARGET_DIR", &target.display().to_string())];
    let profile = if is_static { Profile::Static } else { Profile::Release };
    let built = install::build(made.root, profile, FEATURES, &environment)?;
    Staged::lay_out(made, &built, &made.work.join(if is_static { "static-root" } else { "root" }))
}

/// Writes the digests of all packages, for people who get them elsewhere.
fn sums(out: &Path) -> Outcome {
    let script = "sha256sum -- *.deb *.rpm *.tar.xz *.oci.tar 2>/dev/null >SHA256SUMS; cat SHA256SUMS";
    process::run(&mut process::program(out, "sh", &["-c", script]))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { out: None, formats: Vec::new(), tries: false, twice: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--out" {
            let folder = arguments.next().filter(|folder| !folder.is_empty());
            wanted.out = Some(folder.ok_or_else(|| Failure::Usage("`--out` needs a folder".into()))?.into());
        } else if argument == "--try" {
            wanted.tries = true;
        } else if argument == "--twice" {
            wanted.twice = true;
        } else if let Some(format) = FORMATS.iter().find(|format| format.name == argument) {
            wanted.formats.push(format);
        } else {
            let names: Vec<_> = FORMATS.iter().map(|format| format!("`{}`", format.name)).collect();
            let takes = format!("`package` takes `--out DIR`, `--try`, `--twice`, {}", names.join(", "));
            return Err(Failure::Usage(format!("{takes}; not `{argument}`")));
        }
    }
    if wanted.formats.is_empty() {
        wanted.formats.extend(&FORMATS);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Wanted, Failure> {
        parse(&arguments.iter().map(|text| text.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn all_formats_are_made_unless_some_are_named() {
        assert_eq!(parsed(&[]).unwrap().formats.len(), FORMATS.len());
        let some = parsed(&["--out", "x", "tar", "deb"]).unwrap();
        assert_eq!(some.formats.iter().map(|format| format.name).collect::<Vec<_>>(), ["tar", "deb"]);
        assert_eq!(some.out, Some("x".into()));
        for wrong in [&["--out"][..], &["--out", ""], &["snap"]] {
            assert!(matches!(parsed(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
