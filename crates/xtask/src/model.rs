//! `cargo xtask model [--fast]`: runs the protocols of shared memory under the model checker, as they ship. Every test file
//! of `buffer` whose name ends in `_models` is one of them. What it builds is kept apart in `target/model`.

use crate::{Failure, Outcome, process};
use std::path::Path;

/// Preemptions of a thread that the checker tries at most. Most mistakes show with two.
const PREEMPTIONS: &str = "3";
const PREEMPTIONS_FAST: &str = "2";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let fast = match arguments {
        [] => false,
        [flag] if flag == "--fast" => true,
        _ => return Err(Failure::Usage("`model` takes nothing but `--fast`".into())),
    };
    let models = models(&root.join("crates/buffer/tests"))?;
    let mut arguments = vec!["test".to_string(), "--package=buffer".into(), "--release".into()];
    // The models of queues take minutes: the fast run has those of the rings only.
    let chosen = models.iter().filter(|name| !fast || name.starts_with("ring"));
    arguments.extend(chosen.map(|name| format!("--test={name}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = process::cargo(root, &arguments);
    command
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", root.join("target/model"))
        .env("LOOM_MAX_PREEMPTIONS", if fast { PREEMPTIONS_FAST } else { PREEMPTIONS });
    process::run(&mut command)
}

/// Names of the test files that hold models.
fn models(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Failure::Failed(format!("cannot look into `{}`: {error}", folder.display())))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut models: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_string))
        .filter(|name| name.ends_with("_models"))
        .collect();
    models.sort();
    Ok(models)
}
