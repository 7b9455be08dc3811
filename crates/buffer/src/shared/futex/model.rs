//! The kernel's part in a model: compares a word and notes the sleeper in one step, as the kernel does under its lock.
//!
//! It orders memory only as far as waking does. With one of the checker's locks in its place, orderings that are too
//! weak would pass. Its steps are atomic without a lock: the checker runs all threads of a model on one system thread
//! and switches between them only before one of its own operations.

use base::atomic::{AtomicU32, Ordering};
use loom::thread::{self, Thread};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A thread that waits for one of its words to change.
struct Asleep {
    thread: Thread,
    is_woken: Cell<bool>,
    is_parked: Cell<bool>,
}

thread_local! {
    /// Sleepers with the address of the word they wait for. Empty when a run of a model ends.
    static SLEEPERS: RefCell<Vec<(usize, Rc<Asleep>)>> = const { RefCell::new(Vec::new()) };
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

/// Sleeps while `word` has the value `seen`. A model has no time: a timed wait lets other threads run and returns. A
/// wait of `Duration::MAX` sleeps.
pub fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    wait_for_any(&[(word, seen)], timeout.is_some_and(|timeout| timeout < Duration::MAX));
}

/// Sleeps while every word has the value beside it. With a deadline it lets other threads run and returns.
pub fn wait_any(words: &[(&AtomicU32, u32)], deadline: Option<Instant>) {
    wait_for_any(words, deadline.is_some());
}

fn wait_for_any(words: &[(&AtomicU32, u32)], is_timed: bool) {
    if is_timed {
        return thread::yield_now();
    }
    let me = Rc::new(Asleep { thread: thread::current(), is_woken: Cell::new(false), is_parked: Cell::new(false) });
    for (word, seen) in words {
        // The kernel reads what memory holds, not an older value, and so does a read-modify-write.
        if word.fetch_add(0, Ordering::Relaxed) != *seen {
            me.is_woken.set(true);
        }
        if me.is_woken.get() {
            break;
        }
        SLEEPERS.with_borrow_mut(|sleepers| sleepers.push((address(word), Rc::clone(&me))));
    }
    if !me.is_woken.get() {
        me.is_parked.set(true);
        thread::park();
    }
    SLEEPERS.with_borrow_mut(|sleepers| sleepers.retain(|(_, asleep)| !Rc::ptr_eq(asleep, &me)));
}

/// Wakes all sleepers on `word`.
pub fn wake(word: &AtomicU32) {
    let woken = SLEEPERS.with_borrow(|sleepers| {
        let on_word = sleepers.iter().filter(|(at, asleep)| *at == address(word) && !asleep.is_woken.replace(true));
        on_word.map(|(_, asleep)| Rc::clone(asleep)).collect::<Vec<_>>()
    });
    for asleep in woken {
        if asleep.is_parked.get() {
            asleep.thread.unpark();
        }
    }
}
