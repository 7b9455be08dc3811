//! Signals that ask to stop.
//!
//! The first signal asks to stop. Signals within `SAME` of it count as the same one, since `timeout` and shells signal
//! a process and then its group. A later signal kills the process as usual.
//!
//! signal-hook drops a signal that arrives while its handler is being installed, so signals are blocked meanwhile
//! ([`blocked`]): the kernel delivers them afterwards.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::io::{IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use streamline::StopFlag;

const ALL: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals that come no later than this after the first count as the same signal.
const SAME: Duration = Duration::from_secs(1);

/// Whether the user is told when the process takes longer than `SAME` to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finishing {
    /// The user is told that the process is finishing, and how to abandon it.
    Told,
    /// The user is not told.
    Untold,
}

impl Finishing {
    /// For a command with an option to be quiet. A user at a terminal is told even so.
    pub(crate) fn told_unless(quiet: bool) -> Finishing {
        if quiet && !std::io::stderr().is_terminal() { Finishing::Untold } else { Finishing::Told }
    }
}

/// Runs `register` while signals that ask to stop are blocked for this thread and the threads that it starts.
fn blocked<T>(register: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let all: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    let before = all.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let registered = register();
    before.thread_set_mask()?;
    registered
}

/// Ignores signals that ask to stop: this process ends when another process says so.
pub(crate) fn outlive() -> std::io::Result<()> {
    let ignored = Arc::<AtomicBool>::default();
    ALL.into_iter().try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&ignored)).map(drop))
}

/// Writes a byte to this socket for each signal that asks to stop.
pub(crate) fn write_on(socket: UnixStream) -> std::io::Result<()> {
    blocked(|| {
        begin(&StopFlag::new(), Finishing::Untold)?;
        register(socket)
    })
}

/// Writes a byte to the socket for each signal. A full socket does not block: the reader needs only the first byte.
fn register(socket: UnixStream) -> std::io::Result<()> {
    for signal in ALL {
        signal_hook::low_level::pipe::register(signal, socket.try_clone()?)?;
    }
    Ok(())
}

/// Stops at Ctrl-C, SIGTERM and a closed terminal. One more signal kills, unless it comes at once. With SIGXFSZ, a file
/// over its limit (RLIMIT_FSIZE) makes the write fail instead of killing the process.
pub(crate) fn listen(stop: &StopFlag, finishing: Finishing) -> std::io::Result<()> {
    let named = |error: std::io::Error| {
        let text = format!("cannot listen for signals: {error}");
        std::io::Error::new(error.kind(), text)
    };
    begin(stop, finishing).map_err(named)
}

fn begin(stop: &StopFlag, finishing: Finishing) -> std::io::Result<()> {
    blocked(|| {
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        let armed = Arc::<AtomicBool>::default();
        for signal in ALL {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&armed))?;
            signal_hook::flag::register(signal, stop.word())?;
        }
        // Not a pipe: a daemon is confined by then, and may not make one.
        let (first, asked) = UnixStream::pair()?;
        register(asked)?;
        let arm = move || arm(first, &armed, finishing);
        std::thread::Builder::new().name("signals".into()).spawn(arm).map(drop)
    })
}

/// [`listen`] and [`descriptor`]: both hear each signal.
pub(crate) fn listen_with_descriptor(stop: &StopFlag, finishing: Finishing) -> std::io::Result<OwnedFd> {
    blocked(|| {
        // In this order: the flag is set before the descriptor becomes readable, so a woken loop sees the flag.
        begin(stop, finishing)?;
        descriptor()
    })
}

/// Lets signals kill from `SAME` after the first one on. This thread also prints the message: the main thread may be
/// busy finishing, or blocked.
fn arm(mut first: UnixStream, armed: &AtomicBool, finishing: Finishing) {
    // `read_exact` repeats interrupted reads. No other error can come: the other end of the socket is never closed.
    if first.read_exact(&mut [0]).is_err() {
        return;
    }
    std::thread::sleep(SAME);
    // Relaxed: it carries no other data; a signal a moment later sees it.
    armed.store(true, Ordering::Relaxed);
    if finishing == Finishing::Told {
        tell!("finishing what has come; Ctrl-C again to abandon");
    }
}

/// Sleeps until [`listen`]'s flag is set.
pub(crate) fn wait(stop: &StopFlag) -> std::io::Result<()> {
    let asked = descriptor()?;
    while !stop.is_set() {
        // The signal itself interrupts poll(2). The flag is set before its byte arrives.
        match rustix::event::poll(&mut [PollFd::new(&asked, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A descriptor that becomes readable at the first signal, for threads that wait in poll(2).
pub(crate) fn descriptor() -> std::io::Result<OwnedFd> {
    blocked(|| {
        let (read, write) = std::io::pipe()?;
        for signal in ALL {
            // A full pipe does not block: the reader needs only the first byte.
            signal_hook::low_level::pipe::register(signal, OwnedFd::from(write.try_clone()?))?;
        }
        Ok(read.into())
    })
}
