//! The line to a daemon: questions go over it, and where the daemon ends, the search for its successor begins.

use crate::error::SocketError;
use capture::CaptureErrorKind;
use capture::client::Client;
use flow::{Answer, Host, Question};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection looks for another daemon. It then allows as long again to claim its flows, because the
/// process that holds them must find that daemon too.
const LOOK: Duration = Duration::from_secs(5);

pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// The part of a connection that its owner and the attendant share.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) daemon: PathBuf,
    pub(crate) purpose: String,
    pub(crate) known: Mutex<Daemon>,
    /// Channels of the application's flows and listeners. Lock order: after `known` if both are taken.
    pub(crate) channels: Mutex<BTreeSet<u32>>,
    /// Daemons found after the first one.
    pub(crate) found: AtomicU32,
    /// The attendant writes to it after finding a daemon. Unset: no hub sleeps.
    pub(crate) wake: OnceLock<OwnedFd>,
    pub(crate) host: Mutex<Host>,
    /// The page of the doorbells, with which the connection claims the flows. `None` before the first flow.
    pub(crate) page: Mutex<Option<Arc<OwnedFd>>>,
    /// Readable once the search for a daemon has failed.
    pub(crate) over: OwnedFd,
    /// The process that connected.
    pub(crate) process: u32,
}

/// The daemon, as this connection knows it.
#[derive(Debug)]
pub(crate) enum Daemon {
    /// Connected. The second value hangs up when the daemon ends.
    There(Client, OwnedFd),
    /// The daemon ended at `since`. The one seen at `found` does not know the flows yet.
    Away {
        since: Instant,
        found: Option<Instant>,
    },
    Over,
}

/// The daemon ended just now.
pub(crate) fn away() -> Daemon {
    Daemon::Away { since: Instant::now(), found: None }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the daemon has gone, and no other came yet; try again in a moment")
}

pub(crate) fn has_hung_up(line: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(line, PollFlags::RDHUP)];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

