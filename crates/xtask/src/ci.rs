//! `cargo xtask ci`: the checks that a change must pass, step by step. The first failure ends it. The last line of
//! standard output has the numbers of passed, failed and skipped tests; the lines before it say why tests were skipped.
//! With `STREAMLINE_CI_RIGHTS=1` a test that is skipped for want of rights counts as a failure. `--quick` runs
//! everything except the tests: run it before each commit.

use crate::counts::Counts;
use crate::{Failure, Outcome, crash, fmt, model, process, tidy};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

struct Step {
    name: &'static str,
    /// The command line for this step alone.
    by_hand: &'static str,
    /// `--quick` leaves this step out.
    tests: bool,
    run: fn(&Path, &mut Counts) -> Outcome,
}

/// Quick steps first, except `tidy`: its findings in code that does not compile are of little use.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        by_hand: "cargo xtask fmt --check",
        tests: false,
        run: |root, _| fmt::run(root, &["--check".into()]),
    },
    Step {
        name: "clippy",
        by_hand: "cargo clippy --workspace --all-targets -- -D warnings",
        tests: false,
        run: |root, _| {
            let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            process::run(&mut process::cargo(root, &arguments))
        },
    },
    Step { name: "tidy", by_hand: "cargo xtask tidy", tests: false, run: |root, _| tidy::run(root, &[]) },
    Step {
        name: "docs",
        by_hand: "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps",
        tests: false,
        run: |root, _| {
            let mut command = process::cargo(root, &["doc", "--workspace", "--no-deps"]);
            process::run(command.env("RUSTDOCFLAGS", "-D warnings"))
        },
    },
    Step { name: "test", by_hand: "cargo test --workspace", tests: true, run: test },
    Step {
        name: "model",
        by_hand: "cargo xtask model --fast",
        tests: true,
        run: |root, _| model::run(root, &["--fast".into()]),
    },
    Step {
        name: "instructions",
        by_hand: "cargo test --release -p engine -p bench --test run --test instructions instructions",
        tests: true,
        run: |root, _| instructions(root),
    },
    Step {
        name: "kill points",
        by_hand: "cargo test -p buffer --features kill-points --test crash kill_points; cargo test -p streamline --features faults --test kernel_faults",
        tests: true,
        run: |root, _| crash::points(root),
    },
];

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let quick = match arguments {
        [] => false,
        [quick] if quick == "--quick" => true,
        [first, ..] => return Err(Failure::Usage(format!("`ci` takes `--quick`, not `{first}`"))),
    };
    let mut counts = Counts::default();
    let outcome = run_steps(root, STEPS.iter().filter(|step| !(quick && step.tests)), &mut counts);
    if !quick {
        counts.reasons().iter().for_each(|reason| println!("{reason}"));
        println!("{counts}");
    }
    outcome
}

/// Runs steps one after the other, and prints their times at the end.
fn run_steps<'a>(root: &Path, steps: impl IntoIterator<Item = &'a Step>, counts: &mut Counts) -> Outcome {
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

/// Instructions against golden files, which are of optimised code: not worth building it where they cannot be counted.
fn instructions(root: &Path) -> Outcome {
    if process::output(&mut process::program(root, "valgrind", &["--version"])).is_err() {
        eprintln!("ci: skipped: needs valgrind, to count instructions");
        return Ok(());
    }
    // One command: two would build what both use with two sets of features.
    let arguments =
        ["test", "--release", "-p", "engine", "-p", "bench", "--test", "run", "--test", "instructions", "instructions"];
    process::run(&mut process::cargo(root, &arguments))
}

/// The tests are stopped after printing nothing for this time: one of them hangs. The longest test takes a tenth of it.
const SILENCE: Duration = Duration::from_secs(600);

/// How long the rest of cargo's output is read after its end: a process that a test left behind may hold the pipe.
const REST: Duration = Duration::from_secs(5);

/// Runs every test, even after a failure, and adds up the results. Passes on cargo's output and that of failing tests.
fn test(root: &Path, counts: &mut Counts) -> Outcome {
    let arguments = ["test", "--workspace", "--no-fail-fast", "--", "--show-output"];
    let mut command = process::cargo(root, &arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| process::absent(&command, &error))?;
    let (sender, lines) = mpsc::channel();
    let output = child.stdout.take();
    std::thread::spawn(move || output.map(|output| read_lines(BufReader::new(output), &sender)));
    let mut pass = Passing { to: std::io::stdout().lock(), counts, passed: false };
    let mut quiet_since = Instant::now();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let status = loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                quiet_since = Instant::now();
                pass.on(&line).map_err(|error| Failure::Failed(format!("cannot pass on what tests print: {error}")))?;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break child.wait().map_err(|error| process::absent(&command, &error))?;
            }
        }
        match &ended {
            Some((status, since)) if since.elapsed() > REST => break *status,
            Some(_) => {}
            None => ended = child.try_wait().ok().flatten().map(|status| (status, Instant::now())),
        }
        if quiet_since.elapsed() > SILENCE {
            // The last lines name the tests that have been running for over 60 seconds.
            stop(root, child.id());
            let _ = child.wait();
            return Err(Failure::Failed(format!("tests printed nothing for {} s and were stopped", SILENCE.as_secs())));
        }
    };
    let rights = std::env::var_os("STREAMLINE_CI_RIGHTS").is_some_and(|value| value == "1");
    outcome(status.success(), &status.to_string(), pass.counts, rights)
}

