//! The wire of doorbells in a model: a word and a futex for each direction. It orders no memory, so that the protocol
//! cannot lean on orderings of the kernel's pipe. A sleep has no time limit, so that a lost ring shows.

use super::{BellWords, Bells, Direction, WORDS};
use crate::shared::futex;
use crate::shared::words::Shared;
use base::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Wire {
    mine: Arc<AtomicU32>,
    theirs: Arc<AtomicU32>,
}

impl Wire {
    pub(super) fn pull(&self) {
        self.theirs.swap(1, Ordering::Relaxed);
        futex::wake(&self.theirs);
    }

    pub(super) fn clear(&self) {
        self.mine.swap(0, Ordering::Relaxed);
    }
}

impl Direction {
    fn new() -> Direction {
        let zero = || AtomicU64::new(0);
        Direction {
            asleep: zero(),
            _asleep: std::array::from_fn(|_| zero()),
            news: std::array::from_fn::<_, WORDS, _>(|_| zero()),
        }
    }
}

impl Bells {
    /// The driver's side and the application's.
    pub fn model() -> (Bells, Bells) {
        let words = Shared::private(BellWords { driver: Direction::new(), application: Direction::new() });
        let [one, other] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let application = Bells {
            words: words.clone(),
            is_driver: false,
            wire: Wire { mine: Arc::clone(&other), theirs: Arc::clone(&one) },
        };
        (Bells { words, is_driver: true, wire: Wire { mine: one, theirs: other } }, application)
    }

    /// Sleeps until the other side rings.
    pub fn sleep(&self) {
        futex::wait(&self.wire.mine, 0, None);
    }
}
