//! `streamline top`: shows the traffic of the daemon's rings and of the stages of requests, live.

use super::ps::parser;
use crate::daemon_client;
use crate::exit::{CommandError, Outcome};
use crate::keys::Keys;
use crate::place::DaemonArg;
use crate::progress::{count, size};
use crate::signals::Finishing;
use crate::stages;
use crate::table::Table;
use crate::terminal;
use crate::who::{Users, is_stopped};
use capture::protocol::{ClientState, DaemonState};
use capture::registry::{ReaderState, RingState};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use streamline::StopFlag;
use streamline::parser::protocol::ParserState;
use streamline::running::client::{self, Request};

/// Show the traffic of the daemon's rings and of the stages of requests, live
///
/// The listed requests are yours that run on several threads: the activity of each thread, blocks a second, and how
/// many parcels of blocks wait for it, of how many, from which thread. Without a daemon only these are shown.
///
/// On a terminal each view replaces the previous one, and `q` ends it; elsewhere it follows it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArg,

    /// Seconds between two views
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    interval: f64,

    /// End after this number of views
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(CommandError::Wrong(format!("{} is no interval: from 0.05 to 3600 seconds", args.interval)));
    }
    // Without a daemon there may still be requests.
    let client = daemon_client::connect_if_there(&args.daemon.path(), "streamline top")?;
    let stop = StopFlag::new();
    crate::signals::listen(&stop, Finishing::Told)?;
    let clear = if std::io::stdout().is_terminal() && terminal::has_escapes() { "\x1b[H\x1b[2J" } else { "" };
    let keys = Keys::listen();
    let users = Users::read();
    let mut before: Option<(Instant, Option<DaemonState>, ParserState, Vec<Request>)> = None;
    let mut views = 0;
    while !stop.is_set() {
        let now = Instant::now();
        let state = client.as_ref().map(capture::client::Client::state).transpose()?;
        let requests = client::list();
        let shared = parser(&args.daemon.path(), "streamline top").unwrap_or_default();
        if let Some((then, last, last_shared, last_requests)) = &before {
            let seconds = (now - *then).as_secs_f64();
            let shared = view_shared(last_shared, &shared, seconds);
            let stages = stages::table(&requests, last_requests).text();
            // Say that nothing runs only if there are no stages either.
            let is_told = |now: &&DaemonState| stages.is_empty() || !now.rings.is_empty();
            let rings = last.as_ref().zip(state.as_ref().filter(is_told));
            let rings = rings.map(|(last, state)| view(last, state, &users, seconds));
            let shown = rings.into_iter().chain([shared, stages]).filter(|part| !part.is_empty());
            let mut shown: Vec<String> = shown.collect();
            if shown.is_empty() {
                let daemon = args.daemon.path();
                let daemon = daemon.display();
                shown.push(format!("no request of yours runs in stages, and no daemon can be asked at {daemon}\n"));
            }
            crate::print_data(&format!("{clear}{}\n", shown.join("\n")))?;
            views += 1;
            if args.count.is_some_and(|count| views >= count) {
                return Ok(());
            }
        }
        before = Some((now, state, shared, requests));
        let until = now + Duration::from_secs_f64(args.interval);
        // A signal ends the sleep early or is noticed soon after it. The same goes for a closed standard output.
        while !stop.is_set() && Instant::now() < until {
            if crate::nobody_reads() {
                return Ok(());
            }
            let nap = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
            match &keys {
                Some(keys) if keys.pressed(nap) == Some(b'q') => return Ok(()),
                Some(_) => {}
                None => std::thread::sleep(nap),
            }
        }
    }
    Ok(())
}

/// The prefixes that requests of this user share, each with its readers below. Empty if there are none.
fn view_shared(before: &ParserState, now: &ParserState, seconds: f64) -> String {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    let mut table = Table::new(&["process", ">blocks/s", ">bytes/s", "state", "shared"]);
    for prefix in &now.prefixes {
        let last = before.prefixes.iter().find(|last| last.text == prefix.text && last.since == prefix.since);
        let (blocks, bytes) = last.unwrap_or(prefix).given;
        table.row([
            now.process.to_string(),
            count(rate(prefix.given.0, blocks)),
            size(rate(prefix.given.1, bytes)),
            readers(prefix.readers.len()),
            prefix.text.clone(),
        ]);
        for (process, purpose) in &prefix.readers {
            let nothing = String::new;
            table.row([format!("  {process}"), nothing(), nothing(), nothing(), format!("  for {purpose}")]);
        }
    }
    table.text()
}

fn readers(count: usize) -> String {
    if count == 1 { "1 reader".into() } else { format!("{count} readers") }
}

/// A reader's activity and its losses so far.
fn doing(reader: &ReaderState, process: i32) -> String {
    let doing = match reader.asleep {
        _ if is_stopped(process) => "stopped",
        true => "asleep",
        false => "awake",
    };
    if reader.lost == 0 { doing.into() } else { format!("{doing}, lost {}", count(reader.lost)) }
}

/// Whether this is the ring of the previous view. The part of `how` behind `; ` is left out: it tells what others take of the device.
fn is_same(one: &RingState, other: &RingState) -> bool {
    let how = |ring: &RingState| ring.device.how.split("; ").next().map(str::to_string);
    (one.device.index, &one.device.name, one.group) == (other.device.index, &other.device.name, other.group)
        && how(one) == how(other)
}

/// The rings, each with its readers below, by packets a second. If there are none, a line says so.
fn view(before: &DaemonState, now: &DaemonState, users: &Users, seconds: f64) -> String {
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    if now.rings.is_empty() {
        return "nothing runs: this daemon has no reader of a device\n".to_string();
    }
    let owner = |reader: u64| -> Option<&ClientState> {
        now.clients.iter().find(|client| client.readers.iter().any(|(id, _)| *id == reader))
    };
    let known: HashMap<u64, u64> =
        before.rings.iter().flat_map(|ring| ring.readers.iter().map(|reader| (reader.id, reader.matched))).collect();
    let heads = ["device, process", "user", ">packets/s", ">bytes/s", ">written/s", "state", "how, purpose"];
    let mut table = Table::new(&heads);
    for ring in &now.rings {
        // A ring that is new in this view may be old.
        let RingState { seen: (packets, bytes), written, .. } =
            before.rings.iter().find(|last| is_same(last, ring)).unwrap_or(ring);
        table.row([
            ring.device.name.clone(),
            String::new(),
            count(rate(ring.seen.0, *packets)),
            size(rate(ring.seen.1, *bytes)),
            count(rate(ring.written, *written)),
            readers(ring.readers.len()),
            ring.device.how.clone(),
        ]);
        for reader in &ring.readers {
            let matched = known.get(&reader.id).map_or(0, |before| rate(reader.matched, *before));
            let client = owner(reader.id);
            table.row([
                client.map_or("  -".into(), |client| format!("  {}", client.process)),
                client.map_or("-".into(), |client| users.name(client.user)),
                count(matched),
                String::new(),
                String::new(),
                doing(reader, client.map_or(0, |client| client.process)),
                client.map_or(String::new(), |client| client.purpose.clone()),
            ]);
        }
    }
    table.text()
}
