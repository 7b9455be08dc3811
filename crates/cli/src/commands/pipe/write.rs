//! `streamline pipe write`: writes standard input, or a FIFO, to a ring.

use super::stop::{SOON, Stop};
use super::{fifo, gone, options};
use crate::exit::{CommandError, Outcome};
use buffer::Descriptor;
use buffer::keeper::client::Named;
use buffer::pipe::{OpenOptions, PipeWriter};
use buffer::ring::{ActiveWindow, RingKind, Signalling};
use filter::{Param, ParamType};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

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
    Param::new("lines", ParamType::Flag, "each line is a block; else the bytes of one read are a block").default("no"),
    Param::new("no-wait", ParamType::Flag, "write even without readers").default("no"),
    Param::new("batch", ParamType::Number, "wake sleeping readers once for this many blocks, and when the input pauses")
        .default("32"),
    Param::new(
        "window",
        ParamType::Choice(&["whole", "auto"]),
        "how much of a d-ring is in use: all of it, or as little as will do while readers keep up, so that it stays in the cache",
    )
    .default("whole"),
    Param::new(
        "fifo",
        ParamType::Path,
        "make this FIFO, and write what one program after another writes to it, until Ctrl-C; also while nobody reads it waits; \
         with lines=yes a last line without its end gets one, if its program closes the FIFO before the next one opens it",
    ),
];

const READ_BYTES: usize = 64 << 10;

pub(super) fn run(args: &Args) -> Outcome {
    let params = options::parse(&args.options, OPTIONS)?;
    let with = super::with(&args.name);
    let batch = u32::try_from(params.number("batch").unwrap_or(1)).unwrap_or(u32::MAX);
    let signalling = if batch <= 1 { Signalling::Every } else { Signalling::Batched(batch) };
    let no_wait = params.flag("no-wait");
    let named = Named::at(&args.name).map_err(&with)?;
    let stop = Stop::listen()?;
    let options = OpenOptions::new().signalling(signalling).needs_readers(!no_wait).non_blocking(true);
    let options = if params.text("window") == Some("auto") { options.window(ActiveWindow::AUTO) } else { options };
    let writer = options.write(&args.name).map_err(&with)?;
    let news = writer.news_fd().map_err(&with)?;
    let input = match params.text("fifo").map(Path::new).map(fifo::make).transpose()? {
        Some(fifo) => Input::Fifo(fifo.open_to_read()?),
        None => Input::Standard(io::stdin()),
    };
    let mut writing = Writing {
        named,
        writer,
        news,
        stop,
        no_wait,
        outlives_readers: matches!(input, Input::Fifo(_)),
        lines: params.flag("lines"),
        read_bytes: 0,
        done_bytes: 0,
    };
    let outcome = writing.run(input);
    writing.tell_losses(&args.name);
    outcome.map_err(|error| error.about(&args.name))
}

enum Input {
    Standard(io::Stdin),
    Fifo(fifo::Input),
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Input::Standard(stdin) => stdin.as_fd(),
            Input::Fifo(fifo) => fifo.as_fd(),
        }
    }
}

enum Heard {
    Bytes(usize),
    Pause,
    End,
}

impl Input {
    fn hear(&self, buffer: &mut [u8]) -> Result<Heard, CommandError> {
        if !fifo::is_readable(self) {
            return Ok(Heard::Pause);
        }
        match rustix::io::read(self, buffer) {
            Ok(0) => Ok(Heard::End),
            Ok(bytes) => Ok(Heard::Bytes(bytes)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Heard::Pause),
            Err(error) => Err(CommandError::Failed(format!("cannot read the input: {}", io::Error::from(error)))),
        }
    }
}

/// How long a writer waits for a reader before it says so.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

struct Writing {
    named: Named,
    writer: PipeWriter,
    /// Becomes readable when readers come or go, and when the keeper ends.
    news: OwnedFd,
    stop: Stop,
    no_wait: bool,
    /// When all readers have left, the command waits for the next one.
    outlives_readers: bool,
    lines: bool,
    read_bytes: u64,
    /// Bytes of input that are written, or that the ring counted as dropped.
    done_bytes: u64,
}

