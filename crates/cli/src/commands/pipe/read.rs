//! `streamline pipe read`: a ring to standard output, or to a FIFO.

use super::{Trouble, fifo, options, stop};
use buffer::keeper::client::{Named, NamedReader};
use buffer::ring::{From, Nothing, OnFull, RingKind};
use filter::{Param, ParamType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use streamline::StopFlag;

/// Write what comes through a ring to standard output
#[derive(clap::Args)]
#[command(after_help = options::help(OPTIONS))]
pub(super) struct Args {
    /// The ring's name
    name: String,

    /// Options, as key=value
    options: Vec<String>,
}

const OPTIONS: &[Param] = &[
    Param::new(
        "on-full",
        ParamType::Choice(&["wait", "drop-newest", "overwrite", "shared"]),
        "what happens when this reader is a whole ring behind",
    )
    .default("wait"),
    Param::new(
        "from",
        ParamType::Choice(&["next", "oldest"]),
        "begin at the next block, or (overwrite and shared) at the oldest that is still there",
    )
    .default("next"),
    Param::new("fifo", ParamType::Path, "make this FIFO, and write to whatever program opens it, one after the other"),
];

/// Bytes gathered before they are written.
const GATHER_BYTES: usize = 256 << 10;

/// A ring without a keeper in which nothing happens for so long has no writer either.
const DEAD: Duration = Duration::from_secs(1);

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let params = options::parse(&args.options, OPTIONS)?;
    let contract: OnFull = params.text("on-full").unwrap_or_default().parse().map_err(Trouble::Wrong)?;
    let from = if params.text("from") == Some("oldest") { From::Oldest } else { From::Next };
    if from == From::Oldest && contract.holds() {
        return Err(Trouble::Wrong(format!(
            "from=oldest: a reader with on-full={} begins at the next block, for what is there may be overwritten at any \
             time; read with on-full=overwrite or shared",
            contract.name()
        )));
    }
    let with = Trouble::with(&args.name);
    let named = Named::at(&args.name).map_err(&with)?;
    let stop = stop::listen()?;
    let output = match params.text("fifo").map(PathBuf::from) {
        Some(path) => {
            fifo::make(&path)?;
            match fifo::open_to_write(&path, &stop)? {
                Some(fifo) => Output::Fifo(path, fifo),
                None => return Ok(()),
            }
        }
        None => Output::Standard,
    };
    let reader = loop {
        match named.open_reader(contract, from, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && stop.is_set() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome.map_err(&with)?,
        }
    };
    let mut reading =
        Reading { reader, granted: contract, demoted: false, output, stop, gathered: Vec::with_capacity(GATHER_BYTES) };
    let outcome = reading.run();
    reading.tell_losses(&args.name);
    outcome.map_err(|trouble| match trouble {
        Trouble::Failed(message) => Trouble::Failed(format!("{}: {message}", args.name)),
        other => other,
    })
}

enum Output {
    Standard,
    Fifo(PathBuf, OwnedFd),
}

/// Does it go on?
enum Then {
    GoOn,
    End,
}

struct Reading {
    reader: NamedReader,
    granted: OnFull,
    demoted: bool,
    output: Output,
    stop: StopFlag,
    gathered: Vec<u8>,
}

impl Reading {
    fn run(&mut self) -> Result<(), Trouble> {
        let mut since = Instant::now();
        while !self.stop.is_set() {
            let nothing = match self.gather() {
                Ok(()) => {
                    since = Instant::now();
                    if let Then::End = self.write_out()? {
                        return Ok(());
                    }
                    continue;
                }
                Err(nothing) => nothing,
            };
            if let Then::End = self.write_out()? {
                return Ok(());
            }
            self.note_demotion();
            match nothing {
                Nothing::Yet => {
                    if since.elapsed() > DEAD && !self.reader.is_kept() {
                        return Err(Trouble::Failed("the ring's keeper died".to_string()));
                    }
                    // What it says is seen again by the next look.
                    let _ = self.reader.reader().wait(stop::next_look());
                }
                Nothing::Damaged => {
                    return Err(Trouble::Failed(
                        "what the writer says makes no sense: it is broken or hostile".to_string(),
                    ));
                }
                Nothing::Ended | Nothing::Moved | Nothing::Retired => {
                    match self.reader.next_generation(None) {
                        Ok(true) => {}
                        Ok(false) if nothing == Nothing::Retired => {
                            let text = "the writer died: what it had not published is missing";
                            return Err(Trouble::Failed(text.to_string()));
                        }
                        Ok(false) => return Ok(()),
                        // A signal: was it one that asks to stop?
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(Trouble::Failed(error.to_string())),
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies what is there, up to a good write's worth.
    fn gather(&mut self) -> Result<(), Nothing> {
        let is_stream = self.reader.kind() == RingKind::C;
        let reader = self.reader.reader();
        while self.gathered.len() < GATHER_BYTES {
            let seen = match reader.peek() {
                Ok(seen) if is_stream => reader.first(seen, (GATHER_BYTES - self.gathered.len()) as u32),
                Ok(seen) => seen,
                Err(_) if !self.gathered.is_empty() => return Ok(()),
                Err(nothing) => return Err(nothing),
            };
            let at = self.gathered.len();
            self.gathered.resize(at + seen.block.len as usize, 0);
            reader.bytes(&seen).copy_to(&mut self.gathered[at..]);
            if reader.take(&seen).is_err() {
                // Overwritten while it was copied; it counts as lost.
                self.gathered.truncate(at);
            }
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<Then, Trouble> {
        if self.gathered.is_empty() {
            return Ok(Then::GoOn);
        }
        let written = match &mut self.output {
            Output::Standard => fifo::write_all(io::stdout().as_fd(), &self.gathered, &self.stop),
            Output::Fifo(path, fifo) => write_to_fifo(path, fifo, &self.gathered, &self.stop)?,
        };
        self.gathered.clear();
        match written {
            Ok(true) => Ok(Then::GoOn),
            Ok(false) => Ok(Then::End),
            // Whoever read it has had enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Then::End),
            Err(error) => Err(Trouble::Failed(format!("cannot write: {error}"))),
        }
    }

    fn note_demotion(&mut self) {
        if !self.demoted && self.reader.reader().contract() != self.granted {
            self.demoted = true;
            tell!(
                "warning: this reader held the full ring for longer than the ring's hold-limit; it goes on with \
                 on-full=overwrite"
            );
        }
    }

    fn tell_losses(&mut self, name: &str) {
        self.note_demotion();
        let counters = self.reader.reader().counters();
        if counters.lost > 0 {
            let unit = if self.reader.kind() == RingKind::C { "bytes" } else { "blocks" };
            let got = if self.reader.kind() == RingKind::C { counters.bytes } else { counters.blocks };
            tell!("warning: {name}: {} {unit} were lost, {got} were read: this reader was overtaken", counters.lost);
        }
    }
}

/// Writes to whoever has the FIFO open, and to the next where that one went.
fn write_to_fifo(path: &Path, fifo: &mut OwnedFd, bytes: &[u8], stop: &StopFlag) -> Result<io::Result<bool>, Trouble> {
    loop {
        match fifo::write_all(&*fifo, bytes, stop) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => match fifo::open_to_write(path, stop)? {
                Some(next) => *fifo = next,
                None => return Ok(Ok(false)),
            },
            outcome => return Ok(outcome),
        }
    }
}
