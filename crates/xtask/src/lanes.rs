//! `cargo xtask test`: every test of the workspace, as `cargo test --workspace` runs them, but several test programs at a
//! time. Many tests wait for a device, a timer or another process, so one program alone leaves a processor idle. `--all`
//! builds everything as `ci` does, by a compiler that checks, too (`compiler.rs`), and adds the tests that need builds of their own: models,
//! instructions, deaths at each store.
//!
//! A crate has one program of integration tests, or few. Each module of such a program runs in a process of its own, so
//! that the modules fill the lanes. Such a process is a program in what follows. A program's output is kept in `target/lanes`, and printed when the program ends, so that two programs' lines do not mix.
//! Tests that failed run once more at the end, alone. Where they pass then, the last lines name them: they need more of the
//! machine than they should.

use crate::compiler::{self, Environment};
use crate::counts::Counts;
use crate::{Failure, Outcome, crash, process};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Programs at a time.
const LANES: usize = 3;

/// Tests of one program at a time. They wait more than they compute.
const THREADS: &str = "3";

/// The programs that take longest, which begin first: one that began last would run alone.
const LONGEST: [&str; 10] = [
    "instructions",
    "model",
    "filters filters",
    "inspection inspection",
    "kill points",
    "documentation",
    "cli live",
    "cli",
    "pcap-shim",
    "streamline",
];

/// A program is stopped after printing nothing for this time: a test of it hangs. The longest test takes a tenth of it.
const SILENCE: Duration = Duration::from_secs(600);

/// How often the programs are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Runs every test, even after a failure, and prints the counts and the reasons of skipped tests.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    let all = match arguments {
        [] => false,
        [all] if all == "--all" => true,
        [first, ..] => return Err(Failure::Usage(format!("`test` takes `--all`, not `{first}`"))),
    };
    let mut counts = Counts::default();
    let outcome = run_programs(root, all, &mut counts);
    counts.print();
    outcome
}

/// Runs every test and what needs builds of its own, even after a failure, and adds up the results. Passes on the output
/// of failing tests.
pub(crate) fn run_all(root: &Path, counts: &mut Counts) -> Outcome {
    run_programs(root, true, counts)
}

fn run_programs(root: &Path, all: bool, counts: &mut Counts) -> Outcome {
    let folder = root.join("target/lanes");
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|error| Failure::Failed(format!("cannot make `{}`: {error}", folder.display())))?;
    let environment = if all { compiler::environment(root)? } else { Environment::new() };
    let mut waiting: VecDeque<Program> = programs(root, &environment)?.into();
    waiting.push_back(cargo(root, "documentation", "test --workspace --doc --no-fail-fast -- --show-output"));
    if all {
        waiting.push_back(cargo(root, "kill points", &crash::POINTS.join(" ")));
    }
    waiting.iter_mut().for_each(|program| program.environment.clone_from(&environment));
    if all {
        waiting.extend(optimised(root));
    }
    let place = |program: &Program| LONGEST.iter().position(|name| program.is_called(name)).unwrap_or(LONGEST.len());
    waiting.make_contiguous().sort_by_key(place);
    let mut pass = Passing { to: std::io::stdout().lock(), counts, passed: false };
    let mut running: Vec<Running> = Vec::new();
    let mut failed: Vec<(Program, Vec<String>)> = Vec::new();
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < LANES
            && let Some(program) = waiting.pop_front()
        {
            running.push(Running::start(program, &folder)?);
        }
        std::thread::sleep(LOOK);
        for at in (0..running.len()).rev() {
            let Some(ended) = running[at].ended()? else { continue };
            let program = running.swap_remove(at);
            let before = pass.counts.failures.len();
            pass.program(&program, &ended)?;
            if !ended.success() {
                failed.push((program.program, pass.counts.failures[before..].to_vec()));
            }
        }
    }
    let failed = alone(failed, &folder, &mut pass)?;
    let rights = std::env::var_os("STREAMLINE_CI_RIGHTS").is_some_and(|value| value == "1");
    outcome(&failed, pass.counts, rights)
}

/// Runs tests that failed once more, one program at a time. Returns the programs that failed again.
fn alone<W: Write>(
    failed: Vec<(Program, Vec<String>)>,
    folder: &Path,
    pass: &mut Passing<W>,
) -> Result<Vec<String>, Failure> {
    let mut again = Vec::new();
    for (mut program, tests) in failed {
        let name = program.name.clone();
        if tests.is_empty() || !program.is_test {
            again.push(name);
            continue;
        }
        program.tests = tests.clone();
        let mut running = Running::start(program, folder)?;
        let ended = loop {
            match running.ended()? {
                Some(ended) => break ended,
                None => std::thread::sleep(LOOK),
            }
        };
        let mut counts = Counts::default();
        Passing { to: &mut pass.to, counts: &mut counts, passed: false }.program(&running, &ended)?;
        if ended.success() && counts.passed == tests.len() as u64 {
            pass.counts.passed_alone(&tests);
        } else {
            again.push(name);
        }
    }
    Ok(again)
}

