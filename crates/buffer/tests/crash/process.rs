//! Children forked from this process: a ring's memory is theirs as well. Not for programs: what a child does between
//! fork(2) and its end must need no lock that another thread could have held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tests that fork run one at a time: the locks of this process are free when it forks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A test that failed holds nothing the others need.
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a child ended, or that it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Killed(i32),
    Stopped,
}

/// A child process; it is killed when this is dropped.
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
        // SAFETY: prctl and write take what they are given here; _exit never returns.
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

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<Status> {
        self.look(libc::WNOHANG)
    }

    /// Waits until it has ended or stopped.
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

    /// Kills it, and says what had become of it.
    pub fn kill(&mut self) -> Status {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Stops it where it is, unless it has ended.
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

/// Kills this process, as if from outside.
#[cfg(feature = "kill-points")]
pub fn die() {
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Stops this process until somebody lets it go on.
#[cfg(feature = "kill-points")]
pub fn stop_here() {
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

/// Words that this process and its children share, outside of any ring. Not counted as stores.
#[derive(Clone, Copy, Debug)]
pub struct Scoreboard {
    words: &'static [AtomicU64; Scoreboard::WORDS],
}

impl Scoreboard {
    const WORDS: usize = 16;

    /// All zero; as long as this process lives.
    pub fn new() -> Scoreboard {
        // SAFETY: a fresh map that is never unmapped, of a page, zero, which 16 words fit in.
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

    /// Waits until a word is something else than 0.
    pub fn await_set(&self, index: usize) {
        let deadline = soon();
        while self.get(index) == 0 {
            assert!(Instant::now() < deadline, "word {index} of the scoreboard is never set");
            std::thread::yield_now();
        }
    }
}

/// Later than anything takes on however busy a machine, for who will be told of what went wrong otherwise.
pub fn some_day() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// Later than anything in these tests should take.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