/// The result of the tests. `rights`: no test may be skipped for want of rights.
fn outcome(success: bool, status: &str, counts: &Counts, rights: bool) -> Outcome {
    let without = if rights { counts.without_rights() } else { Vec::new() };
    match (success, &counts.failures[..]) {
        (true, _) if without.is_empty() => Ok(()),
        (true, _) => {
            let names = without.join(", ");
            Err(Failure::Failed(format!("STREAMLINE_CI_RIGHTS=1, but these tests lack rights: {names}")))
        }
        (false, []) => Err(Failure::Failed(format!("tests could not be built or run: {status}"))),
        (false, names) => Err(Failure::Failed(format!("these tests failed: {}", names.join(", ")))),
    }
}

/// Kills a process and its children.
fn stop(root: &Path, process: u32) {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let kill = format!("kill -KILL {process} {children}");
    let _ = process::run(&mut process::program(root, "sh", &["-c", &kill]));
}

/// Sends each line, including its end, until the output or the receiver ends.
fn read_lines(mut from: impl BufRead, lines: &Sender<Vec<u8>>) {
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if lines.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

/// Passes on the output of tests, except that of passed tests.
struct Passing<'a, W> {
    to: W,
    counts: &'a mut Counts,
    /// Between `successes:` and the end of that section.
    passed: bool,
}

impl<W: Write> Passing<'_, W> {
    fn on(&mut self, line: &[u8]) -> std::io::Result<()> {
        let text = String::from_utf8_lossy(line);
        self.counts.read(&text);
        match text.trim_end() {
            "successes:" => self.passed = true,
            other if other == "failures:" || other.starts_with("test result: ") => self.passed = false,
            _ => {}
        }
        if !self.passed {
            self.to.write_all(line)?;
            self.to.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Step = Step {
        name: "good",
        by_hand: "",
        tests: true,
        run: |_, counts| {
            counts.passed += 1;
            Ok(())
        },
    };
    const BAD: Step =
        Step { name: "bad", by_hand: "", tests: false, run: |_, _| Err(Failure::Failed("it is bad".into())) };

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
    fn output_is_passed_on_but_for_what_passed_tests_print() {
        let rows: [(&[u8], &[u8], &str); 2] = [
            (
                b"test a ... ok\n\xff\ntest result: ok. 1 passed; 0 failed; 2 ignored; 0 measured\nno end",
                b"test a ... ok\n\xff\ntest result: ok. 1 passed; 0 failed; 2 ignored; 0 measured\nno end",
                "1 passed, 0 failed, 2 skipped",
            ),
            (
                b"successes:\n---- a stdout ----\nno\nsuccesses:\n  a\nfailures:\n---- b stdout ----\nyes\n\
                  test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
                b"failures:\n---- b stdout ----\nyes\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n",
                "1 passed, 1 failed, 0 skipped",
            ),
        ];
        for (output, expected, sums) in rows {
            let (mut passed_on, mut counts) = (Vec::new(), Counts::default());
            let (sender, lines) = mpsc::channel();
            read_lines(output, &sender);
            drop(sender);
            let mut pass = Passing { to: &mut passed_on, counts: &mut counts, passed: false };
            lines.iter().for_each(|line| pass.on(&line).unwrap());
            assert_eq!(String::from_utf8_lossy(&passed_on), String::from_utf8_lossy(expected));
            assert_eq!(counts.to_string(), sums);
        }
    }

    #[test]
    fn a_skip_for_want_of_rights_is_a_failure_where_that_is_asked_for() {
        let mut counts = Counts::default();
        let said = "successes:\n---- a stdout ----\nskipped (rights): not root\n---- b stdout ----\nskipped: no cc\n";
        said.lines().for_each(|line| counts.read(line));
        let failed = |text: &str| Err(Failure::Failed(text.into()));
        assert_eq!(outcome(true, "", &counts, false), Ok(()));
        assert_eq!(outcome(true, "", &counts, true), failed("STREAMLINE_CI_RIGHTS=1, but these tests lack rights: a"));
        assert_eq!(outcome(false, "exit 1", &counts, true), failed("tests could not be built or run: exit 1"));
        counts.failures.push("c".into());
        assert_eq!(outcome(false, "exit 1", &counts, true), failed("these tests failed: c"));
    }

    #[test]
    fn times_add_up() {
        let times = [("fmt", Duration::from_millis(1250)), ("clippy", Duration::from_secs(60))];
        assert_eq!(times_text(&times), "fmt 1.2 s, clippy 60.0 s, in all 61.2 s");
    }
}
