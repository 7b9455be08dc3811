//! Runs another program and says what it cost: time on the wall, time on the processors, memory.
//!
//! Processor time is the kernel's own sum for children that were waited for (`getrusage`), so a program that starts
//! others is charged for them too. One measurement at a time: children are told apart by nothing else.

use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What one run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// From start to end, in seconds.
    pub wall_s: f64,
    /// On the processors, in seconds, user and system.
    pub cpu_s: f64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.wall_s += other.wall_s;
        self.cpu_s += other.cpu_s;
    }
}

/// The highest resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Anonymous and shared together: what counts.
    pub own: u64,
    /// Pages of mapped files, the program itself included.
    pub mapped_files: u64,
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    args: Vec<OsString>,
    /// Files it may have open at once, where that is limited.
    open_files: Option<u32>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it cost.
    pub cost: Cost,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
}

impl Program {
    /// A program by path or name.
    pub fn new(path: impl AsRef<Path>) -> Program {
        Program { path: path.as_ref().into(), args: Vec::new(), open_files: None }
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Program {
        self.args.push(arg.into());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Program {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// As under `ulimit -n`.
    #[must_use]
    pub fn open_files(mut self, limit: u32) -> Program {
        self.open_files = Some(limit);
        self
    }

    /// As people would type it, more or less.
    pub fn text(&self) -> String {
        let words = std::iter::once(&self.path).chain(&self.args).map(|word| word.to_string_lossy());
        words
            .map(|word| if word.contains([' ', '|', '"']) { format!("'{word}'") } else { word.into_owned() })
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn command(&self) -> Command {
        let mut command = match self.open_files {
            None => Command::new(&self.path),
            // The shell is replaced by the program: same process, a millisecond more.
            Some(limit) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\"")).arg(&self.path);
                shell
            }
        };
        command.args(&self.args).stdin(Stdio::null());
        command
    }

    /// Runs it to its end. Fails when it cannot be started or does not exit with 0, with what it said on standard error.
    pub fn run(&self) -> Result<Finished, String> {
        let watch = Stopwatch::start(UsageWho::RUSAGE_CHILDREN)?;
        let output = self.command().output().map_err(|error| self.cannot_start(&error))?;
        let cost = watch.stop()?;
        if !output.status.success() {
            return Err(format!(
                "{}: {}: {}",
                self.text(),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        Ok(Finished { cost, stdout: output.stdout })
    }

    /// Runs it to its end, looking at its memory a thousand times a second: what it cost is not worth knowing.
    pub fn peak_memory(&self) -> Result<Memory, String> {
        let mut child = self
            .command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| self.cannot_start(&error))?;
        let mut peak = Memory::default();
        let status = loop {
            if let Some(now) = memory_of(child.id()) {
                peak.own = peak.own.max(now.own);
                peak.mapped_files = peak.mapped_files.max(now.mapped_files);
            }
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(format!("{}: {error}", self.text())),
            }
        };
        if status.success() { Ok(peak) } else { Err(format!("{}: {status}", self.text())) }
    }

    fn cannot_start(&self, error: &std::io::Error) -> String {
        format!("cannot start {}: {error}", self.path.to_string_lossy())
    }
}

/// Runs programs one behind the other, as a shell's `a | b | c` does, to their ends; gives what the last one wrote.
pub fn run_pipeline(programs: &[Program]) -> Result<Finished, String> {
    let watch = Stopwatch::start(UsageWho::RUSAGE_CHILDREN)?;
    let mut children: Vec<(Child, &Program)> = Vec::new();
    let mut failure = None;
    for program in programs {
        let mut command = program.command();
        if let Some((before, _)) = children.last_mut() {
            command.stdin(before.stdout.take().map_or_else(Stdio::null, Stdio::from));
        }
        match command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn() {
            Ok(child) => children.push((child, program)),
            Err(error) => {
                failure = Some(program.cannot_start(&error));
                break;
            }
        }
    }
    let mut stdout = Vec::new();
    if let Some(mut last) = children.last_mut().and_then(|(child, _)| child.stdout.take())
        && let Err(error) = last.read_to_end(&mut stdout)
    {
        failure.get_or_insert(error.to_string());
    }
    // Every child is waited for, also after a failure: the ends of the pipes are closed, so each comes to its end.
    for (child, program) in &mut children {
        match child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => drop(failure.get_or_insert(format!("{}: {status}", program.text()))),
            Err(error) => drop(failure.get_or_insert(error.to_string())),
        }
    }
    let cost = watch.stop()?;
    failure.map_or(Ok(Finished { cost, stdout }), Err)
}

/// Time on the wall and on the processors from a moment on.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    who: UsageWho,
    cpu_s: f64,
    wall: Instant,
}

