//! `streamline ps`: lists running requests, other clients of the daemon, and the daemon's rings.

use crate::daemon_client;
use crate::exit::Outcome;
use crate::place::DaemonArg;
use crate::progress::{count, duration};
use crate::stages;
use crate::table::Table;
use crate::who::{self, Users, is_stopped};
use buffer::keeper::client::Named;
use capture::protocol::{ClientState, DaemonState};
use capture::registry::{ReaderState, RingState};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use streamline::parser as parsers;
use streamline::parser::protocol::ParserState;
use streamline::running::client::{self, Request};
use streamline::running::place::Id;

/// Show running requests, other users of the daemon, and the counts of its rings
///
/// A request has the number of its process: `streamline watch`, `replace` and `stop` take it. Clients of the daemon that
/// run no request of yours have a number of their own, for `streamline stop --client`.
///
/// A request on several threads has a row for each: its activity, its blocks a second since the start, and how many
/// parcels of blocks wait for it, of how many, from which thread.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArg,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

struct Shown {
    requests: Vec<Request>,
    daemon: DaemonState,
    shared: ParserState,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let requests = client::list();
    let daemon = daemon_client::state(&args.daemon.path(), "streamline ps")?;
    let shared = parser(&args.daemon.path(), "streamline ps").unwrap_or_default();
    let nothing = match &daemon {
        Some(_) => "no request runs, and the daemon has no reader\n".to_string(),
        None => format!("no request of yours runs, and no daemon can be asked at {}\n", args.daemon.path().display()),
    };
    // A user who named a daemon that is not there learns it beside the list of requests, too.
    let absent = args.daemon.named().filter(|_| daemon.is_none());
    let shown = Shown { requests, daemon: daemon.unwrap_or_default(), shared };
    if args.json {
        return crate::print_json(&shown.json());
    }
    if let Some(path) = absent.filter(|_| !shown.requests.is_empty()) {
        tell!("warning: no daemon can be asked at {}", base::terminal::name(&path));
    }
    crate::print_text(&shown.text(nothing))
}

/// The prefixes that this user's requests share on this daemon. `None`: they share none.
pub(super) fn parser(daemon: &Path, purpose: &str) -> Option<ParserState> {
    parsers::client::Client::connect(&parsers::socket(daemon).ok()?, purpose).ok()?.state().ok()
}

/// Blocks that each reader of a ring has lost, by process.
fn lost(ring: &str) -> BTreeMap<i32, u64> {
    let state = Named::at(ring).and_then(|ring| ring.state());
    let mut lost = BTreeMap::new();
    for reader in state.map(|state| state.readers).unwrap_or_default() {
        *lost.entry(reader.process).or_default() += reader.lost;
    }
    lost
}

/// The time since `time`, in ns since 1970 UTC.
fn since(time: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    Duration::from_nanos(now.saturating_sub(time))
}

/// How long a process has done something, and whether it is stopped.
fn lasting(process: i32, time: Duration) -> String {
    if is_stopped(process) { format!("{}, stopped", duration(time)) } else { duration(time) }
}

/// Packets that a client's readers have lost so far.
fn lost_by(client: &ClientState, state: &DaemonState) -> u64 {
    let is_its = |reader: &&ReaderState| client.readers.iter().any(|(id, _)| *id == reader.id);
    state.rings.iter().flat_map(|ring| &ring.readers).filter(is_its).map(|reader| reader.lost).sum()
}

/// The devices that a client reads, and the packets that it has lost. Dashes if it reads none.
fn reading(client: Option<&ClientState>, state: &DaemonState) -> [String; 2] {
    let Some(client) = client.filter(|client| !client.readers.is_empty()) else { return ["-", "-"].map(String::from) };
    let mut devices: Vec<&str> = client.readers.iter().map(|(_, device)| device.as_str()).collect();
    devices.dedup();
    [devices.join(","), count(lost_by(client, state))]
}

impl Shown {
    /// The client of the daemon through which a request reads.
    fn client_of(&self, request: &Request) -> Option<&ClientState> {
        self.daemon.clients.iter().find(|client| client.process == request.process)
    }

    /// Clients of the daemon that run no request of the list. Leaves out this process.
    fn others(&self) -> impl Iterator<Item = &ClientState> {
        let is_shown = |client: &ClientState| {
            client.process == std::process::id() as i32
                || self.requests.iter().any(|request| request.process == client.process)
        };
        self.daemon.clients.iter().filter(move |client| !is_shown(client))
    }

    /// A table for each sort of thing, or the text `nothing`; then the confinement of the processes that hold rights or
    /// payload.
    fn text(&self, nothing: String) -> String {
        let users = Users::read();
        let mut confined = Vec::new();
        if !self.daemon.confined.is_empty() {
            confined.push(format!("the daemon is confined to: {}\n", self.daemon.confined));
        }
        if !self.shared.prefixes.is_empty() {
            confined.push(format!("the process of shared prefixes is confined to: {}\n", self.shared.confined));
        }
        let stages = stages::table(&self.requests, &[]);
        let tables = [self.requests(&users), stages, self.shared(), self.clients(&users), self.rings()];
        let mut shown: Vec<String> = tables.iter().map(Table::text).filter(|text| !text.is_empty()).collect();
        if shown.is_empty() {
            shown.push(nothing);
        }
        shown.extend(Some(confined.concat()).filter(|text| !text.is_empty()));
        shown.join("\n")
    }

