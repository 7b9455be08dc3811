//! An application's connection to a daemon, for flows. Flows outlive the daemon: the connection looks for the next
//! daemon and claims them there.

use crate::attendant;
use crate::error::SocketError;
use crate::line::{Attended, Daemon, Line, Step, away, has_hung_up, lock};
use buffer::flow::{Bells, Geometry};
use capture::client::Client;
use capture::{CaptureError, CaptureErrorKind};
use flow::{Answer, Flow, Listener, OpenFlow, OpenListener, Question};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

/// Flows at one daemon, or at its successor. They end when this is dropped.
#[derive(Debug)]
pub struct Connection(Arc<Line>);

fn unexpected() -> SocketError {
    CaptureError::new(CaptureErrorKind::System, "the daemon answers something else than was asked").into()
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
        let shared = Arc::new(Line {
            // The working directory may have changed when the attendant looks for another daemon.
            daemon: std::path::absolute(daemon).unwrap_or_else(|_| daemon.to_path_buf()),
            purpose: purpose.into(),
            known: Mutex::new(Daemon::There(client, hangs_up)),
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
            match self.0.known.try_lock() {
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
    shared: &'a Line,
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
