//! Ctrl-C and other signals to stop, for loops that sleep until there is work.

use crate::exit::{CommandError, Outcome};
use crate::signals::Finishing;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use streamline::StopFlag;

/// How long a loop waits for blocks or room by a futex alone, which does not notice signals. After that it sleeps in
/// poll(2), which signals end, too.
pub(super) const SOON: Duration = Duration::from_millis(10);

/// Whether the process was asked to stop by Ctrl-C, SIGTERM or a closed terminal. One more signal kills, unless it
/// comes at once.
pub(super) struct Stop {
    flag: StopFlag,
    /// Readable from the first signal on.
    signalled: OwnedFd,
}

impl Stop {
    pub(super) fn listen() -> Result<Stop, CommandError> {
        let failed = |error: io::Error| CommandError::Failed(format!("cannot listen for signals: {error}"));
        let flag = StopFlag::new();
        let signalled = crate::signals::listen_with_descriptor(&flag, Finishing::Told).map_err(failed)?;
        Ok(Stop { flag, signalled })
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.is_set()
    }

    /// Sleeps until one of these is ready or a signal asks to stop, for any time.
    pub(super) fn sleep(&self, files: &[(BorrowedFd<'_>, PollFlags)]) -> Outcome {
        let mut polled = vec![PollFd::new(&self.signalled, PollFlags::IN)];
        polled.extend(files.iter().map(|(file, flags)| PollFd::from_borrowed_fd(*file, *flags)));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(CommandError::Failed(format!("cannot wait: {}", io::Error::from(error)))),
        }
    }
}
