//! A copy of the workspace for changing files and building models. The developer's files are never changed, however the
//! run ends.

use crate::model::{PROFILE, TEST};
use crate::{Failure, files, process};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Scratch {
    sources: PathBuf,
    /// The copied files, relative to the workspace's folder.
    paths: BTreeSet<String>,
    build: PathBuf,
    /// Held while this lives: two runs would change each other's files.
    _lock: File,
}

/// The built models.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed(Duration),
    /// With this message.
    Failed(String),
    /// It took too long, or one run had too many steps. Neither shows a bug.
    OutOfTime,
}

/// The model checker's message if one run takes too many steps.
const TOO_MANY_STEPS: &str = "Model exceeded maximum number of branches";

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot {what} `{}`: {error}", path.display()))
}

impl Scratch {
    /// Copies the current content of all files that git knows to `folder`.
    pub fn new(root: &Path, folder: &Path) -> Result<Scratch, Failure> {
        fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(|error| failed("make", &lock_path, &error))?;
        lock.try_lock().map_err(|_| Failure::Failed(format!("`{}` is in use by another run", folder.display())))?;
        let (sources, build) = (folder.join("workspace"), folder.join("target"));
        let scratch = Scratch { sources, paths: files::list(root, &[])?, build, _lock: lock };
        for path in files_below(&scratch.sources, &scratch.sources) {
            if !scratch.paths.contains(&path) {
                let path = scratch.sources.join(path);
                fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
            }
        }
        for path in &scratch.paths {
            let from = root.join(path);
            let bytes = fs::read(&from).map_err(|error| failed("read", &from, &error))?;
            scratch.put(path, &bytes)?;
        }
        Ok(scratch)
    }

    /// Rust files below a folder of the copy, with their content. Changes that developers make meanwhile count in the next run.
    pub fn rust_files(&self, folder: &str) -> Result<Vec<(String, String)>, Failure> {
        let paths = self.paths.iter().filter(|path| path.starts_with(folder) && path.ends_with(".rs"));
        paths
            .map(|path| {
                let from = self.sources.join(path);
                let text = fs::read_to_string(&from).map_err(|error| failed("read", &from, &error))?;
                Ok((path.clone(), text))
            })
            .collect()
    }

    /// Writes a file, unless it already has this content: then its time stays, and cargo does not rebuild.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.sources.join(path);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&self.sources);
        fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
        fs::write(&path, bytes).map_err(|error| failed("write", &path, &error))
    }

    /// Builds the models. `None`: they do not compile; with `says_why` the errors are printed.
    pub fn build(&self, says_why: bool) -> Result<Option<Program>, Failure> {
        let mut command = process::cargo(&self.sources, &[&TEST[..], &["--no-run", "--message-format=json"]].concat());
        command
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", &self.build)
            .envs(PROFILE)
            .env("CARGO_INCREMENTAL", "1");
        command.stderr(if says_why { Stdio::inherit() } else { Stdio::null() });
        let output = command.output().map_err(|error| process::absent(&command, &error))?;
        let program = program(&String::from_utf8_lossy(&output.stdout));
        Ok(program.filter(|_| output.status.success()))
    }
}

impl Program {
    pub fn models(&self) -> Result<Vec<String>, Failure> {
        let list = process::output(Command::new(&self.path).arg("--list"))?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect())
    }

    pub fn run(&self, model: &str, preemptions: &str, limit: Duration) -> Result<Ended, Failure> {
        let mut command = Command::new(&self.path);
        command.args(["--exact", model, "--nocapture"]).env("LOOM_MAX_PREEMPTIONS", preemptions);
        run_for(&mut command, limit)
    }
}

fn run_for(command: &mut Command, limit: Duration) -> Result<Ended, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| process::absent(command, &error))?;
    // Read the pipe while the model runs: a full pipe would block it.
    let said = child.stderr.take().map(|stderr| std::thread::spawn(move || read(stderr)));
    loop {
        let ended = child.try_wait().map_err(|error| process::absent(command, &error))?;
        let took = start.elapsed();
        match ended {
            Some(status) if status.success() => return Ok(Ended::Passed(took)),
            Some(status) => {
                let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
                let is_known = said.contains(TOO_MANY_STEPS);
                return Ok(if is_known { Ended::OutOfTime } else { Ended::Failed(why(&said, &status.to_string())) });
            }
            None if took < limit => std::thread::sleep(Duration::from_millis(2)),
            None => {
                // In both cases the process has ended after the wait.
                let _ = child.kill();
                child.wait().map_err(|error| process::absent(command, &error))?;
                return Ok(Ended::OutOfTime);
            }
        }
    }
}

fn read(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // After a read error, use the bytes read so far.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The message of the first panic, or how the program ended.
fn why(said: &str, status: &str) -> String {
    let words = said.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1).unwrap_or(status);
    let first = words.split(&[';', '{'][..]).next().unwrap_or(words);
    first.trim_end_matches(':').trim().chars().take(60).collect()
}

/// Paths of all files below a folder, relative to `root`. Empty if the folder does not exist yet.
fn files_below(folder: &Path, root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path, root),
            // Cargo writes a lock file even where git has none.
            false => path.strip_prefix(root).ok().and_then(Path::to_str).map(str::to_string).into_iter().collect(),
        })
        .filter(|path| path != "Cargo.lock")
        .collect()
}

/// The program that cargo reports as built.
fn program(json_lines: &str) -> Option<Program> {
    let path = process::messages(json_lines).find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    path.map(|path| Program { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_what_cargo_says() {
        let lines = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"buffer\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"models\"},\"executable\":\"/x/a\"}\n\
            not json\n{\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(program(lines).unwrap().path, PathBuf::from("/x/a"));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            run_for(command.args(["-c", script]), Duration::from_millis(300)).unwrap()
        };
        assert!(matches!(sh("exit 0"), Ended::Passed(_)));
        assert_eq!(sh("exit 101"), Ended::Failed("exit status: 101".into()));
        assert_eq!(sh("exec sleep 60"), Ended::OutOfTime);
        assert_eq!(sh(&format!("echo \"{TOO_MANY_STEPS} (10).\" >&2; exit 101")), Ended::OutOfTime);
    }

    #[test]
    fn a_failure_is_told_in_a_few_words() {
        let rows = [
            (
                "thread 'a' (1) panicked at a.rs:1:2:\nassertion `left == right` failed: why\n left: 1",
                "assertion `left == right` failed: why",
            ),
            ("x\nthread 'a' panicked at a.rs:1:2:\ndeadlock; threads = [(Id(0), Blocked)]", "deadlock"),
            ("", "exit status: 101"),
        ];
        for (said, expected) in rows {
            assert_eq!(why(said, "exit status: 101"), expected);
        }
    }
}
