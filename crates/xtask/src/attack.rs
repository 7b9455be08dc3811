//! `cargo xtask attack [N]`: runs requests over captures of N MB of hostile traffic with honest traffic among it. `cargo test` runs
//! the same test over a few MB.

use crate::{Failure, Outcome, process};
use std::path::Path;

/// Says to the test how many MB the captures have.
const VARIABLE: &str = "STREAMLINE_ATTACK";
const DEFAULT_MB: u64 = 1000;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let count = parse(arguments)?;
    let test = ["test", "--release", "-p", "bench", "--test", "attack", "--", "--nocapture", "--test-threads=1"];
    process::run(process::cargo(root, &test).env(VARIABLE, count.to_string()))
}

fn parse(arguments: &[String]) -> Result<u64, Failure> {
    let count = match arguments {
        [] => Some(DEFAULT_MB),
        [count] => count.parse().ok().filter(|count| *count > 0),
        _ => None,
    };
    count.ok_or_else(|| Failure::Usage("`attack` takes a number above 0: how many MB a capture has".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_number() {
        let rows: [(&[&str], Option<u64>); 5] =
            [(&[], Some(DEFAULT_MB)), (&["12"], Some(12)), (&["0"], None), (&["many"], None), (&["1", "2"], None)];
        for (arguments, expected) in rows {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert_eq!(parse(&arguments).ok(), expected, "{arguments:?}");
        }
    }
}