    fn requests(&self, users: &Users) -> Table {
        let mut table = Table::new(&[">number", "user", "for", "devices", ">lost", "edges", "request"]);
        for request in &self.requests {
            let client = self.client_of(request);
            let (edges, text) = match (&request.told, client) {
                (Ok(told), _) => {
                    let edges: Vec<&str> = told.edges.iter().map(|edge| edge.name.as_str()).collect();
                    (edges.join(","), told.request.clone())
                }
                // A stopped process does not answer: show what it told the daemon.
                (Err(why), Some(client)) => ("-".into(), format!("{} ({why})", client.purpose)),
                (Err(why), None) => ("-".into(), why.clone()),
            };
            let user = users.name(request.user);
            let age = who::age(request.process).map_or("-".into(), |age| lasting(request.process, age));
            let [devices, lost] = reading(client, &self.daemon);
            table.row([Id(request.process).to_string(), user, age, devices, lost, edges, text]);
        }
        table
    }

    fn clients(&self, users: &Users) -> Table {
        let mut table = Table::new(&[">client", "user", ">process", "for", "devices", ">lost", "purpose"]);
        for client in self.others() {
            let [devices, lost] = reading(Some(client), &self.daemon);
            table.row([
                client.id.to_string(),
                users.name(client.user),
                client.process.to_string(),
                lasting(client.process, since(client.since)),
                devices,
                lost,
                client.purpose.clone(),
            ]);
        }
        table
    }

    fn rings(&self) -> Table {
        let mut table = Table::new(&["device", "readers", ">seen", ">written", "ring", "how"]);
        for ring in &self.daemon.rings {
            table.row([
                ring.device.name.clone(),
                if ring.kept { format!("{}, kept", ring.readers.len()) } else { ring.readers.len().to_string() },
                count(ring.seen.0),
                count(ring.written),
                format!("{} MiB", ring.ring_bytes >> 20),
                ring.device.how.clone(),
            ]);
        }
        table
    }

    /// The shared prefixes, each with its readers below.
    fn shared(&self) -> Table {
        let mut table = Table::new(&["process", "for", ">blocks", ">lost", "shared"]);
        for prefix in &self.shared.prefixes {
            let lost = lost(&prefix.ring);
            table.row([
                self.shared.process.to_string(),
                lasting(self.shared.process, since(prefix.since)),
                count(prefix.given.0),
                count(prefix.lost),
                prefix.text.clone(),
            ]);
            for (process, purpose) in &prefix.readers {
                let lost = lost.get(process).map_or(String::new(), |lost| count(*lost));
                table.row([format!("  {process}"), String::new(), String::new(), lost, format!("  for {purpose}")]);
            }
        }
        table
    }

    fn json(&self) -> serde_json::Value {
        let requests = self.requests.iter().map(|request| {
            let edges = request.told.as_ref().map_or(&[][..], |told| &told.edges);
            let edges = edges.iter().map(|edge| {
                let carries: Vec<_> = edge.types.iter().map(filter::Type::name).collect();
                json!({ "edge": edge.name, "number": edge.number, "carries": carries, "filter": edge.label })
            });
            let mut shown = json!({
                "id": Id(request.process).to_string(), "process": request.process,
                "client": self.client_of(request).map(|client| client.id),
                "request": request.told.as_ref().ok().map(|told| &told.request),
                "trouble": request.told.as_ref().err(), "edges": edges.collect::<Vec<_>>(),
            });
            if let Some(lines) = stages::of(request) {
                shown["stages"] = stages::json(lines);
                if lines.left_out > 0 {
                    shown["threads_left_out"] = json!(lines.left_out);
                }
            }
            shown
        });
        let clients = self.daemon.clients.iter().map(|client| {
            let readers = client.readers.iter().map(|(id, device)| json!({ "id": id, "device": device }));
            json!({
                "id": client.id, "user": client.user, "process": client.process, "purpose": client.purpose,
                "since_ns": client.since, "stopped": is_stopped(client.process), "lost": lost_by(client, &self.daemon),
                "readers": readers.collect::<Vec<_>>(),
            })
        });
        let shared = self.shared.prefixes.iter().map(|prefix| {
            let lost = lost(&prefix.ring);
            let readers = prefix
                .readers
                .iter()
                .map(|(process, purpose)| json!({ "process": process, "purpose": purpose, "lost": lost.get(process) }));
            json!({
                "prefix": prefix.text, "goes_on_from": prefix.base, "process": self.shared.process,
                "confined": self.shared.confined, "since_ns": prefix.since,
                "blocks": prefix.given.0, "bytes": prefix.given.1, "lost": prefix.lost,
                "readers": readers.collect::<Vec<_>>(),
            })
        });
        json!({
            "confined": self.daemon.confined, "clients": clients.collect::<Vec<_>>(),
            "rings": self.daemon.rings.iter().map(ring_json).collect::<Vec<_>>(),
            "requests": requests.collect::<Vec<_>>(), "shared": shared.collect::<Vec<_>>(),
        })
    }
}

pub(super) fn ring_json(ring: &RingState) -> serde_json::Value {
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
