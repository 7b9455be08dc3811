//! Ctrl-C and its like, for loops that look at a flag now and then.

use super::Trouble;
use std::time::{Duration, Instant};
use streamline::StopFlag;

/// How long a loop sleeps at most before it looks at the flag again.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// A flag that Ctrl-C, SIGTERM and a closed terminal set; a second one of the same kills.
pub(super) fn listen() -> Result<StopFlag, Trouble> {
    let stop = StopFlag::new();
    crate::signals::listen(&stop).map_err(|error| Trouble::Failed(format!("cannot listen for signals: {error}")))?;
    Ok(stop)
}

/// When to look next.
pub(super) fn next_look() -> Option<Instant> {
    Some(Instant::now() + LOOK)
}

/// The same for poll(2).
pub(super) fn look_ms() -> u16 {
    LOOK.as_millis() as u16
}
