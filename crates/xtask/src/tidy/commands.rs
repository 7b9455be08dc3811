//! Checks that commands in Markdown work:
//! - `cargo ... -p NAME` names a crate,
//! - `--bin`, `--example` and `--test` name such a target,
//! - `cargo xtask NAME` names a task,
//! - a plain `cargo run` has one program to run.
//!
//! NAMES in capitals or angle brackets are placeholders.

use super::{Finding, Tree};
use crate::TASKS;
use crate::markdown::{self, Syntax};
use crate::workspace::Workspace;

/// Options that name a target, and its kind.
const TARGET_OPTIONS: &[(&str, &str)] = &[("--bin", "bin"), ("--example", "example"), ("--test", "test")];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.with_extension("md") {
        for piece in markdown::pieces(&file.text).iter().filter(|piece| piece.syntax != Syntax::Prose) {
            for command in commands(piece.text) {
                let messages = wrong(&tree.workspace, &command);
                findings.extend(messages.into_iter().map(|message| Finding::new(&file.path, piece.line, message)));
            }
        }
    }
    findings
}

/// The arguments of each `cargo` in a piece of code, up to the end of the command or up to `--`.
fn commands(code: &str) -> Vec<Vec<&str>> {
    let mut commands: Vec<Vec<&str>> = Vec::new();
    let mut open = false;
    for word in code.split_whitespace() {
        if matches!(word, "&&" | "||" | "|" | ";" | "#" | ">" | "2>" | "--") {
            open = false;
        } else if word == "cargo" {
            commands.push(Vec::new());
            open = true;
        } else if let Some(command) = commands.last_mut().filter(|_| open) {
            command.push(word.trim_end_matches([',', ';', ')']));
            open = !word.ends_with(';');
        }
    }
    commands
}

fn wrong(workspace: &Workspace, arguments: &[&str]) -> Vec<String> {
    let arguments: Vec<&str> = arguments.iter().copied().skip_while(|word| word.starts_with('+')).collect();
    match arguments.split_first() {
        Some((&"xtask", rest)) => {
            let tasks = rest.first().into_iter().flat_map(|names| names.split('|'));
            let unknown = tasks.filter(|name| !is_placeholder(name) && !TASKS.iter().any(|task| task.name == *name));
            unknown.map(|name| format!("there is no task `{name}`; `cargo xtask help` lists them")).collect()
        }
        Some((&("run" | "test" | "build" | "check" | "clippy" | "doc" | "bench" | "miri"), rest))
            if !rest.iter().any(|word| word.starts_with("--manifest-path")) =>
        {
            wrong_names(workspace, arguments[0], rest)
        }
        _ => Vec::new(),
    }
}

fn wrong_names(workspace: &Workspace, subcommand: &str, arguments: &[&str]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut chosen = false;
    for (option, name) in options(arguments) {
        if let "-p" | "--package" = option {
            chosen = true;
            if !is_placeholder(name) && workspace.package(name).is_none() {
                messages.push(format!("there is no crate `{name}` in the workspace; mend the command"));
            }
        }
        if let Some((_, kind)) = TARGET_OPTIONS.iter().find(|(one, _)| *one == option) {
            chosen = true;
            let mut targets = workspace.packages.iter().flat_map(|package| &package.targets);
            if !is_placeholder(name) && !targets.any(|target| target.name == name && target.is(kind)) {
                messages.push(format!("no crate has `{option} {name}`; mend the command"));
            }
        }
    }
    if subcommand == "run" && !chosen {
        let members = workspace.default_members.iter().filter_map(|name| workspace.package(name));
        let programs = members.flat_map(|package| &package.targets).filter(|target| target.is("bin"));
        let names: Vec<&str> = programs.map(|target| target.name.as_str()).collect();
        if names.len() != 1 {
            messages.push(format!(
                "this `cargo run` has a choice of {} programs ({}); add -p, or let default-members leave one",
                names.len(),
                names.join(", ")
            ));
        }
    }
    messages
}

/// The options with their values: `-p x`, `--package x` or `--package=x`.
fn options<'a>(arguments: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let pairs = arguments.iter().zip(arguments.iter().skip(1)).filter(|(option, _)| option.starts_with('-'));
    let glued = arguments.iter().filter_map(|word| word.split_once('='));
    pairs.map(|(option, value)| (*option, *value)).chain(glued).collect()
}

/// Whether this word is a placeholder: `NAME`, `<name>`, `...`.
fn is_placeholder(word: &str) -> bool {
    !word.contains(char::is_alphanumeric) || word.starts_with('<') || !word.contains(|one: char| one.is_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::workspace::{Package, Target};

    fn check_text(text: &str, expected: &[&str]) {
        let target =
            |name: &str, kind: &str| Target { name: name.into(), kinds: vec![kind.into()], file: String::new() };
        let package = |name: &str, targets| Package { name: name.into(), targets, ..Package::default() };
        let packages = vec![
            package("cli", vec![target("streamline", "bin"), target("cli", "lib")]),
            package("xtask", vec![target("xtask", "bin"), target("slow", "test")]),
        ];
        let default_members = vec!["cli".into()];
        let tree =
            Tree { files: Files::made_up(&[("A.md", text)]), workspace: Workspace { packages, default_members } };
        assert_eq!(check(&tree).iter().map(Finding::to_string).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn commands_name_what_is_there() {
        let good = [
            "`cargo xtask` and `cargo xtask fmt --check`, `cargo xtask ci|tidy`",
            "`cargo xtask NAME`, `cargo run -p <crate>`, `cargo xtask ...`",
            "Prose may say cargo xtask to whom it likes, and cargo run -p none.",
            "```\n$ cargo run --release -p cli -- -p none && cargo test --package=xtask\n```\n",
            "`cargo run demo`, `cargo run --bin streamline`, `cargo test -p xtask --test slow`",
            "`cargo +nightly miri test -p cli`, `cargo run --manifest-path x/Cargo.toml -p other`",
            "`cargo install -p none`",
        ];
        for text in good {
            check_text(text, &[]);
        }
        check_text("\n`cargo xtask tidi`", &["A.md:2: there is no task `tidi`; `cargo xtask help` lists them"]);
        check_text(
            "    cargo run -p bench -- list",
            &["A.md:1: there is no crate `bench` in the workspace; mend the command"],
        );
        check_text(
            "`x; cargo run --package=bench`",
            &["A.md:1: there is no crate `bench` in the workspace; mend the command"],
        );
        check_text("`cargo run --bin cli`", &["A.md:1: no crate has `--bin cli`; mend the command"]);
        check_text("`cargo test -p cli\n--test none`", &["A.md:1: no crate has `--test none`; mend the command"]);
    }

    #[test]
    fn a_plain_run_has_one_program() {
        let tree = Workspace::default();
        let expected = "this `cargo run` has a choice of 0 programs (); add -p, or let default-members leave one";
        assert_eq!(wrong(&tree, &["run", "--release"]), [expected]);
    }
}
