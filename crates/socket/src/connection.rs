//! An application's connection to a daemon, for flows. Flows outlive the daemon: the connection looks for the next
//! daemon and claims them there.

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

/// How long a connection looks for another daemon. It then allows as long again to claim its flows, because the
/// process that holds them must find that daemon too.
const LOOK: Duration = Duration::from_secs(5);

pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// Flows at one daemon, or at its successor. They end when this is dropped.
#[derive(Debug)]
pub struct Connection(Arc<Shared>);

/// The part of a connection that the attendant shares.
#[derive(Debug)]
pub(crate) struct Shared {
    daemon: PathBuf,
    purpose: String,
    line: Mutex<Daemon>,
    /// Channels of the application's flows and listeners. Lock order: after `line` if both are taken.
    channels: Mutex<BTreeSet<u32>>,
    /// Daemons found after the first one.
    found: AtomicU32,
    /// The attendant writes to it after finding a daemon. Unset: no hub sleeps.
    wake: OnceLock<OwnedFd>,
    host: Mutex<Host>,
    /// The page of the doorbells, with which the connection claims the flows. `None` before the first flow.
    page: Mutex<Option<Arc<OwnedFd>>>,
    /// Readable once the search for a daemon has failed.
    over: OwnedFd,
    /// The process that connected.
    process: u32,
}

/// The daemon, as this connection knows it.
#[derive(Debug)]
enum Daemon {
    /// Connected. The second value hangs up when the daemon ends.
    There(Client, OwnedFd),
    /// The daemon ended at `since`. The one seen at `found` does not know the flows yet.
    Away {
        since: Instant,
        found: Option<Instant>,
    },
    Over,
}

