//! Sleeping until a word changes, and waking who sleeps: futex(2), between threads and between processes.
//!
//! Both work through maps that can only be read: the kernel compares the word, it does not write it. Under the model
//! checker the kernel's part (compare and enqueue under one lock) is played by a mutex and a condition variable.

use base::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` has the value `seen`, at most `timeout`. May wake early: look again.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|t| rustix::thread::futex::Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    // Every outcome means the same to the caller: look again.
    let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::empty(), seen, timeout.as_ref());
}

/// Wakes all who sleep on `word`.
#[cfg(not(loom))]
pub fn wake(word: &AtomicU32) {
    #[cfg(feature = "kill-points")]
    base::atomic::kill_points::point();
    // Fails only where the word is not mapped, which a reference rules out.
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(loom)]
loom::lazy_static! {
    static ref KERNEL: (loom::sync::Mutex<()>, loom::sync::Condvar) = Default::default();
}

/// Sleeps while `word` has the value `seen`. A model has no time: a timed wait gives others a turn and returns.
#[cfg(loom)]
pub fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    if timeout.is_some() {
        return loom::thread::yield_now();
    }
    let (lock, sleepers) = &*KERNEL;
    let locked = lock.lock().expect("no model panics under it");
    if word.load(base::atomic::Ordering::Relaxed) == seen {
        drop(sleepers.wait(locked));
    }
}

/// Wakes all who sleep on `word`.
#[cfg(loom)]
pub fn wake(_word: &AtomicU32) {
    let (lock, sleepers) = &*KERNEL;
    let locked = lock.lock().expect("no model panics under it");
    drop(locked);
    sleepers.notify_all();
}
