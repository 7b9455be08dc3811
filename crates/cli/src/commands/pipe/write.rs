//! `streamline pipe write`: standard input, or a FIFO, into a ring.

use super::{Trouble, fifo, gone, options, stop};
use buffer::Descriptor;
use buffer::keeper::client::{Named, NamedWriter};
use buffer::ring::layout::Layout;
use buffer::ring::{NotWritten, RingKind, Signalling};
use filter::{Param, ParamType};
use rustix::event::PollFlags;
use std::io;
use std::os::fd::AsFd;
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
    Param::new(
        "fifo",
        ParamType::Path,
        "make this FIFO, and write what one program after another writes to it, until Ctrl-C; also while nobody reads it waits",
    ),
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
    let writer = named.open_writer(signalling).map_err(&with)?;
    let fifo = params.text("fifo").map(Path::new).map(fifo::make).transpose()?;
    let input: Input = match &fifo {
        Some(fifo) => {
            let opened = fifo.open_to_read()?;
            Box::new(move |buffer, wait_ms| hear(&opened, buffer, wait_ms))
        }
        None => Box::new(|buffer, wait_ms| hear(io::stdin(), buffer, wait_ms)),
    };
    let mut writing = Writing {
        named,
        writer,
        stop,
        no_wait: params.flag("no-wait"),
        outlives_readers: fifo.is_some(),
        lines: params.flag("lines"),
        read_bytes: 0,
        done_bytes: 0,
    };
    let outcome = writing.run(input);
    writing.tell_losses(&args.name);
    outcome.map_err(|trouble| trouble.about(&args.name))
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
    named: Named,
    writer: NamedWriter,
    stop: StopFlag,
    no_wait: bool,
    /// When all readers have left, it waits for the next one.
    outlives_readers: bool,
    lines: bool,
    /// Bytes of input.
    read_bytes: u64,
    /// Bytes of it that are written, or dropped by the ring's own count.
    done_bytes: u64,
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
                    if let Then::End = self.look_for_readers()? {
                        return Ok(());
                    }
                }
                Heard::End => break,
                Heard::Bytes(bytes) => {
                    if !self.writer.is_kept() {
                        return Err(gone(&self.named));
                    }
                    quiet = false;
                    self.read_bytes += bytes as u64;
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
            match self.writer.wait_for_reader(stop::next_look()) {
                Ok(true) => return Ok(Then::GoOn),
                Ok(false) => {}
                // A signal: was it one that asks to stop?
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if !self.writer.is_kept() => return Err(gone(&self.named)),
                Err(error) => return Err(Trouble::Failed(error.to_string())),
            }
        }
        Ok(Then::End)
    }

    /// Have all readers left? Then it ends, or waits for the next. Is the keeper gone? Then nobody can come, or be missed.
    fn look_for_readers(&mut self) -> Result<Then, Trouble> {
        if !self.writer.is_kept() {
            return Err(gone(&self.named));
        }
        match self.is_deserted() {
            true if self.outlives_readers => self.wait_for_reader(),
            true => Ok(Then::End),
            false => Ok(Then::GoOn),
        }
    }

    fn is_deserted(&mut self) -> bool {
        // Asked in any case: that is how the writer meets who came while it was quiet.
        self.writer.writer().readers() == 0 && !self.no_wait
    }

    fn write_pieces(&mut self, bytes: &[u8]) -> Result<Then, Trouble> {
        // A block of most of the ring leaves the writer nothing to do while it is read, and an Overwrite reader nothing to
        // read; slots are as long as they are.
        let geometry = self.writer.geometry();
        let most = self.writer.writer().layout().block_bytes();
        let most = if geometry.kind == RingKind::P { most } else { most.min(geometry.payload_bytes / 4) };
        for piece in bytes.chunks(usize::try_from(most).unwrap_or(usize::MAX).max(1)) {
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
        if self.is_deserted()
            && let Then::End = self.look_for_readers()?
        {
            return Ok(Then::End);
        }
        let all = bytes.len() as u64;
        loop {
            let writer = self.writer.writer();
            let outcome = if is_stream {
                writer.try_write_some(bytes).map(|written| bytes = &bytes[written..])
            } else {
                writer.try_write(about, bytes).map(|()| bytes = &[])
            };
            match outcome {
                Ok(()) if !bytes.is_empty() => {}
                // Dropped: counted by the ring, which a reader asked for.
                Ok(()) | Err(NotWritten::Dropped) => {
                    self.done_bytes += all;
                    return Ok(Then::GoOn);
                }
                Err(refused @ (NotWritten::TooLong | NotWritten::CannotName | NotWritten::Removed)) => {
                    return Err(Trouble::Failed(refused.to_string()));
                }
                Err(NotWritten::WouldBlock) => {
                    let waited = writer.wait_for_room(bytes.len() as u64, stop::next_look());
                    if self.stop.is_set() {
                        return Ok(Then::End);
                    }
                    if (waited.is_err() || self.is_deserted())
                        && let Then::End = self.look_for_readers()?
                    {
                        return Ok(Then::End);
                    }
                }
            }
        }
    }

    fn tell_losses(&mut self, name: &str) {
        let counters = self.writer.writer().counters();
        if counters.dropped > 0 {
            let unit = if self.writer.geometry().kind == RingKind::C { "bytes" } else { "blocks" };
            tell!(
                "warning: {name}: {} {unit} were dropped: a reader with on-full=drop-newest was behind",
                counters.dropped
            );
        }
        if counters.demoted > 0 {
            tell!(
                "warning: {name}: {} readers held the full ring for longer than its hold-limit, and were overtaken",
                counters.demoted
            );
        }
        let missing = self.read_bytes.saturating_sub(self.done_bytes);
        if self.stop.is_set() && missing > 0 {
            tell!("warning: {name}: stopped while the ring was full: the last {missing} bytes of input are not in it");
        }
    }
}