/// A program that runs tests, not begun.
#[derive(Clone, Default)]
struct Program {
    name: String,
    program: OsString,
    arguments: Vec<String>,
    folder: PathBuf,
    /// It can be told which tests to run.
    is_test: bool,
    /// The tests to run. Empty: all.
    tests: Vec<String>,
    /// For the builds that it begins: the same as for its own, so that cargo builds no crate twice.
    environment: Environment,
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        if !self.tests.is_empty() {
            command.arg("--exact").args(&self.tests);
        }
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("RUST_TEST_THREADS", THREADS);
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Whether this is its name, or that of the program of which it is a part.
    fn is_called(&self, name: &str) -> bool {
        self.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// A program for each module of its tests.
    fn by_module(self) -> Result<Vec<Program>, Failure> {
        let list = process::output(Command::new(&self.program).arg("--list"))?;
        Ok(self.parts(list.lines().filter_map(|line| line.strip_suffix(": test"))))
    }

    fn parts<'a>(&self, tests: impl Iterator<Item = &'a str>) -> Vec<Program> {
        let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for test in tests {
            let module = test.rsplit_once("::").map_or("", |(module, _)| module);
            modules.entry(module).or_default().push(test.into());
        }
        let part = |(module, tests): (&str, Vec<String>)| {
            let name = format!("{} {}", self.name, module.replace("::", " "));
            Program { name: name.trim_end().into(), tests, ..self.clone() }
        };
        modules.into_iter().map(part).collect()
    }
}

/// Builds the test programs of the workspace.
fn programs(root: &Path, environment: &Environment) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    for (program, is_integration) in built(root, environment)? {
        programs.extend(if is_integration { program.by_module()? } else { vec![program] });
    }
    Ok(programs)
}

/// Builds the whole workspace, and checks it.
pub(crate) fn build_checked(root: &Path) -> Outcome {
    let environment = compiler::environment(root)?;
    built(root, &environment)?;
    // The libraries that C programs use are parts of no test program, but built by tests.
    process::run(process::cargo(root, &["build", "--workspace"]).envs(environment))
}

/// Builds the test programs. With each, whether its tests are integration tests.
fn built(root: &Path, environment: &Environment) -> Result<Vec<(Program, bool)>, Failure> {
    let arguments = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let mut command = process::cargo(root, &arguments);
    command.envs(environment.iter().cloned()).stderr(Stdio::inherit());
    let built = command.output().map_err(|error| process::absent(&command, &error))?;
    if !built.status.success() {
        return Err(Failure::Failed(format!("tests could not be built: {}", built.status)));
    }
    let said = String::from_utf8_lossy(&built.stdout);
    Ok(process::messages(&said).filter_map(|message| program(&message)).collect())
}

/// The test program that one of cargo's messages tells of, and whether its tests are integration tests.
fn program(message: &Value) -> Option<(Program, bool)> {
    let is_test = message["profile"]["test"].as_bool()?;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let target = &message["target"];
    let (crate_name, name) = (folder.file_name()?.to_string_lossy(), target["name"].as_str()?);
    let name = match target["kind"][0].as_str()? {
        // A library and a program may have one name.
        "bin" => format!("{crate_name} {name} program"),
        "test" if name == "all" => crate_name.into(),
        _ => format!("{crate_name} {name}"),
    };
    let arguments = vec!["--show-output".into()];
    let program = Program { name, program: executable.into(), arguments, folder, is_test, ..Program::default() };
    Some((program, target["kind"][0] == "test"))
}

/// Tests that cargo builds and runs in one step.
fn cargo(root: &Path, name: &str, arguments: &str) -> Program {
    let command = process::cargo(root, &[]);
    let arguments = arguments.split(' ').map(String::from).collect();
    let program = command.get_program().into();
    Program { name: name.into(), program, arguments, folder: root.into(), ..Program::default() }
}

/// Tests of optimised code.
fn optimised(root: &Path) -> Vec<Program> {
    let mut programs = vec![cargo(root, "model", "xtask model --fast")];
    // Golden files are of optimised code: not worth building it where instructions cannot be counted.
    if process::output(&mut process::program(root, "valgrind", &["--version"])).is_ok() {
        // Both at once: by itself, `engine` wants other features of the crates of others.
        let test = "test --profile counted -p bench -p engine --lib --test run instructions";
        programs.push(cargo(root, "instructions", test));
    } else {
        eprintln!("ci: skipped: needs valgrind, to count instructions");
    }
    programs
}

