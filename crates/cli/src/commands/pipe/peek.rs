//! `streamline pipe peek`: shows the content of a ring, without taking it from a reader.

use super::stop::Stop;
use super::{fifo, gone, options, read};
use crate::exit::{CommandError, Outcome};
use crate::print_text;
use buffer::Descriptor;
use buffer::keeper::client::Named;
use buffer::pipe::{End, PipeReader};
use buffer::ring::{From, Nothing, OnFull, Reader, RingKind};
use filter::{Param, ParamType};
use rustix::event::PollFlags;
use std::fmt::Write;
use std::io;
use std::os::fd::AsFd;

/// Show the content of a ring, one line for each block, without taking it from a reader
#[derive(clap::Args)]
#[command(after_help = options::help(OPTIONS))]
pub(super) struct Args {
    /// The ring's name
    name: String,

    /// Options, as key=value
    options: Vec<String>,
}

const OPTIONS: &[Param] = &[Param::new(
    "follow",
    ParamType::Flag,
    "go on with new blocks, until Ctrl-C or the writer's end; the writer never waits for this reader",
)
.default("no")];

/// The most bytes of a block that are shown. For a stream: the bytes of a line.
const SHOWN_BYTES: u32 = 48;

const TEXT_BYTES: usize = 64 << 10;

pub(super) fn run(args: &Args) -> Outcome {
    let params = options::parse(&args.options, OPTIONS)?;
    let named = Named::at(&args.name).map_err(super::with(&args.name))?;
    let stop = Stop::listen()?;
    let outcome = if params.flag("follow") { follow(&named, &stop) } else { glance(&named, &stop) };
    let lost = outcome.map_err(|error| match error {
        Ended::CommandError(error) => error.about(&args.name),
        Ended::System(error) => super::with(&args.name)(error),
    })?;
    if lost > 0 {
        tell!("warning: {}: {lost} were overwritten before they could be shown", args.name);
    }
    Ok(())
}

enum Ended {
    System(io::Error),
    CommandError(CommandError),
}

/// Prints the present content. Returns how many blocks were lost.
fn glance(named: &Named, stop: &Stop) -> Result<u64, Ended> {
    let state = named.state().map_err(Ended::System)?;
    let mut reader = match named.glance(state.generation) {
        // The ring was never written.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
        reader => reader.map_err(Ended::System)?,
    };
    // Stop at the present end, even if the writer goes on.
    while !stop.is_set()
        && !fifo::is_closed(io::stdout())
        && show(&mut reader, state.head, state.written.header_bytes)?.is_none()
    {}
    Ok(reader.counters().lost)
}

/// Prints the present content and all later blocks. Returns how many blocks were lost.
fn follow(named: &Named, stop: &Stop) -> Result<u64, Ended> {
    let opened =
        read::open(named, OnFull::Overwrite, From::Oldest, stop, |error| CommandError::Failed(error.to_string()));
    let Some(mut reader) = opened.map_err(Ended::CommandError)? else { return Ok(0) };
    while !stop.is_set() && !fifo::is_closed(io::stdout()) {
        let (text, outcome) = gather(&mut reader);
        print(&text)?;
        match outcome {
            Ok(true) => {}
            Ok(false) if matches!(reader.end(), Some(End::Removed | End::Unkept)) => {
                return Err(Ended::CommandError(gone(named)));
            }
            Ok(false) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let stdout = io::stdout();
                let fd = reader.poll_fd().map_err(Ended::System)?;
                stop.sleep(&[(fd, PollFlags::IN), (stdout.as_fd(), PollFlags::empty())])
                    .map_err(Ended::CommandError)?;
                reader.close_poll_fd();
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Err(Ended::CommandError(gone(named))),
            Err(error) => return Err(Ended::System(error)),
        }
    }
    let stat = reader.stat();
    Ok(stat.ring.lost + stat.lost_elsewhere)
}

/// The lines of some blocks. `false` at the end of the ring, an error if there is no block now.
fn gather(reader: &mut PipeReader) -> (String, io::Result<bool>) {
    let mut text = String::new();
    while text.len() <= TEXT_BYTES {
        let block = match reader.peek() {
            Ok(Some(block)) if reader.stat().kind == RingKind::C => block.first(SHOWN_BYTES as usize),
            Ok(Some(block)) => block,
            Ok(None) => return (text, Ok(false)),
            Err(error) => return (text, Err(error)),
        };
        let mut first = [0; SHOWN_BYTES as usize];
        let shown = reader.look_at(&block).map(|bytes| bytes.copy_to(&mut first));
        let (whole, known) = (block.position(), block.descriptor());
        match shown {
            Ok(shown) if reader.release(&block).is_ok() => line(&mut text, whole, &known, &first[..shown], ""),
            Ok(_) => {}
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::PermissionDenied => "(in another ring, which this user may not read)",
                    _ => "(in a ring that is gone)",
                };
                let overwritten = reader.stat().lost_elsewhere;
                if reader.skip(&block).is_ok() && reader.stat().lost_elsewhere == overwritten {
                    line(&mut text, whole, &known, &[], why);
                }
            }
        }
    }
    (text, Ok(true))
}

fn line(text: &mut String, position: u64, known: &Descriptor, shown: &[u8], instead: &str) {
    let time = match known.time {
        0 => "-".to_string(),
        time => String::from_utf8_lossy(&packet::time::rfc3339(time)).into_owned(),
    };
    let more = match known.len as usize > shown.len() {
        true if instead.is_empty() => "...",
        _ => instead,
    };
    let _ = writeln!(text, "{position:>10} {time} {:>6} bytes  {}{more}", known.len, shown.escape_ascii());
}

fn print(text: &str) -> Result<(), Ended> {
    if text.is_empty() { Ok(()) } else { print_text(text).map_err(Ended::CommandError) }
}

/// Prints some blocks that begin before `end`, without their headers. Returns why there is no further block, or `None`
/// if there may be one.
fn show(reader: &mut Reader, end: u64, header_bytes: u32) -> Result<Option<Nothing>, Ended> {
    let mut text = String::new();
    let nothing = loop {
        let seen = match reader.peek() {
            Ok(seen) if seen.position < end => reader.first(seen, SHOWN_BYTES),
            Ok(_) => break Some(Nothing::Yet),
            Err(Nothing::Damaged) => {
                let text = "the ring's writer published values that make no sense: it is broken or hostile";
                return Err(Ended::CommandError(CommandError::Failed(text.to_string())));
            }
            Err(nothing) => break Some(nothing),
        };
        let mut first = [0; SHOWN_BYTES as usize];
        let len = seen.block.len.saturating_sub(header_bytes);
        let mut bytes =
            |reader: &Reader| reader.bytes(&seen).part(header_bytes as usize, len as usize).copy_to(&mut first);
        let shown = if seen.elsewhere { 0 } else { bytes(reader) };
        if reader.take(&seen).is_ok() {
            // The payload is in another ring. Only a registered reader may ask that ring's keeper, and `peek` is none.
            let instead = if seen.elsewhere { "(in another ring)" } else { "" };
            line(&mut text, seen.position, &seen.block.part(header_bytes, len), &first[..shown], instead);
        }
        if text.len() > TEXT_BYTES {
            break None;
        }
    };
    print(&text)?;
    Ok(nothing)
}
