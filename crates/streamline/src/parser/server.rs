//! The parser process: runs common beginnings of one user's requests once, and tells each request where to read.
//!
//! A client that asks for a prefix gets one of these:
//! - the endpoint to read it, if it runs already;
//! - a refusal that names the longest beginning that runs, if no other client wants more than that. The client reads
//!   there;
//! - else a new stage, which goes on from the beginnings that run.
//!
//! So a filter that one request alone needs runs in that request's own process, and no request waits for another.
//!
//! One thread listens and decides. Each stage has a thread, and each ring has a thread for its keeper. No message of a
//! client, and no client that does not read, holds up another.

use super::bases::Base;
use super::confine;
use super::protocol::{Answer, Endpoint, PROTOCOL, ParserState, PrefixState, Question};
use super::stage::{Outlet, Stage};
use crate::compiled::Compiled;
use crate::devices;
use crate::session::Session;
use buffer::control::name::{Claimed, claim, clear_dead, give_up};
use buffer::control::{self, packets};
use buffer::keeper::place;
use filter::Output;
use guard::CapabilitySet;
use program::Compile;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketFlags;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENTS: usize = 256;

/// Most readings of one client at a time.
const READINGS: usize = 64;

/// Most stages at a time. Each is a thread, and has a ring for each place where it is read.
const STAGES: usize = 64;

const RING_NAMES: u32 = 256;

/// How long an unused prefix goes on: requests are often restarted.
const UNUSED: Duration = Duration::from_secs(1);

/// How long a parser process without readers stays.
const LINGER: Duration = Duration::from_secs(5);

const LOOK: Duration = Duration::from_millis(200);

/// How long it accepts no client after the system ran out of something (file descriptors, mostly).
const REST: Duration = Duration::from_millis(50);

/// Why a parser process could not go on.
#[derive(Debug)]
pub enum ServerError {
    /// Another one runs already.
    Present,
    /// The system failed.
    System(io::Error),
}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> ServerError {
        ServerError::System(error)
    }
}

/// A parser process.
pub struct Server {
    daemon: PathBuf,
    /// Compiles tcpdump text; loaded while libraries can be. It caches answers, since all clients wait while it
    /// compiles.
    compiler: Arc<dyn Compile>,
    /// What confines this process, for people.
    confined: String,
    path: PathBuf,
    claimed: Option<Claimed>,
    /// The system ran out of something for the last new client.
    is_short: bool,
    groups: Vec<u32>,
    clients: BTreeMap<u64, Client>,
    stages: Vec<Stage>,
    last_id: u64,
    last_ring: u64,
    /// Since when there have been no readers.
    alone: Instant,
}

struct Client {
    socket: OwnedFd,
    process: i32,
    purpose: String,
    greeted: bool,
    readings: BTreeMap<u64, String>,
    /// Prefixes that the client has asked for and that may not run yet.
    wanted: Vec<String>,
}

struct Gone;

