//! The seat decides which thread works for all flows of a connection (leader and followers).
//!
//! - A waiting call takes the free seat and *leads*: it sleeps on the doorbell and works for every flow until its own
//!   wait is over. A single-threaded program never hands a packet to another thread.
//! - A call that finds the seat taken *follows*: it sleeps until the leader has news for it, or *promotes* it on
//!   leaving.
//! - The *keeper* is the connection's own thread. It takes the seat if no call had it for a [`TICK`], and leaves as
//!   soon as a call follows. It looks at the seat once a tick while calls come and go. It does not wake up while one
//!   call leads for long, or while it leads itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The keeper takes a seat that was free for one to two ticks.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// After this many ticks under the same leader, the keeper stops looking.
const LONG: u32 = 10;

/// Decides who works for the flows of a connection.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    state: Mutex<State>,
    /// Wakes the keeper, and a thread that closes the seat.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// Whether the leader is the keeper.
    by_keeper: bool,
    /// No thread may take the seat any more.
    is_closed: bool,
    /// How often a leader has left.
    left: u64,
    /// Threads that sleep on `changed` without a time limit.
    sleepers: u32,
    followers: Vec<Arc<Waiter>>,
}

#[derive(Debug, Default)]
pub(crate) struct Waiter {
    is_told: Mutex<bool>,
    told: Condvar,
    /// The waiter has the seat. Written under the lock of the seat's state.
    is_promoted: AtomicBool,
}

/// The taken seat. Dropping it promotes the first follower, or frees the seat.
#[derive(Debug)]
pub(crate) struct Lead<'a>(&'a Seat);

/// A call's place among the followers.
#[derive(Debug)]
pub(crate) struct Follower<'a, 'w> {
    seat: &'a Seat,
    waiter: &'w Arc<Waiter>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiter {
    /// Announces news for this call.
    pub(crate) fn tell(&self) {
        *lock(&self.is_told) = true;
        self.told.notify_one();
    }

    /// Sleeps until told, at most until `deadline`.
    fn sleep(&self, deadline: Option<Instant>) {
        let mut is_told = lock(&self.is_told);
        while !*is_told {
            is_told = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.told.wait(is_told).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(time) => self.told.wait_timeout(is_told, time).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *is_told = false;
    }
}

impl Seat {
    /// Takes the seat for a call if it is free.
    pub(crate) fn take(&self) -> Option<Lead<'_>> {
        let mut state = lock(&self.state);
        let is_free = !state.is_taken && !state.is_closed;
        is_free.then(|| {
            state.is_taken = true;
            Lead(self)
        })
    }

    /// Joins the followers, or leads if the seat is free. Second value: wake the leader; it is the keeper and must
    /// leave.
    pub(crate) fn follow<'a, 'w>(&'a self, waiter: &'w Arc<Waiter>) -> (Result<Lead<'a>, Follower<'a, 'w>>, bool) {
        let mut state = lock(&self.state);
        if !state.is_taken && !state.is_closed {
            state.is_taken = true;
            return (Ok(Lead(self)), false);
        }
        state.followers.push(Arc::clone(waiter));
        (Err(Follower { seat: self, waiter }), state.by_keeper)
    }

