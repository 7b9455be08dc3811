//! `cargo xtask TASK`: tasks for developers and CI. Not part of the product: no crate depends on it. It depends on no
//! crate of the workspace, so that it runs even if they do not compile.
//!
//! The tasks are listed below, one file each; `tidy` has a folder with one file for each check. Read `ci` first.

#![forbid(unsafe_code)]

mod attack;
mod bench;
mod changed;
mod ci;
mod compatible;
mod compiler;
mod counts;
mod crash;
mod files;
mod fmt;
mod fuzz;
mod install;
mod lanes;
mod markdown;
mod model;
mod modules;
mod mutate;
mod orderings;
mod package;
mod pcap_library;
mod picture;
mod process;
mod source;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A task of `cargo xtask`.
struct Task {
    name: &'static str,
    /// Its arguments, as in the manual.
    usage: &'static str,
    summary: &'static str,
    /// Takes the repository's folder and the arguments after the task's name.
    run: fn(&Path, &[String]) -> Outcome,
}

const TASKS: &[Task] = &[
    Task {
        name: "ci",
        usage: "[--quick]",
        summary: "all checks that a change must pass, or those of the changed crates",
        run: ci::run,
    },
    Task {
        name: "test",
        usage: "[--all]",
        summary: "every test, several test programs at a time, or also those that need builds of their own",
        run: lanes::run,
    },
    Task {
        name: "fmt",
        usage: "[--check]",
        summary: "format every Rust file, or name those that are not",
        run: fmt::run,
    },
    Task {
        name: "tidy",
        usage: "[--walks]",
        summary: "check what the compiler does not: arrows, rooms, links, plain English; or measure what a reader walks",
        run: tidy::run,
    },
    Task {
        name: "msrv",
        usage: "",
        summary: "check the program with the oldest compiler that is promised",
        run: compatible::msrv,
    },
    Task {
        name: "semver",
        usage: "REVISION",
        summary: "compare the API of `streamline` with that of a revision",
        run: compatible::semver,
    },
    Task { name: "fuzz", usage: "[TARGET] [--seconds N]", summary: "fuzz one parser, or each in turn", run: fuzz::run },
    Task {
        name: "model",
        usage: "[--fast | --mutations [FILE]]",
        summary: "run the protocols of shared memory in a model checker, or see which orderings that needs",
        run: model::run,
    },
    Task { name: "mutate", usage: "[N]", summary: "run requests over N damaged captures", run: mutate::run },
    Task {
        name: "attack",
        usage: "[N]",
        summary: "run requests over N MB of hostile traffic with honest traffic in it",
        run: attack::run,
    },
    Task {
        name: "crash",
        usage: "[--kills N]",
        summary: "kill processes that share a ring, at each store and N times at random",
        run: crash::run,
    },
    Task {
        name: "install",
        usage: "[--prefix DIR] [--debug] [--uninstall]",
        summary: "install the program, its libraries, manual pages, completions and units, or take them away",
        run: install::run,
    },
    Task {
        name: "package",
        usage: "[--out DIR] [--try] [--twice] [deb] [rpm] [tar] [oci]",
        summary: "make packages for people without Rust, make them twice and compare, or try them in a fresh root",
        run: package::run,
    },
    Task {
        name: "picture",
        usage: "",
        summary: "draw what a terminal shows of README's first commands, as docs/terminal.svg",
        run: picture::run,
    },
    Task {
        name: "pcap-library",
        usage: "[FOLDER]",
        summary: "build libpcap.so.0.8: libpcap's functions over live rings, in libpcap's place",
        run: pcap_library::run,
    },
    Task {
        name: "bench",
        usage: "NAME [OPTION...]",
        summary: "measure against a peer; `list` names them",
        run: bench::run,
    },
];

/// The result of a task.
type Outcome = Result<(), Failure>;

/// Why a task failed.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// A check or run failed, or was not possible. The text says what to do.
    Failed(String),
    /// The same, with the message already printed.
    Reported,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("error: {message}\n\n{}", manual());
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Reported) => ExitCode::FAILURE,
    }
}

fn start(arguments: &[String]) -> Outcome {
    if compiler::is_asked(arguments) {
        return compiler::run(arguments);
    }
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage("which task?".into()));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", manual());
        return Ok(());
    }
    let task = TASKS.iter().find(|task| task.name == name);
    let task = task.ok_or_else(|| Failure::Usage(format!("there is no task `{name}`")))?;
    (task.run)(&root()?, rest)
}

/// The repository's folder: two above this crate's, which cargo passes.
fn root() -> Result<PathBuf, Failure> {
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = crate_folder.as_deref().and_then(|folder| folder.ancestors().nth(2));
    root.map(Path::to_path_buf).ok_or_else(|| Failure::Failed("run this as `cargo xtask`".into()))
}

fn manual() -> String {
    let heads: Vec<String> = TASKS.iter().map(|task| format!("cargo xtask {} {}", task.name, task.usage)).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let lines: Vec<String> =
        heads.iter().zip(TASKS).map(|(head, task)| format!("  {head:width$}  {}", task.summary)).collect();
    format!("tasks:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_an_error_of_usage() {
        let rows: [(&[&str], &str); 4] = [
            (&[], "which task?"),
            (&["tidi"], "there is no task `tidi`"),
            (&["tidy", "now"], "`tidy` takes `--walks`, not `now`"),
            (&["ci", "--fast"], "`ci` takes `--quick`, not `--fast`"),
        ];
        for (arguments, message) in rows {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert_eq!(start(&arguments), Err(Failure::Usage(message.into())));
        }
    }

    #[test]
    fn the_manual_names_every_task() {
        for task in TASKS {
            assert!(manual().contains(&format!("cargo xtask {} {}", task.name, task.usage)));
        }
    }
}
