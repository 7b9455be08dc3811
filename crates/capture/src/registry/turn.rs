//! Turns for changing a ring: one change at a time, and users one after the other.
//!
//! A change may take seconds, because the kernel verifies programs. A user may ask for change after change, from any
//! number of clients: between two changes of another user, only one of these runs.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    taken: bool,
    last_user: u32,
    last_ticket: u64,
    /// User and ticket of each waiter.
    waiting: BTreeSet<(u32, u64)>,
}

impl Line {
    /// The next user's first ticket.
    fn next(&self) -> Option<(u32, u64)> {
        let behind = (Excluded((self.last_user, u64::MAX)), Unbounded);
        self.waiting.range(behind).next().or_else(|| self.waiting.first()).copied()
    }
}

#[derive(Debug)]
pub(super) struct Turn(Arc<Turns>);

impl Turns {
    pub(super) fn take(self: Arc<Turns>, user: u32) -> Turn {
        let mut line = self.lock();
        line.last_ticket += 1;
        let ticket = (user, line.last_ticket);
        line.waiting.insert(ticket);
        while line.taken || line.next() != Some(ticket) {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        line.waiting.remove(&ticket);
        (line.taken, line.last_user) = (true, user);
        drop(line);
        Turn(self)
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // No panic can interrupt a change of the queue.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Whether no one is waiting. The caller must keep new waiters away, and holds one more reference to the queue.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 2
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().taken = false;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn users_take_turns_however_often_one_of_them_asks() {
        let turns = Arc::<Turns>::default();
        let first = Arc::clone(&turns).take(7);
        let (say, hear) = channel();
        let asking: Vec<_> = [7, 7, 7, 7, 3, 9, 9]
            .into_iter()
            .enumerate()
            .map(|(at, user)| {
                let (theirs, say) = (Arc::clone(&turns), say.clone());
                let asks = std::thread::spawn(move || {
                    let _turn = theirs.take(user);
                    say.send(user).unwrap();
                });
                while turns.lock().waiting.len() <= at {
                    std::thread::yield_now();
                }
                asks
            })
            .collect();
        drop(first);
        asking.into_iter().for_each(|asks| asks.join().unwrap());
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), [9, 3, 7, 9, 7, 7, 7]);
    }
}