/// Whether the command goes on.
enum Then {
    GoOn,
    /// All readers have gone, or a signal asked to stop.
    End,
}

impl Writing {
    fn run(&mut self, mut input: Input) -> Outcome {
        if let Then::End = self.wait_for_reader()? {
            return Ok(());
        }
        let mut buffer = vec![0; READ_BYTES];
        // The beginning of an unfinished line.
        let mut line = Vec::new();
        while !self.stop.is_set() {
            match input.hear(&mut buffer)? {
                Heard::Pause => {
                    // Wake readers for the written blocks before waiting for input.
                    self.writer.flush_signals();
                    if let Then::End = self.look_for_readers()? {
                        return Ok(());
                    }
                    self.stop.sleep(&[(input.as_fd(), PollFlags::IN), (self.news.as_fd(), PollFlags::IN)])?;
                }
                Heard::End => {
                    let Input::Fifo(fifo) = &mut input else { break };
                    fifo.await_next()?;
                    // An unfinished line of one program must not continue with the next program's line.
                    if !line.is_empty() {
                        line.push(b'\n');
                        if let Then::End = self.write_line(&mut line)? {
                            return Ok(());
                        }
                    }
                }
                Heard::Bytes(bytes) => {
                    if !self.writer.is_kept() {
                        return Err(gone(&self.named));
                    }
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

    fn wait_for_reader(&mut self) -> Result<Then, CommandError> {
        if !self.no_wait && self.writer.readers() == 0 {
            // A reader that starts together with this command is there by then.
            let mut polled = [PollFd::new(&self.news, PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, Some(&PATIENCE));
            if self.writer.readers() == 0 && !self.stop.is_set() {
                tell!("note: waiting for a reader of the ring (no-wait=yes writes without one)");
            }
        }
        while !self.no_wait && self.writer.readers() == 0 {
            if self.stop.is_set() {
                return Ok(Then::End);
            }
            if !self.writer.is_kept() {
                return Err(gone(&self.named));
            }
            self.stop.sleep(&[(self.news.as_fd(), PollFlags::IN)])?;
        }
        Ok(Then::GoOn)
    }

    /// If all readers have left: ends, or waits for the next one. An error if the keeper is gone: then no reader can come.
    fn look_for_readers(&mut self) -> Result<Then, CommandError> {
        if !self.writer.is_kept() {
            return Err(gone(&self.named));
        }
        // Always ask for the readers: this is how the writer registers readers that came while there was no input.
        match self.writer.readers() == 0 && !self.no_wait {
            true if self.outlives_readers => self.wait_for_reader(),
            true => Ok(Then::End),
            false => Ok(Then::GoOn),
        }
    }

    fn write_pieces(&mut self, bytes: &[u8]) -> Result<Then, CommandError> {
        // While a block that fills most of the ring is read, the writer has no room, and an Overwrite reader has no
        // other block to read. A p-ring has slots of a fixed length.
        let most = self.block_bytes();
        let most = if self.writer.kind() == RingKind::P { most } else { most / 4 };
        for piece in bytes.chunks(most.max(1)) {
            if let Then::End = self.write_block(piece)? {
                return Ok(Then::End);
            }
        }
        Ok(Then::GoOn)
    }

    fn block_bytes(&mut self) -> usize {
        usize::try_from(self.writer.stat().block_bytes).unwrap_or(usize::MAX)
    }

    fn write_lines(&mut self, line: &mut Vec<u8>, bytes: &[u8]) -> Result<Then, CommandError> {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            line.extend_from_slice(bytes);
            return self.check_line(line.len()).map(|()| Then::GoOn);
        };
        let (mut whole, begun) = bytes.split_at(end + 1);
        if !line.is_empty() {
            let rest = whole.iter().position(|byte| *byte == b'\n').map_or(whole.len(), |end| end + 1);
            line.extend_from_slice(&whole[..rest]);
            whole = &whole[rest..];
            if let Then::End = self.write_line(line)? {
                return Ok(Then::End);
            }
        }
        line.extend_from_slice(begun);
        self.check_line(line.len())?;
        if self.writer.kind() == RingKind::C {
            // A stream has no blocks: its lines need not be separate writes.
            return self.write_pieces(whole);
        }
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        self.check_line(lines.iter().map(|line| line.len()).max().unwrap_or(0))?;
        self.write_blocks(&lines)
    }

    /// An error if a line of this length does not fit into a block.
    fn check_line(&mut self, bytes: usize) -> Outcome {
        match self.block_bytes() {
            most if bytes > most => {
                Err(CommandError::Failed(format!("a line is longer than the {most} bytes that a block can have")))
            }
            _ => Ok(()),
        }
    }

    fn write_line(&mut self, line: &mut Vec<u8>) -> Result<Then, CommandError> {
        self.check_line(line.len())?;
        let then = self.write_block(line);
        line.clear();
        then
    }

    fn about() -> Descriptor {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
        Descriptor { time, ..Descriptor::default() }
    }

    /// Writes blocks that were read together, however slow their readers are.
    fn write_blocks(&mut self, mut blocks: &[&[u8]]) -> Result<Then, CommandError> {
        let about = Writing::about();
        while let Some(next) = blocks.first() {
            let room = next.len();
            match self.writer.write_blocks(about, blocks) {
                Ok(written) => {
                    self.done_bytes += blocks[..written].iter().map(|block| block.len() as u64).sum::<u64>();
                    blocks = &blocks[written..];
                }
                Err(error) => {
                    if let Then::End = self.go_on_after(&error, room)? {
                        return Ok(Then::End);
                    }
                }
            }
        }
        Ok(Then::GoOn)
    }

    /// Writes one block (to a stream: all bytes), however slow its readers are.
    fn write_block(&mut self, mut bytes: &[u8]) -> Result<Then, CommandError> {
        let about = Writing::about();
        while !bytes.is_empty() {
            match self.writer.write_block(about, bytes) {
                // Dropped bytes count as written: the ring drops and counts them because a reader asked for that.
                Ok(written) => {
                    self.done_bytes += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) => {
                    if let Then::End = self.go_on_after(&error, bytes.len())? {
                        return Ok(Then::End);
                    }
                }
            }
        }
        Ok(Then::GoOn)
    }

    /// Handles the error of a block of this size.
    fn go_on_after(&mut self, error: &io::Error, bytes: usize) -> Result<Then, CommandError> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.wait_for_room(bytes),
            io::ErrorKind::BrokenPipe => self.look_for_readers(),
            _ => Err(CommandError::Failed(error.to_string())),
        }
    }

    /// Sleeps until there is room for a block of this size (for a part of it, in a stream), for any time.
    fn wait_for_room(&mut self, bytes: usize) -> Result<Then, CommandError> {
        let room = if self.writer.kind() == RingKind::C { 1 } else { bytes };
        if !self.writer.wait_for_room(room, SOON) {
            let fd = self.writer.poll_fd(room).map_err(|error| CommandError::Failed(error.to_string()))?;
            self.stop.sleep(&[(fd, PollFlags::OUT), (self.news.as_fd(), PollFlags::IN)])?;
            self.writer.close_poll_fd();
        }
        if self.stop.is_set() { Ok(Then::End) } else { self.look_for_readers() }
    }

    fn tell_losses(&mut self, name: &str) {
        let counters = self.writer.stat().ring;
        if counters.dropped > 0 {
            let unit = if self.writer.kind() == RingKind::C { "bytes" } else { "blocks" };
            tell!(
                "warning: {name}: {} {unit} were dropped: a reader with on-full=drop-newest was behind",
                counters.dropped
            );
        }
        if counters.demoted > 0 {
            let (readers, were) = if counters.demoted == 1 { ("reader", "was") } else { ("readers", "were") };
            tell!(
                "warning: {name}: {} {readers} held the full ring for longer than its hold-limit, and {were} overtaken",
                counters.demoted
            );
        }
        let missing = self.read_bytes.saturating_sub(self.done_bytes);
        if self.stop.is_set() && missing > 0 {
            tell!("warning: {name}: stopped while the ring was full: the last {missing} bytes of input are not in it");
        }
    }
}
