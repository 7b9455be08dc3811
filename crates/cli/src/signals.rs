//! Signals that ask to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use streamline::StopFlag;

/// The same signals are written to a socket, once each; a second one of the same kind kills.
pub(crate) fn write_on(socket: std::os::unix::net::UnixStream) -> std::io::Result<()> {
    let stop = StopFlag::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, stop.word())?;
        signal_hook::flag::register(signal, stop.word())?;
        signal_hook::low_level::pipe::register(signal, socket.try_clone()?)?;
    }
    Ok(())
}

/// Ctrl-C, SIGTERM and a closed terminal ask to stop; a second one of the same kills.
pub(crate) fn listen(stop: &StopFlag) -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, stop.word())?;
        signal_hook::flag::register(signal, stop.word())?;
    }
    Ok(())
}
