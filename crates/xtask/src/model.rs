//! `cargo xtask model [--fast]`: runs the shipped code of the shared-memory protocols under the model checker. Models
//! are all tests of `buffer` whose name ends in `_models`, files or folders. Their builds are kept in `target/model`.
//! `--mutations` runs `orderings.rs` instead.

use crate::{Failure, Outcome, orderings, process};
use std::path::Path;

/// The most preemptions of a thread that the checker tries. Most bugs show with two.
const PREEMPTIONS: &str = "3";
pub(crate) const PREEMPTIONS_FAST: &str = "2";

/// The build profile of models. They run for seconds, so build time matters more than for the product.
pub(crate) const PROFILE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let fast = match arguments {
        [] => false,
        [flag] if flag == "--fast" => true,
        [flag] if flag == "--mutations" => return orderings::run(root, ""),
        [flag, file] if flag == "--mutations" => return orderings::run(root, file),
        _ => {
            return Err(Failure::Usage(
                "`model` takes `--fast`, or `--mutations` and perhaps a part of a file's path".into(),
            ));
        }
    };
    let models = models(&root.join("crates/buffer/tests"))?;
    let mut arguments = vec!["test".to_string(), "--package=buffer".into(), "--release".into()];
    arguments.extend(models.iter().map(|name| format!("--test={name}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = process::cargo(root, &arguments);
    command
        .env("RUSTFLAGS", "--cfg loom")
        .envs(PROFILE)
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
        .map(|name| name.strip_suffix(".rs").unwrap_or(&name).to_string())
        .filter(|name| name.ends_with("_models"))
        .collect();
    models.sort();
    Ok(models)
}
