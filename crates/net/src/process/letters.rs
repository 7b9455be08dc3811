//! Messages from an interface's thread to the daemon. The thread puts them into a queue, in order, and another thread
//! sends them. So the interface never waits for the daemon.

use super::message::{Record, Said, Word};
use buffer::control::{self, packets};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// An item of the queue.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A word, and the file descriptors beside it.
    Say(Box<Said>, Vec<Arc<OwnedFd>>),
    /// The daemon at the end of this socket gets the following messages.
    To(Arc<OwnedFd>),
}

impl Letter {
    /// A word without file descriptors.
    pub(crate) fn word(number: u64, word: Word) -> Letter {
        Letter::Say(Box::new(Said { number, word, records: Vec::new() }), Vec::new())
    }

    /// A word with file descriptors for an application, and records with theirs.
    pub(crate) fn with(number: u64, word: Word, mut fds: Vec<Arc<OwnedFd>>, records: Vec<Kept>) -> Letter {
        let (records, kept): (_, Vec<_>) = records.into_iter().unzip();
        fds.extend(kept.into_iter().flatten());
        Letter::Say(Box::new(Said { number, word, records }), fds)
    }
}

/// A record with its file descriptors.
pub(crate) type Kept = (Record, Vec<Arc<OwnedFd>>);

/// The sending end of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Letters(Sender<Letter>);

impl Letters {
    /// Sends a message. If the process is about to end, the message is lost.
    pub(crate) fn send(&self, letter: Letter) {
        let _ = self.0.send(letter);
    }
}

/// A queue, both ends.
pub(crate) fn queue() -> (Letters, Receiver<Letter>) {
    let (sender, receiver) = channel();
    (Letters(sender), receiver)
}

/// The pause while too many file descriptors are in flight.
const SHORT: Duration = Duration::from_millis(2);

/// Sends queued messages until all senders are gone. An ended daemon loses them: the next one gets everything again.
pub(crate) fn carry(letters: &Receiver<Letter>, mut socket: Arc<OwnedFd>) {
    for letter in letters {
        match letter {
            Letter::To(other) => socket = other,
            Letter::Say(said, fds) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
                while let Err(error) = control::send(&socket, &*said, &fds) {
                    if !packets::is_short(&error) {
                        break;
                    }
                    std::thread::sleep(SHORT);
                }
            }
        }
    }
}
