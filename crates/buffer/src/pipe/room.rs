//! A file descriptor for poll(2) and epoll(7) that says when a ring has room for a block.
//!
//! An eventfd: writable (POLLOUT) while it holds nothing, not writable while it is full; that it is readable then means
//! nothing. A thread empties it: it sleeps on the bell of the reader that stands in the way, as the writer itself would,
//! and on the word that changes when readers come and go. The writer says after each call how things are.

use super::writer::{SharedSink, locked};
use crate::ring::sleeper::{Needed, wait_any};
use crate::ring::words::RingWords;
use crate::shared::lifeline;
use crate::shared::words::Shared;
use base::atomic::{AtomicU32, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Bytes of the block.
    pub room: u64,
    /// It waits for a first reader.
    pub reader: bool,
}

/// What stands in the way of a write.
struct Obstacle {
    needed: Option<Needed>,
    /// Changes when readers come and go.
    words: Shared<RingWords>,
    epoch: u32,
}

impl Wanted {
    /// `None` where a write would not wait: it has room, or it fails at once.
    fn obstacle(&self, sink: &SharedSink) -> Option<Obstacle> {
        let mut sink = locked(sink);
        let needed = sink.writer().room_needs(self.room).ok()?;
        let deserted = self.reader && sink.writer().readers() == 0;
        // Without a keeper nobody can come any more.
        if (needed.is_none() && !deserted) || (deserted && !sink.is_kept()) {
            return None;
        }
        let (words, epoch) = sink.writer().membership_word();
        Some(Obstacle { needed: needed.filter(|_| !deserted), words, epoch })
    }
}

#[derive(Default)]
struct State {
    /// What the thread is to wait for.
    wanted: Option<Wanted>,
    /// Is the eventfd full?
    is_full: bool,
    is_closed: bool,
}

struct Common {
    event: OwnedFd,
    sink: SharedSink,
    state: Mutex<State>,
    /// Changed when the thread is to look at the state again.
    kick: AtomicU32,
}

/// What an eventfd can hold at most: full.
const FULL: u64 = u64::MAX - 1;

impl Common {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_writable(&self, state: &mut State) {
        if std::mem::replace(&mut state.is_full, false) {
            // It holds something: that can be read.
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
    }

    fn set_full(&self, state: &mut State) {
        if !std::mem::replace(&mut state.is_full, true) {
            // It holds nothing: there is room for all it can hold.
            let _ = rustix::io::write(&self.event, &FULL.to_ne_bytes());
        }
    }

    fn run(&self) {
        loop {
            // Acquire: what the state was changed to before the kick.
            let kick = self.kick.load(Ordering::Acquire);
            let wanted = {
                let state = self.state();
                if state.is_closed {
                    return;
                }
                state.wanted
            };
            match wanted {
                None => wait_any(&[(&self.kick, kick)], None),
                Some(wanted) => self.await_room(wanted, kick),
            }
        }
    }

    /// Sleeps until there may be room, and says so where there is.
    fn await_room(&self, wanted: Wanted, kick: u32) {
        locked(&self.sink).writer().watch();
        let obstacle = wanted.obstacle(&self.sink);
        let began = Instant::now();
        if let Some(Obstacle { needed, words, epoch }) = &obstacle {
            let mut all = vec![(&self.kick, kick), (&words.keeper.0.epoch, *epoch)];
            all.extend(needed.as_ref().map(Needed::word));
            // A keeper that dies tells nobody that nobody comes.
            let deadline = needed.as_ref().map_or_else(|| began.checked_add(lifeline::LOOK), Needed::deadline);
            wait_any(&all, deadline);
        }
        let mut sink = locked(&self.sink);
        sink.writer().unwatch();
        if began.elapsed() >= lifeline::LOOK {
            sink.writer().look_after_readers();
        }
        drop(sink);
        if obstacle.is_none() {
            let mut state = self.state();
            // Unless the writer has looked itself meanwhile.
            if state.wanted == Some(wanted) && self.kick.load(Ordering::Relaxed) == kick {
                state.wanted = None;
                self.set_writable(&mut state);
            }
        }
    }
}

/// The descriptor and the thread behind it.
pub(super) struct RoomPoller {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for RoomPoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoomPoller").field("event", &self.common.event).finish_non_exhaustive()
    }
}

impl RoomPoller {
    pub fn new(sink: SharedSink) -> io::Result<RoomPoller> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let common = Arc::new(Common { event, sink, state: Mutex::default(), kick: AtomicU32::new(0) });
        let of_thread = Arc::clone(&common);
        let thread = std::thread::Builder::new().name("ring-room".into()).spawn(move || of_thread.run())?;
        Ok(RoomPoller { common, thread: Some(thread) })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.common.event.as_fd()
    }

    /// Says what a write would want now.
    pub fn set(&mut self, wanted: Wanted) {
        let is_free = wanted.obstacle(&self.common.sink).is_none();
        let mut state = self.common.state();
        let before = state.wanted.take();
        if is_free {
            self.common.set_writable(&mut state);
        } else {
            self.common.set_full(&mut state);
            state.wanted = Some(wanted);
        }
        let changed = before.is_some() || state.wanted.is_some();
        drop(state);
        if changed {
            self.kick();
        }
    }

    fn kick(&self) {
        // Release: the state was changed before.
        self.common.kick.fetch_add(1, Ordering::Release);
        crate::shared::futex::wake(&self.common.kick);
    }
}

impl Drop for RoomPoller {
    fn drop(&mut self) {
        self.common.state().is_closed = true;
        self.kick();
        if let Some(thread) = self.thread.take() {
            // It panics nowhere; were it so, there would be nothing left of it to end.
            let _ = thread.join();
        }
    }
}
