//! `cargo xtask fuzz [TARGET] [--seconds N]`: runs each fuzz target of `fuzz/` for a while. They need a nightly
//! compiler and cargo-fuzz, so `ci` does not run them. They begin with the inputs of `fuzz/seeds`. `fuzz/artifacts`
//! keeps failing inputs.

use crate::workspace::Workspace;
use crate::{Failure, Outcome, process};
use std::path::Path;

const SECONDS_EACH: u64 = 60;

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// One target. `None`: all.
    target: Option<String>,
    seconds: u64,
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let wanted = parse(arguments)?;
    let targets = choose(&targets(root)?, wanted.target)?;
    installed(root)?;
    for target in &targets {
        let time = format!("-max_total_time={}", wanted.seconds);
        eprintln!("fuzz: {target} for {} s", wanted.seconds);
        let [corpus, seeds] = [format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}")];
        std::fs::create_dir_all(root.join(&corpus)).map_err(|error| Failure::Failed(format!("{corpus}: {error}")))?;
        let mut arguments = vec!["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", "fuzz", target, &corpus];
        if root.join(&seeds).is_dir() {
            arguments.push(&seeds);
        }
        arguments.extend(["--", &time]);
        process::run(&mut process::program(root, "rustup", &arguments))?;
    }
    eprintln!("fuzz: nothing failed in {}", targets.join(", "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { target: None, seconds: SECONDS_EACH };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            let seconds = arguments.next().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
            let message = "`--seconds` needs a number above 0: how long each target runs";
            wanted.seconds = seconds.ok_or_else(|| Failure::Usage(message.into()))?;
        } else if argument.starts_with('-') || wanted.target.is_some() {
            return Err(Failure::Usage(format!("`fuzz` takes one target and `--seconds N`, not `{argument}`")));
        } else {
            wanted.target = Some(argument.clone());
        }
    }
    Ok(wanted)
}

fn targets(root: &Path) -> Result<Vec<String>, Failure> {
    let workspace = Workspace::read(root, "fuzz/Cargo.toml")?;
    let targets = workspace.packages.into_iter().flat_map(|package| package.targets);
    Ok(targets.filter(|target| target.is("bin")).map(|target| target.name).collect())
}

fn choose(targets: &[String], wanted: Option<String>) -> Result<Vec<String>, Failure> {
    match wanted {
        None => Ok(targets.to_vec()),
        Some(target) if targets.contains(&target) => Ok(vec![target]),
        Some(target) => {
            let names = targets.join(", ");
            Err(Failure::Usage(format!("there is no fuzz target `{target}`; there are {names}")))
        }
    }
}

/// Says what to install if something is missing.
fn installed(root: &Path) -> Outcome {
    let runs = |arguments: &[&str]| process::output(&mut process::program(root, "rustup", arguments));
    let absent =
        |what: &str, install: &str| Failure::Failed(format!("fuzzing needs {what}; install it with `{install}`"));
    runs(&["run", "nightly", "cargo", "--version"])
        .map_err(|_| absent("rustup and a nightly compiler", "rustup toolchain install nightly"))?;
    runs(&["run", "nightly", "cargo", "fuzz", "--version"])
        .map_err(|_| absent("cargo-fuzz", "cargo install cargo-fuzz"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(arguments: &[&str]) -> Vec<String> {
        arguments.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn a_target_and_seconds_in_any_order() {
        let rows: [(&[&str], Option<&str>, u64); 4] = [
            (&[], None, 60),
            (&["dns"], Some("dns"), 60),
            (&["dns", "--seconds", "5"], Some("dns"), 5),
            (&["--seconds", "5", "dns"], Some("dns"), 5),
        ];
        for (arguments, target, seconds) in rows {
            assert_eq!(parse(&texts(arguments)), Ok(Wanted { target: target.map(str::to_string), seconds }));
        }
    }

    #[test]
    fn other_arguments_are_an_error() {
        let rows: [&[&str]; 5] =
            [&["a", "b"], &["--seconds"], &["--seconds", "0"], &["--seconds", "x"], &["--second", "1"]];
        for arguments in rows {
            assert!(matches!(parse(&texts(arguments)), Err(Failure::Usage(_))), "{arguments:?}");
        }
    }

    #[test]
    fn targets_are_those_of_the_manifest() {
        let targets = targets(&crate::root().unwrap()).unwrap();
        assert!(targets.contains(&"request".to_string()), "{targets:?}");
        assert_eq!(choose(&targets, None), Ok(targets.clone()));
        assert_eq!(choose(&targets, Some("request".into())), Ok(vec!["request".into()]));
        assert!(matches!(choose(&targets, Some("none".into())), Err(Failure::Usage(_))));
    }
}
