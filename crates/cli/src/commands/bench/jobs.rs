//! Requests as benches run them: each in the namespace of its device, on a thread of its own, in this process.

use crate::exit::CommandError;
use driver::namespace::Namespace;
use filter::Output;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use streamline::devices::Place;
use streamline::language::FilterCall;
use streamline::{Error, Job, Report, Session, StopFlag};

/// A trial ends when no frame has come for this time.
const QUIET: Duration = Duration::from_millis(100);

/// And no longer than that (RFC 2544, section 23).
const RESIDUAL: Duration = Duration::from_secs(2);

pub(super) struct Ran {
    /// The text that it wrote to standard output.
    pub(super) output: String,
    pub(super) report: Report,
    pub(super) took: Duration,
}

/// Runs a request to its end, or until `stop` is set.
pub(super) fn run(at: &Namespace, text: &str, stop: &StopFlag) -> Result<Ran, Error> {
    at.enter(|| run_here(text, stop, &AtomicU64::new(0), |_| {})).map_err(cannot_enter)?
}

/// The same in this namespace, with a source before its chains.
pub(super) fn run_reading(
    source: FilterCall,
    text: &str,
    variables: &BTreeMap<String, String>,
    stop: &StopFlag,
) -> Result<Ran, Error> {
    let written = Written::default();
    let job = session(&written).reading(Some(source)).prepare(text, variables)?;
    run_job(job, &written, stop, &AtomicU64::new(0))
}

/// A session without a daemon: a daemon may share a capture with others.
fn session(written: &Written) -> Session {
    Session::with_output(Output::new(Box::new(written.clone()), false)).devices_at(Place::Here)
}

fn run_job(mut job: Job, written: &Written, stop: &StopFlag, read: &AtomicU64) -> Result<Ran, Error> {
    let began = Instant::now();
    // Relaxed: the number only shows progress and orders nothing.
    let (ran, report) = job.run_to_end(stop, &mut |worker| read.store(worker.progress().1, Ordering::Relaxed));
    let took = began.elapsed();
    ran?;
    Ok(Ran { output: written.text(), report, took })
}

fn cannot_enter(error: std::io::Error) -> Error {
    Error::System(format!("cannot work in another network namespace: {error}"))
}

/// The same in this namespace. Says when it is ready, and whether its sinks run in the kernel; counts blocks read.
fn run_here(text: &str, stop: &StopFlag, read: &AtomicU64, ready: impl FnOnce(Ready)) -> Result<Ran, Error> {
    let written = Written::default();
    let job = session(&written).prepare(text, &BTreeMap::new())?;
    let design = &job.running.design;
    let mut sinks = design.plan.nodes.iter().zip(&design.sites).filter(|(node, _)| node.edges.is_empty());
    let elsewhere = sinks.find(|(node, _)| node.space != "kernel");
    let (in_kernel, why) = (elsewhere.is_none(), elsewhere.map(|(_, site)| site.why.clone()).unwrap_or_default());
    ready(Ready { in_kernel, why });
    run_job(job, &written, stop, read)
}

/// A request that is about to run.
struct Ready {
    in_kernel: bool,
    why: String,
}

pub(super) struct Running {
    /// Its sinks run in the kernel.
    pub(super) in_kernel: bool,
    pub(super) why: String,
    stop: StopFlag,
    read: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Ran, Error>>>,
}

pub(super) fn start(at: &Namespace, text: &str) -> Result<Running, CommandError> {
    let (stop, read) = (StopFlag::new(), Arc::<AtomicU64>::default());
    let (tell, told) = mpsc::channel();
    let body = {
        let (at, text, stop, read) = (at.clone(), text.to_string(), stop.clone(), Arc::clone(&read));
        // The starter may have gone: then it has set `stop`, too.
        move || {
            let ready = |ready| drop(tell.send(ready));
            at.enter(|| run_here(&text, &stop, &read, ready)).map_err(cannot_enter)?
        }
    };
    let thread = std::thread::Builder::new().name("bench".into()).spawn(body)?;
    match told.recv() {
        Ok(Ready { in_kernel, why }) => Ok(Running { in_kernel, why, stop, read, thread: Some(thread) }),
        // It failed before it was ready.
        Err(_) => Err(match joined(thread) {
            Err(error) => CommandError::from(error).about(&format!("`{text}`")),
            Ok(_) => CommandError::Failed(format!("`{text}` ended at once")),
        }),
    }
}

fn joined(thread: JoinHandle<Result<Ran, Error>>) -> Result<Ran, Error> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Running {
    /// Waits until no more frames reach it.
    pub(super) fn settle(&self, stop: &StopFlag) {
        let began = Instant::now();
        let mut last = (self.read.load(Ordering::Relaxed), began);
        while began.elapsed() < RESIDUAL && last.1.elapsed() < QUIET && !stop.is_set() {
            std::thread::sleep(Duration::from_millis(5));
            let read = self.read.load(Ordering::Relaxed);
            if read != last.0 {
                last = (read, Instant::now());
            }
        }
    }

    pub(super) fn check(&mut self) -> Result<(), CommandError> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else { return Ok(()) };
        joined(thread)?;
        Err(CommandError::Failed("a request ended before the bench did".into()))
    }

    pub(super) fn end(mut self) -> Result<Ran, CommandError> {
        self.stop.stop();
        match self.thread.take() {
            Some(thread) => Ok(joined(thread)?),
            None => Err(CommandError::Failed("a request ended before the bench did".into())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // The thread closes its devices before it ends. A caller that drops this needs no result.
            let _ = thread.join();
        }
    }
}

/// What a request writes to standard output, in memory.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
