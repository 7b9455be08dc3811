//! A request's way to the parser process: finds it, starts it if there is none, and asks it.

use super::protocol::{Answer, Endpoint, PROTOCOL, ParserState, Question};
use super::space::{Join, Joined};
use crate::running::on_one_line;
use buffer::control::packets::is_readable;
use buffer::control::{self, peer};
use buffer::pipe::{OpenOptions, PipeReader};
use buffer::ring::OnFull;
use filters::parser::inlet::Keeper;
use rustix::net::SocketFlags;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long to wait for an answer. A parser process that takes longer counts as stopped.
const ANSWER: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };

/// How long a new parser process may take to listen, or to say why it does not.
const START: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(10) };

/// How often to start one that ends before it has a client. It ends when it finds another, and that one may have gone
/// meanwhile.
const STARTS: u32 = 3;

const CANNOT_START: &str = "the process that is to run it for several requests cannot start";

/// A connection to a parser process.
pub struct Client {
    said: Mutex<Said>,
}

struct Said {
    socket: OwnedFd,
    /// Readings that the process has ended, unasked.
    over: Vec<(u64, String)>,
    /// Answers to questions that timed out; they come before all others.
    late: usize,
}

impl Client {
    /// Connects to the parser process that listens at `path`; `purpose` says to people what this client is for.
    ///
    /// # Errors
    /// - `NotFound` or `ConnectionRefused`: there is none.
    /// - `UnexpectedEof`: it is about to end.
    /// - `PermissionDenied`: it belongs to another user, who could put anything into what prefixes give.
    pub fn connect(path: &Path, purpose: &str) -> io::Result<Client> {
        let socket =
            control::connect(path, None, SocketFlags::empty(), ANSWER).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => late(),
                _ => error,
            })?;
        if peer::of(socket.as_fd())?.user != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user's process listens there"));
        }
        let client = Client { said: Mutex::new(Said { socket, over: Vec::new(), late: 0 }) };
        client.set_purpose(purpose)?;
        Ok(client)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        // A thread that panicked under this lock left a question without its answer. The next answer is then refused as
        // unexpected.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, question: &Question) -> io::Result<Answer> {
        let mut said = self.said();
        control::ask(&said.socket, question)?;
        let deadline = Instant::now() + ANSWER;
        loop {
            let Some(answer) = said.hear(deadline.saturating_duration_since(Instant::now()))? else {
                said.late += 1;
                return Err(late());
            };
            if let Some(answer) = said.sort(answer) {
                return Ok(answer);
            }
        }
    }

    pub(crate) fn set_purpose(&self, purpose: &str) -> io::Result<()> {
        let version = env!("CARGO_PKG_VERSION").to_string();
        match self.ask(&Question::Hello(PROTOCOL, version, on_one_line(purpose)))? {
            Answer::Hello(PROTOCOL) => Ok(()),
            Answer::Refused(why) => Err(io::Error::other(why)),
            _ => Err(unexpected()),
        }
    }

    /// Asks for the process's state.
    pub fn state(&self) -> io::Result<ParserState> {
        match self.ask(&Question::State)? {
            Answer::State(state) => Ok(state),
            Answer::Refused(why) => Err(io::Error::other(why)),
            _ => Err(unexpected()),
        }
    }
}

impl Said {
    /// Gives the answer back if it answers the last question; else handles it.
    fn sort(&mut self, answer: Answer) -> Option<Answer> {
        match answer {
            Answer::Over(id, why) => self.over.push((id, why)),
            answer if self.late == 0 => return Some(answer),
            answer => {
                self.late -= 1;
                if let Answer::Joined(Endpoint { id, .. }) = answer {
                    // A prefix joined too late has no reader: leave it.
                    let _ = control::send(&self.socket, &Question::Leave(id), &[]);
                }
            }
        }
        None
    }

