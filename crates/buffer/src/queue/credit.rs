//! Credit: a fixed number of places that go full from a giver to a taker, and come back free. Without one a giver
//! waits.
//!
//! A place is a number; its users keep a parcel for each number.
//!
//! | move | from | to |
//! |---|---|---|
//! | [`Giver::place`] | free, in a queue | the giver's |
//! | [`Giver::give`] | the giver's | full, in a queue |
//! | [`Taker::take`] | full, in a queue | the taker's |
//! | [`Taker::give_back`] | the taker's | free, in a queue |
//!
//! No other moves are allowed: an end that uses a place which is not its own races with the other end. Either end may
//! go: the taker finds the end after the last full place, and a giver learns that the taker left.

use super::PopError;
use super::bell::Bell;
use super::numbers::{Pops, Pushes, Queue, numbers};
use base::atomic::{AtomicBool, Ordering, spin_loop};
use std::io;
use std::sync::Arc;

/// Looks of a giver before it sleeps.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 200 };

/// The words that both ends share.
#[derive(Debug)]
pub struct Ends {
    left: AtomicBool,
    /// Rings for a full place, or the end.
    full: Arc<Bell>,
    /// Rings for a free place, or when the taker left.
    free: Bell,
}

impl Ends {
    /// The bell on which the taker sleeps.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.full
    }

    /// Whether the taker left.
    pub fn has_left(&self) -> bool {
        // Relaxed: the word carries no other data, and the bell's fences order it for a sleeper.
        self.left.load(Ordering::Relaxed)
    }
}

/// The end that fills places.
pub struct Giver {
    /// `None` once the giver has ended: then the taker finds the end.
    full: Option<Pushes>,
    free: Pops,
    ends: Arc<Ends>,
}

/// The end that empties places.
pub struct Taker {
    full: Pops,
    free: Pushes,
    ends: Arc<Ends>,
}

/// Both ends of the places 0 to `places` - 1, all free, over queues of this design. The taker sleeps on the bell
/// `full`, which other givers may ring too.
pub fn credit(places: usize, queue: Queue, full: &Arc<Bell>) -> io::Result<(Giver, Taker)> {
    let queue = || numbers(queue, places).map_err(|_| io::Error::other("a queue cannot have this number of places"));
    let ends = Arc::new(Ends { left: AtomicBool::new(false), full: Arc::clone(full), free: Bell::new()? });
    let ((full_sender, full), (mut free_sender, free)) = (queue()?, queue()?);
    (0..places as u64).for_each(|place| free_sender.push(place));
    let giver = Giver { full: Some(full_sender), free, ends: Arc::clone(&ends) };
    Ok((giver, Taker { full, free: free_sender, ends }))
}

impl Giver {
    /// The words that both ends share.
    pub fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// Whether the taker left.
    pub fn has_left(&self) -> bool {
        self.ends.has_left()
    }

    /// A free place; `None` where the taker left. Waits if there is none: calls `is_waiting` before and after.
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

    /// Gives a full place to the taker.
    pub fn give(&mut self, place: u64) {
        if let Some(full) = &mut self.full {
            // The queue has room for all places; a push fails only where the taker has gone.
            full.push(place);
            self.ends.full.ring();
        }
    }

    /// Says that no more places will come.
    pub fn end(&mut self) {
        if self.full.take().is_some() {
            self.ends.full.ring();
        }
    }
}

impl Drop for Giver {
    /// Also if its thread panicked.
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
            self.free.push(place);
        }
        self.ends.free.ring();
    }

    /// The bell on which it sleeps.
    pub fn bell(&self) -> &Bell {
        &self.ends.full
    }

    /// The look after [`Bell::listen`]: rings if there is a full place or the end, because neither would ring again.
    pub fn ring_if_ready(&mut self) {
        if self.full.is_ready() {
            self.ends.full.ring();
        }
    }

    /// Says that the taker wants no more places.
    pub fn leave(&mut self) {
        self.ends.left.store(true, Ordering::Relaxed);
        self.ends.free.ring();
    }
}

impl Drop for Taker {
    /// Also if its thread panicked.
    fn drop(&mut self) {
        self.leave();
    }
}
