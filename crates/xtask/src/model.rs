//! `cargo xtask model [--fast]`: runs the shipped code of the shared-memory protocols under the model checker. Its builds
//! are kept in `target/model`. `--mutations` runs `orderings.rs` instead.

use crate::orderings::PREEMPTIONS_FAST;
use crate::{Failure, Outcome, orderings, process};
use std::path::Path;

/// The most preemptions of a thread that the checker tries. Most bugs show with two.
const PREEMPTIONS: &str = "3";
/// What cargo is asked for: the program with all models.
pub(crate) const TEST: [&str; 5] = ["test", "--package", "buffer", "--release", "--test=models"];

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
    let mut command = process::cargo(root, &TEST);
    command
        .env("RUSTFLAGS", "--cfg loom")
        .envs(PROFILE)
        .env("CARGO_TARGET_DIR", root.join("target/model"))
        .env("LOOM_MAX_PREEMPTIONS", if fast { PREEMPTIONS_FAST } else { PREEMPTIONS });
    process::run(&mut command)
}