impl Server {
    /// Listens where clients of the daemon at this socket look for it. This process parses payload, so this thread and
    /// those it starts drop all capabilities for good.
    pub fn listen(daemon: &Path) -> Result<Server, ServerError> {
        guard::keep_capabilities(CapabilitySet::empty())?;
        let path = super::socket(daemon)?;
        if let Some(folder) = path.parent() {
            place::make_folder(&place::folder())?;
            place::make_folder(folder)?;
        }
        let claimed = claim(&path, 0o600, None).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ServerError::Present,
            _ => ServerError::System(error),
        })?;
        let server = Server {
            daemon: daemon.to_owned(),
            compiler: Arc::new(Compiled::new(libpcap::Lazy::new())),
            confined: String::new(),
            path,
            claimed: Some(claimed),
            is_short: false,
            groups: super::groups()?,
            clients: BTreeMap::new(),
            stages: Vec::new(),
            last_id: 0,
            last_ring: 0,
            alone: Instant::now(),
        };
        server.clear_rings();
        Ok(server)
    }

    /// Gives up, for good, everything it does not need to serve. Where the kernel lacks a guard, it serves without.
    pub fn confine(&mut self) {
        // Load the compiler now; its description is not needed. Without one, filters given as tcpdump text are refused
        // later.
        let _ = self.compiler.describe();
        let Some(folder) = self.path.parent() else { return };
        confine::make_for_user_alone();
        self.confined = guard::describe("no capabilities", &confine::confine(folder));
    }

    fn ring_path(&self, number: u64) -> PathBuf {
        self.path.with_extension(format!("{number}.ring"))
    }

    /// Removes the rings that a killed parser process left. This process owns the name, so no keeper uses it.
    fn clear_rings(&self) {
        let Some((folder, stem)) = self.path.parent().zip(self.path.file_stem()) else { return };
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_ours = name.as_encoded_bytes().starts_with(stem.as_encoded_bytes());
            if is_ours && entry.path().extension().is_some_and(|extension| extension == "ring") {
                // A ring that cannot be removed is no obstacle: numbers go on until one is free.
                let _ = clear_dead(&entry.path());
            }
        }
    }

    /// Answers questions until it has been without clients for a while.
    pub fn run(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        while !self.is_done() {
            self.turn()?;
            if looked.elapsed() >= LOOK {
                self.look_after_stages();
                looked = Instant::now();
            }
        }
        // A client that connects from here on finds the next process.
        if let Some(claimed) = self.claimed.take() {
            give_up(&self.path, claimed);
        }
        std::mem::take(&mut self.stages).into_iter().for_each(Stage::end);
        Ok(())
    }

    fn is_done(&mut self) -> bool {
        if self.clients.values().any(|client| !client.readings.is_empty()) {
            self.alone = Instant::now();
        }
        self.alone.elapsed() > LINGER
    }

    fn turn(&mut self) -> io::Result<()> {
        let Some(claimed) = &self.claimed else { return Ok(()) };
        // The client is still waiting: polling the listener again at once would take a whole processor.
        let rests = std::mem::take(&mut self.is_short);
        let mut polled = vec![PollFd::new(&claimed.listener, if rests { PollFlags::empty() } else { PollFlags::IN })];
        polled.extend(self.clients.values().map(|client| PollFd::new(&client.socket, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(if rests { REST } else { LOOK }.subsec_nanos()) };
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            result => result?,
        };
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        let somebody_comes = ready.next().unwrap_or(false);
        let speaking: Vec<u64> =
            self.clients.keys().copied().zip(ready).filter(|(_, ready)| *ready).map(|(id, _)| id).collect();
        for id in speaking {
            if self.hear(id).is_err() {
                self.clients.remove(&id);
            }
        }
        if somebody_comes {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        let Some(claimed) = &self.claimed else { return };
        let (socket, mut peer) = match control::accept(&claimed.listener, SocketFlags::NONBLOCK) {
            Ok(accepted) => accepted,
            Err(error) => {
                self.is_short = packets::is_short(&error);
                return;
            }
        };
        peer.groups.sort_unstable();
        peer.groups.dedup();
        let refuse = |why: &str| control::send_last(&socket, &Answer::Refused(why.into()));
        // All clients read what this process may read, so each must have the same rights.
        if peer.user != rustix::process::geteuid().as_raw() || peer.groups != self.groups {
            return refuse("it runs for another user, or for one in other groups");
        }
        if self.clients.len() >= CLIENTS {
            return refuse(&format!("it has {CLIENTS} clients already"));
        }
        self.last_id += 1;
        let client = Client {
            socket,
            process: peer.process,
            purpose: String::new(),
            greeted: false,
            readings: BTreeMap::new(),
            wanted: Vec::new(),
        };
        self.clients.insert(self.last_id, client);
    }

    fn hear(&mut self, id: u64) -> Result<(), Gone> {
        let client = self.clients.get_mut(&id).ok_or(Gone)?;
        let question = match control::receive(&client.socket) {
            Ok(Some((question, _no_fds_are_expected))) => question,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(());
            }
            Ok(None) | Err(_) => return Err(Gone),
        };
        let answer = match question {
            Question::Hello(version, program, purpose) => {
                if (version, program.as_str()) != (PROTOCOL, env!("CARGO_PKG_VERSION")) {
                    Answer::Refused("it is of another version".into())
                } else {
                    (client.greeted, client.purpose) = (true, purpose);
                    Answer::Hello(PROTOCOL)
                }
            }
            _ if !client.greeted => return Err(Gone),
            Question::Join(text) => match self.join(id, &text) {
                Ok(endpoint) => Answer::Joined(endpoint),
                Err(why) => Answer::Refused(why),
            },
            Question::Leave(reading) => {
                client.readings.remove(&reading);
                return Ok(());
            }
            Question::Forget => {
                client.wanted.clear();
                return Ok(());
            }
            Question::State => Answer::State(self.state()),
        };
        let client = self.clients.get(&id).ok_or(Gone)?;
        // A client that does not read its answers is dropped: it has asked for each of them.
        control::send(&client.socket, &answer, &[]).map_err(|_| Gone)
    }

    fn outlet(&mut self, text: &str) -> Option<&mut Outlet> {
        self.stages.iter_mut().flat_map(|stage| &mut stage.outlets).find(|outlet| outlet.text == text)
    }

    /// Gives a client an endpoint to read this prefix.
    fn join(&mut self, id: u64, text: &str) -> Result<Endpoint, String> {
        self.alone = Instant::now();
        self.look_after_stages();
        if self.clients.get(&id).is_none_or(|client| client.readings.len() >= READINGS) {
            return Err(format!("one client reads in {READINGS} places at most"));
        }
        if self.outlet(text).is_none() {
            self.begin(id, text)?;
        }
        let (ring, continuity) = self.open(text)?;
        let ring = ring.to_str().ok_or("the folder's path is not text")?.to_string();
        self.last_id += 1;
        let reading = self.last_id;
        if let Some(client) = self.clients.get_mut(&id) {
            client.readings.insert(reading, text.into());
        }
        Ok(Endpoint { id: reading, ring, continuity })
    }

    fn open(&mut self, text: &str) -> Result<(PathBuf, filters::parser::Continuity), String> {
        for _ in 0..RING_NAMES {
            self.last_ring += 1;
            let path = self.ring_path(self.last_ring);
            let outlet = self.outlet(text).ok_or("it ended while it was started")?;
            outlet.unused = None;
            let continuity = outlet.continuity;
            match outlet.open(|| path) {
                Ok(ring) => return Ok((ring.to_owned(), continuity)),
                // A parser process that is ending still has this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("there is no ring for it: {error}")),
            }
        }
        Err(format!("there is no ring for it: {RING_NAMES} names are others'"))
    }

    /// Starts a prefix that does not run yet, unless this client had better run the rest by itself.
    fn begin(&mut self, id: u64, text: &str) -> Result<(), String> {
        if self.stages.len() >= STAGES {
            return Err(format!("{STAGES} prefixes run already"));
        }
        let output = Output::new(Box::new(io::sink()), false);
        let session = Session::with_output(output)
            .devices_at(devices::Place::Daemon(self.daemon.clone()))
            .compiler(Arc::clone(&self.compiler));
        let parts = session.prefixes_of(text).map_err(|error| error.to_string())?;
        if parts.last().is_none_or(|last| last != text) {
            return Err("it is not written as it must be to be the same for all".into());
        }
        let is_wanted =
            self.clients.iter().any(|(other, client)| *other != id && client.wanted.iter().any(|one| one == text));
        if let Some(client) = self.clients.get_mut(&id) {
            client.wanted.extend(parts.iter().cloned());
            client.wanted.sort_unstable();
            client.wanted.dedup();
            client.wanted.truncate(READINGS);
        }
        let running: Vec<&String> = parts.iter().filter(|part| self.outlet(part).is_some()).collect();
        if let Some(last) = running.last().filter(|_| !is_wanted) {
            return Err(format!("no other request wants more than `{last}`"));
        }
        let mut bases = Vec::new();
        for part in &running {
            // Where another running part goes on from this one, read only that other part.
            if running.iter().all(|other| !other.starts_with(&format!("{part} |"))) {
                let (ring, continuity) = self.open(part)?;
                let stage = self.stages.iter().find(|stage| stage.outlets.iter().any(|outlet| outlet.text == **part));
                let last_word = stage.map(Stage::last_word).unwrap_or_default();
                bases.push(Base { text: part.to_string(), continuity, ring, last_word });
            }
        }
        let stage = Stage::start(&session, text, bases).map_err(|error| error.to_string())?;
        self.stages.push(stage);
        Ok(())
    }

    /// Whether any client or any other stage reads this prefix.
    fn is_used(&self, text: &str) -> bool {
        self.clients.values().any(|client| client.readings.values().any(|reading| reading == text))
            || self.stages.iter().any(|stage| stage.bases.iter().any(|base| base == text))
    }

    /// Drops stages that have ended, and closes outlets that have been unused for a while.
    fn look_after_stages(&mut self) {
        let mut index = 0;
        while index < self.stages.len() {
            if let Some(why) = self.stages[index].ended() {
                let stage = self.stages.remove(index);
                self.tell_end(&stage, &why);
                stage.end();
                continue;
            }
            let used: Vec<bool> = self.stages[index].outlets.iter().map(|outlet| self.is_used(&outlet.text)).collect();
            let now = Instant::now();
            let mut any = false;
            for (outlet, used) in self.stages[index].outlets.iter_mut().zip(used) {
                outlet.unused = if used { None } else { Some(outlet.unused.unwrap_or(now)) };
                let is_kept = outlet.unused.is_none_or(|since| since.elapsed() < UNUSED);
                any |= is_kept;
                if !is_kept {
                    outlet.close();
                }
            }
            if any {
                index += 1;
            } else {
                self.stages.remove(index).end();
            }
        }
    }

    /// Tells a prefix's readers why nothing more will come, before its ring ends.
    fn tell_end(&mut self, stage: &Stage, why: &str) {
        for client in self.clients.values() {
            for (reading, text) in &client.readings {
                if stage.outlets.iter().any(|outlet| outlet.text == *text) {
                    // A client that does not listen sees that the ring has ended.
                    let _ = control::send(&client.socket, &Answer::Over(*reading, why.into()), &[]);
                }
            }
        }
        for client in self.clients.values_mut() {
            client.readings.retain(|_, text| stage.outlets.iter().all(|outlet| outlet.text != *text));
        }
    }

    fn state(&self) -> ParserState {
        let mut prefixes = Vec::new();
        for stage in &self.stages {
            for outlet in &stage.outlets {
                let readers = self.clients.values().flat_map(|client| {
                    let here = client.readings.values().filter(|text| **text == outlet.text);
                    here.map(|_| (client.process, client.purpose.clone()))
                });
                let readers: Vec<(i32, String)> = readers.collect();
                let is_last = outlet.text == stage.text;
                if readers.is_empty() && outlet.path().is_none() && !is_last {
                    continue;
                }
                prefixes.push(PrefixState {
                    text: outlet.text.clone(),
                    base: stage.bases.join(" + "),
                    ring: outlet.path().map(|path| path.display().to_string()).unwrap_or_default(),
                    since: stage.since,
                    given: outlet.given(),
                    lost: stage.lost(),
                    readers,
                });
            }
        }
        ParserState { process: std::process::id() as i32, confined: self.confined.clone(), prefixes }
    }
}
