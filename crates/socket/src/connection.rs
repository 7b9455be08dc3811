//! An application's connection to a daemon, for flows. When the daemon ends, the flows go on: the connection looks for
//! the next daemon and claims them there.

use crate::attendant;
use crate::error::SocketError;
use buffer::flow::{Bells, Geometry};
use capture::client::Client;
use capture::{CaptureError, CaptureErrorKind};
use flow::{Answer, Flow, Host, Listener, OpenFlow, OpenListener, Question};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a connection looks for another daemon, and then for its flows there: the process that holds them has to
/// find that daemon, too.
const LOOK: Duration = Duration::from_secs(5);

/// How often it looks.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// Flows at one daemon, or at the one that follows. They end when it is dropped.
#[derive(Debug)]
pub struct Connection(Arc<Shared>);

/// The part of a connection that the attendant uses.
#[derive(Debug)]
pub(crate) struct Shared {
    daemon: PathBuf,
    purpose: String,
    line: Mutex<State>,
    /// Flows and listeners of the application, by channel. Locked after `line` if both are locked.
    channels: Mutex<BTreeSet<u32>>,
    /// Daemons that were found after the first one.
    found: AtomicU32,
    /// The attendant writes to it after it found another daemon. Unset: no hub sleeps.
    wake: OnceLock<OwnedFd>,
    host: Mutex<Host>,
    /// The page of the doorbells, which claims the flows. `None` before the first flow.
    page: Mutex<Option<Arc<OwnedFd>>>,
    /// Readable once the connection stopped looking for another daemon.
    over: OwnedFd,
    /// The process that connected.
    process: u32,
}

/// The state of the connection to the daemon.
#[derive(Debug)]
enum State {
    /// There is a daemon. The second value hangs up when it ends.
    There(Client, OwnedFd),
    /// The daemon ended at this time. Another one was `found`, which does not know the flows yet.
    Away {
        since: Instant,
        found: Option<Instant>,
    },
    Over,
}

