//! `streamline pipe read`: writes a ring's blocks to standard output, or to a FIFO.

use super::fifo::{self, Fifo};
use super::stop::{SOON, Stop};
use super::{gone, options};
use crate::exit::{CommandError, Outcome};
use buffer::keeper::client::Named;
use buffer::pipe::{End, PipeReader};
use buffer::ring::{From, OnFull, RingKind};
use filter::{Param, ParamType};
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Write the blocks of a ring to standard output
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

const GATHER_BYTES: usize = 256 << 10;

pub(super) fn run(args: &Args) -> Outcome {
    let params = options::parse(&args.options, OPTIONS)?;
    let contract: OnFull = params.text("on-full").unwrap_or_default().parse().map_err(CommandError::Wrong)?;
    let from = if params.text("from") == Some("oldest") { From::Oldest } else { From::Next };
    if from == From::Oldest && contract.holds() {
        return Err(CommandError::Wrong(format!(
            "from=oldest: a reader with on-full={} begins at the next block, for what is there may be overwritten at any \
             time; read with on-full=overwrite or shared",
            contract.name()
        )));
    }
    let with = super::with(&args.name);
    let named = Named::at(&args.name).map_err(&with)?;
    let stop = Stop::listen()?;
    // Report a missing ring before waiting for a writer or a reader of the FIFO.
    named.state().map_err(&with)?;
    let fifo = params.text("fifo").map(Path::new).map(fifo::make).transpose()?;
    let output = match &fifo {
        Some(fifo) => match fifo.open_to_write(&stop)? {
            Some(output) => output,
            None => return Ok(()),
        },
        None => fifo::standard_output()
            .map_err(|error| CommandError::Failed(format!("cannot write to standard output: {error}")))?,
    };
    let Some(reader) = open(&named, contract, from, &stop, &with)? else { return Ok(()) };
    let mut reading = Reading {
        name: &args.name,
        named,
        reader,
        granted: contract,
        demoted: false,
        overtaken: false,
        deaths_told: 0,
        output,
        fifo,
        stop,
        gathered: Vec::with_capacity(GATHER_BYTES),
    };
    let outcome = reading.run();
    reading.tell_losses();
    outcome.map_err(|error| error.about(&args.name))
}

/// Becomes a reader once the ring has a writer. `None`: `stop` was set before.
pub(super) fn open(
    named: &Named,
    contract: OnFull,
    from: From,
    stop: &Stop,
    with: impl Fn(io::Error) -> CommandError,
) -> Result<Option<PipeReader>, CommandError> {
    let mut asked = named.ask_to_read(contract, from, None).map_err(&with)?;
    while !stop.is_set() {
        stop.sleep(&[(asked.answer_fd(), PollFlags::IN)])?;
        asked = match asked.answer(Some(Instant::now())).map_err(&with)? {
            Ok(reader) => {
                let mut reader = PipeReader::new(named.clone(), reader);
                reader.set_non_blocking(true);
                return Ok(Some(reader));
            }
            Err(asked) => asked,
        };
    }
    Ok(None)
}

/// Whether the command goes on.
enum Then {
    GoOn,
    End,
}

struct Reading<'a> {
    name: &'a str,
    named: Named,
    reader: PipeReader,
    granted: OnFull,
    /// Events already reported: the demotion of this reader, its first loss, and the number of dead writers.
    demoted: bool,
    overtaken: bool,
    deaths_told: u64,
    output: OwnedFd,
    /// The FIFO, if the output is one. It is reopened for the next reader.
    fifo: Option<Fifo>,
    stop: Stop,
    gathered: Vec<u8>,
}

