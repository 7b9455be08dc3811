//! The asking side: finds running requests, and asks one of them something.

use super::place::{self, Found};
use super::protocol::{Answer, Asked, EdgeLine, Question, RingPlace, StageLines};
use base::terminal;
use buffer::control::{self, packets, peer};
use buffer::keeper::client::Named;
use rustix::net::SocketFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// A running request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process that runs it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its answer. The error says why there is none.
    pub told: Result<Told, String>,
}

/// What a request says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its text.
    pub request: String,
    /// Its edges.
    pub edges: Vec<EdgeLine>,
    /// Its stages; empty if it runs on one thread.
    pub stages: StageLines,
}

/// How long listing waits for all requests of one folder: a stopped process does not answer.
const LIST: Duration = Duration::from_millis(500);

/// How long listing waits for all folders: any number of users could make root wait.
const LIST_ALL: Duration = Duration::from_secs(5);

/// Most requests asked at a time; each takes a file descriptor.
const LISTED_AT_A_TIME: usize = 256;

/// How long to wait for one request's answer: longer than that request waits for its worker.
const ASK: Duration = Duration::from_secs(15);

/// How long to wait for a replacement, which has to be prepared first.
const REPLACE: Duration = Duration::from_secs(60);

/// The requests that this user may look at, sorted by process. A request that does not answer in time is listed without
/// its answer. All are asked at once, so slow ones do not add up. Sockets of killed processes are left out.
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
fn list_some(sockets: &[Found], deadline: Instant) -> Vec<Request> {
    let asked = sockets.iter().map(|found| {
        let asked = connect(found, SocketFlags::NONBLOCK, LIST).and_then(|socket| {
            control::ask(&socket, &Asked::Question(Question::Edges))?;
            Ok(socket)
        });
        (found, asked)
    });
    let asked: Vec<_> = asked.collect();
    let requests = asked.into_iter().filter_map(|(found, asked)| {
        let answered = asked.and_then(|socket| match packets::is_readable(&socket, deadline)? {
            true => answer(&socket),
            false => Err(io::ErrorKind::TimedOut.into()),
        });
        let told = match answered {
            Ok(Answer::Edges(request, edges, stages)) => Ok(Told { request, edges, stages }),
            Ok(Answer::Failed(text) | Answer::Wrong(text)) => Err(text),
            Ok(_) => Err("it answers something else".into()),
            Err(error) if is_nobody(&error) => return None,
            Err(error) => Err(told_of(&error)),
        };
        Some(Request { process: found.process, user: found.user, told })
    });
    requests.collect()
}

/// Finds the socket of the request that a process runs. `None`: it runs none.
pub fn find(process: i32) -> Option<Found> {
    let mut sockets = place::sockets().into_iter().flatten().filter(|found| found.process == process);
    sockets.find(|found| connect(found, SocketFlags::empty(), LIST).is_ok())
}

/// Asks one request.
pub fn ask(found: &Found, question: &Question) -> Result<Answer, String> {
    let patience = if matches!(question, Question::Replace(_)) { REPLACE } else { ASK };
    speak(found, question, patience).map_err(|error| told_of(&error))
}

/// Opens a ring that a request has named. Its process might name any socket; only one beside the request's own, and of
/// the same user, is accepted.
pub fn ring(found: &Found, place: &RingPlace) -> Result<Named, String> {
    let path = Path::new(&place.path);
    match path.parent() == found.socket.parent() {
        true => Ok(Named::of_user(path, found.user)),
        false => Err(format!("it names a ring elsewhere than in its user's folder (`{}`)", place.path.escape_debug())),
    }
}

/// No process listens: the request was killed, or has ended by now.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn told_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        _ => format!("it cannot be asked: {error}"),
    }
}

fn connect(found: &Found, flags: SocketFlags, patience: Duration) -> io::Result<OwnedFd> {
    let another = || io::Error::new(io::ErrorKind::NotFound, "another process listens there");
    let socket = match control::connect(&found.socket, Some(found.user), flags, patience) {
        // A process of another user listens at the socket in this user's folder.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(another()),
        connected => connected?,
    };
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    if peer::of(socket.as_fd())?.process != found.process {
        return Err(another());
    }
    Ok(socket)
}

fn speak(found: &Found, question: &Question, patience: Duration) -> io::Result<Answer> {
    let socket = connect(found, SocketFlags::empty(), patience)?;
    control::ask(&socket, &Asked::Question(question.clone()))?;
    answer(&socket)
}

fn answer(socket: &OwnedFd) -> io::Result<Answer> {
    let gone = || io::Error::new(io::ErrorKind::ConnectionRefused, "it has ended");
    let (answer, _no_fds_are_expected) = control::receive(socket)?.ok_or_else(gone)?;
    Ok(for_people(answer))
}

/// Removes terminal control codes from an answer: another user's process may have written it, and root's terminal shows
/// it.
fn for_people(answer: Answer) -> Answer {
    let line = |text: String| terminal::line(&text).into_owned();
    let lines = |text: String| terminal::text(&text).into_owned();
    match answer {
        Answer::Edges(request, edges, mut stages) => {
            let clean = |edge: EdgeLine| EdgeLine {
                name: line(edge.name),
                number: line(edge.number),
                label: line(edge.label),
                ..edge
            };
            for stage in &mut stages.stages {
                stage.filters = line(std::mem::take(&mut stage.filters));
            }
            Answer::Edges(line(request), edges.into_iter().map(clean).collect(), stages)
        }
        Answer::Ring(ring) => Answer::Ring(RingPlace { number: line(ring.number), label: line(ring.label), ..ring }),
        Answer::Replaced => Answer::Replaced,
        Answer::Stopping => Answer::Stopping,
        Answer::Wrong(text) => Answer::Wrong(lines(text)),
        Answer::Failed(text) => Answer::Failed(lines(text)),
    }
}
