//! What an instance is given when it is made: the outside world, by trait or handle, so that a test can put its own there.

use crate::kind::Types;
use crate::record::Schema;
use crate::run::Failure;
use program::compile::Compile;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What an instance is given when it is made. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// What will come on its input.
    pub input: Types,
    /// Where records and text go.
    pub stdout: Output,
    /// Turns tcpdump's expressions into programs.
    pub compiler: Arc<dyn Compile>,
    /// Every schema that may come on an edge of this plan.
    pub schemas: Arc<[&'static Schema]>,
    /// What the request does while there is nothing to do.
    pub wait: Wait,
    /// How much later than it came a block may be found (`set latency=`). `None`: the filter's own default.
    pub latency: Option<Duration>,
    /// The command that makes a named ring; it is given the name and options, and ends when the ring is there. Empty: none.
    pub make_ring: Arc<[OsString]>,
    /// The socket of the daemon that this request uses; `None`: it uses none.
    pub daemon: Option<PathBuf>,
}

/// What a request does while there is nothing to do (`set wait=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Sleeps.
    #[default]
    Sleep,
    /// Looks again for a moment before it sleeps.
    Adaptive,
    /// Looks again at once: what comes is met soonest, and a processor is never free.
    Busy,
}

impl Wait {
    /// The words of `set wait=`, in the order of the variants.
    pub const WORDS: [&'static str; 3] = ["sleep", "adaptive", "busy"];

    /// What a word says.
    pub fn of(word: &str) -> Option<Wait> {
        let at = Wait::WORDS.iter().position(|known| *known == word)?;
        Some([Wait::Sleep, Wait::Adaptive, Wait::Busy][at])
    }
}

impl Env {
    /// The schema a record names.
    pub fn schema(&self, id: u32) -> Option<&'static Schema> {
        self.schemas.iter().copied().find(|schema| schema.id() == id)
    }
}

/// Standard output, or what stands for it; shared by every filter that writes there.
#[derive(Clone)]
pub struct Output {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    eager: bool,
    sinks: Arc<AtomicUsize>,
}

/// A sink's way to an [`Output`], which knows that somebody writes there as long as this lives.
pub struct OutputSink(Output);

impl Output {
    /// Writes to `writer`; `eager` where somebody is looking, so that each batch should appear at once.
    pub fn new(writer: Box<dyn Write + Send>, eager: bool) -> Output {
        Output { writer: Arc::new(Mutex::new(writer)), eager, sinks: Arc::default() }
    }

    /// For a sink that is going to write.
    pub fn open(&self) -> OutputSink {
        // Relaxed, here and below: a number for people, by which nothing is ordered.
        self.sinks.fetch_add(1, Ordering::Relaxed);
        OutputSink(self.clone())
    }

    /// Is there a sink that writes here?
    pub fn is_open(&self) -> bool {
        self.sinks.load(Ordering::Relaxed) > 0
    }

    /// The same for so many lines: with the last of them whoever reads has gone, and what comes after is not written.
    pub fn for_lines(&self, count: u64) -> Output {
        Output::new(Box::new(FirstLines { writer: Arc::clone(&self.writer), left: count }), self.eager)
    }

    /// Should each batch appear at once?
    pub fn eager(&self) -> bool {
        self.eager
    }

    /// Writes whole lines, makes a system call, and says whether anybody is still reading.
    pub fn write(&self, bytes: &[u8]) -> Result<Reader, Box<Failure>> {
        // A panic of another holder leaves a writer that is as good as before.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.write_all(bytes).and_then(|()| writer.flush()) {
            Ok(()) => Ok(Reader::Present),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(Box::new(Failure::System(format!("cannot write to standard output: {error}")))),
        }
    }
}

impl std::ops::Deref for OutputSink {
    type Target = Output;

    fn deref(&self) -> &Output {
        &self.0
    }
}

impl Drop for OutputSink {
    fn drop(&mut self) {
        self.0.sinks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A writer of the first lines.
struct FirstLines {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    left: u64,
}

impl Write for FirstLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut end = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.left == 0 {
                break;
            }
            end += line.len();
            self.left -= u64::from(line.ends_with(b"\n"));
        }
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes[..end])?;
        // What comes after the last counts as written, too.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
        if self.left == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

/// Is anybody still reading? A closed standard output ends quietly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Yes.
    Present,
    /// No: there is no point in writing more.
    Gone,
}
