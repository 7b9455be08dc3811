//! `streamline pipe peek`: what is in a ring, without taking it from anybody.

use super::{Trouble, options, stop};
use crate::{Exit, print_data};
use buffer::keeper::client::Named;
use buffer::ring::{From, Nothing, OnFull};
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

const OPTIONS: &[Param] = &[Param::new("follow", ParamType::Flag, "go on with what comes, until Ctrl-C").default("no")];

/// Bytes of a block that are shown; of a stream, bytes in a line.
const SHOWN_BYTES: u32 = 48;

/// Lines printed at once.
const LINES: usize = 1000;

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let params = options::parse(&args.options, OPTIONS)?;
    let follow = params.flag("follow");
    let with = Trouble::with(&args.name);
    let named = Named::at(&args.name).map_err(&with)?;
    let stop = stop::listen()?;
    let now = Some(std::time::Instant::now());
    let mut reader = match named.open_reader(OnFull::Overwrite, From::Oldest, if follow { None } else { now }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
        // Nothing was ever written: nothing is in it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        reader => reader.map_err(&with)?,
    };
    show(&mut reader, follow, &stop)
}

fn show(reader: &mut buffer::keeper::client::NamedReader, follow: bool, stop: &StopFlag) -> Result<(), Trouble> {
    let mut text = String::new();
    while !stop.is_set() {
        let nothing = loop {
            let ring = reader.reader();
            let seen = match ring.peek() {
                Ok(seen) => ring.first(seen, SHOWN_BYTES),
                Err(nothing) => break nothing,
            };
            let mut first = [0; SHOWN_BYTES as usize];
            let shown = ring.bytes(&seen).copy_to(&mut first);
            if ring.take(&seen).is_ok() {
                let time = seen.block.time;
                let time = if time == 0 {
                    "-".to_string()
                } else {
                    String::from_utf8_lossy(&packet::time::rfc3339(time)).into_owned()
                };
                let bytes = first[..shown].escape_ascii();
                let more = if seen.block.len as usize > shown { "..." } else { "" };
                let _ = writeln!(text, "{:>10} {time} {:>6} bytes  {bytes}{more}", seen.position, seen.block.len);
            }
            if text.len() > LINES * 100 {
                break Nothing::Yet;
            }
        };
        if let Exit::Failed = print_data(&text) {
            return Ok(());
        }
        text.clear();
        match nothing {
            Nothing::Yet if follow => {
                // What it says is seen again by the next look.
                let _ = reader.reader().wait(stop::next_look());
            }
            Nothing::Moved | Nothing::Ended | Nothing::Retired if follow => match reader.next_generation(None) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Trouble::Failed(error.to_string())),
            },
            Nothing::Damaged => return Err(Trouble::Failed("what the writer says makes no sense".to_string())),
            _ => return Ok(()),
        }
    }
    Ok(())
}
