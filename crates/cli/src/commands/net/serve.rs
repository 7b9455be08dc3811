//! `streamline net serve`: an HTTP server of files. This file has the command and its threads; `answer` has the answers
//! on a connection, `folder` the files.

mod answer;
mod folder;
#[cfg(test)]
mod tests;

use super::tcp::{self, FlowArgs, Listener};
use crate::exit::Outcome;
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use folder::Folder;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Serve the files of a folder by HTTP
///
/// GET and HEAD of files below DIR, and of lists of their names where a folder has no index.html. Symlinks are followed as long
/// as they stay below DIR. Ctrl-C ends the server; requests that have come get 5 seconds.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The local port
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    port: u16,

    /// Connections at once; more wait until one ends
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,

    /// A line for each request on standard error
    #[arg(long)]
    log: bool,

    #[command(flatten)]
    tcp: FlowArgs,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net serve .                                 http://ADDRESS/ of the only interface
  streamline net serve /srv/files --port 8080 --log
  streamline net serve . --slice 10ms/100ms              each connection gets a tenth of the wire";

/// How long received requests get to finish when the server ends.
const FINISH: Duration = Duration::from_secs(5);

/// How long an idle thread waits for another connection.
const SPARE: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &Args) -> Outcome {
    let folder = Folder::open(&args.folder)?;
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let listener = tcp::listen(&args.tcp, args.port, "streamline net serve")?;
    tell!("serves {} on port {}", base::terminal::name(&args.folder), args.port);
    let server = Server::new(folder, args.connections.into(), args.log, stop);
    let running = Arc::clone(&server);
    std::thread::Builder::new().name("accept".into()).spawn(move || running.accept(&listener))?;
    signals::wait(&server.stop)?;
    match server.finish(FINISH) {
        0 => {}
        cut => tell!("note: {cut} requests were not answered in time"),
    }
    Ok(())
}

struct Server {
    folder: Folder,
    most: usize,
    log: bool,
    stop: StopFlag,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes one thread that waits for a connection.
    given: Condvar,
}

#[derive(Default)]
struct State {
    connections: usize,
    /// Requests that have come and are not answered yet.
    requests: usize,
    /// A new connection waits until an idle one ends.
    waits: bool,
    /// Connections that no thread serves yet. At most `free`.
    accepted: VecDeque<Job>,
    /// Threads that wait for a connection.
    free: usize,
}

type Job = Box<dyn FnOnce() + Send>;

impl Server {
    fn new(folder: Folder, most: usize, log: bool, stop: StopFlag) -> Arc<Server> {
        let (state, changed, given) = Default::default();
        Arc::new(Server { folder, most, log, stop, state, changed, given })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid even if a thread panics: each change is one number.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept<L: Listener>(self: &Arc<Server>, listener: &L) {
        let mut told = None;
        while !self.stop.is_set() {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                // The peer gave up, or there are no descriptors left: connections that end return them.
                Err(error) => {
                    let kind = error.kind();
                    if told.replace(kind) != Some(kind) {
                        tell!("warning: a connection was not accepted: {error}");
                    }
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let mut state = self.state();
            while state.connections == self.most && !self.stop.is_set() {
                state.waits = true;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waits = false;
            state.connections += 1;
            drop(state);
            let place = Place { server: Arc::clone(self), peer };
            self.give(Box::new(move || answer::serve(stream, &place.server.folder, &place)));
        }
    }

    /// Hands a connection to a waiting thread, or to a new one.
    fn give(self: &Arc<Server>, job: Job) {
        let mut state = self.state();
        if state.accepted.len() < state.free {
            state.accepted.push_back(job);
            self.given.notify_one();
            return;
        }
        drop(state);
        let server = Arc::clone(self);
        let serve = move || {
            job();
            while let Some(job) = server.take() {
                job();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("connection".into()).spawn(serve) {
            tell!("warning: a connection was not served: {error}");
        }
    }

    /// The next connection for a thread. `None`: none came for a while.
    fn take(&self) -> Option<Job> {
        let mut state = self.state();
        state.free += 1;
        let began = Instant::now();
        while state.accepted.is_empty() && began.elapsed() < SPARE {
            let left = SPARE.saturating_sub(began.elapsed());
            state = self.given.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.free -= 1;
        state.accepted.pop_front()
    }

    /// Waits for received requests, for at most `patience`. Returns how many are unanswered.
    fn finish(&self, patience: Duration) -> usize {
        self.stop.stop();
        self.changed.notify_all();
        let began = Instant::now();
        let mut state = self.state();
        while state.requests > 0 && began.elapsed() < patience {
            let left = patience.saturating_sub(began.elapsed());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.requests
    }
}

/// One of the permitted connections. Dropping it frees the place.
struct Place {
    server: Arc<Server>,
    peer: SocketAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.state().connections -= 1;
        self.server.changed.notify_all();
    }
}

impl answer::Around for Place {
    fn goes_on(&self) -> bool {
        // Each waiting connection ends one idle connection.
        !self.is_stopping() && !std::mem::take(&mut self.server.state().waits)
    }

    fn is_stopping(&self) -> bool {
        self.server.stop.is_set()
    }

    fn begin(&self) {
        self.server.state().requests += 1;
    }

    fn end(&self) {
        self.server.state().requests -= 1;
        self.server.changed.notify_all();
    }

    fn log(&self, line: std::fmt::Arguments<'_>) {
        if self.server.log {
            tell!("{} {line}", self.peer);
        }
    }
}
