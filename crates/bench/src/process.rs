//! Runs another program and measures its cost: elapsed time, processor time, memory.
//!
//! Processor time is the kernel's sum for children that were waited for (`getrusage`), so it includes processes that a
//! program starts itself. Take one measurement at a time: the sum does not tell children apart.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The cost of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Elapsed time, in seconds.
    pub wall_s: f64,
    /// Processor time, user and system, in seconds.
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
    /// Anonymous and shared memory together, which is what counts.
    pub own: u64,
    /// Pages of mapped files, including the program itself.
    pub mapped_files: u64,
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    args: Vec<OsString>,
    /// Most open files. `None`: no limit of ours.
    open_files: Option<u32>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its cost.
    pub cost: Cost,
    /// Its output on standard output.
    pub stdout: Vec<u8>,
}

impl Program {
    /// A program by path or name.
    pub fn new(path: impl AsRef<Path>) -> Program {
        Program { path: path.as_ref().into(), args: Vec::new(), open_files: None }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Program {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Program {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Limits open files, as `ulimit -n` does.
    #[must_use]
    pub fn open_files(mut self, limit: u32) -> Program {
        self.open_files = Some(limit);
        self
    }

    /// The command, about as people would type it.
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
            // The program replaces the shell: the same process, and a millisecond more.
            Some(limit) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\"")).arg(&self.path);
                shell
            }
        };
        command.args(&self.args).stdin(Stdio::null());
        command
    }

    /// Runs it to its end. Fails if it cannot start, or exits with another status than 0; the error has its standard
    /// error.
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

    /// Runs it to its end, and samples its memory a thousand times a second. The cost of such a run has no meaning.
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

/// Runs programs as a pipeline, like a shell's `a | b | c`, to their ends. Gives the last one's output.
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
    // Wait for every child, even after a failure: the pipes' ends are closed, so each one ends.
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

/// Elapsed time and processor time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    who: UsageWho,
    cpu_s: f64,
    wall: Instant,
}

impl Stopwatch {
    /// Starts now, for this process.
    pub fn start_here() -> Result<Stopwatch, String> {
        Stopwatch::start(UsageWho::RUSAGE_SELF)
    }

    fn start(who: UsageWho) -> Result<Stopwatch, String> {
        let cpu_s = cpu_seconds(who)?;
        Ok(Stopwatch { who, cpu_s, wall: Instant::now() })
    }

    /// The cost until now.
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

/// The threads `ksoftirqd/N`: they handle received packets when a sender exceeds the softirq's budget.
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

/// A process and all its descendants, as of now.
pub fn family(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|some| some.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    std::iter::once(process).chain(children.into_iter().flat_map(family)).collect()
}

/// The resident memory now. `None`: the process has ended.
pub fn memory_of(pid: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { own: bytes("RssAnon:")? + bytes("RssShmem:")?, mapped_files: bytes("RssFile:")? })
}

/// The first two processors that this program may use.
pub fn two_processors() -> Result<[usize; 2], String> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|error| format!("sched_getaffinity: {error}"))?;
    let mut found = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor) == Ok(true));
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err("two processors are needed".to_owned()),
    }
}

/// Makes this thread run on one processor.
pub fn pin(processor: usize) -> Result<(), String> {
    let mut only = CpuSet::new();
    only.set(processor)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &only))
        .map_err(|error| format!("sched_setaffinity: {error}"))
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
        // 32 MB in a shell variable, held for a moment.
        let script = "v=$(head -c 32000000 /dev/zero | tr '\\0' x); sleep 0.2; echo ${#v} >/dev/null";
        let peak = Program::new("/bin/sh").args(["-c", script]).peak_memory().unwrap();
        assert!(peak.own > 32_000_000, "{peak:?}");
        assert!(peak.mapped_files > 0, "{peak:?}");
    }
}
