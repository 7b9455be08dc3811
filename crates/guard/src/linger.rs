//! Leaves work of an ending process to a child: work that has to go on after the exit, without the files and terminals
//! of the process.
//!
//! The exit itself does not wait. The child is a copy of the calling thread alone. So the caller takes every lock that
//! the work needs before it [forks](fork), and the child uses no other lock. It writes to no stream of the standard
//! library, and starts no thread. It may allocate: `fork` makes the allocators of glibc and musl ready for it.

use base::fault;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// Functions to call at exit.
static CALLS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

extern "C" fn run() {
    let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let process = std::process::id();
    for call in calls {
        // A panic must not unwind into C; the process ends in any case.
        if fault::contained("the exit of this process", call).is_none() && std::process::id() != process {
            // In a copy that the call made: the rest of the exit is the original's.
            leave(fault::STATUS);
        }
    }
}

/// Calls `call` when the process exits, by `exit` or after `main` has returned. Not when a signal or `_exit` ends it.
///
/// It runs in the thread that exits, whose thread-local values may be gone: `with` panics there, `try_with` does not.
///
/// # Errors
///
/// There is no memory for another call.
pub fn at_exit(call: fn()) -> io::Result<()> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: `run` takes nothing, may run once at any time until the process is gone, and does not unwind.
    if calls.is_empty() && unsafe { libc::atexit(run) } != 0 {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    calls.push(call);
    Ok(())
}

/// The two processes after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The original process.
    Parent,
    /// The copy: in a session of its own, with the kept files and `/dev/null` as standard input, output and error.
    Child,
}

/// Copies this process, with this thread alone and these files. The head of this module says what the copy may do.
///
/// # Errors
///
/// The user may have no more processes, or there is no memory.
pub fn fork(kept: &[BorrowedFd<'_>]) -> io::Result<Side> {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    // SAFETY: the child has this thread only. Changes that other threads had under way stay unfinished: that leaves
    // locks taken. The caller answers for these, and no value is read without its lock. The argument is weak for C
    // libraries beside this one: the child calls none.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            separate(&kept);
            Ok(Side::Child)
        }
        _ => Ok(Side::Parent),
    }
}

/// Ends a child of [`fork`], without the exit calls, which belong to the parent.
pub fn leave(status: i32) -> ! {
    // SAFETY: it does not return, and runs no code of this process.
    unsafe { libc::_exit(status) }
}

/// Closes all files except those in `kept`, and leaves session and terminal. If a step fails, a file stays open longer
/// than needed.
fn separate(kept: &[RawFd]) {
    // SAFETY: plain system calls with values. The owners of the closed files are never dropped: the child ends by
    // `leave`, and uses only kept files.
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

/// Closes all files except standard input, output and error, which the parent left open by mistake. Call it first of
/// all.
pub fn close_inherited() {
    close_range(3, RawFd::MAX);
}

/// Closes the files with these numbers, both included.
fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: a plain system call. A child that ends by `leave` uses no file in this range. In a process that has just
    // begun, no file in it has an owner yet: `close_inherited` says when it may be called.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed != 0 {
        // Kernels before 5.9 have no such call, and a seccomp filter may refuse it.
        // SAFETY: as above; the limit says how many files there can be.
        let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        for fd in first..=last.min(RawFd::try_from(limit).unwrap_or(1 << 16)) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