    /// Receives one message. `None`: none came within `timeout`.
    fn hear(&mut self, timeout: Duration) -> io::Result<Option<Answer>> {
        let deadline = Instant::now() + timeout;
        loop {
            if !is_readable(&self.socket, deadline)? {
                return Ok(None);
            }
            return match control::receive(&self.socket) {
                Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Some((answer, _no_fds_are_expected))) => Ok(Some(answer)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }
}

/// Reads until the other end is closed. Fails when that takes longer than `deadline`.
fn read_until_closed(mut from: impl Read + AsFd, deadline: Instant) -> io::Result<String> {
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    while is_readable(&from, deadline)? {
        match from.read(&mut some) {
            Ok(0) => return Ok(String::from_utf8_lossy(&said).into_owned()),
            Ok(len) => said.extend_from_slice(&some[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(late())
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it says what cannot be understood")
}

/// Keeps a reading: while this lives, the parser process runs the prefix.
struct Member {
    client: Arc<Client>,
    id: u64,
}

impl Keeper for Member {
    fn last_word(&mut self) -> Option<String> {
        let mut said = self.client.said();
        while let Ok(Some(answer)) = said.hear(Duration::ZERO) {
            // No question waits for this answer.
            let _ = said.sort(answer);
        }
        said.over.iter().find(|(id, _)| *id == self.id).map(|(_, why)| why.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If the process is gone, the reading has ended anyway.
        let _ = control::send(&self.client.said().socket, &Question::Leave(self.id), &[]);
    }
}

/// Joins prefixes at a parser process, and starts one if there is none.
pub(crate) struct Joiner {
    daemon: PathBuf,
    /// The command that starts a parser process; the daemon's socket is added as its last argument.
    start: Option<Vec<OsString>>,
    purpose: String,
    client: Option<Arc<Client>>,
    /// Why no parser process can be used. It is not tried again.
    failed: Option<String>,
}

impl Joiner {
    pub(crate) fn new(daemon: PathBuf, start: Option<Vec<OsString>>, purpose: &str) -> Joiner {
        Joiner { daemon, start, purpose: purpose.into(), client: None, failed: None }
    }

    /// Uses this process's connection if it still works. One process is one client, however often it asks.
    pub(crate) fn over(mut self, client: Option<Arc<Client>>) -> Joiner {
        self.client = client.filter(|client| client.state().is_ok());
        if let Some(client) = &self.client {
            // If the process is gone, joining will fail as well.
            let _ = control::send(&client.said().socket, &Question::Forget, &[]);
        }
        self
    }

    /// The connection, which lives as long as one of its readings.
    pub(crate) fn connection(&self) -> Weak<Client> {
        self.client.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    fn client(&mut self) -> Result<Arc<Client>, String> {
        if let Some(client) = &self.client {
            return Ok(Arc::clone(client));
        }
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        match self.connect() {
            Ok(client) => Ok(Arc::clone(self.client.insert(Arc::new(client)))),
            Err(why) => Err(self.failed.insert(why).clone()),
        }
    }

    /// Connects to the parser process, or starts one. One that is about to end is replaced by another.
    fn connect(&self) -> Result<Client, String> {
        let none = |error: io::Error| format!("no process that runs filters for several requests can be used: {error}");
        let path = super::socket(&self.daemon).map_err(none)?;
        let deadline = Instant::now() + START;
        let mut started = None;
        let mut starts = 0;
        loop {
            let error = match Client::connect(&path, &self.purpose) {
                Ok(client) => {
                    started.into_iter().for_each(await_end);
                    return Ok(client);
                }
                Err(error) => error,
            };
            let is_absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
            let is_ending = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            match &self.start {
                _ if !(is_absent || is_ending) || Instant::now() > deadline => return Err(none(error)),
                None if is_absent => return Err(none(error)),
                Some(start) if is_absent && has_ended(started.as_mut())? => {
                    if starts == STARTS {
                        return Err(format!("{CANNOT_START}: it ends before it can be spoken to"));
                    }
                    starts += 1;
                    started = Some(self.start(start)?);
                }
                // It frees its place in a moment, or is about to end.
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn start(&self, command: &[OsString]) -> Result<Child, String> {
        let failed = |error: io::Error| format!("{CANNOT_START}: {error}");
        let Some((program, arguments)) = command.split_first() else { return Err("there is no program for it".into()) };
        let daemon = std::path::absolute(&self.daemon).map_err(failed)?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(daemon)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        // It closes its standard error when it listens, or writes there why it does not.
        let said =
            child.stderr.take().map_or(Ok(String::new()), |said| read_until_closed(said, Instant::now() + START));
        let said = said.inspect_err(|_| {
            // A process that timed out has no use any more.
            let _ = child.kill();
            let _ = child.wait();
        });
        let said = said.map_err(failed)?;
        match said.trim().trim_start_matches("error: ") {
            "" => Ok(child),
            said => Err(format!("{CANNOT_START}: {said}")),
        }
    }
}

/// Starts a thread that waits for the end of a parser process, which may come before this process's own end.
fn await_end(mut started: Child) {
    let waiting = std::thread::Builder::new().name("parser-end".into());
    // Without a thread, init waits for it after this process has ended.
    let _ = waiting.spawn(move || drop(started.wait()));
}

/// Whether the started parser process has ended. `true` without one. An error if it did not end as a process does that finds
/// another one running.
fn has_ended(started: Option<&mut Child>) -> Result<bool, String> {
    match started.map(Child::try_wait) {
        None => Ok(true),
        Some(Ok(None)) => Ok(false),
        Some(Ok(Some(status))) if status.success() => Ok(true),
        Some(Ok(Some(status))) => Err(format!("{CANNOT_START}: {status}")),
        Some(Err(error)) => Err(format!("{CANNOT_START}: {error}")),
    }
}

impl Join for Joiner {
    fn join(&mut self, text: &str) -> Result<Joined, String> {
        let client = self.client()?;
        let Endpoint { id, ring, continuity } = match client.ask(&Question::Join(text.into())) {
            Ok(Answer::Joined(endpoint)) => endpoint,
            Ok(Answer::Refused(why)) => return Err(why),
            Ok(_) => return Err(unexpected().to_string()),
            Err(error) => return Err(format!("the process that runs it for several requests: {error}")),
        };
        let keeper = Box::new(Member { client, id });
        Ok(Joined { ring: open(&ring)?, continuity, keeper })
    }
}

pub(crate) fn open(ring: &str) -> Result<PipeReader, String> {
    loop {
        match OpenOptions::new().contract(OnFull::Overwrite).read(ring) {
            Ok(ring) => return Ok(ring),
            // Interrupted by a signal, as above.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("its ring cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filters::parser::Continuity;

    #[test]
    fn a_parser_that_ends_at_once_is_not_started_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        for (ends_by, told) in [("exit 0", "ends before"), ("exit 3", "exit status: 3"), ("kill -SYS $$", "signal: ")] {
            let script = format!("echo >> {}; {ends_by}", starts.display());
            let command = ["sh", "-c", &script].map(OsString::from).to_vec();
            let mut joiner = Joiner::new(folder.path().join("no-daemon"), Some(command), "a test");
            let why = joiner.join("ethernet eth0 | tcp").err().unwrap();
            assert!(why.contains(told), "{ends_by}: {why}");
            assert!(std::fs::read(&starts).unwrap().len() <= 3, "{ends_by}");
            std::fs::remove_file(&starts).unwrap();
        }
    }

    /// Answers the first join late, and so any repeated one; answers others at once.
    fn answer_late(listener: &OwnedFd) -> Vec<u64> {
        let socket = rustix::net::accept(listener).unwrap();
        let (mut joined, mut left) = (0, Vec::new());
        loop {
            let Ok(Some((question, _))) = control::receive(&socket) else { return left };
            let answer = match question {
                Question::Hello(..) => Answer::Hello(PROTOCOL),
                Question::Join(ring) => {
                    if joined == 0 {
                        std::thread::sleep(ANSWER * 3 / 2);
                    }
                    joined += 1;
                    Answer::Joined(Endpoint { id: joined, ring, continuity: Continuity::Bytes })
                }
                Question::Leave(id) => {
                    left.push(id);
                    continue;
                }
                Question::State | Question::Forget => panic!("nobody asks for it"),
            };
            control::send(&socket, &answer, &[]).unwrap();
        }
    }

    #[test]
    fn an_answer_that_comes_late_answers_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parser");
        let listener = buffer::control::name::claim(&path, 0o600, None).unwrap().listener;
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        let answering = std::thread::spawn(move || answer_late(&listener));
        let client = Client::connect(&path, "a test").unwrap();
        let join = |text: &str| client.ask(&Question::Join(text.into()));
        assert_eq!(join("one").unwrap_err().kind(), io::ErrorKind::TimedOut);
        let endpoint = loop {
            match join("two") {
                Ok(Answer::Joined(endpoint)) => break endpoint,
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            }
        };
        assert_eq!(endpoint.ring, "two");
        drop(client);
        let left = answering.join().unwrap();
        assert_eq!(left, (1..endpoint.id).collect::<Vec<_>>(), "who gave up reads nothing");
    }

    #[test]
    fn a_parser_that_does_not_say_whether_it_listens_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["sh", "-c", "echo >&2 soon; exec sleep 1000"].map(OsString::from).to_vec();
        let mut joiner = Joiner::new(folder.path().join("no-daemon"), Some(command), "a test");
        let why = joiner.join("ethernet eth0 | tcp").err().unwrap();
        assert!(why.contains("does not answer in time"), "{why}");
    }
}
