//! Notice that a process died: the process holds one end of a pipe, and other processes watch the other end.
//!
//! The kernel closes at once what a dead process held, whatever it died of. A child that it forked holds the line as
//! well, for as long as the child may go on in its place. The pipe stays empty. An uncut line does not prove that the
//! process works (it may be stopped), nor a cut one that it died (it may have closed this file alone).

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep before a sleeper checks whether the line of the process that should wake it is cut.
pub const LOOK: Duration = Duration::from_secs(1);

/// The watched end. Clones share one file descriptor.
#[derive(Clone, Debug)]
pub struct Lifeline(Arc<OwnedFd>);

impl Lifeline {
    /// Makes a line: gives the watched end, and the end to hold.
    pub fn new() -> io::Result<(Lifeline, OwnedFd)> {
        let (watched, held) = io::pipe()?;
        Ok((Lifeline::from(OwnedFd::from(watched)), held.into()))
    }

    /// Whether every holder has closed it. Makes a system call.
    pub fn is_cut(&self) -> bool {
        let mut polled = [PollFd::new(&*self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut polled, Some(&now));
        polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

impl From<OwnedFd> for Lifeline {
    /// From another process. A file that is not a pipe counts as never cut or as always cut.
    fn from(watched: OwnedFd) -> Lifeline {
        Lifeline(Arc::new(watched))
    }
}

impl AsFd for Lifeline {
    /// Gives POLLHUP when the line is cut, whatever events a poll asks for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_when_all_who_hold_it_have_let_go() {
        let (line, held) = Lifeline::new().unwrap();
        let (watched, again) = (line.clone(), held.try_clone().unwrap());
        drop(held);
        assert!(!line.is_cut() && !watched.is_cut());
        drop(again);
        assert!(line.is_cut() && watched.is_cut());
    }
}
