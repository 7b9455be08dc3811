//! Signals that ask to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use streamline::StopFlag;

/// Ctrl-C, SIGTERM and a closed terminal ask to stop; a second one of the same kills.
pub(crate) fn listen(stop: &StopFlag) -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, stop.word())?;
        signal_hook::flag::register(signal, stop.word())?;
    }
    Ok(())
}
