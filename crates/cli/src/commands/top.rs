//! `streamline top`: what goes through the daemon's rings, as it goes.

use super::ps::{is_stopped, sharer};
use crate::Exit;
use crate::daemon_client::connect;
use crate::progress::{count, size};
use crate::signals::Finishing;
use crate::table::columns;
use capture::protocol::DaemonState;
use capture::taps::{ReaderState, RingState};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use streamline::StopFlag;
use streamline::shared::protocol::SharerState;

/// Show what goes through the daemon's rings, as it goes
///
/// On a terminal the view is drawn anew; elsewhere one follows the other.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    daemon: PathBuf,

    /// Seconds between two views
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,

    /// End after so many views
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Exit {
    if !(0.05..=3600.0).contains(&args.interval) {
        tell!("error: {} is no interval: from 0.05 to 3600 seconds", args.interval);
        return Exit::Wrong;
    }
    let client = match connect(&args.daemon, "streamline top") {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    let stop = StopFlag::new();
    if let Err(error) = crate::signals::listen(&stop, Finishing::Told) {
        tell!("error: cannot listen for signals: {error}");
        return Exit::Failed;
    }
    let clear = if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    let mut before: Option<(Instant, DaemonState, SharerState)> = None;
    let mut views = 0;
    while !stop.is_set() {
        let now = Instant::now();
        let state = match client.state() {
            Ok(state) => state,
            Err(trouble) => {
                tell!("error: {trouble}");
                return Exit::Failed;
            }
        };
        let shared = sharer(&args.daemon, "streamline top").unwrap_or_default();
        if let Some((then, last, last_shared)) = &before {
            let seconds = (now - *then).as_secs_f64();
            let shared = view_shared(last_shared, &shared, seconds);
            let exit = crate::print_data(&format!("{clear}{}{shared}\n", view(last, &state, seconds)));
            views += 1;
            if exit != Exit::Done || args.count.is_some_and(|count| views >= count) {
                return exit;
            }
        }
        before = Some((now, state, shared));
        let until = now + Duration::from_secs_f64(args.interval);
        // A signal ends a sleep early or is seen soon after it; so is that nobody reads any more.
        while !stop.is_set() && Instant::now() < until {
            if crate::nobody_reads() {
                return Exit::Done;
            }
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
        }
    }
    Exit::Done
}

/// What requests of this user share, and below each prefix its readers. Nothing where there is none.
fn view_shared(before: &SharerState, now: &SharerState, seconds: f64) -> String {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    let mut rows = vec![["shared", "blocks/s", "bytes/s", "state", "purpose"].map(String::from).to_vec()];
    for prefix in &now.prefixes {
        let last = before.prefixes.iter().find(|last| last.text == prefix.text && last.since == prefix.since);
        let (blocks, bytes) = last.unwrap_or(prefix).given;
        rows.push(vec![
            prefix.text.clone(),
            count(rate(prefix.given.0, blocks)),
            size(rate(prefix.given.1, bytes)),
            readers(prefix.readers.len()),
            String::new(),
        ]);
        for (process, purpose) in &prefix.readers {
            rows.push(vec![
                format!("  process {process}"),
                String::new(),
                String::new(),
                String::new(),
                purpose.clone(),
            ]);
        }
    }
    if now.prefixes.is_empty() { String::new() } else { format!("\n{}", columns(&rows)) }
}

fn readers(count: usize) -> String {
    if count == 1 { "1 reader".into() } else { format!("{count} readers") }
}

/// What a reader does, and what it has lost so far.
fn doing(reader: &ReaderState, process: i32) -> String {
    let doing = match reader.asleep {
        _ if is_stopped(process) => "stopped",
        true => "asleep",
        false => "awake",
    };
    if reader.lost == 0 { doing.into() } else { format!("{doing}, lost {}", count(reader.lost)) }
}

/// Is this the ring that was there a view ago? What others take away of its device is said behind how it is written.
fn is_same(one: &RingState, other: &RingState) -> bool {
    let how = |ring: &RingState| ring.device.how.split("; ").next().map(str::to_string);
    (one.device.index, &one.device.name, one.group) == (other.device.index, &other.device.name, other.group)
        && how(one) == how(other)
}

/// Rings, and below each its readers, by what they got a second; where there are none, that there are none.
fn view(before: &DaemonState, now: &DaemonState, seconds: f64) -> String {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    if now.rings.is_empty() {
        return "nothing runs: nobody reads a device through this daemon\n".to_string();
    }
    let owner = |reader: u64| {
        let clients = now.clients.iter();
        clients.into_iter().find(|client| client.readers.iter().any(|(id, _)| *id == reader))
    };
    let known: HashMap<u64, u64> =
        before.rings.iter().flat_map(|ring| ring.readers.iter().map(|reader| (reader.id, reader.matched))).collect();
    let mut rows = vec![["", "packets/s", "bytes/s", "written/s", "state", "purpose"].map(String::from).to_vec()];
    for ring in &now.rings {
        // One that is new here may have been there for long.
        let RingState { seen: (packets, bytes), written, .. } =
            before.rings.iter().find(|last| is_same(last, ring)).unwrap_or(ring);
        rows.push(vec![
            ring.device.name.clone(),
            count(rate(ring.seen.0, *packets)),
            size(rate(ring.seen.1, *bytes)),
            count(rate(ring.written, *written)),
            readers(ring.readers.len()),
            ring.device.how.clone(),
        ]);
        for reader in &ring.readers {
            let matched = known.get(&reader.id).map_or(0, |before| rate(reader.matched, *before));
            let (id, purpose) = owner(reader.id).map_or((0, ""), |client| (client.id, client.purpose.as_str()));
            rows.push(vec![
                format!("  client {id}"),
                count(matched),
                String::new(),
                String::new(),
                doing(reader, owner(reader.id).map_or(0, |client| client.process)),
                purpose.to_string(),
            ]);
        }
    }
    columns(&rows)
}
