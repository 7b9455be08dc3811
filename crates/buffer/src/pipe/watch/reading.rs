//! What a reader waits for: its ring's bell, and readers of blocks that it forwarded.

use super::Waits;
use crate::ring::sleeper::{Needed, Sleeper};
use crate::shared::futex::wait_any;
use crate::shared::lifeline;
use base::atomic::AtomicU32;
use std::time::Instant;

/// A ring to which blocks were forwarded, and its first unit that is not passed yet.
pub trait Front {
    /// The reader that still needs the unit; `None` where all have passed it. Readers ring until
    /// [`unwatch`](Front::unwatch).
    fn watch(&self) -> Option<Needed>;

    /// Called once for each [`watch`](Front::watch). `is_silent`: no bell rang for long, so check for dead readers.
    fn unwatch(&self, is_silent: bool);
}

/// A watch over readers that have yet to pass forwarded blocks. They ring while it lives, also if no writer needs room.
pub struct Watch<'a, F: Front> {
    fronts: &'a [F],
    /// For each front, the reader that still needs its unit; `None` if all have passed it.
    needed: Vec<Option<Needed>>,
    began: Instant,
}

impl<F: Front> Watch<'_, F> {
    /// Watches from now on.
    pub fn new(fronts: &[F]) -> Watch<'_, F> {
        Watch { fronts, needed: fronts.iter().map(F::watch).collect(), began: Instant::now() }
    }

    /// Whether all readers of some front have passed its unit.
    pub fn is_due(&self) -> bool {
        self.needed.iter().any(Option::is_none)
    }

    /// The words to sleep on, with their values.
    pub fn words(&self) -> Vec<(&AtomicU32, u32)> {
        self.needed.iter().flatten().map(Needed::word).collect()
    }

    /// When to look again even if no bell rang.
    pub fn deadline(&self) -> Option<Instant> {
        self.needed.iter().flatten().filter_map(Needed::deadline).min()
    }
}

impl<F: Front> Drop for Watch<'_, F> {
    fn drop(&mut self) {
        let is_silent = self.began.elapsed() >= lifeline::LOOK;
        self.fronts.iter().for_each(|front| front.unwatch(is_silent));
    }
}

/// What a reader waits for.
#[derive(Debug)]
pub struct Reading<F> {
    /// The reader's place.
    pub sleeper: Sleeper,
    /// The ring has ended and was read to the end: wait for the fronts only.
    pub is_over: bool,
    /// Rings with forwarded blocks: something is also due when one of these blocks is passed.
    pub fronts: Vec<F>,
}

impl<F: Front> Waits for Reading<F> {
    fn sleep(&self, kick: (&AtomicU32, u32)) -> bool {
        let watch = Watch::new(&self.fronts);
        let due = watch.is_due() || (!self.is_over && self.sleeper.is_due());
        if !due {
            let mut words = watch.words();
            words.push(kick);
            let deadline = watch.deadline();
            if self.is_over { wait_any(&words, deadline) } else { self.sleeper.sleep(&words, deadline) }
        }
        due
    }
}
