//! Questions of programs: each connection brings one question, and waits for one answer.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with, recv, sendmsg,
};
use socket_calls::{ASK, Answer, Ask, SECRET};
use std::collections::HashMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;

/// Most connections without a question yet; beyond it, the oldest is closed. Any user of this namespace can connect.
const SILENT: usize = 256;

/// The socket on which programs ask.
#[derive(Debug)]
pub(crate) struct Desk {
    listener: OwnedFd,
    secret: [u8; SECRET],
    /// Connections whose question has not come, by number.
    silent: HashMap<u64, OwnedFd>,
}

/// A program that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asker(OwnedFd);

impl Desk {
    /// A desk behind a listening, non-blocking socket.
    pub(crate) fn new(listener: OwnedFd, secret: [u8; SECRET]) -> Desk {
        Desk { listener, secret, silent: HashMap::new() }
    }

    /// The socket on which connections arrive.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts a connection under this number. `None`: there is none now.
    pub(crate) fn accept(&mut self, number: u64) -> Option<BorrowedFd<'_>> {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(line) => {
                    // A program asks at once. A stranger may take places without asking.
                    if self.silent.len() >= SILENT
                        && let Some(oldest) = self.silent.keys().min().copied()
                    {
                        self.silent.remove(&oldest);
                    }
                    self.silent.insert(number, line);
                    return self.silent.get(&number).map(AsFd::as_fd);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return None,
            }
        }
    }

    /// The question of a readable connection. `None`: it has no valid question, and is closed; or it has not come yet.
    pub(crate) fn read(&mut self, number: u64) -> Option<(Ask, Asker)> {
        let line = self.silent.get(&number)?;
        let mut bytes = [0; ASK];
        match recv(line, &mut bytes, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Ok((ASK, _)) => {}
            _ => {
                self.silent.remove(&number);
                return None;
            }
        }
        let line = self.silent.remove(&number)?;
        let ask = Ask::decode(&bytes)?;
        (ask.secret == self.secret).then_some((ask, Asker(line)))
    }
}

impl Asker {
    /// Answers, perhaps with a file descriptor. If the program has gone, the answer is lost.
    pub(crate) fn answer(self, answer: Answer, fd: Option<BorrowedFd<'_>>) {
        // The program waits for one answer, so there is room.
        let _ = send(self.0.as_fd(), &answer.encode(), fd);
    }
}

/// Sends a message with a file descriptor beside it. Does not wait.
pub(crate) fn send(to: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        beside.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut beside, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}