/// The state of a connection whose daemon ended just now.
fn away() -> State {
    State::Away { since: Instant::now(), found: None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unexpected() -> SocketError {
    CaptureError::new(CaptureErrorKind::System, "the daemon answers something else than was asked").into()
}

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the daemon has gone, and no other came yet; try again in a moment")
}

/// Has the daemon at the other end hung up?
fn has_hung_up(line: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(line, PollFlags::RDHUP)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

impl Connection {
    /// Connects to the daemon that listens at `daemon`. `purpose` tells people what the flows are for.
    ///
    /// # Errors
    ///
    /// [`SocketError::Daemon`]: there is no daemon, or it does not answer.
    pub fn open(daemon: &Path, purpose: &str) -> Result<Connection, SocketError> {
        let client = Client::connect(daemon, purpose).map_err(|error| {
            let text = format!("no daemon can be reached at {}: {error}", base::terminal::name(daemon));
            SocketError::Daemon(io::Error::new(error.kind(), text))
        })?;
        let hangs_up = client.line().map_err(SocketError::Daemon)?;
        let over = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            // The program may be in another folder when the attendant looks for another daemon.
            daemon: std::path::absolute(daemon).unwrap_or_else(|_| daemon.to_path_buf()),
            purpose: purpose.into(),
            line: Mutex::new(State::There(client, hangs_up)),
            channels: Mutex::default(),
            found: AtomicU32::new(0),
            wake: OnceLock::new(),
            host: Mutex::default(),
            page: Mutex::default(),
            over: over.map_err(|error| SocketError::Daemon(error.into()))?,
            process: std::process::id(),
        });
        attendant::look_after(&shared).map_err(SocketError::Daemon)?;
        Ok(Connection(shared))
    }

    /// Opens a flow.
    ///
    /// # Errors
    ///
    /// [`SocketError::Refused`]: the policy, a port that is taken, no such interface. [`SocketError::Daemon`]: the
    /// daemon has gone, and no other came yet. [`SocketError::Closed`]: no other came.
    pub fn flow(&self, open: &OpenFlow) -> Result<Flow, SocketError> {
        // One flow at a time: the doorbells come with the first one.
        let mut host = lock(&self.0.host);
        let flow = match self.0.ask(&Question::Open(open.clone()))? {
            (Answer::Granted(granted), fds) => host.adopt(granted, open.geometry(), fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        };
        self.0.note_page(&host);
        flow
    }

    /// Opens a listener.
    pub(crate) fn listen(&self, open: &OpenListener) -> Result<Listener, SocketError> {
        let mut host = lock(&self.0.host);
        let listener = match self.0.ask(&Question::Listen(open.clone()))? {
            (Answer::Listening(listening), fds) => host.adopt_listener(listening, fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        };
        self.0.note_page(&host);
        listener
    }

    /// Takes up to `most` connections that wait at a listener, with channels of this geometry. Does not wait for any.
    /// Returns none while the daemon is away.
    pub(crate) fn accept(&self, channel: u32, most: u32, geometry: Geometry) -> Result<Vec<Flow>, SocketError> {
        let mut host = lock(&self.0.host);
        match self.0.ask(&Question::Accept(channel, most)) {
            Ok((Answer::Accepted(granted), fds)) => {
                host.adopt_accepted(granted, geometry, fds).map_err(SocketError::Daemon)
            }
            Err(_) if matches!(*self.0.lock(), State::Away { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(_) => Err(unexpected()),
        }
    }

    /// Sets the descriptor that is written to after another daemon was found.
    pub(crate) fn wake_by(&self, wake: OwnedFd) {
        let _ = self.0.wake.set(wake);
    }

    /// Daemons that were found after the first one. Each of them has to be asked for connections that wait.
    pub(crate) fn found(&self) -> u32 {
        self.0.found.load(Ordering::Relaxed)
    }

    /// Is a daemon there?
    pub(crate) fn has_daemon(&self) -> bool {
        matches!(*self.0.lock(), State::There(..))
    }

    /// The doorbells of all flows. `None` before the first flow.
    pub(crate) fn bells(&self) -> Option<Arc<Bells>> {
        lock(&self.0.host).bells().cloned()
    }

    /// Closes a flow by a message in its channel. The driver then gives the channel's number to the next flow.
    pub(crate) fn close_flow(&self, flow: &mut Flow) {
        lock(&self.0.channels).remove(&flow.granted.channel);
        flow.close();
    }

    /// Closes a listener, or a flow whose channel was not used, by its channel. Does not wait for a daemon that has
    /// gone: the next one learns that this channel is not claimed.
    pub(crate) fn close(&self, channel: u32) {
        let line = self.0.lock();
        lock(&self.0.channels).remove(&channel);
        if let State::There(client, _) = &*line {
            let _ = client.flows(Question::Close(channel));
        }
    }

    /// Readable once the daemon has gone and no other replaced it.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.0.over.as_fd()
    }

    /// Locks the connection for a copy of this process, which has no attendant. `None`: a call keeps the lock for too long.
    pub(crate) fn hold(&self, deadline: Instant) -> Option<Held<'_>> {
        let line = loop {
            match self.0.line.try_lock() {
                Ok(line) => break line,
                Err(TryLockError::Poisoned(line)) => break line.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        Some(Held { shared: &self.0, page: lock(&self.0.page).clone(), channels: self.0.channels(), line })
    }
}

/// A connection whose lock is taken.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    shared: &'a Shared,
    page: Option<Arc<OwnedFd>>,
    /// The channels that the application had at that time.
    channels: Vec<u32>,
    line: MutexGuard<'a, State>,
}

impl Held<'_> {
    /// Hangs up when the daemon ends. `None`: it has ended. A copy of this process keeps only this of the connection.
    pub(crate) fn hangs_up(&self) -> Option<BorrowedFd<'_>> {
        match &*self.line {
            State::There(_, hangs_up) => Some(hangs_up.as_fd()),
            State::Away { .. } | State::Over => None,
        }
    }

    /// The same as [`Shared::attend`], in the copy.
    pub(crate) fn attend(&mut self) -> Attended {
        if let State::There(_, hangs_up) = &*self.line
            && has_hung_up(hangs_up)
            && let State::There(client, _) = std::mem::replace(&mut *self.line, away())
        {
            // This copy closed its own descriptor, and another file may have the number by now.
            std::mem::forget(client);
        }
        match self.line.step(&self.shared.over) {
            Step::Look => {
                let looked = self.shared.look(self.channels.clone(), self.page.as_deref());
                self.line.came(looked, |_| true)
            }
            Step::Is(attended) => attended,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A copy of this process that `fork` made leaves it alone.
        if self.0.process == std::process::id() {
            let mut line = self.0.lock();
            if let State::There(client, _) = std::mem::replace(&mut *line, State::Over) {
                client.close();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.line)
    }

    fn channels(&self) -> Vec<u32> {
        lock(&self.channels).iter().copied().collect()
    }

    fn note_page(&self, host: &Host) {
        *lock(&self.page) = host.bells().map(|bells| Arc::clone(bells.handles()[0]));
    }

    /// Asks the daemon that is there.
    fn ask(&self, question: &Question) -> Result<(Answer, Vec<OwnedFd>), SocketError> {
        let mut line = self.lock();
        let State::There(client, hangs_up) = &*line else {
            return Err(if matches!(*line, State::Over) { SocketError::GONE } else { SocketError::Daemon(absent()) });
        };
        match client.flows(question.clone()) {
            Ok(answered) => {
                let mut channels = lock(&self.channels);
                match &answered.0 {
                    Answer::Granted(granted) => drop(channels.insert(granted.channel)),
                    Answer::Listening(listening) => drop(channels.insert(listening.channel)),
                    Answer::Accepted(all) => channels.extend(all.iter().map(|granted| granted.channel)),
                    Answer::Done | Answer::State(_) => {}
                }
                Ok(answered)
            }
            // It ended meanwhile. The next daemon ends a flow that it may have opened, because that is not claimed.
            Err(_) if has_hung_up(hangs_up) => {
                *line = away();
                Err(SocketError::Daemon(absent()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hangs up when the daemon ends. `None`: it has ended.
    pub(crate) fn hangs_up(&self) -> Option<OwnedFd> {
        match &*self.lock() {
            State::There(_, line) => line.try_clone().ok(),
            State::Away { .. } | State::Over => None,
        }
    }

    /// Checks whether the daemon is there, and looks for another one if it is not.
    pub(crate) fn attend(&self) -> Attended {
        // Not under the lock: looking takes a while.
        let step = self.lock().step(&self.over);
        let channels = match step {
            Step::Look => self.channels(),
            Step::Is(attended) => return attended,
        };
        let page = self.page(!channels.is_empty());
        let looked = self.look(channels, page.as_deref());
        let attended = self.lock().came(looked, |channel| lock(&self.channels).contains(&channel));
        if attended == Attended::There {
            self.found.fetch_add(1, Ordering::Relaxed);
            // If it is full, the hub wakes up anyway.
            let _ = self.wake.get().map(|wake| rustix::io::write(wake, &1_u64.to_ne_bytes()));
        }
        attended
    }

    /// Connects to a daemon and claims the flows with these channels, and with doorbells of this page. `None`: there
    /// are no doorbells yet.
    fn look(&self, channels: Vec<u32>, page: Option<&OwnedFd>) -> Looked {
        let found = Client::connect(&self.daemon, &self.purpose).and_then(|client| Ok((client.line()?, client)));
        let Ok((hangs_up, client)) = found else { return Looked::Nowhere };
        let Some(page) = page else { return Looked::Found(client, hangs_up, channels) };
        match client.claim(channels.clone(), page.as_fd()) {
            Ok(()) => Looked::Found(client, hangs_up, channels),
            // The process that holds the flows has not found this daemon yet.
            Err(error) if error.kind == CaptureErrorKind::Absent => Looked::Unknown,
            Err(_) if has_hung_up(&hangs_up) => Looked::Nowhere,
            Err(_) => Looked::Refused,
        }
    }

    /// The page of the doorbells. `None`: there are no flows. `has_flows`: there are some, and a call may be about to
    /// take their doorbells.
    fn page(&self, has_flows: bool) -> Option<Arc<OwnedFd>> {
        let of = |host: MutexGuard<'_, Host>| host.bells().map(|bells| Arc::clone(bells.handles()[0]));
        let page = lock(&self.page).clone();
        // Without flows, a call may have this lock while it waits for the daemon.
        page.or_else(|| has_flows.then(|| of(lock(&self.host))).flatten())
    }
}

impl State {
    /// The next step of the attendant.
    fn step(&mut self, over: &OwnedFd) -> Step {
        match self {
            State::There(_, hangs_up) if !has_hung_up(hangs_up) => return Step::Is(Attended::There),
            State::There(..) => *self = away(),
            State::Away { since, found } if found.unwrap_or(*since).elapsed() >= LOOK => {
                *self = State::Over;
                let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
            }
            State::Away { .. } | State::Over => {}
        }
        if matches!(self, State::Over) { Step::Is(Attended::Over) } else { Step::Look }
    }

    /// Takes the result of looking. `is_open`: does the application have this channel now?
    fn came(&mut self, looked: Looked, is_open: impl Fn(u32) -> bool) -> Attended {
        let State::Away { since, found } = self else { return Attended::Over };
        match looked {
            Looked::Found(client, hangs_up, claimed) => {
                // Closed while the daemon was away, so no daemon was told.
                for channel in claimed.into_iter().filter(|channel| !is_open(*channel)) {
                    let _ = client.flows(Question::Close(channel));
                }
                *self = State::There(client, hangs_up);
                Attended::There
            }
            Looked::Nowhere => Attended::Away,
            Looked::Unknown => {
                found.get_or_insert_with(Instant::now);
                Attended::Away
            }
            Looked::Refused => {
                // The time is over.
                *found = Some(since.checked_sub(LOOK).unwrap_or(*since));
                Attended::Away
            }
        }
    }
}

/// The next step for a connection.
enum Step {
    /// Do nothing.
    Is(Attended),
    /// Look for a daemon, and claim the flows.
    Look,
}

/// The result of looking for a daemon.
enum Looked {
    /// It is there, and claimed the flows with these channels.
    Found(Client, OwnedFd, Vec<u32>),
    Nowhere,
    /// It does not know the flows, perhaps not yet.
    Unknown,
    /// It refuses to have them.
    Refused,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// Its daemon is there.
    There,
    /// It looks for one.
    Away,
    /// There is none, or the connection was dropped.
    Over,
}
