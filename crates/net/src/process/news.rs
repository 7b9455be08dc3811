//! Lines for the administrator about interfaces, until the daemon fetches them.

use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most lines that wait to be fetched.
const LINES: usize = 64;

/// A line for the administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// About an interface: a few a minute.
    Interface(String),
    /// About one of its flows: there may be many.
    Flow(String),
}

/// Lines for the administrator.
#[derive(Debug)]
pub(crate) struct News {
    lines: Mutex<Vec<Line>>,
    /// Readable while there are lines.
    wake: Option<OwnedFd>,
}

impl Default for News {
    fn default() -> News {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        News { lines: Mutex::default(), wake: wake.ok() }
    }
}

impl News {
    /// Adds a line about an interface.
    pub(crate) fn tell(&self, line: String) {
        self.put(Line::Interface(line));
    }

    /// Adds a line about a flow.
    pub(crate) fn tell_of_flow(&self, line: String) {
        self.put(Line::Flow(line));
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: Line) {
        let mut lines = self.lines();
        if lines.len() < LINES || matches!(line, Line::Interface(_)) {
            lines.push(line);
        }
        // A full descriptor is readable, too.
        let _ = self.wake.as_ref().map(|wake| rustix::io::write(wake, &1_u64.to_ne_bytes()));
    }

    pub(crate) fn take(&self) -> Vec<Line> {
        let _ = self.wake.as_ref().map(|wake| rustix::io::read(wake, &mut [0; 8]));
        std::mem::take(&mut *self.lines())
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}
