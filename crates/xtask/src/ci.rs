//! `cargo xtask ci`: the checks that a change must pass, step by step. The first failure ends it. The last line of
//! standard output has the numbers of passed, failed and skipped tests; the lines before it say why tests were skipped.
//! With `STREAMLINE_CI_RIGHTS=1` a test that is skipped for want of rights counts as a failure. `--quick` checks the crates
//! that have changed, and runs their unit tests: run it before each commit.

use crate::counts::Counts;
use crate::{Failure, Outcome, changed, fmt, lanes, process, tidy};
use std::path::Path;
use std::time::{Duration, Instant};

struct Step {
    name: &'static str,
    /// The command line for this step alone.
    by_hand: &'static str,
    run: fn(&Path, &mut Counts) -> Outcome,
}

const FMT: Step =
    Step { name: "fmt", by_hand: "cargo xtask fmt --check", run: |root, _| fmt::run(root, &["--check".into()]) };

const TIDY: Step = Step { name: "tidy", by_hand: "cargo xtask tidy", run: |root, _| tidy::run(root, &[]) };

/// Makes documents fail where `cargo doc` would warn.
const DOCS: [(&str, &str); 1] = [("RUSTDOCFLAGS", "-D warnings")];

/// Quick steps first, except `tidy`: its findings in code that does not compile are of little use.
const STEPS: &[Step] = &[
    FMT,
    Step {
        name: "build",
        by_hand: "cargo clippy --workspace --all-targets -- -D warnings; RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps",
        run: |root, _| lanes::build_checked(root),
    },
    TIDY,
    Step { name: "test", by_hand: "cargo xtask test --all", run: lanes::run_all },
];

/// What takes longer, for the changed crates alone.
const QUICK: &[Step] = &[
    FMT,
    Step {
        name: "clippy",
        by_hand: "cargo clippy -p CRATE --all-targets -- -D warnings",
        run: |root, _| changed::cargo(root, &["clippy", "--all-targets", "--", "-D", "warnings"], &[]),
    },
    TIDY,
    Step {
        name: "docs",
        by_hand: "RUSTDOCFLAGS=\"-D warnings\" cargo doc -p CRATE --no-deps",
        run: |root, _| changed::cargo(root, &["doc", "--no-deps"], &DOCS),
    },
    Step {
        name: "unit tests",
        by_hand: "cargo test -p CRATE --lib --bins",
        run: |root, _| changed::cargo(root, &["test", "--lib", "--bins", "--quiet"], &[]),
    },
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let mut counts = Counts::default();
    match arguments {
        [] => {
            let outcome = run_steps(root, STEPS, &mut counts);
            counts.print();
            outcome
        }
        [quick] if quick == "--quick" => run_steps(root, QUICK, &mut counts),
        [first, ..] => Err(Failure::Usage(format!("`ci` takes `--quick`, not `{first}`"))),
    }
}

/// Runs steps one after the other, and prints their times at the end.
fn run_steps(root: &Path, steps: &[Step], counts: &mut Counts) -> Outcome {
    let mut times: Vec<(&str, Time)> = Vec::new();
    let mut outcome = Ok(());
    for step in steps {
        eprintln!("ci: {}: {}", step.name, step.by_hand);
        let (start, spent) = (Instant::now(), process::spent());
        outcome = (step.run)(root, counts);
        times.push((step.name, Time { took: start.elapsed(), spent: process::spent().saturating_sub(spent) }));
        if let Err(failure) = &outcome {
            if let Failure::Usage(message) | Failure::Failed(message) = failure {
                eprintln!("error: {message}");
            }
            eprintln!("ci: {} failed; to see it alone: {}", step.name, step.by_hand);
            outcome = Err(Failure::Reported);
            break;
        }
    }
    eprintln!("ci: {}", times_text(&times));
    outcome
}

/// How long a step took, and the time of processors that it had.
#[derive(Clone, Copy)]
struct Time {
    took: Duration,
    spent: Duration,
}

fn times_text(times: &[(&str, Time)]) -> String {
    let one = |name: &str, took: Duration, spent: Duration| {
        format!("{name} {:.1} s ({:.1})", took.as_secs_f64(), spent.as_secs_f64())
    };
    let total = |part: fn(&Time) -> Duration| times.iter().map(|(_, time)| part(time)).sum();
    let all = one("in all", total(|time| time.took), total(|time| time.spent));
    let steps = times.iter().map(|(name, time)| one(name, time.took, time.spent));
    steps.chain([format!("{all}; of processors in parentheses")]).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Step = Step {
        name: "good",
        by_hand: "",
        run: |_, counts| {
            counts.passed += 1;
            Ok(())
        },
    };
    const BAD: Step = Step { name: "bad", by_hand: "", run: |_, _| Err(Failure::Failed("it is bad".into())) };

    #[test]
    fn the_first_failure_ends_it() {
        let rows: [(&[Step], Outcome, u64); 3] = [
            (&[GOOD, GOOD], Ok(()), 2),
            (&[GOOD, BAD, GOOD], Err(Failure::Reported), 1),
            (&[BAD], Err(Failure::Reported), 0),
        ];
        for (steps, expected, ran) in rows {
            let mut counts = Counts::default();
            assert_eq!(run_steps(Path::new("."), steps, &mut counts), expected);
            assert_eq!(counts.passed, ran);
        }
    }

    #[test]
    fn times_add_up() {
        let time = |took, spent| Time { took: Duration::from_millis(took), spent: Duration::from_millis(spent) };
        let times = [("fmt", time(1250, 1000)), ("clippy", time(60_000, 100_000))];
        let text = "fmt 1.2 s (1.0), clippy 60.0 s (100.0), in all 61.2 s (101.0); of processors in parentheses";
        assert_eq!(times_text(&times), text);
    }
}
