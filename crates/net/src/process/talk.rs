//! The daemon's exchange with one process. Until the interface carries packets, each order has one answer.

use super::message::{BYTES, Facts, Order, Said, Start, Word};
use crate::error::NetError;
use crate::limits::ANSWER;
use buffer::control::codec::{Out, Wire};
use buffer::control::{self, packets};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a process may take to open its device and restore everything, plus the time for each record.
pub(super) const BEGIN: Duration = Duration::from_secs(10);

/// A process that runs [`serve`](super::serve).
#[derive(Debug)]
pub struct Running {
    /// The connection to it.
    pub socket: OwnedFd,
    /// The process itself (pidfd). `None`: it cannot be ended from here.
    pub process: Option<OwnedFd>,
}

pub(super) fn unheard(doing: &str, error: impl fmt::Display) -> NetError {
    NetError::system(&format!("{doing} the interface's process"), error)
}

pub(super) fn send(running: &Running, number: u64, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut out = Out::default();
    number.put(&mut out);
    order.put(&mut out);
    if out.0.len() > BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match packets::send(&running.socket, &out.0, fds) {
            // Too many file descriptors are in flight at the moment.
            Err(error) if packets::is_short(&error) && !fds.is_empty() => std::thread::sleep(Duration::from_millis(1)),
            sent => return sent,
        }
    }
}

/// Receives one message before this time.
pub(super) fn hear(running: &Running, deadline: Instant) -> io::Result<(Said, Vec<OwnedFd>)> {
    loop {
        if !packets::is_readable(&running.socket, deadline)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"));
        }
        match control::receive(&running.socket) {
            Ok(Some(heard)) => return Ok(heard),
            Ok(None) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended")),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Starts a process up to the opening of its device.
pub(super) fn open_device(
    running: &Running,
    start: &Start,
    handle: Option<BorrowedFd<'_>>,
) -> Result<(Facts, Option<OwnedFd>), NetError> {
    let limited = set_socket_timeout(&running.socket, Timeout::Send, Some(ANSWER));
    limited.map_err(|error| unheard("limit", error))?;
    let handle: Vec<_> = handle.into_iter().collect();
    send(running, 0, &Order::Up(start.clone()), &handle).map_err(|error| unheard("speak to", error))?;
    let (said, mut fds) = hear(running, Instant::now() + BEGIN).map_err(|error| unheard("hear", error))?;
    match said.word {
        Word::Opened(facts) => Ok((facts, fds.pop())),
        Word::Refused(kind, text) => Err(NetError::new(kind, text)),
        Word::Fails(text) => Err(unheard("hear", text)),
        _ => Err(unheard("hear", "it answers something else")),
    }
}

/// Gives an order whose answer only says that it is done.
pub(super) fn order(running: &Running, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<(), NetError> {
    send(running, 0, order, fds).map_err(|error| unheard("speak to", error))?;
    let (said, _) = hear(running, Instant::now() + BEGIN).map_err(|error| unheard("hear", error))?;
    match said.word {
        Word::Answer(flow::Answer::Done) => Ok(()),
        Word::Refused(kind, text) => Err(NetError::new(kind, text)),
        Word::Fails(text) => Err(unheard("hear", text)),
        _ => Err(unheard("hear", "it answers something else")),
    }
}
