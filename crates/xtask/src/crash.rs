//! `cargo xtask crash [--kills N]`: kills processes that share a ring, at each of their stores in turn and N times at random,
//! and up to 1,000 readers of a live device. `cargo test` does a few of the latter two. `CRASH.md` lists the guarantees.

use crate::{Failure, Outcome, process};
use std::path::Path;

const VARIABLE: &str = "STREAMLINE_KILLS";
const DEFAULT_KILLS: u64 = 10_000;

/// Tells the test how often readers take a device and give it back.
const CYCLES_VARIABLE: &str = "STREAMLINE_CYCLES";

const STOP_VARIABLE: &str = "STREAMLINE_STOP";
const STOP_SECONDS: &str = "30";

/// The most readers of live devices: each one starts the program.
const LIVE: u64 = 1000;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let kills = parse(arguments)?;
    points(root)?;
    let test = ["test", "--release", "-p", "buffer", "--test", "crash", "--", "--nocapture"];
    process::run(process::cargo(root, &test).env(VARIABLE, kills.to_string()))?;
    live(root, kills.min(LIVE))
}

/// Kills readers of a live device. If there is none, the test says why.
fn live(root: &Path, kills: u64) -> Outcome {
    let mut command = process::cargo(root, &["test", "-p", "cli", "--test", "faults", "--", "--nocapture"]);
    let kills = kills.to_string();
    process::run(command.env(VARIABLE, &kills).env(CYCLES_VARIABLE, &kills).env(STOP_VARIABLE, STOP_SECONDS))
}

/// A death at each store. It needs a build of its own, which counts them.
pub(crate) const POINTS: &[&str] =
    &["test", "-p", "buffer", "--features", "kill-points", "--test", "crash", "kill_points"];

/// A refusal of each system call.
const REFUSALS: &[&str] = &["test", "-p", "streamline", "--test", "kernel_faults"];

fn points(root: &Path) -> Outcome {
    [POINTS, REFUSALS]
        .iter()
        .try_for_each(|test| process::run(&mut process::cargo(root, &[test, &["--", "--nocapture"][..]].concat())))
}

fn parse(arguments: &[String]) -> Result<u64, Failure> {
    let kills = match arguments {
        [] => Some(DEFAULT_KILLS),
        [option, kills] if option == "--kills" => kills.parse().ok().filter(|kills| *kills > 0),
        _ => None,
    };
    kills
        .ok_or_else(|| Failure::Usage("`crash` takes `--kills N`, a number above 0: how many processes to kill".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_number_of_kills() {
        let rows: [(&[&str], Option<u64>); 5] = [
            (&[], Some(DEFAULT_KILLS)),
            (&["--kills", "100000"], Some(100_000)),
            (&["--kills", "0"], None),
            (&["--kills"], None),
            (&["12"], None),
        ];
        for (arguments, expected) in rows {
            let arguments: Vec<String> = arguments.iter().map(|text| text.to_string()).collect();
            assert_eq!(parse(&arguments).ok(), expected, "{arguments:?}");
        }
    }
}
