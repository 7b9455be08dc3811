//! `streamline net cat tcp`: one connection. Sends standard input, and writes received data to standard output.

use super::Args;
use crate::commands::net::tcp::{self, Dialer};
use crate::exit::{CommandError, Outcome};
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use rustix::event::{PollFd, PollFlags, Timespec};
use socket::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

const PURPOSE: &str = "streamline net cat";

const PIECE: usize = 64 << 10;

pub(super) fn run(args: &Args, wait: Option<Duration>) -> Outcome {
    let asked = signals::listen_with_descriptor(&StopFlag::new(), Finishing::Untold).map_err(signals_failed)?;
    let Some(stream) = open(args, asked.as_fd())? else { return Ok(()) };
    stream.set_nonblocking(true).map_err(failed)?;
    let (input, mut output) = (io::stdin(), io::stdout().lock());
    let (mut unsent, mut ended, mut peer_ended) = (Unsent::default(), None, false);
    let mut buffer = vec![0; PIECE];
    loop {
        let received = match (&stream).read(&mut buffer) {
            Ok(len) => {
                peer_ended = len == 0;
                len
            }
            Err(error) if is_later(&error) => 0,
            Err(error) => return Err(failed(error)),
        };
        match output.write_all(&buffer[..received]).and_then(|()| output.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(CommandError::Failed(format!("standard output: {error}"))),
        }
        unsent.write(&stream).map_err(failed)?;
        if peer_ended && unsent.is_empty() && (ended.is_some() || args.to.is_none()) {
            return Ok(());
        }
        if received > 0 {
            continue;
        }
        let left = ended.and_then(|ended: Instant| wait.map(|wait| wait.saturating_sub(ended.elapsed())));
        if left == Some(Duration::ZERO) {
            return Ok(());
        }
        let reads = (ended.is_none() && unsent.is_empty()).then(|| input.as_fd());
        let writes = (!unsent.is_empty()).then(|| stream.writable_fd());
        let receives = (!peer_ended).then(|| stream.as_fd());
        let ready = sleep(&[Some(asked.as_fd()), receives, reads, writes], left)?;
        if ready[0] {
            return Ok(());
        }
        if ready[2] {
            match unsent.read(input.as_fd()) {
                Ok(0) => {
                    stream.shutdown(Shutdown::Write).map_err(failed)?;
                    ended = Some(Instant::now());
                }
                Ok(_) => {}
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(CommandError::Failed(format!("standard input: {error}"))),
            }
        }
    }
}

/// Connects to the peer, or accepts the first connection. `None`: a signal came first.
fn open(args: &Args, asked: BorrowedFd<'_>) -> Result<Option<TcpStream>, CommandError> {
    args.socket.refuse_stack()?;
    if let Some(peer) = args.to {
        if args.socket.port != 0 {
            return Err(CommandError::Wrong("a port to listen at, or --to: a connection has one of both".into()));
        }
        return Dialer::new(&args.socket.flow, PURPOSE)?.connect(peer).map(Some).map_err(failed);
    }
    let listener = tcp::listen(&args.socket.flow, args.socket.port, PURPOSE)?;
    listener.set_nonblocking(true).map_err(failed)?;
    if args.socket.port == 0 {
        tell!("listens on {}", listener.local_addr().map_err(failed)?);
    }
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(failed(error)),
        }
        if sleep(&[Some(asked), Some(listener.as_fd())], None)?[0] {
            return Ok(None);
        }
    }
}

/// Input that was read, and not yet sent.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// Bytes of it that the connection has accepted.
    taken: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    fn read(&mut self, input: BorrowedFd<'_>) -> io::Result<usize> {
        self.taken = 0;
        self.bytes.resize(PIECE, 0);
        let read = rustix::io::read(input, &mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read?)
    }

    /// Writes as much as the connection accepts now.
    fn write(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match stream.write(&self.bytes[self.taken..]) {
                Ok(len) => self.taken += len,
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sleeps until one of these is ready, for at most `most`. Returns which ones are ready.
fn sleep(fds: &[Option<BorrowedFd<'_>>], most: Option<Duration>) -> Result<Vec<bool>, CommandError> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    match rustix::event::poll(&mut polled, most.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let mut seen = polled.iter().map(|fd| !fd.revents().is_empty());
    Ok(fds.iter().map(|fd| fd.is_some() && seen.next() == Some(true)).collect())
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn failed(error: io::Error) -> CommandError {
    CommandError::Failed(error.to_string())
}

fn signals_failed(error: io::Error) -> CommandError {
    CommandError::Failed(format!("signals: {error}"))
}
