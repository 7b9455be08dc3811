//! `cargo xtask tidy`: checks what the compiler does not check. Each check is a file in `tidy/` and a line below. It
//! gets the files and the crates, and returns its findings as `file:line: problem, and what to do`. `--walks` measures
//! instead of checking (`walks.rs`).
//!
//! Rules that cannot be checked in the text are in ARCHITECTURE.md as prose.

mod arrows;
mod circles;
mod commands;
mod filters;
mod length;
mod links;
mod machine_paths;
mod opening;
mod permissions;
mod plain;
mod unsafe_code;
mod walks;
mod white_space;
mod words;

use crate::files::Files;
use crate::workspace::Workspace;
use crate::{Failure, Outcome};
use std::fmt;
use std::path::Path;

#[derive(Debug, Default)]
struct Tree {
    files: Files,
    workspace: Workspace,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    /// The problem, and what to do.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    arrows::check,
    unsafe_code::check,
    filters::check,
    length::check,
    words::check,
    opening::check,
    white_space::check,
    links::check,
    commands::check,
    machine_paths::check,
    plain::check,
    walks::check,
    circles::check,
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let measures_walks = match arguments {
        [] => false,
        [walks] if walks == "--walks" => true,
        [first, ..] => return Err(Failure::Usage(format!("`tidy` takes `--walks`, not `{first}`"))),
    };
    let tree = Tree { files: Files::read(root)?, workspace: Workspace::read(root, "Cargo.toml")? };
    if measures_walks {
        return walks::print(&tree);
    }
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("tidy: {} checks of {} files found nothing", CHECKS.len(), tree.files.paths.len());
            Ok(())
        }
        1 => Err(Failure::Failed("tidy found the line above".into())),
        count => Err(Failure::Failed(format!("tidy found the {count} lines above"))),
    }
}

/// The findings of a check in made-up files, as `file:line: message`.
#[cfg(test)]
fn found(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    let tree = Tree { files: Files::made_up(files), ..Tree::default() };
    check(&tree).iter().map(Finding::to_string).collect()
}
