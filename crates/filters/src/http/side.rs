//! One direction of a connection: what is being read there, and what is known of it.

use super::body::Body;
use super::exit::Exit;
use super::socks::Socks;
use super::start::EmptyLine;
use base::limits::HTTP_SEEK_BYTES;

/// One direction.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) phase: Phase,
    /// The beginning of a head that spans blocks.
    pub(super) head: Vec<u8>,
    /// Its first line is whole, and a start line.
    pub(super) line_whole: bool,
    pub(super) empty_line: EmptyLine,
    /// When the head's first byte came.
    pub(super) head_time: u64,
    /// A block came.
    pub(super) begun: bool,
    /// A head came.
    pub(super) confirmed: bool,
    /// Bytes are missing, or make no sense: what comes may be the middle of something.
    pub(super) lost: bool,
    /// It began as SOCKS does.
    pub(super) socks: bool,
    /// The last request was CONNECT.
    pub(super) after_connect: bool,
    /// The connection became a tunnel while a body was under way here: with its end this is no HTTP any more.
    pub(super) tunnel: bool,
    /// Bytes that may still be searched for the first start line.
    seek_bytes_left: usize,
}

/// What is being read.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing came.
    Fresh,
    /// What a client and a SOCKS proxy say before the connection proper.
    Socks(Socks),
    /// A start line should come, or the head in `head` goes on.
    Start,
    /// What comes up to the end of the line is no start line.
    Skip,
    /// In a body.
    Body(Body),
    /// Not HTTP, or not any more.
    Gone,
}

impl Default for Side {
    fn default() -> Side {
        Side {
            phase: Phase::Fresh,
            head: Vec::new(),
            line_whole: false,
            empty_line: EmptyLine::START,
            head_time: 0,
            begun: false,
            confirmed: false,
            lost: false,
            socks: false,
            after_connect: false,
            tunnel: false,
            seek_bytes_left: HTTP_SEEK_BYTES,
        }
    }
}

impl Side {
    /// Forgets the head under way.
    pub(super) fn drop_head(&mut self, exit: &mut Exit<'_>) {
        exit.shared.dismiss_head(std::mem::take(&mut self.head));
        self.line_whole = false;
    }

    /// Is of no interest any more.
    pub(super) fn gone(&mut self, exit: &mut Exit<'_>) {
        self.drop_head(exit);
        self.phase = Phase::Gone;
    }

    /// The connection becomes a tunnel.
    pub(super) fn becomes_tunnel(&mut self, exit: &mut Exit<'_>) {
        self.tunnel = true;
        if !matches!(self.phase, Phase::Body(_)) {
            self.gone(exit);
        }
    }

    /// Goes on behind the current line, within what may be searched.
    pub(super) fn seek(&mut self, bytes: usize, exit: &mut Exit<'_>) {
        if self.confirmed {
            exit.count("bytes read over in search of a start line", bytes as u64);
            return;
        }
        self.seek_bytes_left = self.seek_bytes_left.saturating_sub(bytes);
        if self.seek_bytes_left == 0 {
            self.gone(exit);
        }
    }
}
