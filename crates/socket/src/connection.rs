//! An application's connection to a daemon, for flows.

use crate::error::SocketError;
use buffer::flow::{Bells, Geometry};
use capture::client::Client;
use capture::{CaptureError, CaptureErrorKind};
use flow::{Answer, Flow, Host, Listener, OpenFlow, OpenListener, Question};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Flows at one daemon. They end when it is dropped, and when the daemon ends.
#[derive(Debug)]
pub struct Connection {
    client: Client,
    host: Mutex<Host>,
    /// Readable once the daemon has closed the connection.
    line: OwnedFd,
}

fn unexpected() -> SocketError {
    CaptureError::new(CaptureErrorKind::System, "the daemon answers something else than was asked").into()
}

impl Connection {
    /// Connects to the daemon that listens at `daemon`; `purpose` says to people what the flows are for.
    ///
    /// # Errors
    ///
    /// [`SocketError::Daemon`]: there is none, or it does not answer.
    pub fn open(daemon: &Path, purpose: &str) -> Result<Connection, SocketError> {
        let client = Client::connect(daemon, purpose).map_err(|error| {
            let text = format!("no daemon can be reached at {}: {error}", base::terminal::name(daemon));
            SocketError::Daemon(io::Error::new(error.kind(), text))
        })?;
        let line = client.line().map_err(SocketError::Daemon)?;
        Ok(Connection { client, host: Mutex::default(), line })
    }

    /// Opens a flow.
    ///
    /// # Errors
    ///
    /// [`SocketError::Refused`]: the policy, a port that is taken, no such interface; [`SocketError::Daemon`]: it has gone.
    pub fn flow(&self, open: &OpenFlow) -> Result<Flow, SocketError> {
        // One flow after the other: the doorbells come with the first one.
        let mut host = self.lock();
        match self.client.flows(Question::Open(open.clone()))? {
            (Answer::Granted(granted), fds) => host.adopt(granted, open.geometry(), fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        }
    }

    /// Opens a listener.
    pub(crate) fn listen(&self, open: &OpenListener) -> Result<Listener, SocketError> {
        let mut host = self.lock();
        match self.client.flows(Question::Listen(open.clone()))? {
            (Answer::Listening(listening), fds) => host.adopt_listener(listening, fds).map_err(SocketError::Daemon),
            _ => Err(unexpected()),
        }
    }

    /// Takes at most `most` connections that wait at a listener, whose channels have this geometry. Does not wait for any.
    pub(crate) fn accept(&self, channel: u32, most: u32, geometry: Geometry) -> Result<Vec<Flow>, SocketError> {
        let mut host = self.lock();
        match self.client.flows(Question::Accept(channel, most))? {
            (Answer::Accepted(granted), fds) => {
                host.adopt_accepted(granted, geometry, fds).map_err(SocketError::Daemon)
            }
            _ => Err(unexpected()),
        }
    }

    /// The doorbells of all flows; none before the first.
    pub(crate) fn bells(&self) -> Option<Arc<Bells>> {
        self.lock().bells().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a flow by its channel. A daemon that has gone has closed it.
    pub(crate) fn close(&self, channel: u32) {
        let _ = self.client.flows(Question::Close(channel));
    }

    /// Readable once the daemon has closed the connection.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}
