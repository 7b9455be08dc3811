//! The system calls of Linux: futex(2), and futex_waitv(2) for several words at once (Linux 5.16).

use base::atomic::AtomicU32;
use rustix::thread::futex::{ClockId, Flags, Timespec, Wait, WaitFlags, WaitPtr, WaitvFlags};
use std::time::{Duration, Instant};

/// Sleeps while `word` has the value `seen`, at most for `timeout`. May wake early: look again.
pub fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout
        .map(|t| Timespec { tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX), tv_nsec: t.subsec_nanos().into() });
    // Every outcome means the same to the caller: look again.
    let _ = rustix::thread::futex::wait(word, Flags::empty(), seen, timeout.as_ref());
}

/// Wakes all sleepers on `word`.
pub fn wake(word: &AtomicU32) {
    #[cfg(feature = "kill-points")]
    base::atomic::kill_points::point();
    // Fails only where the word is not mapped, which a reference rules out.
    let _ = rustix::thread::futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Most words on which the kernel lets a thread sleep at once (FUTEX_WAITV_MAX).
const WORDS_MAX: usize = 128;

/// Longest sleep of a thread that waits for more words than that.
const LOOK: Duration = Duration::from_millis(5);

/// Sleeps while every word has the value beside it, at most until `deadline`. May wake early: look again.
pub fn wait_any(words: &[(&AtomicU32, u32)], deadline: Option<Instant>) {
    let (words, deadline) = match words.split_at_checked(WORDS_MAX) {
        Some((first, rest)) if !rest.is_empty() => {
            let look = Instant::now() + LOOK;
            (first, Some(deadline.map_or(look, |deadline| deadline.min(look))))
        }
        _ => (words, deadline),
    };
    let waits: Vec<Wait> = words
        .iter()
        .map(|(word, value)| {
            let mut wait = Wait::new();
            wait.val = u64::from(*value);
            wait.uaddr = WaitPtr::new(word.as_ptr().cast());
            wait.flags = WaitFlags::SIZE_U32;
            wait
        })
        .collect();
    // Absolute time, because futex_waitv takes no other; from the same clock as `Instant`.
    let until = deadline.map(|deadline| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let left = deadline.saturating_duration_since(Instant::now());
        let nanoseconds = now.tv_nsec + i64::from(left.subsec_nanos());
        Timespec {
            tv_sec: now
                .tv_sec
                .saturating_add(i64::try_from(left.as_secs()).unwrap_or(i64::MAX))
                .saturating_add(nanoseconds / 1_000_000_000),
            tv_nsec: nanoseconds % 1_000_000_000,
        }
    });
    // Every outcome means the same to the caller: look again. A kernel without the call (before 5.16) cannot make the
    // segments either, because their flags are younger.
    let _ = rustix::thread::futex::waitv(&waits, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic);
}
