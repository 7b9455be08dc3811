//! Ctrl-C and its like, for loops that sleep until there is something to do.

use crate::exit::{CommandError, Outcome};
use crate::signals::Finishing;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use streamline::StopFlag;

/// How long a loop waits for blocks or room without listening for signals: who is served within that time needs no more
/// than a futex; who is not sleeps until something comes, a signal too.
pub(super) const SOON: Duration = Duration::from_millis(10);

/// Whether one is asked to stop, by Ctrl-C, SIGTERM or a closed terminal; one more kills, unless it comes at once.
pub(super) struct Stop {
    flag: StopFlag,
    /// Readable from the first of them on.
    signalled: OwnedFd,
}

impl Stop {
    /// Listens from here on.
    pub(super) fn listen() -> Result<Stop, CommandError> {
        let failed = |error: io::Error| CommandError::Failed(format!("cannot listen for signals: {error}"));
        let flag = StopFlag::new();
        // The flag is set before the descriptor can be read: who is woken sees it.
        crate::signals::listen(&flag, Finishing::Told).map_err(failed)?;
        let signalled = crate::signals::descriptor().map_err(failed)?;
        Ok(Stop { flag, signalled })
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.is_set()
    }

    /// Sleeps until one of these is ready or one is asked to stop, however long that takes.
    pub(super) fn sleep(&self, files: &[(BorrowedFd<'_>, PollFlags)]) -> Outcome {
        let mut polled = vec![PollFd::new(&self.signalled, PollFlags::IN)];
        polled.extend(files.iter().map(|(file, flags)| PollFd::from_borrowed_fd(*file, *flags)));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(CommandError::Failed(format!("cannot wait: {}", io::Error::from(error)))),
        }
    }
}
