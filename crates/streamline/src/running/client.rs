//! The side of who asks: finds running requests, asks one something.

use super::place;
use super::protocol::{Answer, EdgeLine, Question, receive};
use buffer::shared::{packets, peer};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A request that somebody runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process that runs it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// What it says of itself; else why it says nothing.
    pub told: Result<Told, String>,
}

/// What a request says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its text.
    pub request: String,
    /// Its edges.
    pub edges: Vec<EdgeLine>,
}

/// Who lists requests waits so long for each: a process that is stopped does not answer.
const LIST: Duration = Duration::from_millis(500);

/// Who asks one request something waits so long: longer than that waits for its worker.
const ASK: Duration = Duration::from_secs(15);

/// The same of who replaces it: what is to be prepared may take some time besides.
const REPLACE: Duration = Duration::from_secs(60);

/// Requests that this user may look at, by process; what those that were killed have left is not there.
pub fn list() -> Vec<Request> {
    let requests = place::sockets().into_iter().filter_map(|(process, path)| {
        let (told, user) = match speak(&path, process, &Question::Edges, LIST) {
            Ok((Answer::Edges(request, edges), user)) => (Ok(Told { request, edges }), user),
            Ok((Answer::Failed(text) | Answer::Wrong(text), user)) => (Err(text), user),
            Ok((_, user)) => (Err("it answers something else".into()), user),
            Err(error) if is_nobody(&error) => return None,
            Err(error) => (Err(told_of(&error)), u32::MAX),
        };
        Some(Request { process, user, told })
    });
    requests.collect()
}

/// The socket at which the request that a process runs can be asked; none if there is none.
pub fn find(process: i32) -> Option<PathBuf> {
    let mut sockets = place::sockets().into_iter().filter(|(known, _)| *known == process);
    sockets.find(|(_, path)| connect(path, process, LIST).is_ok()).map(|(_, path)| path)
}

/// Asks the request of a process.
pub fn ask(path: &Path, process: i32, question: &Question) -> Result<Answer, String> {
    let patience = if matches!(question, Question::Replace { .. }) { REPLACE } else { ASK };
    speak(path, process, question, patience).map(|(answer, _)| answer).map_err(|error| told_of(&error))
}

/// Nobody listens there: it was killed, or has ended by now.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn told_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        _ => format!("it cannot be asked: {error}"),
    }
}

fn connect(path: &Path, process: i32, patience: Duration) -> io::Result<(std::os::fd::OwnedFd, u32)> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, which, Some(patience))?;
    }
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let peer = peer::of(socket.as_fd())?;
    if peer.process != process {
        return Err(io::Error::new(io::ErrorKind::NotFound, "another process listens there"));
    }
    Ok((socket, peer.user))
}

/// One question and its answer, and whose process it is.
fn speak(path: &Path, process: i32, question: &Question, patience: Duration) -> io::Result<(Answer, u32)> {
    let (socket, user) = connect(path, process, patience)?;
    let packet = question.encode();
    if packet.len() > super::protocol::MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is too long"));
    }
    packets::send(&socket, &packet, &[])?;
    let gone = || io::Error::new(io::ErrorKind::ConnectionRefused, "it has ended");
    let packet = receive(&socket)?.ok_or_else(gone)?;
    let answer = Answer::decode(&packet);
    Ok((answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it answers something else"))?, user))
}
