//! What the thread of a request and the program tell each other.

use capture::{CaptureError, CaptureErrorKind, ETHERNET};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use streamline::{Report, StopFlag};

/// How long a running request has until its first frame, which tells the link type. After that, Ethernet is assumed.
const FIRST_FRAME: Duration = Duration::from_millis(500);

/// State that both threads use.
#[derive(Debug)]
pub struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    pub(crate) stop: StopFlag,
    /// Makes the ring's owner check whether the request has ended.
    pub(crate) bell: OwnedFd,
    /// Packets that devices in the request have lost.
    pub(crate) lost: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) prepared: bool,
    /// The link type of its frames, once known.
    pub(crate) link_type: Option<u16>,
    /// The program wants packets.
    pub(crate) wanted: bool,
    /// The program has closed its handle.
    pub(crate) closed: bool,
    /// Number of the packet that the program reads next.
    pub(crate) position: u64,
    /// Why a frame could not be published.
    pub(crate) refused: Option<String>,
    pub(crate) end: Option<Result<(), String>>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // The state stays valid even if a thread panics: each change is one store.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Option<Duration>) -> MutexGuard<'a, State> {
        match time {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    /// Makes the ring's owner check the state.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(crate) fn finish(&self, end: Result<(), String>) {
        let mut state = self.lock();
        // The first reason counts.
        state.end.get_or_insert(end);
        self.changed.notify_all();
        if state.wanted {
            self.ring();
        }
    }

    pub(crate) fn await_first_frame(&self) -> Result<(), CaptureError> {
        let mut state = self.lock();
        let mut until = None;
        // A request whose link type is known may fail before it runs even so.
        while state.link_type.is_none() || !state.prepared {
            if let Some(end) = &state.end {
                if let Err(why) = end {
                    return Err(CaptureError::new(CaptureErrorKind::Cannot, why.clone()));
                }
                // The request ended without a frame, so there is no link type.
                break;
            }
            let left = state.prepared.then(|| {
                let until = *until.get_or_insert_with(|| Instant::now() + FIRST_FRAME);
                until.saturating_duration_since(Instant::now())
            });
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            state = self.wait(state, left);
        }
        state.link_type.get_or_insert(ETHERNET);
        Ok(())
    }

    /// Takes the link type of a frame, and waits until the program wants packets. `false`: it never will, or the first
    /// frames had another link type.
    pub(crate) fn admit(&self, link_type: u16) -> bool {
        let mut state = self.lock();
        let first = *state.link_type.get_or_insert(link_type);
        if first != link_type {
            state.refused =
                Some(format!("frames of link type {link_type} came, on a device that has link type {first}"));
            return false;
        }
        self.changed.notify_all();
        while !state.wanted && !state.closed {
            state = self.wait(state, None);
        }
        !state.closed
    }

    /// Waits until the program has read the packets before this number. `false`: it never will.
    pub(crate) fn await_reader(&self, number: u64) -> bool {
        let mut state = self.lock();
        while state.position < number && !state.closed {
            state = self.wait(state, None);
        }
        !state.closed
    }

    pub(crate) fn count_losses(&self, report: &Report) {
        let sources = report.nodes.iter().filter(|node| node.source);
        let lost = sources.map(|node| node.counters.drops.total()).sum();
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Packets that devices in the request have lost. Signal handlers may call it, too.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
