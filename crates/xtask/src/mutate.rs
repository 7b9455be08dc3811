//! `cargo xtask mutate [N]`: runs requests over N damaged captures. `cargo test` runs the same test over a few.

use crate::{Failure, Outcome, process};
use std::path::Path;

const VARIABLE: &str = "STREAMLINE_MUTATIONS";
const DEFAULT_COUNT: u64 = 10_000;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let count = parse(arguments)?;
    let test = ["test", "--release", "-p", "streamline", "--test", "mutations", "--", "--nocapture"];
    process::run(process::cargo(root, &test).env(VARIABLE, count.to_string()))
}

fn parse(arguments: &[String]) -> Result<u64, Failure> {
    let count = match arguments {
        [] => Some(DEFAULT_COUNT),
        [count] => count.parse().ok().filter(|count| *count > 0),
        _ => None,
    };
    count.ok_or_else(|| Failure::Usage("`mutate` takes a number above 0: how many captures to damage".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_number() {
        let rows: [(&[&str], Option<u64>); 5] =
            [(&[], Some(DEFAULT_COUNT)), (&["12"], Some(12)), (&["0"], None), (&["many"], None), (&["1", "2"], None)];
        for (arguments, expected) in rows {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert_eq!(parse(&arguments).ok(), expected, "{arguments:?}");
        }
    }
}
