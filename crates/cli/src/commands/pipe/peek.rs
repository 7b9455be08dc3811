//! `streamline pipe peek`: what is in a ring, without taking it from anybody.

use super::{Trouble, fifo, gone, options, stop};
use crate::{Exit, print_data};
use buffer::keeper::client::{Named, NamedReader};
use buffer::ring::{From, Nothing, OnFull, Reader};
use filter::{Param, ParamType};
use std::fmt::Write;
use std::io;
use streamline::StopFlag;

/// Show what is in a ring, one line for each block, without taking it from anybody
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
    "go on with what comes, until Ctrl-C or the writer's end; as a reader that never holds anybody",
)
.default("no")];

/// Bytes of a block that are shown; of a stream, bytes in a line.
const SHOWN_BYTES: u32 = 48;

/// Characters printed at once.
const TEXT_BYTES: usize = 64 << 10;

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let params = options::parse(&args.options, OPTIONS)?;
    let named = Named::at(&args.name).map_err(Trouble::with(&args.name))?;
    let stop = stop::listen()?;
    let outcome = if params.flag("follow") { follow(&named, &stop) } else { glance(&named, &stop) };
    let lost = outcome.map_err(|error| match error {
        Ended::Trouble(trouble) => trouble.about(&args.name),
        Ended::System(error) => Trouble::with(&args.name)(error),
    })?;
    if lost > 0 {
        tell!("warning: {}: {lost} were overwritten before they could be shown", args.name);
    }
    Ok(())
}

/// Why there is nothing more to show.
enum Ended {
    System(io::Error),
    Trouble(Trouble),
}

/// What is there now. Says how much could not be shown.
fn glance(named: &Named, stop: &StopFlag) -> Result<u64, Ended> {
    let state = named.state().map_err(Ended::System)?;
    let mut reader = match named.glance(state.generation) {
        // Nothing was ever written: nothing is in it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
        reader => reader.map_err(Ended::System)?,
    };
    // A writer that goes on writing is not followed.
    while !stop.is_set() && !fifo::is_closed(io::stdout()) && show(&mut reader, state.head)?.is_none() {}
    Ok(reader.counters().lost)
}

/// What is there, and what comes.
fn follow(named: &Named, stop: &StopFlag) -> Result<u64, Ended> {
    let mut reader: NamedReader = match named.open_reader(OnFull::Overwrite, From::Oldest, None) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
        reader => reader.map_err(Ended::System)?,
    };
    while !stop.is_set() && !fifo::is_closed(io::stdout()) {
        match show(reader.reader(), u64::MAX)? {
            None => {}
            Some(Nothing::Yet) => {
                if !reader.is_kept() {
                    return Err(Ended::Trouble(gone(named)));
                }
                // What it says is seen again by the next look.
                let _ = reader.reader().wait(stop::next_look());
            }
            Some(_) => match reader.next_generation(None) {
                Ok(true) => {}
                Ok(false) if reader.is_kept() => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if reader.is_kept() => return Err(Ended::System(error)),
                Ok(false) | Err(_) => return Err(Ended::Trouble(gone(named))),
            },
        }
    }
    Ok(reader.reader().counters().lost)
}

/// Prints some blocks, of those that begin before `end`; why there are no more, where there are none.
fn show(reader: &mut Reader, end: u64) -> Result<Option<Nothing>, Ended> {
    let mut text = String::new();
    let nothing = loop {
        let seen = match reader.peek() {
            Ok(seen) if seen.position < end => reader.first(seen, SHOWN_BYTES),
            Ok(_) => break Some(Nothing::Yet),
            Err(Nothing::Damaged) => {
                let text = "what the writer says makes no sense: it is broken or hostile";
                return Err(Ended::Trouble(Trouble::Failed(text.to_string())));
            }
            Err(nothing) => break Some(nothing),
        };
        let mut first = [0; SHOWN_BYTES as usize];
        let shown = if seen.elsewhere { 0 } else { reader.bytes(&seen).copy_to(&mut first) };
        if reader.take(&seen).is_ok() {
            let time = match seen.block.time {
                0 => "-".to_string(),
                time => String::from_utf8_lossy(&packet::time::rfc3339(time)).into_owned(),
            };
            let bytes = first[..shown].escape_ascii();
            let more = match seen.block.len as usize > shown {
                true if seen.elsewhere => "(in another ring)",
                true => "...",
                false => "",
            };
            let _ = writeln!(text, "{:>10} {time} {:>6} bytes  {bytes}{more}", seen.position, seen.block.len);
        }
        if text.len() > TEXT_BYTES {
            break None;
        }
    };
    if !text.is_empty() && print_data(&text) != Exit::Done {
        return Err(Ended::Trouble(Trouble::Told));
    }
    Ok(nothing)
}
