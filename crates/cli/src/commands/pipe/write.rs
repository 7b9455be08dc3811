//! `streamline pipe write`: standard input, or a FIFO, into a ring.

use super::{Trouble, fifo, options, stop};
use buffer::Descriptor;
use buffer::keeper::client::{Named, NamedWriter};
use buffer::ring::layout::Layout;
use buffer::ring::{NotWritten, RingKind, Signalling};
use filter::{Param, ParamType};
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use streamline::StopFlag;

/// Write standard input to a ring
#[derive(clap::Args)]
#[command(after_help = options::help(OPTIONS))]
pub(super) struct Args {
    /// The ring's name
    name: String,

    /// Options, as key=value
    options: Vec<String>,
}

const OPTIONS: &[Param] = &[
    Param::new("lines", ParamType::Flag, "each line is a block; else a block is what was read at once").default("no"),
    Param::new("no-wait", ParamType::Flag, "write whether or not anybody reads").default("no"),
    Param::new("batch", ParamType::Number, "wake sleeping readers once for so many blocks, and when the input pauses")
        .default("32"),
    Param::new("fifo", ParamType::Path, "make this FIFO, and write what programs write to it, until Ctrl-C"),
];

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let params = options::parse(&args.options, OPTIONS)?;
    let with = Trouble::with(&args.name);
    let batch = u32::try_from(params.number("batch").unwrap_or(1)).unwrap_or(u32::MAX);
    let signalling = if batch <= 1 { Signalling::Every } else { Signalling::Batched(batch) };
    let named = Named::at(&args.name).map_err(&with)?;
    let stop = stop::listen()?;
    let input: Input = match params.text("fifo").map(Path::new) {
        Some(path) => {
            fifo::make(path)?;
            let fifo: OwnedFd = fifo::open_to_read(path)?;
            Box::new(move |buffer, wait_ms| hear(&fifo, buffer, wait_ms))
        }
        None => Box::new(|buffer, wait_ms| hear(io::stdin(), buffer, wait_ms)),
    };
    let writer = named.open_writer(signalling).map_err(&with)?;
    let mut writing = Writing { writer, stop, no_wait: params.flag("no-wait"), lines: params.flag("lines") };
    writing.run(input).map_err(|trouble| match trouble {
        Trouble::Failed(message) => Trouble::Failed(format!("{}: {message}", args.name)),
        other => other,
    })
}

/// Listens for input, so many milliseconds at most.
type Input = Box<dyn FnMut(&mut [u8], u16) -> io::Result<Heard>>;

/// What came of listening for input.
enum Heard {
    Bytes(usize),
    Pause,
    End,
}

fn hear(input: impl AsFd, buffer: &mut [u8], wait_ms: u16) -> io::Result<Heard> {
    if !fifo::is_ready(&input, PollFlags::IN, wait_ms) {
        return Ok(Heard::Pause);
    }
    match rustix::io::read(input, buffer) {
        Ok(0) => Ok(Heard::End),
        Ok(bytes) => Ok(Heard::Bytes(bytes)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Heard::Pause),
        Err(error) => Err(error.into()),
    }
}

struct Writing {
    writer: NamedWriter,
    stop: StopFlag,
    no_wait: bool,
    lines: bool,
}

/// Does it go on?
enum Then {
    GoOn,
    /// Nobody reads any more, or it was asked to stop.
    End,
}

impl Writing {
    fn run(&mut self, mut input: impl FnMut(&mut [u8], u16) -> io::Result<Heard>) -> Result<(), Trouble> {
        if let Then::End = self.wait_for_reader()? {
            return Ok(());
        }
        let failed = |error: io::Error| Trouble::Failed(format!("cannot read the input: {error}"));
        let mut buffer = vec![0; READ_BYTES];
        // The beginning of a line whose end has not come.
        let mut line = Vec::new();
        let mut quiet = false;
        while !self.stop.is_set() {
            // What is there is shown before the input is waited for.
            match input(&mut buffer, if quiet { stop::look_ms() } else { 0 }).map_err(failed)? {
                Heard::Pause => {
                    if !quiet {
                        self.writer.writer().flush();
                    }
                    quiet = true;
                    if self.is_deserted() {
                        return Ok(());
                    }
                }
                Heard::End => break,
                Heard::Bytes(bytes) => {
                    quiet = false;
                    let then = match self.lines {
                        true => self.write_lines(&mut line, &buffer[..bytes])?,
                        false => self.write_pieces(&buffer[..bytes])?,
                    };
                    if let Then::End = then {
                        return Ok(());
                    }
                }
            }
        }
        if !line.is_empty() {
            self.write_block(&line)?;
        }
        Ok(())
    }

    fn wait_for_reader(&mut self) -> Result<Then, Trouble> {
        if self.no_wait {
            return Ok(Then::GoOn);
        }
        while !self.stop.is_set() {
            match self.writer.wait_for_reader(None) {
                Ok(true) => return Ok(Then::GoOn),
                Ok(false) => {}
                // A signal: was it one that asks to stop?
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Failed(error.to_string())),
            }
        }
        Ok(Then::End)
    }

    /// Have all readers left?
    fn is_deserted(&mut self) -> bool {
        !self.no_wait && self.writer.writer().readers() == 0
    }

    fn write_pieces(&mut self, bytes: &[u8]) -> Result<Then, Trouble> {
        let most = usize::try_from(self.writer.writer().layout().block_bytes()).unwrap_or(usize::MAX);
        for piece in bytes.chunks(most.max(1)) {
            if let Then::End = self.write_block(piece)? {
                return Ok(Then::End);
            }
        }
        Ok(Then::GoOn)
    }

    fn write_lines(&mut self, line: &mut Vec<u8>, bytes: &[u8]) -> Result<Then, Trouble> {
        let most = self.writer.writer().layout().block_bytes();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.len() as u64 > most {
                return Err(Trouble::Failed(format!("a line is longer than the {most} bytes that a block can have")));
            }
            if line.ends_with(b"\n") {
                let then = self.write_block(line)?;
                line.clear();
                if let Then::End = then {
                    return Ok(Then::End);
                }
            }
        }
        Ok(Then::GoOn)
    }

    /// Writes one block (a stream: all of the bytes), however long its readers take.
    fn write_block(&mut self, mut bytes: &[u8]) -> Result<Then, Trouble> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
        let mut about = Descriptor { time, ..Descriptor::default() };
        about.set_wire(bytes.len() as u32);
        let is_stream = self.writer.geometry().kind == RingKind::C;
        loop {
            let writer = self.writer.writer();
            let outcome = if is_stream {
                writer.try_write_some(bytes).map(|written| bytes = &bytes[written..])
            } else {
                writer.try_write(about, bytes).map(|()| bytes = &[])
            };
            match outcome {
                Ok(()) if bytes.is_empty() => return Ok(if self.is_deserted() { Then::End } else { Then::GoOn }),
                Ok(()) => {}
                // Counted by the ring, which a reader asked for.
                Err(NotWritten::Dropped) => return Ok(Then::GoOn),
                Err(NotWritten::TooLong) => {
                    return Err(Trouble::Failed("a block is longer than the ring".to_string()));
                }
                Err(NotWritten::WouldBlock) => {
                    let waited = writer.wait_for_room(bytes.len() as u64, stop::next_look());
                    if self.stop.is_set() || self.is_deserted() {
                        return Ok(Then::End);
                    }
                    if waited.is_err() && !self.writer.is_kept() {
                        return Err(Trouble::Failed("the ring's keeper died, and a reader does not go on".to_string()));
                    }
                }
            }
        }
    }
}