impl Line {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.known)
    }

    pub(crate) fn channels(&self) -> Vec<u32> {
        lock(&self.channels).iter().copied().collect()
    }

    pub(crate) fn note_page(&self, host: &Host) {
        *lock(&self.page) = host.bells().map(|bells| Arc::clone(bells.handles()[0]));
    }

    /// Asks the connected daemon.
    pub(crate) fn ask(&self, question: &Question) -> Result<(Answer, Vec<OwnedFd>), SocketError> {
        let mut line = self.lock();
        let Daemon::There(client, hangs_up) = &*line else {
            return Err(if matches!(*line, Daemon::Over) { SocketError::GONE } else { SocketError::Daemon(absent()) });
        };
        match client.flows(question.clone()) {
            Ok(answered) => {
                let mut channels = lock(&self.channels);
                match &answered.0 {
                    Answer::Granted(granted) => drop(channels.insert(granted.channel)),
                    Answer::Listening(listening) => drop(channels.insert(listening.channel)),
                    Answer::Accepted(all) => channels.extend(all.iter().map(|granted| granted.channel)),
                    Answer::Done | Answer::State(_) => {}
                }
                Ok(answered)
            }
            // The daemon ended meanwhile. The next daemon ends whatever was opened, since no client claims it.
            Err(_) if has_hung_up(hangs_up) => {
                *line = away();
                Err(SocketError::Daemon(absent()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hangs up when the daemon ends; `None` if it has ended.
    pub(crate) fn hangs_up(&self) -> Option<OwnedFd> {
        match &*self.lock() {
            Daemon::There(_, line) => line.try_clone().ok(),
            Daemon::Away { .. } | Daemon::Over => None,
        }
    }

    /// Checks whether the daemon is there, and looks for another if not.
    pub(crate) fn attend(&self) -> Attended {
        // The lock is free during the search, which takes a while.
        let step = self.lock().step(&self.over);
        let channels = match step {
            Step::Look => self.channels(),
            Step::Is(attended) => return attended,
        };
        let page = self.page(!channels.is_empty());
        let looked = self.look(channels, page.as_deref());
        let attended = self.lock().came(looked, |channel| lock(&self.channels).contains(&channel));
        if attended == Attended::There {
            self.found.fetch_add(1, Ordering::Relaxed);
            // A full eventfd wakes the hub as well.
            let _ = self.wake.get().map(|wake| rustix::io::write(wake, &1_u64.to_ne_bytes()));
        }
        attended
    }

    /// Connects to a daemon and claims the flows with these channels and doorbells (`page`; `None` without flows).
    pub(crate) fn look(&self, channels: Vec<u32>, page: Option<&OwnedFd>) -> Looked {
        let found = Client::connect(&self.daemon, &self.purpose).and_then(|client| Ok((client.line()?, client)));
        let Ok((hangs_up, client)) = found else { return Looked::Nowhere };
        let Some(page) = page else { return Looked::Found(client, hangs_up, channels) };
        match client.claim(channels.clone(), page.as_fd()) {
            Ok(()) => Looked::Found(client, hangs_up, channels),
            // The process that holds the flows has not found this daemon yet.
            Err(error) if error.kind == CaptureErrorKind::Absent => Looked::Unknown,
            Err(_) if has_hung_up(&hangs_up) => Looked::Nowhere,
            Err(_) => Looked::Refused,
        }
    }

    /// The page of the doorbells; `None` without flows. `has_flows`: a call may be about to get their doorbells.
    fn page(&self, has_flows: bool) -> Option<Arc<OwnedFd>> {
        let of = |host: MutexGuard<'_, Host>| host.bells().map(|bells| Arc::clone(bells.handles()[0]));
        let page = lock(&self.page).clone();
        // Lock `host` only if needed: a call may hold it while it waits for the daemon.
        page.or_else(|| has_flows.then(|| of(lock(&self.host))).flatten())
    }
}

impl Daemon {
    /// The attendant's next step.
    pub(crate) fn step(&mut self, over: &OwnedFd) -> Step {
        match self {
            Daemon::There(_, hangs_up) if !has_hung_up(hangs_up) => return Step::Is(Attended::There),
            Daemon::There(..) => *self = away(),
            Daemon::Away { since, found } if found.unwrap_or(*since).elapsed() >= LOOK => {
                *self = Daemon::Over;
                let _ = rustix::io::write(over, &1_u64.to_ne_bytes());
            }
            Daemon::Away { .. } | Daemon::Over => {}
        }
        if matches!(self, Daemon::Over) { Step::Is(Attended::Over) } else { Step::Look }
    }

    /// Applies the result of a search. `is_open`: whether the application still has this channel.
    pub(crate) fn came(&mut self, looked: Looked, is_open: impl Fn(u32) -> bool) -> Attended {
        let Daemon::Away { since, found } = self else { return Attended::Over };
        match looked {
            Looked::Found(client, hangs_up, claimed) => {
                // The application closed these while the daemon was away.
                for channel in claimed.into_iter().filter(|channel| !is_open(*channel)) {
                    let _ = client.flows(Question::Close(channel));
                }
                *self = Daemon::There(client, hangs_up);
                Attended::There
            }
            Looked::Nowhere => Attended::Away,
            Looked::Unknown => {
                found.get_or_insert_with(Instant::now);
                Attended::Away
            }
            Looked::Refused => {
                // Ends the search at the next step.
                *found = Some(since.checked_sub(LOOK).unwrap_or(*since));
                Attended::Away
            }
        }
    }
}

/// The next step for a connection.
pub(crate) enum Step {
    Is(Attended),
    /// Look for a daemon and claim the flows.
    Look,
}

/// The result of looking for a daemon.
pub(crate) enum Looked {
    /// A daemon is there, and it accepted the claim of these channels.
    Found(Client, OwnedFd, Vec<u32>),
    Nowhere,
    /// A daemon is there that does not know the flows, perhaps not yet.
    Unknown,
    /// The daemon refuses the claim.
    Refused,
}

/// State of a connection, as the attendant reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    There,
    /// The connection looks for a daemon.
    Away,
    /// The search failed, or the application dropped the connection.
    Over,
}
