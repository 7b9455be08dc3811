//! What the sink and the source of one process share: the source passes the next ring to the sink through it.

use base::atomic::StopFlag;
use buffer::keeper::client::NamedWriter;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of one wait.
pub(super) const TURN: Duration = Duration::from_millis(20);

/// Drop reason for blocks that come after the process has ended.
pub(super) const GONE: &str = "the process has ended";

/// Drop reason for blocks that the process was given and had not taken, as far as known.
pub(super) const IN_FLIGHT: &str = "in the process that died";

/// The state that the sink and the source of one process share.
#[derive(Debug)]
pub(super) struct Link {
    restarts: bool,
    state: Mutex<LinkState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// The ring that the next process reads.
    pub(super) next: Option<NamedWriter>,
    /// No other process will be started.
    pub(super) is_over: bool,
    /// The sink has no more blocks.
    pub(super) is_finished: bool,
}

impl Link {
    pub(super) fn new(restarts: bool) -> Link {
        Link { restarts, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LinkState> {
        // No panic under the lock leaves the state half changed, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut LinkState)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Whether a process that died is replaced by another.
    pub(super) fn restarts(&self) -> bool {
        self.restarts
    }

    /// Tells the source that the sink has no more blocks.
    pub(super) fn finish(&self) {
        self.set(|state| (state.is_finished, state.next) = (true, None));
    }

    /// Whether the current process has stopped reading.
    pub(super) fn is_left(&self) -> bool {
        let state = self.state();
        state.is_over || state.next.is_some()
    }

    /// Waits for the ring of the next process. `None`: there is no next process, or the request was told to stop.
    pub(super) fn next(&self, stop: &StopFlag) -> Option<NamedWriter> {
        if !self.restarts {
            return None;
        }
        let mut state = self.state();
        while state.next.is_none() && !state.is_over && !stop.is_set() {
            let waited = self.changed.wait_timeout(state, TURN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.next.take()
    }
}
