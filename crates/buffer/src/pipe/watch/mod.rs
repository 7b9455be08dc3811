//! What the thread behind a pollable descriptor does: it sleeps in a reader's or a writer's place until something is due
//! for it, says so once, and sleeps again when that one has found nothing more to do. What is raised, an eventfd or a
//! model's word, is not known here.
//!
//! - [`reading`] — what a reader waits for.
//! - [`writing`] — what a writer waits for.

use crate::shared::futex::{self, wait_any};
use base::atomic::{AtomicU32, Mutex, MutexGuard, Ordering};
use std::sync::{Arc, PoisonError};

pub mod reading;
pub mod writing;

/// What the reader or the writer polls: ready, or not.
pub trait Event {
    /// Something is due. Not called twice in a row.
    fn raise(&self);

    /// Nothing is. Not called twice in a row.
    fn lower(&self);
}

/// What somebody waits for.
pub trait Waits {
    /// Sleeps until something is due (`true`), or the word has changed. May wake early, and says `false` then.
    fn sleep(&self, kick: (&AtomicU32, u32)) -> bool;
}

#[derive(Debug)]
struct State<W> {
    watched: Option<Arc<W>>,
    is_raised: bool,
    is_closed: bool,
}

/// What the thread has in common with whom it waits for.
#[derive(Debug)]
pub struct Watcher<E, W> {
    event: E,
    state: Mutex<State<W>>,
    /// Changed when the thread is to look at the state again.
    kick: AtomicU32,
}

impl<E: Event, W: Waits> Watcher<E, W> {
    /// With an event that is not raised.
    pub fn new(event: E) -> Watcher<E, W> {
        let state = State { watched: None, is_raised: false, is_closed: false };
        Watcher { event, state: Mutex::new(state), kick: AtomicU32::new(0) }
    }

    /// What is raised.
    pub fn event(&self) -> &E {
        &self.event
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self, state: &mut State<W>) {
        if !std::mem::replace(&mut state.is_raised, true) {
            self.event.raise();
        }
    }

    fn lower(&self, state: &mut State<W>) {
        if std::mem::replace(&mut state.is_raised, false) {
            self.event.lower();
        }
    }

    /// Something is due now.
    pub fn set_due(&self) {
        self.change(None, Self::raise);
    }

    /// Nothing is due, and what will be is waited for elsewhere.
    pub fn set_idle(&self) {
        self.change(None, Self::lower);
    }

    /// Nothing is due until it is for the thread to say.
    pub fn set_watched(&self, watched: W) {
        self.change(Some(Arc::new(watched)), Self::lower);
    }

    /// Ends [`run`](Watcher::run).
    pub fn close(&self) {
        self.state().is_closed = true;
        self.kick();
    }

    fn change(&self, watched: Option<Arc<W>>, event: fn(&Self, &mut State<W>)) {
        let mut state = self.state();
        event(self, &mut state);
        let is_watched = watched.is_some();
        let was_watched = std::mem::replace(&mut state.watched, watched).is_some();
        drop(state);
        if is_watched || was_watched {
            self.kick();
        }
    }

    fn kick(&self) {
        // Relaxed: the state's lock orders what was changed.
        self.kick.fetch_add(1, Ordering::Relaxed);
        futex::wake(&self.kick);
    }

    /// The thread: returns when it is closed.
    pub fn run(&self) {
        loop {
            // Before the state is looked at: a kick for what is not seen there is not slept through.
            let kick = self.kick.load(Ordering::Relaxed);
            let watched = {
                let state = self.state();
                if state.is_closed {
                    return;
                }
                state.watched.clone()
            };
            let Some(watched) = watched else {
                wait_any(&[(&self.kick, kick)], None);
                continue;
            };
            if watched.sleep((&self.kick, kick)) {
                let mut state = self.state();
                // Unless somebody has looked meanwhile.
                if state.watched.as_ref().is_some_and(|now| Arc::ptr_eq(now, &watched)) {
                    state.watched = None;
                    self.raise(&mut state);
                }
            }
        }
    }
}
