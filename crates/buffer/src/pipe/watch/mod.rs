//! The work of the thread behind a pollable descriptor: it sleeps in place of a reader or writer until something is
//! due, and raises an event once. It sleeps again when the reader or writer has found nothing more to do. The event may
//! be an eventfd or a model's word; this module does not know which.
//!
//! | call or event | event afterwards | watched afterwards |
//! |---|---|---|
//! | `set_due` | raised | nothing |
//! | `set_idle` | lowered | nothing |
//! | `set_watched(w)` | lowered | `w` |
//! | the thread finds `w` due, and `w` is still watched | raised | nothing |
//! | the thread finds `w` due, but something else is watched by now | unchanged | unchanged |
//! | `close` | unchanged; the thread ends | unchanged |
//!
//! The thread must not raise the event for a `w` that was replaced: its reader has looked and would find nothing.
//!
//! - [`reading`] — what a reader waits for.
//! - [`writing`] — what a writer waits for.

use crate::shared::futex::{self, wait_any};
use base::atomic::{AtomicU32, Mutex, MutexGuard, Ordering};
use std::sync::{Arc, PoisonError};

pub mod reading;
pub mod writing;

/// The event that the reader or writer polls.
pub trait Event {
    /// Something is due. Not called twice in a row.
    fn raise(&self);

    /// Nothing is due. Not called twice in a row.
    fn lower(&self);
}

/// Something to wait for.
pub trait Waits {
    /// Sleeps until something is due (`true`), or `kick` has changed. May wake early, and returns `false` then.
    fn sleep(&self, kick: (&AtomicU32, u32)) -> bool;
}

#[derive(Debug)]
struct State<W> {
    watched: Option<Arc<W>>,
    is_raised: bool,
    is_closed: bool,
}

/// The state that the thread shares with its reader or writer.
#[derive(Debug)]
pub struct Watcher<E, W> {
    event: E,
    state: Mutex<State<W>>,
    /// Changed when the thread must look at the state again.
    kick: AtomicU32,
}

impl<E: Event, W: Waits> Watcher<E, W> {
    /// A watcher with an event that is not raised.
    pub fn new(event: E) -> Watcher<E, W> {
        let state = State { watched: None, is_raised: false, is_closed: false };
        Watcher { event, state: Mutex::new(state), kick: AtomicU32::new(0) }
    }

    /// The event.
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

    /// Raises the event; the thread watches no more.
    pub fn set_due(&self) {
        self.change(None, Self::raise);
    }

    /// The reader or writer waits elsewhere: lowers the event, and the thread watches no more.
    pub fn set_idle(&self) {
        self.change(None, Self::lower);
    }

    /// Lowers the event until the thread finds `watched` due.
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
        // Relaxed: the state's lock orders the change.
        self.kick.fetch_add(1, Ordering::Relaxed);
        futex::wake(&self.kick);
    }

    /// The thread's loop; returns after [`close`](Watcher::close).
    pub fn run(&self) {
        loop {
            // Loaded before the state: if the state lacks a change, its kick ends the sleep.
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
                if state.watched.as_ref().is_some_and(|now| Arc::ptr_eq(now, &watched)) {
                    state.watched = None;
                    self.raise(&mut state);
                }
            }
        }
    }
}