struct Running {
    program: Program,
    child: Child,
    output: PathBuf,
    begun: Instant,
    /// How long its output was when it last grew, and when that was.
    grown: (u64, Instant),
}

/// How a program ended.
struct Ended {
    /// `None`: it was stopped, for it printed nothing.
    status: Option<ExitStatus>,
    /// Its processor time. A program that took far longer waited: for a lane's processor, a lock of cargo's, or a timer.
    spent: Duration,
}

impl Ended {
    fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl Running {
    fn start(program: Program, folder: &Path) -> Result<Running, Failure> {
        let output = folder.join(program.name.replace(' ', "-"));
        let to = File::create(&output).map_err(|error| unreadable(&output, &error))?;
        let both = to.try_clone().map_err(|error| unreadable(&output, &error))?;
        let mut command = program.command();
        let child = command.stdin(Stdio::null()).stdout(to).stderr(both).spawn();
        let child = child.map_err(|error| process::absent(&command, &error))?;
        let begun = Instant::now();
        Ok(Running { program, child, output, begun, grown: (0, begun) })
    }

    fn ended(&mut self) -> Result<Option<Ended>, Failure> {
        let before = process::spent();
        let ended = |status| Ok(Some(Ended { status, spent: process::spent().saturating_sub(before) }));
        let status = self.child.try_wait().map_err(|error| unreadable(&self.output, &error))?;
        if status.is_some() {
            return ended(status);
        }
        let length = std::fs::metadata(&self.output).map_or(0, |file| file.len());
        if length != self.grown.0 {
            self.grown = (length, Instant::now());
        }
        if self.grown.1.elapsed() < SILENCE {
            return Ok(None);
        }
        process::stop(self.child.id());
        let _ = self.child.wait();
        ended(None)
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot keep the output of tests in `{}`: {error}", path.display()))
}

/// The result of the tests. `failed`: programs that failed. `rights`: no test may be skipped for want of rights.
fn outcome(failed: &[String], counts: &Counts, rights: bool) -> Outcome {
    let without = if rights { counts.without_rights() } else { Vec::new() };
    match (failed, &counts.failures[..]) {
        ([], _) if without.is_empty() => Ok(()),
        ([], _) => {
            let names = without.join(", ");
            Err(Failure::Failed(format!("STREAMLINE_CI_RIGHTS=1, but these tests lack rights: {names}")))
        }
        (programs, []) => Err(Failure::Failed(format!("these test programs failed: {}", programs.join(", ")))),
        (programs, names) => {
            Err(Failure::Failed(format!("these tests failed: {}, of {}", names.join(", "), programs.join(", "))))
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
    /// Passes on what a program printed.
    fn program(&mut self, program: &Running, ended: &Ended) -> Outcome {
        let (took, spent) = (program.begun.elapsed().as_secs_f64(), ended.spent.as_secs_f64());
        let said = || -> std::io::Result<()> {
            writeln!(self.to, "\n{} ({took:.1} s, {spent:.1} s of a processor)", program.program.name)?;
            self.lines(BufReader::new(File::open(&program.output)?))?;
            match ended.status {
                None => writeln!(self.to, "printed nothing for {} s, and was stopped", SILENCE.as_secs())?,
                Some(status) if !status.success() => writeln!(self.to, "{}: {status}", program.program.name)?,
                Some(_) => {}
            }
            self.to.flush()
        }();
        said.map_err(|error| Failure::Failed(format!("cannot pass on what tests print: {error}")))
    }

    fn lines(&mut self, mut from: impl BufRead) -> std::io::Result<()> {
        self.passed = false;
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line)? > 0 {
            self.line(&line)?;
            line.clear();
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> std::io::Result<()> {
        let text = String::from_utf8_lossy(line);
        self.counts.read(&text);
        match text.trim_end() {
            "successes:" => self.passed = true,
            other if other == "failures:" || other.starts_with("test result: ") => self.passed = false,
            _ => {}
        }
        if self.passed { Ok(()) } else { self.to.write_all(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Passing { to: &mut passed_on, counts: &mut counts, passed: false }.lines(output).unwrap();
            assert_eq!(String::from_utf8_lossy(&passed_on), String::from_utf8_lossy(expected));
            assert_eq!(counts.to_string(), sums);
        }
    }

    #[test]
    fn a_program_runs_in_its_crates_folder() {
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/x/crates/cli/Cargo.toml", "executable": "/x/live-1",
                "target": {"name": "live", "kind": ["test"]}, "profile": {"test": test},
            })
        };
        let (found, is_integration) = program(&message(true)).unwrap();
        let command = found.command();
        assert_eq!((&found.name[..], command.get_program()), ("cli live", "/x/live-1".as_ref()));
        assert_eq!((command.get_current_dir(), is_integration), (Some(Path::new("/x/crates/cli")), true));
        let mut of_program = message(true);
        of_program["target"]["kind"] = serde_json::json!(["bin"]);
        assert_eq!(program(&of_program).unwrap().0.name, "cli live program");
        // A program that tests use is no test program.
        assert!(program(&message(false)).is_none() && program(&serde_json::json!({"reason": "x"})).is_none());
    }

    #[test]
    fn each_module_of_integration_tests_runs_by_itself() {
        let whole = Program { name: "cli live".into(), ..shell("", "") };
        let parts = whole.parts(["net::a::one", "rule", "net::a::two", "net::one"].into_iter());
        let found: Vec<(&str, Vec<&str>)> =
            parts.iter().map(|part| (&part.name[..], part.tests.iter().map(String::as_str).collect())).collect();
        let expected = [
            ("cli live", vec!["rule"]),
            ("cli live net", vec!["net::one"]),
            ("cli live net a", vec!["net::a::one", "net::a::two"]),
        ];
        assert_eq!(found, expected);
        let arguments: Vec<_> = parts[2].command().get_args().skip(2).map(|word| word.to_os_string()).collect();
        assert_eq!(arguments, ["--exact", "net::a::one", "net::a::two"]);
        assert!(parts.iter().all(|part| part.is_called("cli live")) && !parts[0].is_called("cli li"));
    }

    fn shell(name: &str, text: &str) -> Program {
        let name = format!("lanes {name} {}", std::process::id());
        let arguments = ["-c", text].map(String::from).to_vec();
        Program {
            name,
            program: "sh".into(),
            arguments,
            folder: std::env::temp_dir(),
            is_test: true,
            ..Program::default()
        }
    }

    #[test]
    fn a_test_that_passes_alone_is_named() {
        let result = |text: &str| format!("test a ... {text}");
        let good = shell("again", "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'");
        let bad = shell("never", "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 1");
        let names = [good.name.clone(), bad.name.clone()];
        let mut counts = Counts::default();
        [result("FAILED"), "test b ... FAILED".into(), "test result: FAILED. 5 passed; 2 failed; 0 ignored".into()]
            .iter()
            .for_each(|line| counts.read(line));
        let mut pass = Passing { to: Vec::new(), counts: &mut counts, passed: false };
        let failed = vec![(good, vec!["a".to_string()]), (bad, vec!["b".to_string()])];
        let folder = std::env::temp_dir();
        assert_eq!(alone(failed, &folder, &mut pass), Ok(vec![names[1].clone()]));
        names.iter().for_each(|name| std::fs::remove_file(folder.join(name.replace(' ', "-"))).unwrap());
        assert_eq!(counts.to_string(), "6 passed, 1 failed, 0 skipped");
        assert_eq!(counts.failures, ["b"]);
        assert_eq!(counts.reasons(), ["    1 passed only alone: a"]);
    }

    #[test]
    fn a_program_that_ends_badly_is_a_failure() {
        let folder = std::env::temp_dir();
        let shell = |name: &str, text: &str| {
            let mut running = Running::start(shell(name, text), &folder).unwrap();
            let ended = loop {
                if let Some(ended) = running.ended().unwrap() {
                    break ended;
                }
            };
            let (mut said, mut counts) = (Vec::new(), Counts::default());
            Passing { to: &mut said, counts: &mut counts, passed: false }.program(&running, &ended).unwrap();
            let _ = std::fs::remove_file(&running.output);
            (ended.success(), String::from_utf8(said).unwrap())
        };
        let (success, said) = shell("good", "echo fine");
        assert!(success && said.ends_with(" s of a processor)\nfine\n"), "{said}");
        let (success, said) = shell("bad", "echo no >&2; kill -9 $$");
        assert!(!success && said.contains("no\n") && said.contains("signal: 9"), "{said}");
    }

    #[test]
    fn a_skip_for_want_of_rights_is_a_failure_where_that_is_asked_for() {
        let mut counts = Counts::default();
        let said = "successes:\n---- a stdout ----\nskipped (rights): not root\n---- b stdout ----\nskipped: no cc\n";
        said.lines().for_each(|line| counts.read(line));
        let failed = |text: &str| Err(Failure::Failed(text.into()));
        let program = ["cli live".to_string()];
        assert_eq!(outcome(&[], &counts, false), Ok(()));
        assert_eq!(outcome(&[], &counts, true), failed("STREAMLINE_CI_RIGHTS=1, but these tests lack rights: a"));
        assert_eq!(outcome(&program, &counts, false), failed("these test programs failed: cli live"));
        counts.failures.push("c".into());
        assert_eq!(outcome(&program, &counts, false), failed("these tests failed: c, of cli live"));
    }
}