impl Stopwatch {
    /// From now, of this process.
    pub fn start_here() -> Result<Stopwatch, String> {
        Stopwatch::start(UsageWho::RUSAGE_SELF)
    }

    fn start(who: UsageWho) -> Result<Stopwatch, String> {
        let cpu_s = cpu_seconds(who)?;
        Ok(Stopwatch { who, cpu_s, wall: Instant::now() })
    }

    /// Until now.
    pub fn stop(&self) -> Result<Cost, String> {
        let wall_s = self.wall.elapsed().as_secs_f64();
        Ok(Cost { wall_s, cpu_s: cpu_seconds(self.who)? - self.cpu_s })
    }
}

fn cpu_seconds(who: UsageWho) -> Result<f64, String> {
    let usage = getrusage(who).map_err(|error| format!("getrusage: {error}"))?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// The threads `ksoftirqd/N`: when a sender is faster than the softirq's budget, what is received is worked off there.
pub fn softirqs() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |folder: &std::fs::DirEntry| {
        std::fs::read_to_string(folder.path().join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    let found = processes.filter(is_one);
    found.filter_map(|folder| folder.file_name().to_str()?.parse().ok()).collect()
}

/// Seconds a process and its threads were on a processor (`/proc/PID/task/*/schedstat`).
pub fn processor_time(process: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| -> Option<f64> {
        let text = std::fs::read_to_string(path).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.filter_map(|task| of(task.path().join("schedstat"))).sum::<f64>() * 1e-9
}

/// A process and all that come from it, as they are now.
pub fn family(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|some| some.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    std::iter::once(process).chain(children.into_iter().flat_map(family)).collect()
}

/// What is resident now; `None` when the process has ended.
pub fn memory_of(pid: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { own: bytes("RssAnon:")? + bytes("RssShmem:")?, mapped_files: bytes("RssFile:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_a_child_cost_and_wrote() {
        let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done";
        let run = Program::new("/bin/sh").args(["-c", spin]).run().unwrap();
        assert_eq!(run.stdout, b"done\n");
        assert!(run.cost.wall_s > 0.0 && run.cost.cpu_s > 0.0, "{:?}", run.cost);
        let failed = Program::new("/bin/sh").args(["-c", "echo sorry >&2; exit 3"]).run().unwrap_err();
        assert!(failed.contains("sorry"), "{failed}");
        assert!(Program::new("/no/such/program").run().is_err());
    }

    #[test]
    fn a_limit_on_open_files_reaches_the_program() {
        let run = Program::new("/bin/sh").args(["-c", "ulimit -n"]).open_files(99).run().unwrap();
        assert_eq!(run.stdout, b"99\n");
    }

    #[test]
    fn a_pipeline_gives_what_its_end_wrote() {
        let programs = [Program::new("/bin/echo").arg("a b"), Program::new("/usr/bin/tr").args([" ", "-"])];
        assert_eq!(run_pipeline(&programs).unwrap().stdout, b"a-b\n");
        let failing = [Program::new("/bin/false"), Program::new("/bin/cat")];
        assert!(run_pipeline(&failing).is_err());
    }

    #[test]
    fn memory_is_that_of_the_program() {
        // 32 MB in a variable of the shell, held for a moment.
        let script = "v=$(head -c 32000000 /dev/zero | tr '\\0' x); sleep 0.2; echo ${#v} >/dev/null";
        let peak = Program::new("/bin/sh").args(["-c", script]).peak_memory().unwrap();
        assert!(peak.own > 32_000_000, "{peak:?}");
        assert!(peak.mapped_files > 0, "{peak:?}");
    }
}
