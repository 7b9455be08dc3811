//! `cargo xtask bench NAME`: runs one comparison of the crate `bench`, optimised. That crate defines the names; `ci`
//! never asserts a time.

use crate::{Failure, Outcome, process};
use std::path::Path;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    if arguments.is_empty() {
        return Err(Failure::Usage("`bench` needs the name of a comparison; `list` names them".into()));
    }
    let command = ["run", "--release", "--quiet", "-p", "bench", "--"];
    process::run(process::cargo(root, &command).args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_a_name() {
        assert!(matches!(run(Path::new("."), &[]), Err(Failure::Usage(_))));
    }
}
