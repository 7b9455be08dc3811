//! Children forked from this process, which share a ring's memory. For tests only: between fork(2) and its end a child
//! must not need a lock that another thread could have held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tests that fork run one at a time: so the locks of this process are free when it forks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A failed test holds no lock that other tests need.
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Killed(i32),
    Stopped,
}

/// A child process; dropping this kills it.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    ended: Option<Status>,
}

impl Child {
    /// Runs `body` in a child, which exits with 0, or with 101 where it panicked.
    pub fn fork(body: impl FnOnce()) -> Child {
        // SAFETY: no other thread of this process holds a lock that the child will want (see `alone`).
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid > 0 {
            return Child { pid, ended: None };
        }
        // SAFETY: prctl and write get valid arguments; _exit never returns.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            std::panic::set_hook(Box::new(|panic| {
                let text = format!("child: {panic}\n");
                libc::write(2, text.as_ptr().cast(), text.len());
            }));
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(if outcome.is_ok() { 0 } else { 101 })
        }
    }

    pub fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: kill takes numbers; the child is not reaped yet, so the number is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    pub fn ended(&mut self) -> Option<Status> {
        self.look(libc::WNOHANG)
    }

    pub fn wait(&mut self) -> Status {
        self.look(libc::WUNTRACED).expect("it is waited for")
    }

    fn look(&mut self, options: i32) -> Option<Status> {
        if self.ended.is_some() {
            return self.ended;
        }
        let mut status = 0;
        let found = loop {
            // SAFETY: `status` is ours.
            let found = unsafe { libc::waitpid(self.pid, &mut status, options) };
            if found >= 0 {
                break found;
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "waitpid: {error}");
        };
        if found == 0 {
            return None;
        }
        if libc::WIFSTOPPED(status) {
            return Some(Status::Stopped);
        }
        let ended = if libc::WIFEXITED(status) {
            Status::Exited(libc::WEXITSTATUS(status))
        } else {
            Status::Killed(libc::WTERMSIG(status))
        };
        self.ended = Some(ended);
        self.ended
    }

    pub fn kill(&mut self) -> Status {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Stops it at its present place, unless it has ended.
    pub fn stop(&mut self) -> Status {
        self.signal(libc::SIGSTOP);
        self.wait()
    }

    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

#[cfg(feature = "kill-points")]
pub fn die() {
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops this process until another one lets it go on.
#[cfg(feature = "kill-points")]
pub fn stop_here() {
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

/// Words that this process and its children share, outside of any ring. Stores to them are no kill points.
#[derive(Clone, Copy, Debug)]
pub struct Scoreboard {
    words: &'static [AtomicU64; Scoreboard::WORDS],
}

impl Scoreboard {
    const WORDS: usize = 16;

    /// All words are zero; they live as long as this process.
    pub fn new() -> Scoreboard {
        // SAFETY: a fresh map of a zero page that is never unmapped; 16 words fit in it.
        let words = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            &*start.cast()
        };
        Scoreboard { words }
    }

    pub fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    pub fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Release);
    }

    pub fn clear(&self) {
        (0..Scoreboard::WORDS).for_each(|index| self.set(index, 0));
    }

    pub fn await_set(&self, index: usize) {
        let deadline = soon();
        while self.get(index) == 0 {
            assert!(Instant::now() < deadline, "word {index} of the scoreboard is never set");
            std::thread::yield_now();
        }
    }
}

/// A deadline later than any machine should take, however busy, for a test that learns of failures in another way.
pub fn some_day() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// A deadline later than anything in these tests should take.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