impl Reading<'_> {
    fn run(&mut self) -> Outcome {
        while !self.stop.is_set() {
            // Copy blocks for one large write. Blocks gathered before the end are written before the end is handled.
            let outcome = self.reader.copy_blocks_to(&mut self.gathered, GATHER_BYTES);
            if let Then::End = self.write_out()? {
                return Ok(());
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => return self.ended(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Then::End = self.sleep()? {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Err(gone(&self.named)),
                Err(error) => return Err(CommandError::Failed(error.to_string())),
            }
        }
        Ok(())
    }

    /// The result when the ring has ended and everything was read.
    fn ended(&self) -> Outcome {
        match self.reader.end() {
            Some(End::WriterDied) => {
                Err(CommandError::Failed("the writer died: blocks that it had not published are missing".into()))
            }
            Some(End::Removed) => Err(CommandError::Failed("the ring was removed".into())),
            Some(End::Unkept) => Err(gone(&self.named)),
            Some(End::Closed) | None => Ok(()),
        }
    }

    /// Sleeps until there is something to read or to report, for any time.
    fn sleep(&mut self) -> Result<Then, CommandError> {
        let failed = |error: io::Error| CommandError::Failed(error.to_string());
        if self.reader.wait(SOON).is_ok_and(|is_due| !is_due) {
            // A ring that ends with its writer would have reported the end by now. This one waits for the next writer.
            self.note_deaths();
            let reader = self.reader.poll_fd().map_err(failed)?;
            let mut files = vec![(reader, PollFlags::IN)];
            if self.fifo.is_none() {
                // Watch for a closed standard output even while no blocks come.
                files.push((self.output.as_fd(), PollFlags::empty()));
            }
            self.stop.sleep(&files)?;
            self.reader.close_poll_fd();
        }
        Ok(if self.fifo.is_none() && fifo::is_closed(&self.output) { Then::End } else { Then::GoOn })
    }

    fn write_out(&mut self) -> Result<Then, CommandError> {
        self.note_error();
        let written = loop {
            let written = fifo::write_all(&self.output, &self.gathered, &self.stop)?;
            match (&self.fifo, &written) {
                // The FIFO's reader has gone. The next one gets the whole gathered piece again, which begins with a
                // whole block.
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
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Then::End),
            Err(error) => Err(CommandError::Failed(format!("cannot write: {error}"))),
        }
    }

    /// This reader as `ls` lists it.
    fn who(&self) -> String {
        format!("the reader in process {} (on-full={})", std::process::id(), self.granted.name())
    }

    /// Warns once of a demotion and of losses. [`Self::tell_losses`] gives the numbers at the end.
    fn note_error(&mut self) {
        let stat = self.reader.stat();
        if !self.demoted && stat.contract != self.granted {
            self.demoted = true;
            tell!(
                "warning: {}: {} held the full ring for longer than the ring's hold-limit; it goes on with \
                 on-full=overwrite",
                self.name,
                self.who()
            );
        }
        if !self.overtaken && stat.ring.lost > 0 {
            self.overtaken = true;
            tell!("warning: {}: {} was overtaken and loses what it does not read in time", self.name, self.who());
        }
    }

    /// Warns of dead writers if the ring goes on with others.
    fn note_deaths(&mut self) {
        let deaths = self.reader.stat().writers_died;
        if deaths > self.deaths_told {
            tell!("warning: {}: the writer died: blocks that it had not published are missing", self.name);
            // The new writer's ring has not demoted this reader.
            (self.deaths_told, self.demoted) = (deaths, false);
        }
    }

    fn tell_losses(&mut self) {
        self.note_error();
        let (name, stat) = (self.name, self.reader.stat());
        if stat.refused > 0 {
            tell!(
                "warning: {name}: {} blocks are left out: they lie in other rings, which are gone or may not be read by this user",
                stat.refused
            );
        }
        if stat.lost_elsewhere > 0 {
            tell!("warning: {name}: {} blocks were overwritten in the rings they lie in", stat.lost_elsewhere);
        }
        if stat.ring.lost > 0 {
            let unit = if stat.kind == RingKind::C { "bytes" } else { "blocks" };
            let got = if stat.kind == RingKind::C { stat.ring.bytes } else { stat.ring.blocks };
            tell!(
                "warning: {name}: {} {unit} were lost, {got} were read: {} was overtaken",
                stat.ring.lost,
                self.who()
            );
        }
    }
}
