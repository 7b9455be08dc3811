//! Readers through a daemon: the only right they need is to connect to its socket.

use crate::attachment::{Attachment, Device, Exchange, Fds};
use crate::budget::Budget;
use crate::capture_request::{CaptureError, CaptureErrorKind, CaptureRequest};
use crate::protocol::{Answer, Code, DaemonState, PROTOCOL, Question};
use buffer::control;
use program::cbpf::Instruction;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, SocketFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longest time for a daemon's answer; a slower one is stopped. Opening a device takes it some 50 ms.
const ANSWER: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(30) };

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    /// One question and its answer at a time.
    socket: Mutex<OwnedFd>,
}

fn broken(error: &io::Error) -> CaptureError {
    CaptureError::new(CaptureErrorKind::System, format!("the daemon cannot be spoken to: {error}"))
}

const SILENT: &str = "the daemon does not answer; is it stopped?";

/// Closes the connection after a missing answer: a late one would be taken for the answer to the next question.
fn silent(socket: &OwnedFd) -> CaptureError {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    CaptureError::new(CaptureErrorKind::System, SILENT)
}

fn unexpected() -> CaptureError {
    CaptureError::new(CaptureErrorKind::System, "the daemon answers something else than was asked")
}

impl Client {
    /// Connects to the daemon that listens at `path`; `purpose` tells users what this client is for. An error of kind
    /// `NotFound` or `ConnectionRefused` means that there is no daemon.
    pub fn connect(path: &Path, purpose: &str) -> io::Result<Client> {
        let socket =
            control::connect(path, None, SocketFlags::empty(), ANSWER).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => io::Error::new(error.kind(), SILENT),
                _ => error,
            })?;
        Client::over(socket, purpose)
    }

    /// Makes a client of a socket that is already connected to a daemon.
    pub fn over(socket: OwnedFd, purpose: &str) -> io::Result<Client> {
        for which in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, which, Some(ANSWER))?;
        }
        let client = Client { socket: Mutex::new(socket) };
        let other = |text: String| io::Error::other(text);
        match client.ask(&Question::Hello(PROTOCOL, purpose.into())) {
            Ok((Answer::Hello(PROTOCOL), _)) => Ok(client),
            Ok((Answer::Hello(version), _)) => {
                Err(other(format!("the daemon speaks version {version}, this program {PROTOCOL}")))
            }
            Ok((Answer::Refused(CaptureErrorKind::Denied, text), _)) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
            Ok((Answer::Refused(_, text), _)) => Err(other(text)),
            Ok(_) => Err(other(unexpected().text)),
            Err(error) => Err(other(error.text)),
        }
    }

    fn ask(&self, question: &Question) -> Result<(Answer, Vec<OwnedFd>), CaptureError> {
        self.ask_with(question, &[])
    }

    fn ask_with(&self, question: &Question, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), CaptureError> {
        // A panic of an earlier caller left a question without its answer: the next answer would be that one.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        match control::ask_with(&*socket, question, fds) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent(&socket)),
            asked => asked.map_err(|error| broken(&error))?,
        }
        loop {
            return match control::receive(&*socket) {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(CaptureError::new(CaptureErrorKind::System, "the daemon has gone")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(silent(&socket)),
                Err(error) => Err(broken(&error)),
            };
        }
    }

    /// Changes the purpose that users see.
    pub fn set_purpose(&self, purpose: &str) -> Result<(), CaptureError> {
        match self.ask(&Question::Hello(PROTOCOL, purpose.into()))?.0 {
            Answer::Hello(_) => Ok(()),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Asks about a device.
    pub fn device(&self, name: &str) -> Result<Device, CaptureError> {
        self.ask_device(name).map(|(device, _)| device)
    }

    /// How much of a device's budget this client's user may take now; `None`: there is no limit.
    pub fn budget(&self, device: &str) -> Result<Option<Budget>, CaptureError> {
        self.ask_device(device).map(|(_, budget)| budget)
    }

    fn ask_device(&self, name: &str) -> Result<(Device, Option<Budget>), CaptureError> {
        match self.ask(&Question::Device(name.into()))?.0 {
            Answer::Device(device, budget) => Ok((device, budget)),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Opens a reader.
    pub fn open(&self, asked: &CaptureRequest) -> Result<Attachment, CaptureError> {
        match self.ask(&Question::Open(asked.clone()))? {
            (Answer::Granted(granted), fds) => {
                let fds = Fds::of(fds).ok_or_else(unexpected)?;
                Ok(Attachment { granted, fds })
            }
            (Answer::Refused(kind, text), _) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Exchanges the expression of one of this client's readers.
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, CaptureError> {
        match self.ask(&Question::Exchange(id, Code(program.to_vec())))?.0 {
            Answer::Exchanged(exchange) => Ok(exchange),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// The daemon's state.
    pub fn state(&self) -> Result<DaemonState, CaptureError> {
        match self.ask(&Question::State)?.0 {
            Answer::State(state) => Ok(state),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Says that the rings of this device no longer need to stay without readers.
    pub fn forget(&self, device: &str) -> Result<(), CaptureError> {
        match self.ask(&Question::Forget(device.into()))?.0 {
            Answer::Done => Ok(()),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Asks about interfaces and flows. [`flow::Granted`] says which file descriptors come with an answer.
    pub fn flows(&self, question: flow::Question) -> Result<(flow::Answer, Vec<OwnedFd>), CaptureError> {
        match self.ask(&Question::Flows(question))? {
            (Answer::Flows(answer), fds) => Ok((answer, fds)),
            (Answer::Refused(kind, text), _) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Takes over the flows that this process had at an earlier daemon: those with these channels and with the
    /// doorbells of `page`. `Absent`: the daemon does not know such flows, perhaps not yet.
    pub fn claim(&self, channels: Vec<u32>, page: BorrowedFd<'_>) -> Result<(), CaptureError> {
        // After this, the daemon accepts file descriptors for one question.
        self.flows(flow::Question::Reclaim)?;
        match self.ask_with(&Question::Flows(flow::Question::Claim(channels)), &[page])? {
            (Answer::Flows(flow::Answer::Done), _) => Ok(()),
            (Answer::Refused(kind, text), _) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Ends the connection, even if another process has a copy of its descriptor.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&*self.socket.lock().unwrap_or_else(PoisonError::into_inner), Shutdown::Both);
    }

    /// A descriptor that is readable once the daemon has closed the connection, and while an answer is there.
    pub fn line(&self) -> io::Result<OwnedFd> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).try_clone()
    }

    /// Ends another client.
    pub fn stop(&self, id: u64) -> Result<(), CaptureError> {
        match self.ask(&Question::Stop(id))?.0 {
            Answer::Done => Ok(()),
            Answer::Refused(kind, text) => Err(CaptureError { kind, text }),
            _ => Err(unexpected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    #[test]
    fn a_daemon_that_is_stopped_makes_nobody_wait_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        // The first one may be queued, with its question sent; the others cannot even connect.
        for _ in 0..3 {
            let error = Client::connect(&path, "test").unwrap_err();
            assert!(error.to_string().contains("does not answer"), "{error}");
        }
    }

    #[test]
    fn what_was_asked_too_long_ago_answers_nothing_else() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let hello = Answer::Hello(PROTOCOL);
        control::send(&theirs, &hello, &[]).unwrap();
        let client = Client::over(ours, "test").unwrap();
        assert!(client.forget("near").unwrap_err().text.contains("does not answer"));
        // The answer comes too late.
        let _ = control::send(&theirs, &Answer::Done, &[]);
        client.stop(7).unwrap_err();
    }
}
