//! What a thread does that listens besides other things, when who comes cannot be let in for want of files or memory: it
//! looks away for a moment. Else the listener that stays ready would have it go round and round.

use rustix::event::PollFlags;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// So long it does not look who comes.
const REST: Duration = Duration::from_millis(100);

/// Is it looked at who comes?
#[derive(Debug, Default)]
pub struct Rest {
    until: Option<Instant>,
}

impl Rest {
    /// What is to be waited for at the listener.
    pub fn flags(&self) -> PollFlags {
        if self.left().is_some() { PollFlags::empty() } else { PollFlags::IN }
    }

    /// So long a wait may last at most, where who comes is not waited for.
    pub fn left(&self) -> Option<Duration> {
        self.until?.checked_duration_since(Instant::now())
    }

    /// Takes in why nobody was let in.
    pub fn note(&mut self, error: Errno) {
        // Who came has gone again, or was somebody else's; everything else stays as it is for a while.
        if !matches!(error, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) {
            self.until = Some(Instant::now() + REST);
        }
    }
}
