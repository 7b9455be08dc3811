//! The side of who asks: finds running requests, asks one something.

use super::place;
use super::protocol::{Answer, EdgeLine, Question, RingPlace, receive};
use buffer::shared::{packets, peer};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// Who lists requests waits so long for all of one folder: a process that is stopped does not answer.
const LIST: Duration = Duration::from_millis(500);

/// And so long for those of all folders: there are as many as there are users who would have root wait.
const LIST_ALL: Duration = Duration::from_secs(5);

/// Requests that are asked at a time: each takes a file descriptor.
const LISTED_AT_A_TIME: usize = 256;

/// Who asks one request something waits so long: longer than that waits for its worker.
const ASK: Duration = Duration::from_secs(15);

/// The same of who replaces it: what is to be prepared may take some time besides.
const REPLACE: Duration = Duration::from_secs(60);

/// Requests that this user may look at, by process; what those that were killed have left is not there. Who does not answer
/// in time is listed as such, and nobody waits for one after the other.
pub fn list() -> Vec<Request> {
    let end = Instant::now() + LIST_ALL;
    let mut requests = Vec::new();
    for folder in place::sockets() {
        let deadline = end.min(Instant::now() + LIST);
        for sockets in folder.chunks(LISTED_AT_A_TIME) {
            requests.extend(list_some(sockets, deadline));
        }
    }
    requests.sort_by_key(|request| request.process);
    requests
}

/// Asks all of these at once.
fn list_some(sockets: &[(i32, PathBuf)], deadline: Instant) -> Vec<Request> {
    let asked = sockets.iter().map(|(process, path)| {
        let asked = connect(path, *process, SocketFlags::NONBLOCK, LIST).and_then(|(socket, user)| {
            say(&socket, &Question::Edges.encode())?;
            Ok((socket, user))
        });
        (*process, asked)
    });
    let asked: Vec<_> = asked.collect();
    let requests = asked.into_iter().filter_map(|(process, asked)| {
        let answered = asked.and_then(|(socket, user)| match packets::is_readable(&socket, deadline)? {
            true => Ok((answer(&socket)?, user)),
            false => Err(io::ErrorKind::TimedOut.into()),
        });
        let (told, user) = match answered {
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
    let mut sockets = place::sockets().into_iter().flatten().filter(|(known, _)| *known == process);
    sockets.find(|(_, path)| connect(path, process, SocketFlags::empty(), LIST).is_ok()).map(|(_, path)| path)
}

/// Asks the request of a process.
pub fn ask(path: &Path, process: i32, question: &Question) -> Result<Answer, String> {
    let patience = if matches!(question, Question::Replace { .. }) { REPLACE } else { ASK };
    speak(path, process, question, patience).map_err(|error| told_of(&error))
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

fn connect(path: &Path, process: i32, flags: SocketFlags, patience: Duration) -> io::Result<(OwnedFd, u32)> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
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

/// One question and its answer.
fn speak(path: &Path, process: i32, question: &Question, patience: Duration) -> io::Result<Answer> {
    let (socket, _) = connect(path, process, SocketFlags::empty(), patience)?;
    let packet = question.encode();
    if packet.len() > super::protocol::MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is too long"));
    }
    say(&socket, &packet)?;
    answer(&socket)
}

fn say(socket: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    match packets::send(socket, packet, &[]) {
        // It listens no more; why, it may have said.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}

fn answer(socket: &OwnedFd) -> io::Result<Answer> {
    let gone = || io::Error::new(io::ErrorKind::ConnectionRefused, "it has ended");
    let packet = receive(socket)?.ok_or_else(gone)?;
    let answer = Answer::decode(&packet).map(for_people);
    answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it answers something else"))
}

/// The same without what a terminal obeys: who answers may be another user's process, and root's terminal shows it.
fn for_people(answer: Answer) -> Answer {
    let line = |text: String| text.replace(char::is_control, "\u{fffd}");
    let lines = |text: String| text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
    match answer {
        Answer::Edges(request, edges) => {
            let clean = |edge: EdgeLine| EdgeLine {
                name: line(edge.name),
                number: line(edge.number),
                label: line(edge.label),
                ..edge
            };
            Answer::Edges(line(request), edges.into_iter().map(clean).collect())
        }
        Answer::Ring(ring) => Answer::Ring(RingPlace { number: line(ring.number), label: line(ring.label), ..ring }),
        Answer::Replaced => Answer::Replaced,
        Answer::Stopping => Answer::Stopping,
        Answer::Wrong(text) => Answer::Wrong(lines(text)),
        Answer::Failed(text) => Answer::Failed(lines(text)),
    }
}
