//! A line that is cut when a process dies: a pipe whose one end that process holds, and whose other end others watch.
//!
//! The kernel closes what a dead process held, whatever it died of, and at once; a child that it forked holds the line as
//! well, for as long as that may go on in its place. Nothing is ever written to it. Not a proof of life: whoever holds it
//! may be stopped, or may have let go of the line alone.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long somebody sleeps at most before it looks whether the line of who should wake it is cut.
pub const LOOK: Duration = Duration::from_secs(1);

/// The end that is watched; the same end, however often it is cloned.
#[derive(Clone, Debug)]
pub struct Lifeline(Arc<OwnedFd>);

impl Lifeline {
    /// A new line, and the end that is to be held.
    pub fn new() -> io::Result<(Lifeline, OwnedFd)> {
        let (watched, held) = io::pipe()?;
        Ok((Lifeline::from(OwnedFd::from(watched)), held.into()))
    }

    /// Does nobody hold it any more? A system call.
    pub fn is_cut(&self) -> bool {
        let mut polled = [PollFd::new(&*self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut polled, Some(&now));
        polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

impl From<OwnedFd> for Lifeline {
    /// From another process. What is no pipe is never cut, or always.
    fn from(watched: OwnedFd) -> Lifeline {
        Lifeline(Arc::new(watched))
    }
}

impl AsFd for Lifeline {
    /// Says POLLHUP when the line is cut, whatever else it is asked for.
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
