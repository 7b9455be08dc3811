//! Signals that ask to stop.
//!
//! The first asks; what comes within `SAME` of it is taken for the same, for `timeout` and shells signal a process and then
//! its group; a later one kills, as if nobody had listened.

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

/// Who ends later than `SAME` after it was asked to: are people told?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finishing {
    /// They are told that it is about to, and how to abandon it.
    Told,
    /// They are not.
    Untold,
}

impl Finishing {
    /// For a command that may be quiet: on a terminal somebody waits all the same.
    pub(crate) fn told_unless(quiet: bool) -> Finishing {
        if quiet && !std::io::stderr().is_terminal() { Finishing::Untold } else { Finishing::Told }
    }
}

/// This process goes on when it is asked to stop: it ends when another process says so.
pub(crate) fn outlive() -> std::io::Result<()> {
    let ignored = Arc::<AtomicBool>::default();
    ALL.into_iter().try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&ignored)).map(drop))
}

/// The same signals are written to a socket.
pub(crate) fn write_on(socket: UnixStream) -> std::io::Result<()> {
    listen(&StopFlag::new(), Finishing::Untold)?;
    register(socket)
}

/// Writes a byte there for each of them. It does not block where nobody reads: the first byte is enough.
fn register(socket: UnixStream) -> std::io::Result<()> {
    for signal in ALL {
        signal_hook::low_level::pipe::register(signal, socket.try_clone()?)?;
    }
    Ok(())
}

/// Ctrl-C, SIGTERM and a closed terminal ask to stop; one more of them kills, unless it comes at once. A file that may not
/// grow any more (RLIMIT_FSIZE) is an error of the write, and no signal that kills.
pub(crate) fn listen(stop: &StopFlag, finishing: Finishing) -> std::io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let armed = Arc::<AtomicBool>::default();
    for signal in ALL {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&armed))?;
        signal_hook::flag::register(signal, stop.word())?;
    }
    // Not a pipe: a daemon, which is confined by then, may make none.
    let (first, asked) = UnixStream::pair()?;
    register(asked)?;
    let arm = move || arm(first, &armed, finishing);
    std::thread::Builder::new().name("signals".into()).spawn(arm).map(drop)
}

/// Has signals kill from `SAME` after the first on. Who runs may be busy finishing then, or wait for somebody: it is nobody
/// who could tell.
fn arm(mut first: UnixStream, armed: &AtomicBool, finishing: Finishing) {
    // An interrupted read is repeated; nothing else can become of a socket whose other end is never closed.
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
        // The signal itself interrupts; the flag is set before its byte is there.
        match rustix::event::poll(&mut [PollFd::new(&asked, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A descriptor that can be read from the first of them on, for who waits with poll(2).
pub(crate) fn descriptor() -> std::io::Result<OwnedFd> {
    let (read, write) = std::io::pipe()?;
    for signal in ALL {
        // It does not block where nobody reads: the first byte is enough.
        signal_hook::low_level::pipe::register(signal, OwnedFd::from(write.try_clone()?))?;
    }
    Ok(read.into())
}
