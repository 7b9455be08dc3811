//! Opens devices for this process: through the daemon, or through a helper process if no daemon runs.
//!
//! `STREAMLINE_DAEMON` is the daemon's socket, if not the usual one. With `STREAMLINE_SHARE`, requests share what they can.
//!
//! The helper is a fork of this process, made before it gives up its rights: tcpdump does that between opening a device and
//! setting its filter. The helper serves like the daemon, and ends with the last handle. It is a process because a thread
//!
//! - would lose its rights together with the other threads,
//! - would take signals meant for the program,
//! - would vanish when the program forks to become a daemon.
//!
//! Handles of one process share a capture through the helper. Several processes share one only through the daemon.

use crate::real::variable;
use base::fault;
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

/// The daemon's socket, if not the usual one.
const VARIABLE: &CStr = c"STREAMLINE_DAEMON";

/// The connection of all handles of this process, with its process id: after a fork the child makes its own connection.
static CONNECTION: Mutex<(u32, Weak<Client>)> = Mutex::new((0, Weak::new()));

/// Connects to the daemon or the helper.
pub fn client() -> Result<Arc<Client>, CaptureError> {
    // The value stays valid even if a thread panics while it holds the lock.
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

/// The daemon's socket.
pub fn daemon() -> &'static str {
    variable(VARIABLE).and_then(|path| path.to_str().ok()).filter(|path| !path.is_empty()).unwrap_or(SOCKET)
}

/// The daemon's socket. `None`: the variable names no other than the usual one.
pub fn named_daemon() -> Option<&'static str> {
    Some(daemon()).filter(|path| *path != SOCKET)
}

/// Whether requests may share parts with others.
pub fn shares() -> bool {
    variable(parser::VARIABLE).and_then(|value| value.to_str().ok()).is_some_and(parser::is_asked_for)
}

/// Whether a daemon has this device.
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

fn purpose() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(" ").trim().to_string()
}

/// Makes the helper. Returns the socket to talk to it.
fn split() -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // The program's signal handlers must not run in the helper: signals stay blocked there for good.
    let mask = block_signals()?;
    // SAFETY: the child only runs `become_helper`. glibc keeps the allocator usable there, whatever other threads were
    // doing. The child takes no other lock that they might have held.
    let first = unsafe { libc::fork() };
    if first == 0 {
        become_helper(theirs);
    }
    drop(theirs);
    let forked = if first < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    if first > 0 {
        // The child ends at once. Its child serves us, so that the program never finds a child that it did not make.
        let mut status: c_int = 0;
        // SAFETY: `status` is a valid place.
        while unsafe { libc::waitpid(first, &mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    // SAFETY: the kernel filled the mask in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    forked.map(|()| ours)
}

/// Runs `work` with all signals blocked. Threads that it starts inherit the mask.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    let mask = block_signals()?;
    let done = work();
    // SAFETY: the kernel filled the mask in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    Ok(done)
}

/// Blocks all signals in this thread. Returns the previous mask.
fn block_signals() -> io::Result<libc::sigset_t> {
    // SAFETY: plain integers, filled in below before use.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: valid places for masks.
    let blocked = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before)
    };
    if blocked == 0 { Ok(before) } else { Err(io::Error::from_raw_os_error(blocked)) }
}

/// The helper: closes everything of the program's, serves, and ends.
fn become_helper(socket: OwnedFd) -> ! {
    // SAFETY: no memory is touched; all are system calls that are safe after a fork of a process with several threads. The
    // second fork lets init adopt the helper. It starts a session of its own, so that no terminal's signal reaches it.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        libc::setsid();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        // A reader of the program's output must see its end.
        for standard in 0..=2 {
            libc::dup2(null, standard);
        }
        let socket = libc::dup2(socket.into_raw_fd(), 3);
        libc::close_range(4, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, c"streamline-capture".as_ptr());
        let served = fault::contained("the capture process", || serve(OwnedFd::from_raw_fd(socket)));
        libc::_exit(if served.is_some() { 0 } else { fault::STATUS })
    }
}

/// Answers until the program closes its end.
fn serve(socket: OwnedFd) {
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    debug_assert_eq!(socket.as_raw_fd(), 3);
    confine::raise_memory_lock();
    // Rights that cannot be dropped are kept: the program had them, too.
    let _ = confine::drop_capabilities();
    let Ok(registry) = CaptureRegistry::new(Box::new(Opener)) else { return };
    let confined = confine::describe(&Account::of_this_process(), true, &[]);
    // Only this program asks it, and it opens no flows.
    let Ok(server) = Server::new(registry, Policy::for_one(), confined, opener::device, None) else { return };
    // If the program cannot be reached, the program notices.
    let _ = server.attend(&socket);
}
