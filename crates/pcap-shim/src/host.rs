//! Who opens devices for this process: the daemon, or where none runs a small process made for it.
//!
//! `STREAMLINE_DAEMON` says where a daemon listens, if elsewhere than usual; `STREAMLINE_SHARE` that requests share what they
//! can. The small process is a copy of this one from
//! before it gives up its rights, as tcpdump does between opening a device and setting its filter; it serves what the
//! daemon would, and ends with the last handle. It is a process and no thread, for three reasons: a thread would lose its
//! rights with the others, would take signals meant for the program, and would be gone in a program that forks to become a
//! daemon. Programs of one process share a capture through it; programs of several do through the daemon only.

use crate::real::variable;
use capture::CaptureErrorKind;
use capture::client::Client;
use capture::protocol::SOCKET;
use capture::{CaptureError, CaptureRegistry};
use daemon::{Account, Policy, Server, confine};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use streamline::devices::opener::{self, Opener};
use streamline::parser;

/// Where the daemon listens, if not where it usually does.
const VARIABLE: &CStr = c"STREAMLINE_DAEMON";

/// The connection of all handles of this process, and the process it is of: after a fork the child makes its own.
static CONNECTION: Mutex<(u32, Weak<Client>)> = Mutex::new((0, Weak::new()));

/// A connection to who opens devices.
pub fn client() -> Result<Arc<Client>, CaptureError> {
    // Nothing that panics under it leaves it half made.
    let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let (made_by, Some(client)) = (connection.0, connection.1.upgrade())
        && made_by == process
    {
        return Ok(client);
    }
    let client = Arc::new(connect()?);
    *connection = (process, Arc::downgrade(&client));
    Ok(client)
}

/// The socket of the daemon this process would speak to.
pub fn daemon() -> &'static str {
    variable(VARIABLE).and_then(|path| path.to_str().ok()).filter(|path| !path.is_empty()).unwrap_or(SOCKET)
}

/// The same where one was named.
pub fn named_daemon() -> Option<&'static str> {
    Some(daemon()).filter(|path| *path != SOCKET)
}

/// May parts of requests run where several share them?
pub fn shares() -> bool {
    variable(parser::VARIABLE).and_then(|value| value.to_str().ok()).is_some_and(parser::is_asked_for)
}

/// Is there a daemon that has this device?
pub fn daemon_has(device: &str) -> bool {
    Client::connect(Path::new(daemon()), &purpose()).is_ok_and(|client| client.device(device).is_ok())
}

fn connect() -> Result<Client, CaptureError> {
    let path = daemon();
    let purpose = purpose();
    match Client::connect(Path::new(path), &purpose) {
        Ok(client) => Ok(client),
        Err(error)
            if path == SOCKET && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            let system = |error| CaptureError::system("no process can be made to open devices", &error);
            Client::over(split().map_err(system)?, &purpose).map_err(system)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = format!("the daemon at {path} lets only root and the group `streamline` in: {error}");
            Err(CaptureError::new(CaptureErrorKind::Denied, text))
        }
        Err(error) => {
            Err(CaptureError::new(CaptureErrorKind::System, format!("no daemon can be reached at {path}: {error}")))
        }
    }
}

/// This process, as people know it.
fn purpose() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(" ").trim().to_string()
}

/// Makes the small process; gives the socket to speak to it by.
fn split() -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // No handler of the program's shall run in the copy: signals stay blocked there for good.
    let mask = block_signals()?;
    // SAFETY: the copy does nothing but what `become_helper` says; there, glibc keeps the allocator usable whatever other
    // threads were doing, and nothing else that they might have held is taken.
    let first = unsafe { libc::fork() };
    if first == 0 {
        become_helper(theirs);
    }
    drop(theirs);
    let forked = if first < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    if first > 0 {
        // It ends at once: what serves us is its child, so that no program finds a child it did not make.
        let mut status: c_int = 0;
        // SAFETY: a place for the status.
        while unsafe { libc::waitpid(first, &mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    // SAFETY: a mask that the kernel filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    forked.map(|()| ours)
}

/// Does something with all signals blocked, as they then are in threads that it makes.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    let mask = block_signals()?;
    let done = work();
    // SAFETY: a mask that the kernel filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    Ok(done)
}

/// Blocks all signals in this thread; gives the mask from before.
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: integers, filled in below before they are used.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: places for masks.
    let blocked = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before)
    };
    if blocked == 0 { Ok(before) } else { Err(io::Error::from_raw_os_error(blocked)) }
}

/// The copy: lets go of everything that is the program's, serves, and ends.
fn become_helper(socket: OwnedFd) -> ! {
    // SAFETY: no memory is touched; each call is one of the system's, fit for a process that was forked from one with
    // several threads. The second fork lets init adopt what goes on, and the session is left so that no terminal's signal
    // concerns it.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::setsid();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        // Whoever reads what the program writes shall see its end.
        for standard in 0..=2 {
            libc::dup2(null, standard);
        }
        let socket = libc::dup2(socket.into_raw_fd(), 3);
        libc::close_range(4, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, c"streamline-capture".as_ptr());
        let _ = std::panic::catch_unwind(|| serve(OwnedFd::from_raw_fd(socket)));
        libc::_exit(0)
    }
}

/// Answers until the program closes its end.
fn serve(socket: OwnedFd) {
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    debug_assert_eq!(socket.as_raw_fd(), 3);
    confine::raise_memory_lock();
    // What cannot be dropped is kept: it was the program's anyway.
    let _ = confine::drop_capabilities();
    let Ok(registry) = CaptureRegistry::new(Box::new(Opener)) else { return };
    let confined = confine::describe(&Account::of_this_process(), true, &[]);
    // Nobody else asks it, and the program opens no flows.
    let Ok(server) = Server::new(registry, Policy::for_one(), confined, opener::device, None) else { return };
    // That it cannot be spoken to is for the program to find out.
    let _ = server.attend(&socket);
}
