//! Signals that ask to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::OwnedFd;
use streamline::StopFlag;

const ALL: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The same signals are written to a socket; a second one of the same kind kills.
pub(crate) fn write_on(socket: std::os::unix::net::UnixStream) -> std::io::Result<()> {
    listen(&StopFlag::new())?;
    for signal in ALL {
        signal_hook::low_level::pipe::register(signal, socket.try_clone()?)?;
    }
    Ok(())
}

/// Ctrl-C, SIGTERM and a closed terminal ask to stop; a second one of the same kills.
pub(crate) fn listen(stop: &StopFlag) -> std::io::Result<()> {
    for signal in ALL {
        signal_hook::flag::register_conditional_default(signal, stop.word())?;
        signal_hook::flag::register(signal, stop.word())?;
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
