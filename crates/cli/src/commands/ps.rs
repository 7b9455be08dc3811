//! `streamline ps` and `streamline stop`: who uses the daemon, and which requests run.

use crate::Exit;
use crate::daemon_client::{self, connect, is_absent, state_of};
use crate::progress::count;
use crate::table::columns;
use buffer::keeper::client::Named;
use capture::client::Client;
use capture::protocol::{ClientState, DaemonState};
use capture::taps::{ReaderState, RingState};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use streamline::running;
use streamline::running::client::Request;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, Question};
use streamline::shared;
use streamline::shared::protocol::SharerState;

/// Show who uses the daemon, what its rings have seen, and which requests run
///
/// A request that reads through the daemon has the number of its client, any other a `p` and the number of its process:
/// that is what `streamline watch` calls it. Beside it stand its edges.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    daemon: PathBuf,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// End a client of the daemon, or a request
///
/// A client, by its number: its readers get nothing more. A request, by `p` and the number of its process, with or without a
/// daemon (without one the number alone will do): it finishes what has come, as with Ctrl-C; its user and root may end it.
/// Or, with --kept, have a device's ring hold no longer what nobody reads.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").args(["id", "kept"]).required(true))]
pub(crate) struct StopArgs {
    /// What `streamline ps` calls it: 7 or p4711
    id: Option<Id>,

    /// Keep packets of this device no longer for readers that look back (`keep=`)
    #[arg(long, value_name = "DEVICE")]
    kept: Option<String>,

    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    daemon: PathBuf,
}

