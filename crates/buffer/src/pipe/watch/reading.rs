//! What a reader waits for: its ring's bell, and who it was forwarded to.

use super::Waits;
use crate::ring::sleeper::{Needed, Sleeper};
use crate::shared::futex::wait_any;
use crate::shared::lifeline;
use base::atomic::AtomicU32;
use std::time::Instant;

/// A ring that was forwarded to, and the first unit of it that is not passed there yet.
pub trait Front {
    /// Who stands in the way; `None` where nobody does. Readers ring until [`unwatch`](Front::unwatch).
    fn watch(&self) -> Option<Needed>;

    /// Once for each [`watch`](Front::watch). Nobody may have rung for so long that it `is_silent`: is everybody there yet?
    fn unwatch(&self, is_silent: bool);
}

/// Readers that have yet to pass what was forwarded: they ring as long as this lives, also while nobody waits for room.
pub struct Watch<'a, F: Front> {
    fronts: &'a [F],
    /// Who stands in the way of each, if anybody does.
    needed: Vec<Option<Needed>>,
    began: Instant,
}

impl<F: Front> Watch<'_, F> {
    /// From now on.
    pub fn new(fronts: &[F]) -> Watch<'_, F> {
        Watch { fronts, needed: fronts.iter().map(F::watch).collect(), began: Instant::now() }
    }

    /// Is of some of it nothing needed any more?
    pub fn is_due(&self) -> bool {
        self.needed.iter().any(Option::is_none)
    }

    /// What to sleep on.
    pub fn words(&self) -> Vec<(&AtomicU32, u32)> {
        self.needed.iter().flatten().map(Needed::word).collect()
    }

    /// When to look again even if nobody has rung.
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

/// What there is for a reader.
#[derive(Debug)]
pub struct Reading<F> {
    /// The reader's place.
    pub sleeper: Sleeper,
    /// Everything in the ring was looked at, and nothing more will come: only the fronts are waited for.
    pub is_over: bool,
    /// Who it was forwarded to: something is due as well when one of them is passed.
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
