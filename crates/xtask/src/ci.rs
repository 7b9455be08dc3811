//! `cargo xtask ci`: what must hold before a change goes in, step by step; the first that fails ends it. The last line of
//! standard output is how many tests passed, failed and were skipped.

use crate::counts::Counts;
use crate::{Failure, Outcome, crash, fmt, model, no_arguments, process, tidy};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

struct Step {
    name: &'static str,
    /// What to type to see this step alone.
    by_hand: &'static str,
    run: fn(&Path, &mut Counts) -> Outcome,
}

/// Quick ones first, but for `tidy`: what it says of code that does not compile is of little use.
const STEPS: &[Step] = &[
    Step { name: "fmt", by_hand: "cargo xtask fmt --check", run: |root, _| fmt::run(root, &["--check".into()]) },
    Step {
        name: "clippy",
        by_hand: "cargo clippy --workspace --all-targets -- -D warnings",
        run: |root, _| {
            let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            process::run(&mut process::cargo(root, &arguments))
        },
    },
    Step { name: "tidy", by_hand: "cargo xtask tidy", run: |root, _| tidy::run(root, &[]) },
    Step { name: "test", by_hand: "cargo test --workspace", run: test },
    Step { name: "model", by_hand: "cargo xtask model --fast", run: |root, _| model::run(root, &["--fast".into()]) },
    Step {
        name: "kill points",
        by_hand: "cargo test -p buffer --features kill-points --test crash kill_points",
        run: |root, _| crash::points(root),
    },
    Step {
        name: "docs",
        by_hand: "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps",
        run: |root, _| {
            let mut command = process::cargo(root, &["doc", "--workspace", "--no-deps"]);
            process::run(command.env("RUSTDOCFLAGS", "-D warnings"))
        },
    },
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    no_arguments("ci", arguments)?;
    let mut counts = Counts::default();
    let outcome = run_steps(root, STEPS, &mut counts);
    if !counts.in_vain.is_empty() {
        eprintln!("ci: these tests passed without testing:");
        counts.in_vain.iter().for_each(|(name, said)| eprintln!("  {name}: {said}"));
    }
    println!("{counts}");
    outcome
}

/// Runs one after the other, and says at the end how long each took.
fn run_steps(root: &Path, steps: &[Step], counts: &mut Counts) -> Outcome {
    let mut times: Vec<(&str, Duration)> = Vec::new();
    let mut outcome = Ok(());
    for step in steps {
        eprintln!("ci: {}: {}", step.name, step.by_hand);
        let start = Instant::now();
        outcome = (step.run)(root, counts);
        times.push((step.name, start.elapsed()));
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

fn times_text(times: &[(&str, Duration)]) -> String {
    let one = |name: &str, time: Duration| format!("{name} {:.1} s", time.as_secs_f64());
    let total = times.iter().map(|(_, time)| *time).sum();
    times.iter().map(|(name, time)| one(name, *time)).chain([one("in all", total)]).collect::<Vec<_>>().join(", ")
}

/// Runs every test, those after a failure too, and passes on what they print while adding up the results.
fn test(root: &Path, counts: &mut Counts) -> Outcome {
    let arguments = ["test", "--workspace", "--no-fail-fast", "--", "--show-output"];
    let mut command = process::cargo(root, &arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| process::absent(&command, &error))?;
    if let Some(output) = child.stdout.take() {
        let passed_on = pass_on(BufReader::new(output), std::io::stdout().lock(), counts);
        passed_on.map_err(|error| Failure::Failed(format!("cannot pass on what the tests print: {error}")))?;
    }
    let status = child.wait().map_err(|error| process::absent(&command, &error))?;
    match (status.success(), counts.failures.join(", ")) {
        (true, _) => Ok(()),
        (false, names) if names.is_empty() => {
            Err(Failure::Failed(format!("tests could not be built or run: {status}")))
        }
        (false, names) => Err(Failure::Failed(format!("these tests failed: {names}"))),
    }
}

fn pass_on(mut from: impl BufRead, mut to: impl Write, counts: &mut Counts) -> std::io::Result<()> {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        counts.read(&String::from_utf8_lossy(&line));
        to.write_all(&line)?;
        line.clear();
    }
    to.flush()
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
    fn output_is_passed_on_as_it_is() {
        let output = b"test a ... ok\n\xff\ntest result: ok. 1 passed; 0 failed; 2 ignored; 0 measured\nno end";
        let (mut passed_on, mut counts) = (Vec::new(), Counts::default());
        pass_on(&output[..], &mut passed_on, &mut counts).unwrap();
        assert_eq!(passed_on, output);
        assert_eq!(counts.to_string(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn times_add_up() {
        let times = [("fmt", Duration::from_millis(1250)), ("clippy", Duration::from_secs(60))];
        assert_eq!(times_text(&times), "fmt 1.2 s, clippy 60.0 s, in all 61.2 s");
    }
}
