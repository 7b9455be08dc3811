//! Runs the work of several processes together: forks them, pins them, starts them at once, and measures each.
//!
//! A part fails by an error, a panic or its death. Then, or when the run takes too long, the other parts are killed.
//! The parent keeps alive what a part owns until every process has ended, since dropping a writer ends its ring.

use crate::process::{Cost, pin, two_processors};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, Pid, fork};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// The work of a part; it gives a number of its own.
type Work<'a> = Box<dyn FnMut() -> Result<f64, String> + 'a>;

/// The work of one process.
pub struct Part<'a> {
    processor: usize,
    work: Work<'a>,
}

impl<'a> Part<'a> {
    /// Runs on the first (0) or second (1) processor of this program. `work` gives seconds to count, or 0.
    pub fn new(processor: usize, work: impl FnMut() -> Result<f64, String> + 'a) -> Part<'a> {
        Part { processor, work: Box::new(work) }
    }
}

/// The cost of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    start_ns: u64,
    end_ns: u64,
    /// Seconds on the processor.
    pub cpu_s: f64,
    /// The number that its work gave.
    pub given: f64,
}

/// The cost of each process, in the order of the parts.
#[derive(Clone, Debug)]
pub struct Ran(pub Vec<Spent>);

impl Ran {
    /// Elapsed time from the first start to the last end; processor time of all.
    pub fn cost(&self) -> Cost {
        let start = self.0.iter().map(|spent| spent.start_ns).min().unwrap_or(0);
        let end = self.0.iter().map(|spent| spent.end_ns).max().unwrap_or(0);
        Cost { wall_s: (end - start) as f64 / 1e9, cpu_s: self.0.iter().map(|spent| spent.cpu_s).sum() }
    }

    /// The same elapsed time, with the processor time of one part only.
    pub fn cost_of(&self, part: usize) -> Cost {
        Cost { cpu_s: self.0[part].cpu_s, ..self.cost() }
    }

    /// The number that one part gave, as its time.
    pub fn given_by(&self, part: usize) -> Cost {
        Cost { wall_s: self.0[part].given, cpu_s: self.0[part].given }
    }
}

/// Runs each part once, in a process of its own.
pub fn run(parts: &mut [Part<'_>]) -> Result<Ran, String> {
    let processors = two_processors()?;
    let (go, mut start) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    let mut children = Children(Vec::new());
    for part in parts {
        let processor = processors[part.processor % processors.len()];
        let (outcome, to_parent) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
        // SAFETY: the child runs code that allocates, which glibc's fork allows. It takes no lock that another thread
        // of this program holds: cases run one after the other on the program's only thread.
        match unsafe { fork() }.map_err(|error| format!("fork: {error}"))? {
            ForkResult::Child => {
                // The child must not outlive a killed parent.
                let _ = set_pdeathsig(Signal::SIGKILL);
                child(processor, &mut part.work, &go, to_parent)
            }
            ForkResult::Parent { child } => children.0.push((child, outcome)),
        }
    }
    for (_, outcome) in &mut children.0 {
        // Ready: pinned, and waiting for the start.
        receive::<1>(outcome, LIMIT)?;
    }
    start.write_all(&vec![1; children.0.len()]).map_err(|error| format!("pipe: {error}"))?;
    let deadline = Instant::now() + LIMIT;
    let mut all = Vec::new();
    for (_, outcome) in &mut children.0 {
        let left = deadline.saturating_duration_since(Instant::now());
        let words = receive::<32>(outcome, left)?;
        let word = |at: usize| u64::from_le_bytes(words.as_chunks::<8>().0[at]);
        if word(0) == 0 {
            let mut why = String::new();
            let _ = outcome.read_to_string(&mut why);
            return Err(why);
        }
        let (cpu_s, given) = (word(2) as f64 / 1e9, f64::from_bits(word(3)));
        all.push(Spent { start_ns: word(0), end_ns: word(1), cpu_s, given });
    }
    Ok(Ran(all))
}

/// Kills running children when dropped, and waits for them.
struct Children(Vec<(Pid, PipeReader)>);

impl Drop for Children {
    fn drop(&mut self) {
        for (child, _) in &self.0 {
            let _ = kill(*child, Signal::SIGKILL);
        }
        for (child, _) in &self.0 {
            let _ = waitpid(*child, None);
        }
    }
}

/// The child: runs its work and exits, without dropping values that the parent still has.
fn child(processor: usize, work: &mut Work<'_>, go: &PipeReader, mut to_parent: PipeWriter) -> ! {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pin(processor)?;
        to_parent.write_all(&[1]).map_err(|error| error.to_string())?;
        (&*go).read_exact(&mut [0]).map_err(|error| error.to_string())?;
        let (start_ns, cpu_ns) = (now_ns(ClockId::CLOCK_MONOTONIC)?, now_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)?);
        let given = work()?;
        let cpu_ns = now_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - cpu_ns;
        Ok([start_ns, now_ns(ClockId::CLOCK_MONOTONIC)?, cpu_ns, given.to_bits()])
    }));
    let outcome: Result<[u64; 4], String> = outcome.unwrap_or_else(|_| Err("a process panicked".to_owned()));
    let _ = match outcome {
        Ok(words) => to_parent.write_all(words.map(u64::to_le_bytes).as_flattened()),
        Err(why) => to_parent.write_all(&[[0; 32].as_slice(), why.as_bytes()].concat()),
    };
    // SAFETY: ends this process without running the exit functions that the parent has registered.
    unsafe { nix::libc::_exit(0) }
}

/// Receives `BYTES` bytes from a child. The error says why they do not come.
fn receive<const BYTES: usize>(from: &mut PipeReader, limit: Duration) -> Result<[u8; BYTES], String> {
    let timeout = rustix::event::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    let mut waited = [rustix::event::PollFd::new(from, rustix::event::PollFlags::IN)];
    if rustix::event::poll(&mut waited, Some(&timeout)).map_err(|error| error.to_string())? == 0 {
        return Err("it hangs".to_owned());
    }
    let mut bytes = [0; BYTES];
    from.read_exact(&mut bytes).map_err(|_| "a process died".to_owned())?;
    Ok(bytes)
}

fn now_ns(clock: ClockId) -> Result<u64, String> {
    let now = clock_gettime(clock).map_err(|error| format!("clock_gettime: {error}"))?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_run_beside_each_other_and_say_what_they_spent() {
        let (mut there, mut back) = std::io::pipe().unwrap();
        let ran = run(&mut [
            Part::new(0, || back.write_all(b"x").map(|()| 1.5).map_err(|error| error.to_string())),
            Part::new(1, || there.read_exact(&mut [0]).map(|()| 2.5).map_err(|error| error.to_string())),
        ]);
        let ran = ran.unwrap();
        assert_eq!((ran.given_by(0).wall_s, ran.given_by(1).cpu_s), (1.5, 2.5));
        assert!(ran.cost().wall_s > 0.0 && ran.cost().cpu_s >= ran.cost_of(0).cpu_s);
    }

    #[test]
    fn a_part_that_fails_ends_all() {
        let (mut never, _kept) = std::io::pipe().unwrap();
        let failed = run(&mut [
            Part::new(0, || Err("lost a block".to_owned())),
            Part::new(1, || never.read_exact(&mut [0]).map(|()| 0.0).map_err(|error| error.to_string())),
        ]);
        assert_eq!(failed.unwrap_err(), "lost a block");
    }
}
