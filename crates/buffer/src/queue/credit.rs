//! Credit: a fixed number of places that go from a giver to a taker, full, and come back, free.
//! A giver that finds no free place waits.
//!
//! A place is a number; its user keeps a parcel for each number. A place belongs to the giver from [`Giver::place`] until [`Giver::give`],
//! and to the taker from [`Taker::take`] until [`Taker::give_back`]. Either end may go: behind a giver that ended the taker
//! finds the end, and a giver learns that the taker left.

use super::PopError;
use super::bell::Bell;
use super::numbers::{Pops, Pushes, Queue, numbers};
use base::atomic::{AtomicBool, Ordering, spin_loop};
use std::io;
use std::sync::Arc;

/// A giver looks so often before it sleeps.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 200 };

/// The words that both ends share.
#[derive(Debug)]
pub struct Ends {
    /// The taker wants no more.
    left: AtomicBool,
    /// Rings where there is a full place, or the end.
    full: Arc<Bell>,
    /// Rings where there is a free one, or the taker left.
    free: Bell,
}

impl Ends {
    /// The bell that the taker sleeps on.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.full
    }

    /// Did the taker leave?
    pub fn has_left(&self) -> bool {
        // Relaxed: the word carries no other data, and the bell's fences order it for a sleeper.
        self.left.load(Ordering::Relaxed)
    }
}

/// The end that fills places.
pub struct Giver {
    /// None once it has ended: the taker finds the end.
    full: Option<Pushes>,
    free: Pops,
    ends: Arc<Ends>,
}

/// The end that empties them.
pub struct Taker {
    full: Pops,
    free: Pushes,
    ends: Arc<Ends>,
}

/// Both ends of the places 0 to `places` - 1, all free, over queues of this design. The taker sleeps on the bell `full`; other givers may ring it too.
pub fn credit(places: usize, queue: Queue, full: &Arc<Bell>) -> io::Result<(Giver, Taker)> {
    let queue = || numbers(queue, places).map_err(|_| io::Error::other("a queue cannot have this number of places"));
    let ends = Arc::new(Ends { left: AtomicBool::new(false), full: Arc::clone(full), free: Bell::new()? });
    let ((full_sender, full), (mut free_sender, free)) = (queue()?, queue()?);
    // It has room for all of them.
    (0..places as u64).for_each(|place| free_sender.push(place));
    let giver = Giver { full: Some(full_sender), free, ends: Arc::clone(&ends) };
    Ok((giver, Taker { full, free: free_sender, ends }))
}

impl Giver {
    /// The words that both ends share.
    pub fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// Did the taker leave?
    pub fn has_left(&self) -> bool {
        self.ends.has_left()
    }

    /// A free place; waits where there is none, and says so before and after. None where the taker left.
    pub fn place(&mut self, mut is_waiting: impl FnMut(bool)) -> Option<u64> {
        let mut looks = 0;
        loop {
            if self.has_left() {
                return None;
            }
            match self.free.pop() {
                Ok(place) => return Some(place),
                Err(PopError::Closed) => return None,
                Err(PopError::Empty) if looks < LOOKS => {
                    looks += 1;
                    spin_loop();
                }
                Err(PopError::Empty) => {
                    self.ends.free.listen();
                    let found = self.free.pop();
                    if found == Err(PopError::Empty) && !self.has_left() {
                        is_waiting(true);
                        self.ends.free.sleep();
                        is_waiting(false);
                    }
                    self.ends.free.quiet();
                    if let Ok(place) = found {
                        return Some(place);
                    }
                }
            }
        }
    }

    /// Gives a place that is full.
    pub fn give(&mut self, place: u64) {
        if let Some(full) = &mut self.full {
            // The queue has room for all places; a push fails only where the taker has gone.
            full.push(place);
            self.ends.full.ring();
        }
    }

    /// There will be no more.
    pub fn end(&mut self) {
        if self.full.take().is_some() {
            self.ends.full.ring();
        }
    }
}

impl Drop for Giver {
    /// Also where its thread panicked.
    fn drop(&mut self) {
        self.end();
    }
}

impl Taker {
    /// The next full place.
    pub fn take(&mut self) -> Result<u64, PopError> {
        self.full.pop()
    }

    /// Gives places back.
    pub fn give_back(&mut self, places: impl Iterator<Item = u64>) {
        for place in places {
            // The queue has room for all places.
            self.free.push(place);
        }
        self.ends.free.ring();
    }

    /// The bell that it sleeps on.
    pub fn bell(&self) -> &Bell {
        &self.ends.full
    }

    /// The look behind [`Bell::listen`]: rings where there is a full place, or the end, for neither would ring again.
    pub fn ring_if_ready(&mut self) {
        if self.full.is_ready() {
            self.ends.full.ring();
        }
    }

    /// Wants no more.
    pub fn leave(&mut self) {
        self.ends.left.store(true, Ordering::Relaxed);
        self.ends.free.ring();
    }
}

impl Drop for Taker {
    /// Also where its thread panicked.
    fn drop(&mut self) {
        self.leave();
    }
}
