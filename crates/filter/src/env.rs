//! The outside world that an instance gets when it is made, by trait or handle, so that a test can replace it.

use crate::record::Schema;
use crate::run::Failure;
use crate::types::Types;
use program::compile::Compile;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The outside world of an instance. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// The types that will come on its input.
    pub input: Types,
    /// The output for records and text.
    pub stdout: Output,
    /// Compiles tcpdump's expressions into programs.
    pub compiler: Arc<dyn Compile>,
    /// All schemas that may come on an edge of this plan.
    pub schemas: Arc<[&'static Schema]>,
    /// How the request waits while no block comes.
    pub wait: Wait,
    /// How much later than it came a block may be found (`set latency=`). `None`: the filter's own default.
    pub latency: Option<Duration>,
    /// The command that makes a named ring. It is given the name and options, and ends when the ring exists. Empty:
    /// there is no such command.
    pub make_ring: Arc<[OsString]>,
    /// The socket of the daemon that this request uses. `None`: it uses no daemon.
    pub daemon: Option<PathBuf>,
}

/// How a request waits while no block comes (`set wait=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Sleeps.
    #[default]
    Sleep,
    /// Looks again for a moment before it sleeps.
    Adaptive,
    /// Looks again at once: reacts fastest, and keeps a processor busy.
    Busy,
}

impl Wait {
    /// The words of `set wait=`, in the order of the variants.
    pub const WORDS: [&'static str; 3] = ["sleep", "adaptive", "busy"];

    /// The variant for a word of `set wait=`.
    pub fn of(word: &str) -> Option<Wait> {
        let at = Wait::WORDS.iter().position(|known| *known == word)?;
        Some([Wait::Sleep, Wait::Adaptive, Wait::Busy][at])
    }
}

impl Env {
    /// The schema with this id.
    pub fn schema(&self, id: u32) -> Option<&'static Schema> {
        self.schemas.iter().copied().find(|schema| schema.id() == id)
    }
}

/// Standard output or its replacement, shared by all filters that write there.
#[derive(Clone)]
pub struct Output {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    eager: bool,
    columns: Option<Columns>,
    bold_heads: bool,
}

/// Gives the columns that a terminal has now.
type Columns = Arc<dyn Fn() -> usize + Send + Sync>;

impl Output {
    /// Writes to `writer`. `eager`: write each batch at once, because a person is looking.
    pub fn new(writer: Box<dyn Write + Send>, eager: bool) -> Output {
        Output { writer: Arc::new(Mutex::new(writer)), eager, columns: None, bold_heads: false }
    }

    /// Writes to a terminal, whose columns the function gives; they may change.
    #[must_use]
    pub fn terminal(writer: Box<dyn Write + Send>, columns: impl Fn() -> usize + Send + Sync + 'static) -> Output {
        Output { columns: Some(Arc::new(columns)), ..Output::new(writer, true) }
    }

    /// An output for the first `count` lines. After the last line it reports the reader as gone, and discards the rest.
    pub fn for_lines(&self, count: u64) -> Output {
        let lines = FirstLines { writer: Arc::clone(&self.writer), left: count };
        Output {
            columns: self.columns.clone(),
            bold_heads: self.bold_heads,
            ..Output::new(Box::new(lines), self.eager)
        }
    }

    /// Sets whether heads of tables are bold.
    #[must_use]
    pub fn with_bold_heads(self, bold_heads: bool) -> Output {
        Output { bold_heads, ..self }
    }

    /// Whether heads of tables are bold.
    pub fn has_bold_heads(&self) -> bool {
        self.bold_heads
    }

    /// Whether each batch should be written at once.
    pub fn eager(&self) -> bool {
        self.eager
    }

    /// The columns of the terminal now. `None`: it is no terminal, and lines may have any length.
    pub fn columns(&self) -> Option<usize> {
        self.columns.as_ref().map(|columns| columns())
    }

    /// Writes whole lines, with a system call. Gives whether the output still has a reader.
    pub fn write(&self, bytes: &[u8]) -> Result<Reader, Box<Failure>> {
        // A thread that panicked under this lock left a usable writer.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.write_all(bytes).and_then(|()| writer.flush()) {
            Ok(()) => Ok(Reader::Present),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
            Err(error) => Err(Box::new(Failure::System(format!("cannot write to standard output: {error}")))),
        }
    }
}

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
        // Bytes behind the last line count as written, too.
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
        if self.left == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

/// Whether an output still has a reader. A closed standard output ends a request quietly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It has one.
    Present,
    /// It has none: there is no point in writing more.
    Gone,
}
