//! The bytes of one connection, moved between a program's end and a flow without a copy in between.

use crate::ends::{has_finished, has_hung_up, is_later};
use crate::settings::Settings;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use socket::net::TcpStream;
use socket_calls::Setting;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Bytes that one connection moves in each direction before other sockets have their turn.
const TURN: usize = 1 << 20;

/// How long an incomplete segment is held back (`TCP_CORK` of tcp(7)).
const CORKED: Duration = Duration::from_millis(200);

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// No more bytes can move now.
    Rests,
    /// More bytes can move, but other sockets wait.
    More,
    /// Both directions have ended.
    Over,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) stream: TcpStream,
    /// Our end of the pair.
    end: OwnedFd,
    /// The program has finished writing, or has gone.
    program_finished: bool,
    /// The peer has finished, and the program was told.
    flow_finished: bool,
    /// The program closed its end without reading everything, or in a way that must reset the connection.
    program_dropped: bool,
    /// Why the connection broke, as an errno; 0: it has not.
    errno: i32,
    /// Since when the program's bytes have been less than a segment, and are held back.
    held: Option<Instant>,
}

impl Proxy {
    pub(crate) fn new(stream: TcpStream, end: OwnedFd) -> Proxy {
        Proxy {
            stream,
            end,
            program_finished: false,
            flow_finished: false,
            program_dropped: false,
            errno: 0,
            held: None,
        }
    }

    /// Our end.
    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    /// Why the connection broke; 0: it has not.
    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }

    /// Whether the program closed its end with unread bytes, or in a way that must reset the connection. Then the peer gets a reset.
    pub(crate) fn was_dropped(&self) -> bool {
        self.program_dropped
    }

    /// Whether it holds bytes of the program back, for a while.
    pub(crate) fn holds_back(&self) -> bool {
        self.held.is_some()
    }

    /// How many bytes of the program may go: whole segments only, of a program that is not done and for a while.
    fn whole_segments(&mut self) -> usize {
        let headers = if self.stream.local_addr().is_ok_and(|local| local.is_ipv4()) { 40 } else { 60 };
        let segment = (self.stream.facts().mtu as usize).saturating_sub(headers).max(1);
        let waiting = rustix::io::ioctl_fionread(&self.end).unwrap_or(0) as usize;
        if waiting >= segment || waiting == 0 {
            self.held = None;
            return waiting / segment * segment;
        }
        let since = *self.held.get_or_insert_with(Instant::now);
        if since.elapsed() < CORKED && !has_finished(&self.end) {
            return 0;
        }
        self.held = None;
        waiting
    }

    /// Moves as many bytes as possible. The settings say whether the connection is reset if the program closes its end,
    /// and whether an incomplete segment is held back.
    pub(crate) fn pump(&mut self, settings: &Settings) -> Pumped {
        let (resets, is_corked) = (settings.resets(), settings.is_on(Setting::Cork));
        let (mut up, mut down) = (0, 0);
        loop {
            let before = (up, down);
            if !self.program_finished && up < TURN {
                up += self.pump_up(resets, is_corked);
            }
            if !self.flow_finished && down < TURN {
                down += self.pump_down();
            }
            if self.program_finished && !self.flow_finished && resets && has_hung_up(&self.end) {
                (self.program_dropped, self.flow_finished) = (true, true);
            }
            // A program that closed its end reads no more. Its earlier bytes were read first.
            if self.program_finished && (self.flow_finished || has_hung_up(&self.end)) {
                return Pumped::Over;
            }
            if (up, down) == before {
                return if up >= TURN || down >= TURN { Pumped::More } else { Pumped::Rests };
            }
        }
    }

    /// Moves bytes of the program to the flow. Returns their number.
    fn pump_up(&mut self, resets: bool, is_corked: bool) -> usize {
        let most = if is_corked { self.whole_segments() } else { usize::MAX };
        if !is_corked {
            self.held = None;
        }
        if most == 0 && self.held.is_some() {
            return 0;
        }
        let mut read = None;
        let moved = self.stream.write_with(&mut |room| {
            let most = room.len().min(most.max(1));
            let count = rustix::io::read(&self.end, &mut room[..most]);
            read = Some(count);
            count.unwrap_or(0)
        });
        match (moved, read) {
            (Ok(moved), _) => moved,
            (_, Some(Ok(0))) => {
                self.program_finished = true;
                if !resets || !has_hung_up(&self.end) {
                    // A broken flow need not finish.
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                }
                0
            }
            (_, Some(Err(error))) if !is_later(error) => {
                self.program_dropped |= error == Errno::CONNRESET;
                (self.program_finished, self.flow_finished) = (true, true);
                0
            }
            (Err(error), _) if error.kind() == ErrorKind::WouldBlock => 0,
            (Err(error), _) => {
                // Earlier bytes are still read.
                self.errno = error.raw_os_error().unwrap_or(0);
                self.program_finished = true;
                0
            }
        }
    }

    /// Moves bytes of the flow to the program. Returns their number.
    fn pump_down(&mut self) -> usize {
        let mut written = None;
        let moved = self.stream.read_with(&mut |bytes| {
            let count = rustix::net::send(&self.end, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            written = Some(count);
            count.unwrap_or(0)
        });
        match (moved, written) {
            (Ok(0), _) => {
                self.flow_finished = true;
                // The program may have gone.
                let _ = rustix::net::shutdown(self.end.as_fd(), Shutdown::Write);
                0
            }
            (Ok(moved), _) => moved,
            (_, Some(Err(error))) if !is_later(error) => {
                // The program reads no more: further bytes are lost.
                self.program_dropped = true;
                self.flow_finished = true;
                0
            }
            (Err(error), _) if error.kind() == ErrorKind::WouldBlock => 0,
            (Err(error), _) => {
                // The program reads the end, and then asks the host why.
                self.errno = error.raw_os_error().unwrap_or(0);
                (self.program_finished, self.flow_finished) = (true, true);
                0
            }
        }
    }
}
