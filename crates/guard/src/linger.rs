//! A process that ends leaves work to a child: what has to go on after the exit, without the files and terminals of the process.
//!
//! The exit itself does not wait. The child is a copy of the calling thread alone, so the caller takes every lock that the work needs
//! before it [forks](fork), and the child uses no other: it writes to no stream of the standard library, and starts no thread. It may
//! allocate: the allocators of glibc and musl are made ready for it by `fork`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// What to call.
static CALLS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

extern "C" fn run() {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for call in calls {
        // A panic must not leave a function of C; the process ends in any case.
        let _ = std::panic::catch_unwind(call);
    }
}

/// Calls `call` when the process exits: by `exit`, also after `main` returned. Not when a signal ends it, nor by `_exit`.
///
/// # Errors
///
/// There is no memory for one more such call.
pub fn at_exit(call: fn()) -> io::Result<()> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: `run` takes nothing, may run once at any time until the process is gone, and does not unwind.
    if calls.is_empty() && unsafe { libc::atexit(run) } != 0 {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    calls.push(call);
    Ok(())
}

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that was there.
    Parent,
    /// The copy: in a session of its own, with the kept files and `/dev/null` as standard input, output and error.
    Child,
}

/// Makes a copy of this process, of this thread alone, with these files. See above for what it may do.
///
/// # Errors
///
/// The process may have no more processes, or there is no memory.
pub fn fork(kept: &[BorrowedFd<'_>]) -> io::Result<Side> {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    // SAFETY: the child has this thread only. What other threads were about to do to memory stays as it was: that leaves locks taken,
    // which the caller answers for, and no value is read but under its lock. A weak argument as far as it goes for libraries of C
    // beside this one: the child calls none.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            separate(&kept);
            Ok(Side::Child)
        }
        _ => Ok(Side::Parent),
    }
}

/// Ends a child of [`fork`]: without the calls that wait for the exit, which are the parent's.
pub fn leave() -> ! {
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { libc::_exit(0) }
}

/// Closes everything that is not kept, and leaves session and terminal. What fails leaves a file open longer than it need be.
fn separate(kept: &[RawFd]) {
    // SAFETY: plain system calls with values. The owners of the closed files are never dropped: the child ends by `leave`, and
    // uses none but those that are kept.
    unsafe {
        libc::setsid();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            if null >= 0 && !kept.contains(&standard) {
                libc::dup2(null, standard);
            }
        }
        let mut first = 3;
        for fd in kept.iter().copied().filter(|fd| *fd >= 3).chain([RawFd::MAX]) {
            if first < fd {
                close_range(first, fd - 1);
            }
            first = fd.saturating_add(1);
        }
    }
}

/// Closes everything but standard input, output and error: what those who started this process left open for it by mistake. To be called
/// first of all.
pub fn close_inherited() {
    close_range(3, RawFd::MAX);
}

/// Closes the files of these numbers, both included.
fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: a plain system call. A child that ends by `leave` uses none of these files, and a process that has just begun has opened
    // none: `close_inherited` says when it may be called.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed != 0 {
        // A kernel before 5.9, or a filter of system calls.
        // SAFETY: as above; the limit says how many there can be.
        let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        for fd in first..=last.min(RawFd::try_from(limit).unwrap_or(1 << 16)) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
