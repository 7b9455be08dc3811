//! A file descriptor for poll(2) and epoll(7) that is readable when a ring has something to read.
//!
//! It is an epoll instance with an eventfd and the writer's line or, between two generations, the keeper's socket. A
//! thread sleeps on the ring's bell in place of the reader, no more often, and raises the eventfd
//! ([`watch`](super::watch)). The reader reports its state after each call. So the descriptor is readable while there
//! is something to read, and no longer.

use super::outstanding::SinkFront;
use super::thread::Watching;
use super::watch::Event;
use super::watch::reading::Reading;
use crate::shared::lifeline::Lifeline;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub(super) enum Due<'a> {
    /// Nothing: there is something to read, or the end.
    Now,
    /// The ring's bell, a cut of its writer's line, or progress of readers to which blocks were forwarded.
    Later(Reading<SinkFront>, Option<Lifeline>),
    Answer(BorrowedFd<'a>),
}

/// An eventfd: 0, or 1 when it is raised.
struct EventFd(OwnedFd);

impl Event for EventFd {
    fn raise(&self) {
        // It holds 0 before, so there is always room.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn lower(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

pub(super) struct Poller {
    watcher: Watching<EventFd, Reading<SinkFront>>,
    epoll: OwnedFd,
    asked: Option<i32>,
    /// The line of the writer that is waited for, kept open while it is watched. Other processes have the same pipe
    /// open, so closing the file here would not remove it from the epoll instance.
    line: Option<Lifeline>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let watcher = Watching::new("ring-poll", EventFd(event))?;
        Ok(Poller { watcher, epoll, asked: None, line: None })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Stores what the reader waits for now.
    pub fn set(&mut self, due: Due<'_>) {
        let socket = match &due {
            Due::Answer(socket) => Some(socket.as_raw_fd()),
            _ => None,
        };
        if self.asked.is_some() && self.asked != socket {
            // The socket may be closed already; then it has left the epoll instance by itself.
            self.forget_socket();
        }
        if let Due::Later(_, line) = &due {
            self.watch_line(line.as_ref());
        } else if let Due::Answer(_) = &due {
            self.watch_line(None);
        }
        match due {
            Due::Now => self.watcher.set_due(),
            Due::Later(watched, _) => self.watcher.set_watched(watched),
            Due::Answer(socket) => {
                self.watcher.set_idle();
                if self.asked.is_none() {
                    let data = epoll::EventData::new_u64(1);
                    match epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN) {
                        Ok(()) => self.asked = Some(socket.as_raw_fd()),
                        // Without it the poller would never wake: better an extra look.
                        Err(_) => self.watcher.set_due(),
                    }
                }
            }
        }
    }

    fn watch_line(&mut self, line: Option<&Lifeline>) {
        let same = |one: &Lifeline, other: &Lifeline| one.as_fd().as_raw_fd() == other.as_fd().as_raw_fd();
        if self.line.as_ref().zip(line).is_some_and(|(one, other)| same(one, other)) {
            return;
        }
        if let Some(line) = self.line.take() {
            let _ = epoll::delete(&self.epoll, &line);
        }
        if let Some(line) = line {
            // An epoll instance always reports a cut line. If it cannot be added (no memory), the reader finds out
            // later.
            let data = epoll::EventData::new_u64(2);
            if epoll::add(&self.epoll, line, data, epoll::EventFlags::empty()).is_ok() {
                self.line = Some(line.clone());
            }
        }
    }

    fn forget_socket(&mut self) {
        if let Some(socket) = self.asked.take() {
            // SAFETY: epoll_ctl compares the number with its own list; a closed or other file is an error.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            let _ = epoll::delete(&self.epoll, socket);
        }
    }

    /// Waits until the descriptor is readable. May return early: look again.
    pub fn wait(&self) -> io::Result<()> {
        self.wait_for(None)
    }

    /// The same, at most for `timeout` (`None`: without limit).
    pub fn wait_for(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