    /// Whether the leader must leave. The keeper leaves for any follower; every leader leaves a closed seat.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = lock(&self.state);
        state.is_closed || state.by_keeper && !state.followers.is_empty()
    }

    /// Takes the seat for the keeper once it was free for a tick. `None`: the seat is closed.
    pub(crate) fn keep(&self) -> Option<Lead<'_>> {
        let mut state = lock(&self.state);
        let (mut seen, mut ticks) = (state.left, 0);
        while !state.is_closed {
            if state.is_taken && ticks >= LONG {
                state.sleepers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleepers -= 1;
            } else {
                let waited = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                if waited.1.timed_out() && state.left == seen && !state.is_taken {
                    state.is_taken = true;
                    state.by_keeper = true;
                    return Some(Lead(self));
                }
            }
            ticks = if state.left == seen { ticks + 1 } else { 0 };
            seen = state.left;
        }
        None
    }

    /// Closes the seat, so that no thread leads again. Waits up to `time` for the last leader to leave, and returns
    /// whether it did. The caller wakes the leader first.
    pub(crate) fn close(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.sleepers += 1;
        self.changed.notify_all();
        while state.is_taken && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers -= 1;
        !state.is_taken
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.left += 1;
        state.by_keeper = false;
        if !state.is_closed && !state.followers.is_empty() {
            let next = state.followers.remove(0);
            next.is_promoted.store(true, Ordering::Relaxed);
            next.tell();
            return;
        }
        state.is_taken = false;
        if state.sleepers > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl<'a> Follower<'a, '_> {
    /// Sleeps until this call has news or is promoted, at most until `deadline`. Returns the seat if promoted.
    pub(crate) fn sleep(self, deadline: Option<Instant>) -> Option<Lead<'a>> {
        self.waiter.sleep(deadline);
        self.leave()
    }

    /// Leaves the followers. Returns the seat if promoted meanwhile.
    pub(crate) fn leave(self) -> Option<Lead<'a>> {
        let mut state = lock(&self.seat.state);
        if self.waiter.is_promoted.swap(false, Ordering::Relaxed) {
            return Some(Lead(self.seat));
        }
        state.followers.retain(|other| !Arc::ptr_eq(other, self.waiter));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Threads take turns in a ring. Leaders look only at the counter, so each step must wake the right follower, and
    /// each leader that is done must pass the seat on.
    /// right follower, and each leader that is done has to pass the seat on.
    #[test]
    fn many_threads_share_one_seat_and_none_sleeps_for_ever() {
        const THREADS: u64 = 16;
        const STEPS: u64 = 4_000;
        let (seat, turn, leaders) = (Seat::default(), AtomicU64::new(0), AtomicU64::new(0));
        let waiters: Vec<_> = (0..THREADS).map(|_| Arc::new(Waiter::default())).collect();
        let alone = |lead: Lead<'_>| {
            assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "one leads");
            std::thread::yield_now();
            leaders.fetch_sub(1, Ordering::SeqCst);
            drop(lead);
        };
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (seat, turn, waiters, alone) = (&seat, &turn, &waiters, &alone);
                scope.spawn(move || {
                    let limit = Instant::now() + Duration::from_secs(60);
                    loop {
                        let now = turn.load(Ordering::SeqCst);
                        if now >= STEPS {
                            break;
                        }
                        if now % THREADS == number {
                            turn.fetch_add(1, Ordering::SeqCst);
                            waiters.iter().for_each(|waiter| waiter.tell());
                            continue;
                        }
                        assert!(Instant::now() < limit, "it goes on");
                        match seat.follow(&waiters[number as usize]).0 {
                            Ok(lead) => alone(lead),
                            Err(follower) => {
                                if let Some(lead) = follower.sleep(None) {
                                    alone(lead);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(seat.take().is_some(), "the last one left it free");
    }

    #[test]
    fn a_leader_that_leaves_promotes_the_first_follower_and_a_late_one_passes_it_on() {
        let seat = Seat::default();
        let lead = seat.take().unwrap();
        assert!(seat.take().is_none());
        let waiters = [Arc::new(Waiter::default()), Arc::new(Waiter::default())];
        let [first, second] = waiters.each_ref().map(|waiter| seat.follow(waiter));
        assert!(!first.1 && !second.1, "a call leads: it is left alone");
        assert!(!seat.is_wanted());
        drop(lead);
        // The first one already has its news and does not need the seat.
        let first = first.0.unwrap_err().leave().expect("it was promoted");
        drop(first);
        let second = second.0.unwrap_err().sleep(Some(Instant::now())).expect("promoted in turn");
        assert!(seat.take().is_none());
        drop(second);
        assert!(seat.take().is_some());
    }

    #[test]
    fn the_keeper_takes_a_seat_that_stays_free_and_leaves_it_for_a_call() {
        let seat = Seat::default();
        let kept = seat.keep().expect("it is open");
        assert!(!seat.is_wanted());
        let waiter = Arc::new(Waiter::default());
        let (follower, wake) = seat.follow(&waiter);
        assert!(wake && seat.is_wanted());
        drop(kept);
        let lead = follower.unwrap_err().sleep(None).expect("promoted");
        // The keeper waits while a call leads, and then for a tick.
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| seat.keep().map(drop).is_some());
            std::thread::sleep(TICK * (LONG + 10));
            assert!(!keeper.is_finished());
            drop(lead);
            assert!(keeper.join().unwrap());
        });
        assert!(seat.close(Duration::ZERO));
        assert!(seat.keep().is_none() && seat.take().is_none());
    }

    #[test]
    fn a_seat_is_closed_once_its_leader_left() {
        let seat = Seat::default();
        let lead = seat.take().unwrap();
        assert!(!seat.close(Duration::from_millis(5)), "the leader is there");
        assert!(seat.is_wanted());
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| seat.close(Duration::from_secs(60)));
            drop(lead);
            assert!(closing.join().unwrap());
        });
    }
}
