//! Readers through a daemon: no rights of one's own are needed but to connect to its socket.

use crate::handout::{Device, Exchange, Handout};
use crate::protocol::{Answer, DaemonState, PROTOCOL, Question, receive};
use crate::wish::Wish;
use crate::writer::{Trouble, TroubleKind};
use buffer::shared::packets;
use program::cbpf::Instruction;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    /// One question and its answer at a time.
    socket: Mutex<OwnedFd>,
}

fn broken(error: &io::Error) -> Trouble {
    Trouble::new(TroubleKind::System, format!("the daemon cannot be spoken to: {error}"))
}

fn unexpected() -> Trouble {
    Trouble::new(TroubleKind::System, "the daemon answers something else than was asked")
}

impl Client {
    /// Connects to the daemon that listens at `path`; `purpose` says to people what this client is for. An error of kind
    /// `NotFound` or `ConnectionRefused` says that there is none.
    pub fn connect(path: &Path, purpose: &str) -> io::Result<Client> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Client::over(socket, purpose)
    }

    /// Speaks over a socket that is connected to a daemon already.
    pub fn over(socket: OwnedFd, purpose: &str) -> io::Result<Client> {
        let client = Client { socket: Mutex::new(socket) };
        let other = |text: String| io::Error::other(text);
        match client.ask(&Question::Hello(PROTOCOL, purpose.into())) {
            Ok((Answer::Hello(PROTOCOL), _)) => Ok(client),
            Ok((Answer::Hello(version), _)) => {
                Err(other(format!("the daemon speaks version {version}, this program {PROTOCOL}")))
            }
            Ok((Answer::Refused(TroubleKind::Denied, text), _)) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
            Ok((Answer::Refused(_, text), _)) => Err(other(text)),
            Ok(_) => Err(other(unexpected().text)),
            Err(trouble) => Err(other(trouble.text)),
        }
    }

    fn ask(&self, question: &Question) -> Result<(Answer, Vec<OwnedFd>), Trouble> {
        // Who panicked while holding it left a question without its answer: the next answer would be that one.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        match packets::send(&*socket, &question.encode(), &[]) {
            // It listens no more; why, it may have said.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(broken(&error)),
            _ => {}
        }
        loop {
            return match receive(&*socket, Answer::decode) {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(Trouble::new(TroubleKind::System, "the daemon has gone")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(broken(&error)),
            };
        }
    }

    /// Says to people that this client is for something else from now on.
    pub fn set_purpose(&self, purpose: &str) -> Result<(), Trouble> {
        match self.ask(&Question::Hello(PROTOCOL, purpose.into()))?.0 {
            Answer::Hello(_) => Ok(()),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// What is known of a device.
    pub fn device(&self, name: &str) -> Result<Device, Trouble> {
        match self.ask(&Question::Device(name.into()))?.0 {
            Answer::Device(device) => Ok(device),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// A reader's place.
    pub fn open(&self, wish: &Wish) -> Result<Handout, Trouble> {
        match self.ask(&Question::Open(wish.clone()))? {
            (Answer::Granted(granted), fds) => granted.with(fds).ok_or_else(unexpected),
            (Answer::Refused(kind, text), _) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Another expression for a reader of this client.
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, Trouble> {
        match self.ask(&Question::Exchange(id, program.to_vec()))?.0 {
            Answer::Exchanged(exchange) => Ok(exchange),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// What is going on.
    pub fn state(&self) -> Result<DaemonState, Trouble> {
        match self.ask(&Question::State)?.0 {
            Answer::State(state) => Ok(state),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// The rings of this device need not stay without readers any more.
    pub fn forget(&self, device: &str) -> Result<(), Trouble> {
        match self.ask(&Question::Forget(device.into()))?.0 {
            Answer::Done => Ok(()),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }

    /// Ends another client.
    pub fn stop(&self, id: u64) -> Result<(), Trouble> {
        match self.ask(&Question::Stop(id))?.0 {
            Answer::Done => Ok(()),
            Answer::Refused(kind, text) => Err(Trouble { kind, text }),
            _ => Err(unexpected()),
        }
    }
}
