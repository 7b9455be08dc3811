//! Processes of a measurement: a part that talks (see [`parts`](super::parts)), and one that is only killed.

use crate::case::CaseError;
use driver::pair::End;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Makes a thread run on one processor, or on all.
pub fn pin(thread: Pid, processor: Option<usize>) -> Result<(), CaseError> {
    let mut set = CpuSet::new();
    for at in processor.map_or(0..CpuSet::count(), |at| at..at + 1) {
        set.set(at).map_err(failed)?;
    }
    sched_setaffinity(thread, &set).map_err(failed)
}

/// Starts a process in a device's namespace, on one processor or on all.
pub fn spawn(end: &End, mut command: Command, processor: Option<usize>) -> Result<Child, CaseError> {
    let spawn = move || {
        // This pins the thread that enters the namespace and ends after this.
        pin(Pid::from_raw(0), processor)?;
        command.spawn().map_err(failed)
    };
    end.namespace.enter(spawn).map_err(failed)?
}

/// A process that is killed when this is dropped.
pub struct Killed(pub(super) Child);

impl Killed {
    /// Its process.
    pub fn process(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has ended by itself, at most for `time`.
    pub fn wait(mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running part: see [`parts`](super::parts).
pub struct Part(Talking);

struct Talking {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Talking {
    fn drop(&mut self) {
        // It may have been stopped, or have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Part {
    /// Starts it in a device's namespace, on one processor or on all, and waits until it is ready.
    pub fn start(end: &End, mut command: Command, processor: Option<usize>) -> Result<Part, CaseError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = spawn(end, command, processor)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or_else(|| failed("a part without an output"))?);
        let mut part = Part(Talking { child, input, output });
        match part.line()?.as_str() {
            "ready" => Ok(part),
            said => Err(failed(format!("a part said `{said}`"))),
        }
    }

    fn line(&mut self) -> Result<String, CaseError> {
        let mut line = String::new();
        self.0.output.read_line(&mut line).map_err(failed)?;
        if line.is_empty() { Err(failed("a part ended early")) } else { Ok(line.trim().to_owned()) }
    }

    fn say(&mut self, word: &str) -> Result<(), CaseError> {
        let input = self.0.input.as_mut().ok_or_else(|| failed("a part that was told to end"))?;
        writeln!(input, "{word}").map_err(failed)
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.0.child.id()
    }

    /// Starts its work.
    pub fn go(&mut self) -> Result<(), CaseError> {
        self.say("go")
    }

    /// Datagrams that it has received.
    pub fn received(&mut self) -> Result<u64, CaseError> {
        self.say("count")?;
        let line = self.line()?;
        line.parse().map_err(|_| failed(format!("a part said `{line}`")))
    }

    /// Processor time that it has used, in s.
    pub fn processor_time(&mut self) -> Result<f64, CaseError> {
        self.say("time")?;
        let line = self.line()?;
        line.parse::<f64>().map(|ns| ns * 1e-9).map_err(|_| failed(format!("a part said `{line}`")))
    }

    /// Waits until its work is done, and gives its document.
    pub fn finish(&mut self) -> Result<Value, CaseError> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| failed(format!("`{line}`: {error}")))
    }

    /// Ends it, and gives its document.
    pub fn end(mut self) -> Result<Value, CaseError> {
        self.0.input = None;
        self.finish()
    }

    /// Stops it (`true`), or lets it go on.
    pub fn stop(&self, stopped: bool) -> Result<(), CaseError> {
        let signal = if stopped { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(Pid::from_raw(self.0.child.id() as i32), signal).map_err(failed)
    }
}

/// Checks that a receiver's document has no datagrams out of order; one of them makes the measurement void.
pub fn in_order(said: &Value) -> Result<(), CaseError> {
    match said["misordered"].as_u64() {
        Some(0) => Ok(()),
        count => Err(failed(format!("{count:?} datagrams came twice or out of order"))),
    }
}

/// A number in a part's document.
pub fn count(said: &Value, name: &str) -> Result<u64, CaseError> {
    said[name].as_u64().ok_or_else(|| failed(format!("a part says no `{name}`: {said}")))
}

/// An error for a case.
pub fn failed(what: impl std::fmt::Display) -> CaseError {
    CaseError::Failed(what.to_string())
}