/// The daemon ended just now.
fn away() -> Daemon {
    Daemon::Away { since: Instant::now(), found: None }
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

fn has_hung_up(line: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(line, PollFlags::RDHUP)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

impl Connection {
    /// Connects to the daemon that listens at `daemon`. `purpose` tells people what the flows are for.
    ///
    /// # Errors
    ///
    /// [`SocketError::Daemon`]: no daemon answers.
    pub fn open(daemon: &Path, purpose: &str) -> Result<Connection, SocketError> {
        let client = Client::connect(daemon, purpose).map_err(|error| {
            let text = format!("no daemon can be reached at {}: {error}", base::terminal::name(daemon));
            SocketError::Daemon(io::Error::new(error.kind(), text))
        })?;
        let hangs_up = client.line().map_err(SocketError::Daemon)?;
        let over = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            // The working directory may have changed when the attendant looks for another daemon.
            daemon: std::path::absolute(daemon).unwrap_or_else(|_| daemon.to_path_buf()),
            purpose: purpose.into(),
            line: Mutex::new(Daemon::There(client, hangs_up)),
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
    /// [`SocketError::Refused`]: by policy, or the port is taken, or there is no such interface.
    /// [`SocketError::Daemon`]: the daemon ended, and the search goes on. [`SocketError::Closed`]: it failed.
    pub fn flow(&self, open: &OpenFlow) -> Result<Flow, SocketError> {
        // Flows open one at a time: the doorbells come with the first one.
        let mut host = lock(&self.0.host);
        let flow = match self.0.ask(&Question::Open(open.clone()))? {
            (Answer::Granted(granted), fds) => host.adopt(granted, open.geometry(), fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        };
        self.0.note_page(&host);
        flow
    }

    pub(crate) fn listen(&self, open: &OpenListener) -> Result<Listener, SocketError> {
        let mut host = lock(&self.0.host);
        let listener = match self.0.ask(&Question::Listen(open.clone()))? {
            (Answer::Listening(listening), fds) => host.adopt_listener(listening, fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        };
        self.0.note_page(&host);
        listener
    }

    /// Takes up to `most` waiting connections of a listener, whose channels have this geometry. Does not block. There
    /// are none while the daemon is away.
    pub(crate) fn accept(&self, channel: u32, most: u32, geometry: Geometry) -> Result<Vec<Flow>, SocketError> {
        let mut host = lock(&self.0.host);
        match self.0.ask(&Question::Accept(channel, most)) {
            Ok((Answer::Accepted(granted), fds)) => {
                host.adopt_accepted(granted, geometry, fds).map_err(SocketError::Daemon)
            }
            Err(_) if matches!(*self.0.lock(), Daemon::Away { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(_) => Err(unexpected()),
        }
    }

    /// Makes the attendant write to this descriptor when it finds another daemon.
    pub(crate) fn wake_by(&self, wake: OwnedFd) {
        let _ = self.0.wake.set(wake);
    }

    /// Daemons found after the first one. Ask each of them for waiting connections.
    pub(crate) fn found(&self) -> u32 {
        self.0.found.load(Ordering::Relaxed)
    }

    pub(crate) fn has_daemon(&self) -> bool {
        matches!(*self.0.lock(), Daemon::There(..))
    }

    /// The doorbells of all flows; `None` before the first flow.
    pub(crate) fn bells(&self) -> Option<Arc<Bells>> {
        lock(&self.0.host).bells().cloned()
    }

    /// Closes a flow with a message in its channel. The driver may then reuse the channel's number.
    pub(crate) fn close_flow(&self, flow: &mut Flow) {
        lock(&self.0.channels).remove(&flow.granted.channel);
        flow.close();
    }

    /// Closes a listener or an unused flow by its channel. If the daemon is away, this call does not wait: the next
    /// daemon notices that no client claims the channel.
    pub(crate) fn close(&self, channel: u32) {
        let line = self.0.lock();
        lock(&self.0.channels).remove(&channel);
        if let Daemon::There(client, _) = &*line {
            let _ = client.flows(Question::Close(channel));
        }
    }

    /// Readable once the daemon has gone and the search for another has failed.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.0.over.as_fd()
    }

    /// Locks the connection for a forked copy, which has no attendant. `None`: a call held the lock until `deadline`.
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

/// A locked connection.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    shared: &'a Shared,
    page: Option<Arc<OwnedFd>>,
    /// The application's channels at that time.
    channels: Vec<u32>,
    line: MutexGuard<'a, Daemon>,
}

impl Held<'_> {
    /// Hangs up when the daemon ends; `None` if it has ended. A forked copy keeps only this descriptor.
    pub(crate) fn hangs_up(&self) -> Option<BorrowedFd<'_>> {
        match &*self.line {
            Daemon::There(_, hangs_up) => Some(hangs_up.as_fd()),
            Daemon::Away { .. } | Daemon::Over => None,
        }
    }

    /// Does the attendant's work in the copy.
    pub(crate) fn attend(&mut self) -> Attended {
        if let Daemon::There(_, hangs_up) = &*self.line
            && has_hung_up(hangs_up)
            && let Daemon::There(client, _) = std::mem::replace(&mut *self.line, away())
        {
            // The copy closed the client's descriptor, and its number may belong to another file by now.
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
        // A forked copy leaves the daemon alone.
        if self.0.process == std::process::id() {
            let mut line = self.0.lock();
            if let Daemon::There(client, _) = std::mem::replace(&mut *line, Daemon::Over) {
                client.close();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.line)
    }

    fn channels(&self) -> Vec<u32> {
        lock(&self.channels).iter().copied().collect()
    }

    fn note_page(&self, host: &Host) {
        *lock(&self.page) = host.bells().map(|bells| Arc::clone(bells.handles()[0]));
    }

    /// Asks the connected daemon.
    fn ask(&self, question: &Question) -> Result<(Answer, Vec<OwnedFd>), SocketError> {
        let mut line = self.lock();
        let Daemon::There(client, hangs_up) = &*line else {
            return Err(if matches!(*line, Daemon::Over) { SocketError::GONE } else { SocketError::Daemon(absent()) });
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
            // The daemon ended meanwhile. The next daemon ends whatever was opened, since no client claims it.
            Err(_) if has_hung_up(hangs_up) => {
                *line = away();
                Err(SocketError::Daemon(absent()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hangs up when the daemon ends; `None` if it has ended.
    pub(crate) fn hangs_up(&self) -> Option<OwnedFd> {
        match &*self.lock() {
            Daemon::There(_, line) => line.try_clone().ok(),
            Daemon::Away { .. } | Daemon::Over => None,
        }
    }

    /// Checks whether the daemon is there, and looks for another if not.
    pub(crate) fn attend(&self) -> Attended {
        // The lock is free during the search, which takes a while.
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
            // A full eventfd wakes the hub as well.
            let _ = self.wake.get().map(|wake| rustix::io::write(wake, &1_u64.to_ne_bytes()));
        }
        attended
    }

    /// Connects to a daemon and claims the flows with these channels and doorbells (`page`; `None` without flows).
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

    /// The page of the doorbells; `None` without flows. `has_flows`: a call may be about to get their doorbells.
    fn page(&self, has_flows: bool) -> Option<Arc<OwnedFd>> {
        let of = |host: MutexGuard<'_, Host>| host.bells().map(|bells| Arc::clone(bells.handles()[0]));
        let page = lock(&self.page).clone();
        // Lock `host` only if needed: a call may hold it while it waits for the daemon.
        page.or_else(|| has_flows.then(|| of(lock(&self.host))).flatten())
    }
}

impl Daemon {
    /// The attendant's next step.
    fn step(&mut self, over: &OwnedFd) -> Step {
        match self {
            Daemon::There(_, hangs_up) if !has_hung_up(hangs_up) => return Step::Is(Attended::There),
            Daemon::There(..) => *self = away(),
            Daemon::Away { since, found } if found.unwrap_or(*since).elapsed() >= LOOK => {
                *self = Daemon::Over;
                let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
            }
            Daemon::Away { .. } | Daemon::Over => {}
        }
        if matches!(self, Daemon::Over) { Step::Is(Attended::Over) } else { Step::Look }
    }

    /// Applies the result of a search. `is_open`: does the application still have this channel?
    fn came(&mut self, looked: Looked, is_open: impl Fn(u32) -> bool) -> Attended {
        let Daemon::Away { since, found } = self else { return Attended::Over };
        match looked {
            Looked::Found(client, hangs_up, claimed) => {
                // The application closed these while the daemon was away.
                for channel in claimed.into_iter().filter(|channel| !is_open(*channel)) {
                    let _ = client.flows(Question::Close(channel));
                }
                *self = Daemon::There(client, hangs_up);
                Attended::There
            }
            Looked::Nowhere => Attended::Away,
            Looked::Unknown => {
                found.get_or_insert_with(Instant::now);
                Attended::Away
            }
            Looked::Refused => {
                // Ends the search at the next step.
                *found = Some(since.checked_sub(LOOK).unwrap_or(*since));
                Attended::Away
            }
        }
    }
}

/// The next step for a connection.
enum Step {
    Is(Attended),
    /// Look for a daemon and claim the flows.
    Look,
}

/// The result of looking for a daemon.
enum Looked {
    /// A daemon is there, and it accepted the claim of these channels.
    Found(Client, OwnedFd, Vec<u32>),
    Nowhere,
    /// A daemon is there that does not know the flows, perhaps not yet.
    Unknown,
    /// The daemon refuses the claim.
    Refused,
}

/// State of a connection, as the attendant reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    There,
    /// The connection looks for a daemon.
    Away,
    /// The search failed, or the application dropped the connection.
    Over,
}