pub(crate) fn run(args: &Args) -> Exit {
    let requests = running::client::list();
    let state = if requests.is_empty() {
        // Nobody else could be shown.
        connect(&args.daemon, "streamline ps").and_then(|client| state_of(&client))
    } else {
        daemon_client::state(&args.daemon, "streamline ps").map(Option::unwrap_or_default)
    };
    let state = match state {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let shared = sharer(&args.daemon, "streamline ps").unwrap_or_default();
    if args.json {
        let mut all = as_json(&state, &requests);
        all["shared"] = shared_as_json(&shared);
        crate::print_json(&all)
    } else {
        crate::print_text(&format!("{}{}", text(&state, &requests), shared_text(&shared)))
    }
}

/// What a request is called.
fn id_of(request: &Request, state: &DaemonState) -> Id {
    let client = state.clients.iter().find(|client| client.process == request.process);
    client.map_or(Id::Process(request.process), |client| Id::Client(client.id))
}

pub(crate) fn stop(args: &StopArgs) -> Exit {
    match args.id {
        Some(id @ Id::Process(_)) => return stop_request(id, &args.daemon),
        // Without a daemon the number can only be that of a process.
        Some(id @ Id::Client(number)) if runs(number) && !listens(&args.daemon) => {
            return stop_request(id, &args.daemon);
        }
        _ => {}
    }
    let client = match connect(&args.daemon, "streamline stop") {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    let stopped = match (&args.kept, args.id) {
        (Some(device), _) => client.forget(device),
        (None, Some(Id::Client(number))) => client.stop(number),
        // The command line has one of them, and a request is asked by itself.
        (None, Some(Id::Process(_)) | None) => Ok(()),
    };
    match stopped {
        Ok(()) => Exit::Done,
        Err(trouble) => {
            tell!("error: {trouble}");
            Exit::Failed
        }
    }
}

/// Does a request of this user run in the process of this number?
fn runs(number: u64) -> bool {
    i32::try_from(number).is_ok_and(|process| process > 0 && running::client::find(process).is_some())
}

/// Is there a daemon of which this user may ask something?
fn listens(daemon: &Path) -> bool {
    let is_none = |error: &io::Error| is_absent(error) || error.kind() == io::ErrorKind::PermissionDenied;
    !Client::connect(daemon, "streamline stop").is_err_and(|error| is_none(&error))
}

/// Has a request end as with Ctrl-C.
fn stop_request(id: Id, daemon: &Path) -> Exit {
    let target = match crate::running::find(id, daemon) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    match running::client::ask(&target, &Question::Stop) {
        Ok(Answer::Stopping) => Exit::Done,
        Ok(Answer::Failed(text) | Answer::Wrong(text)) | Err(text) => {
            tell!("error: request {id}: {text}");
            Exit::Failed
        }
        Ok(_) => {
            tell!("error: request {id} answers something else than was asked");
            Exit::Failed
        }
    }
}

/// What this user's requests that read from this daemon share, where they share anything.
pub(crate) fn sharer(daemon: &Path, purpose: &str) -> Option<SharerState> {
    shared::client::Client::connect(&shared::socket(daemon).ok()?, purpose).ok()?.state().ok()
}

/// Blocks that each reader of a ring has lost, by its process.
fn lost(ring: &str) -> BTreeMap<i32, u64> {
    let state = Named::at(ring).and_then(|ring| ring.state());
    let mut lost = BTreeMap::new();
    for reader in state.map(|state| state.readers).unwrap_or_default() {
        *lost.entry(reader.process).or_default() += reader.lost;
    }
    lost
}

/// A table: prefixes, and below each its readers. Nothing where there are none.
fn shared_text(state: &SharerState) -> String {
    if state.prefixes.is_empty() {
        return String::new();
    }
    let row = |cells: [String; 6]| cells.to_vec();
    let mut rows = vec![row(["shared", "process", "for", "blocks", "lost", "purpose"].map(String::from))];
    for prefix in &state.prefixes {
        let lost = lost(&prefix.ring);
        let (given, process) = (count(prefix.given.0), state.process.to_string());
        rows.push(row([prefix.text.clone(), process, ago(prefix.since), given, count(prefix.lost), String::new()]));
        for (process, purpose) in &prefix.readers {
            let lost = lost.get(process).map_or(String::new(), |lost| count(*lost));
            rows.push(row([
                "  reader".into(),
                process.to_string(),
                String::new(),
                String::new(),
                lost,
                purpose.clone(),
            ]));
        }
    }
    format!("\n{}confined to: {}\n", columns(&rows), state.confined)
}

fn shared_as_json(state: &SharerState) -> serde_json::Value {
    let prefixes = state.prefixes.iter().map(|prefix| {
        let lost = lost(&prefix.ring);
        let readers = prefix
            .readers
            .iter()
            .map(|(process, purpose)| json!({ "process": process, "purpose": purpose, "lost": lost.get(process) }));
        json!({
            "prefix": prefix.text, "goes_on_from": prefix.base, "process": state.process, "confined": state.confined,
            "since_ns": prefix.since,
            "blocks": prefix.given.0, "bytes": prefix.given.1, "lost": prefix.lost, "readers": readers.collect::<Vec<_>>(),
        })
    });
    prefixes.collect()
}

/// How long ago, in the two largest units.
fn ago(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let seconds = now.saturating_sub(since) / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Packets that a client's readers have lost so far.
pub(super) fn lost_by(client: &ClientState, state: &DaemonState) -> u64 {
    let is_its = |reader: &&ReaderState| client.readers.iter().any(|(id, _)| *id == reader.id);
    state.rings.iter().flat_map(|ring| &ring.readers).filter(is_its).map(|reader| reader.lost).sum()
}

/// Is this process stopped (SIGSTOP, a debugger), so that it reads nothing? Not said of one that cannot be seen from here.
pub(super) fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the program's name, which may hold anything (proc_pid_stat(5)).
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// Tables of what there is: clients and rings of the daemon, and what it is confined to; requests.
fn text(state: &DaemonState, requests: &[Request]) -> String {
    let row = |cells: &[String]| cells.to_vec();
    let mut clients = vec![row(&["id", "user", "process", "for", "devices", "lost", "purpose"].map(String::from))];
    for client in &state.clients {
        let mut devices: Vec<&str> = client.readers.iter().map(|(_, device)| device.as_str()).collect();
        devices.dedup();
        let devices = if devices.is_empty() { "-".to_string() } else { devices.join(",") };
        clients.push(row(&[
            client.id.to_string(),
            client.user.to_string(),
            if is_stopped(client.process) {
                format!("{} (stopped)", client.process)
            } else {
                client.process.to_string()
            },
            ago(client.since),
            devices,
            if client.readers.is_empty() { "-".into() } else { count(lost_by(client, state)) },
            client.purpose.clone(),
        ]));
    }
    let mut rings = vec![row(&["device", "readers", "seen", "written", "ring", "how"].map(String::from))];
    for ring in &state.rings {
        rings.push(row(&[
            ring.device.name.clone(),
            if ring.kept { format!("{}, kept", ring.readers.len()) } else { ring.readers.len().to_string() },
            count(ring.seen.0),
            count(ring.written),
            format!("{} MiB", ring.ring_bytes >> 20),
            ring.device.how.clone(),
        ]));
    }
    let mut running = vec![row(&["id", "user", "process", "edges", "request"].map(String::from))];
    for request in requests {
        let (edges, text) = match &request.told {
            Ok(told) => (told.edges.iter().map(|edge| edge.name.as_str()).collect::<Vec<_>>().join(","), &told.request),
            Err(why) => ("-".into(), why),
        };
        let user = request.user.to_string();
        let id = id_of(request, state).to_string();
        running.push(row(&[id, user, request.process.to_string(), edges, text.clone()]));
    }
    let mut shown = Vec::new();
    // Whoever asks a daemon is a client of it: without one there is none.
    if !state.clients.is_empty() {
        shown.push(format!("{}\n{}\nconfined to: {}\n", columns(&clients), columns(&rings), state.confined));
    }
    if !requests.is_empty() {
        shown.push(columns(&running));
    }
    shown.join("\n")
}

/// A ring, for scripts.
pub(crate) fn ring_as_json(ring: &RingState) -> serde_json::Value {
    let readers =
        ring.readers.iter().map(|reader| json!({ "id": reader.id, "matched": reader.matched, "lost": reader.lost }));
    let statistics: serde_json::Map<_, _> =
        ring.statistics.iter().map(|(name, number)| (name.clone(), json!(number))).collect();
    json!({
        "device": ring.device.name, "how": ring.device.how, "group": ring.group, "ring_bytes": ring.ring_bytes,
        "seen": ring.seen.0, "seen_bytes": ring.seen.1, "written": ring.written,
        "kept": ring.kept, "readers": readers.collect::<Vec<_>>(), "statistics": statistics,
    })
}

/// The same for scripts.
fn as_json(state: &DaemonState, requests: &[Request]) -> serde_json::Value {
    let requests = requests.iter().map(|request| {
        let id = id_of(request, state).to_string();
        let edges = request.told.as_ref().map_or(&[][..], |told| &told.edges);
        let edges = edges.iter().map(|edge| {
            let carries: Vec<_> = edge.types.iter().map(filter::Type::name).collect();
            json!({ "edge": edge.name, "number": edge.number, "carries": carries, "filter": edge.label })
        });
        json!({
            "id": id, "process": request.process, "request": request.told.as_ref().ok().map(|told| &told.request),
            "trouble": request.told.as_ref().err(), "edges": edges.collect::<Vec<_>>(),
        })
    });
    let requests: Vec<_> = requests.collect();
    let clients = state.clients.iter().map(|client| {
        let readers = client.readers.iter().map(|(id, device)| json!({ "id": id, "device": device }));
        json!({
            "id": client.id, "user": client.user, "process": client.process, "purpose": client.purpose,
            "since_ns": client.since, "stopped": is_stopped(client.process), "lost": lost_by(client, state),
            "readers": readers.collect::<Vec<_>>(),
        })
    });
    let rings = state.rings.iter().map(ring_as_json);
    json!({
        "confined": state.confined, "clients": clients.collect::<Vec<_>>(), "rings": rings.collect::<Vec<_>>(),
        "requests": requests,
    })
}
