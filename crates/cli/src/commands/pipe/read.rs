//! `streamline pipe read`: a ring to standard output, or to a FIFO.

use super::fifo::{self, Fifo};
use super::{Trouble, gone, options, stop};
use buffer::keeper::client::{Named, NamedReader};
use buffer::ring::{From, Nothing, OnFull, RingKind};
use filter::{Param, ParamType};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
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

/// How long a keeper that removes its ring takes to end, at most; longer, and it was the writer that died.
const REMOVAL: Duration = Duration::from_millis(200);

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
    // What is not there is said before anybody is waited for.
    named.state().map_err(&with)?;
    let fifo = params.text("fifo").map(Path::new).map(fifo::make).transpose()?;
    let output = match &fifo {
        Some(fifo) => match fifo.open_to_write(&stop)? {
            Some(output) => output,
            None => return Ok(()),
        },
        None => fifo::standard_output()
            .map_err(|error| Trouble::Failed(format!("cannot write to standard output: {error}")))?,
    };
    let reader = loop {
        match named.open_reader(contract, from, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && stop.is_set() => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome.map_err(&with)?,
        }
    };
    let mut reading = Reading {
        name: &args.name,
        named,
        reader,
        granted: contract,
        demoted: false,
        overtaken: false,
        elsewhere: 0,
        output,
        fifo,
        stop,
        gathered: Vec::with_capacity(GATHER_BYTES),
    };
    let outcome = reading.run();
    reading.tell_losses();
    outcome.map_err(|trouble| trouble.about(&args.name))
}

/// Does it go on?
enum Then {
    GoOn,
    End,
}

struct Reading<'a> {
    name: &'a str,
    named: Named,
    reader: NamedReader,
    granted: OnFull,
    /// It was told that this reader was demoted; that it lost something.
    demoted: bool,
    overtaken: bool,
    /// Blocks that lie in other rings.
    elsewhere: u64,
    output: OwnedFd,
    /// Where the output is this FIFO, it is opened again for whoever comes next.
    fifo: Option<Fifo>,
    stop: StopFlag,
    gathered: Vec<u8>,
}

impl Reading<'_> {
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
            match nothing {
                Nothing::Yet => {
                    if since.elapsed() > DEAD && !self.reader.is_kept() {
                        return Err(gone(&self.named));
                    }
                    // What it says is seen again by the next look.
                    let _ = self.reader.reader().wait(stop::next_look());
                    // Standard output that nobody reads any more is noticed also when nothing comes.
                    if self.fifo.is_none() && fifo::is_closed(&self.output) {
                        return Ok(());
                    }
                }
                Nothing::Damaged => {
                    return Err(Trouble::Failed(
                        "what the writer says makes no sense: it is broken or hostile".to_string(),
                    ));
                }
                Nothing::Removed => return Err(Trouble::Failed("the ring was removed".to_string())),
                Nothing::Ended | Nothing::Moved | Nothing::Retired => {
                    if let Then::End = self.go_on_after(nothing)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The writer is gone, or went on in another ring.
    fn go_on_after(&mut self, nothing: Nothing) -> Result<Then, Trouble> {
        if nothing == Nothing::Retired {
            // A keeper that removes its ring says so before it ends.
            let since = Instant::now();
            while self.reader.is_kept() && since.elapsed() < REMOVAL {
                std::thread::sleep(REMOVAL / 20);
            }
        }
        if !self.reader.is_kept() {
            return Err(gone(&self.named));
        }
        if nothing == Nothing::Retired {
            let text = "the writer died: what it had not published is missing";
            if !self.named.state().is_ok_and(|state| state.keep_open) {
                return Err(Trouble::Failed(text.to_string()));
            }
            tell!("warning: {}: {text}", self.name);
        }
        match self.reader.next_generation(None) {
            Ok(true) => {
                // The new writer knows nothing of a demotion in the ring before.
                self.demoted = false;
                Ok(Then::GoOn)
            }
            Ok(false) if !self.reader.is_kept() => Err(gone(&self.named)),
            Ok(false) => Ok(Then::End),
            // A signal: the loop looks whether it asks to stop.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Then::GoOn),
            Err(_) if !self.reader.is_kept() => Err(gone(&self.named)),
            Err(error) => Err(Trouble::Failed(error.to_string())),
        }
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
            if seen.elsewhere {
                self.elsewhere += 1;
            } else {
                let bytes = reader.bytes(&seen);
                self.gathered.resize(at + bytes.len(), 0);
                bytes.copy_to(&mut self.gathered[at..]);
            }
            if reader.take(&seen).is_err() {
                // Overwritten while it was copied; it counts as lost.
                self.gathered.truncate(at);
            }
        }
        // Writing may take long: the ring's writer need not wait for that.
        reader.tell();
        Ok(())
    }

    fn write_out(&mut self) -> Result<Then, Trouble> {
        self.note_trouble();
        let written = loop {
            let written = fifo::write_all(&self.output, &self.gathered, &self.stop);
            match (&self.fifo, &written) {
                // Whoever had the FIFO open went: the next one gets the blocks that were not written as a whole.
                (Some(fifo), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    match fifo.open_to_write(&self.stop)? {
                        Some(next) => self.output = next,
                        None => return Ok(Then::End),
                    }
                }
                _ => break written,
            }
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

    /// Tells once what is told again, with numbers, at the end.
    fn note_trouble(&mut self) {
        if !self.demoted && self.reader.reader().contract() != self.granted {
            self.demoted = true;
            tell!(
                "warning: {}: this reader held the full ring for longer than the ring's hold-limit; it goes on with \
                 on-full=overwrite",
                self.name
            );
        }
        if !self.overtaken && self.reader.reader().counters().lost > 0 {
            self.overtaken = true;
            tell!("warning: {}: this reader was overtaken and loses what it does not read in time", self.name);
        }
    }

    fn tell_losses(&mut self) {
        self.note_trouble();
        let name = self.name;
        if self.elsewhere > 0 {
            tell!("warning: {name}: {} blocks that lie in other rings are left out", self.elsewhere);
        }
        let counters = self.reader.reader().counters();
        if counters.lost > 0 {
            let unit = if self.reader.kind() == RingKind::C { "bytes" } else { "blocks" };
            let got = if self.reader.kind() == RingKind::C { counters.bytes } else { counters.blocks };
            tell!("warning: {name}: {} {unit} were lost, {got} were read: this reader was overtaken", counters.lost);
        }
    }
}
