//! The state of one direction of a connection.

use super::Fact;
use super::body::Body;
use super::shared::Shared;
use super::socks::Socks;
use super::start::EmptyLine;
use crate::conversation::Ear;
use crate::proxy::Proxy;
use base::limits::HTTP_SEEK_BYTES;

#[derive(Debug)]
pub(super) struct Half {
    pub(super) phase: Phase,
    /// The beginning of a head that spans blocks.
    pub(super) head: Vec<u8>,
    /// The first line of `head` is complete and a start line.
    pub(super) line_whole: bool,
    pub(super) empty_line: EmptyLine,
    /// When the head's first byte came.
    pub(super) head_time: u64,
    /// A block came.
    pub(super) begun: bool,
    /// A head came.
    pub(super) confirmed: bool,
    /// Bytes are missing or invalid, so the next ones may be the middle of something.
    pub(super) lost: bool,
    /// The side began with SOCKS.
    pub(super) socks: bool,
    /// The last request was CONNECT.
    pub(super) after_connect: bool,
    /// The connection became a tunnel during a body of this side. HTTP ends with the body.
    pub(super) tunnel: bool,
    /// Bytes that may still be searched for the first start line.
    seek_bytes_left: usize,
}

/// The part of a message that comes next.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its first byte.
    Fresh,
    /// A negotiation between client and SOCKS proxy.
    Socks(Socks),
    /// The header of a proxy.
    Proxy(Proxy),
    /// A start line, or the rest of the head in `head`.
    Start,
    /// The rest of a line that is not a start line.
    Skip,
    Body(Body),
    /// Nothing: this is not HTTP, or no longer.
    Gone,
}

impl Default for Half {
    fn default() -> Half {
        Half {
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

impl Half {
    pub(super) fn drop_head(&mut self, shared: &mut Shared) {
        shared.dismiss_head(std::mem::take(&mut self.head));
        self.line_whole = false;
    }

    /// Stops reading this side.
    pub(super) fn gone(&mut self, shared: &mut Shared) {
        self.drop_head(shared);
        self.phase = Phase::Gone;
    }

    /// The connection becomes a tunnel.
    pub(super) fn becomes_tunnel(&mut self, shared: &mut Shared) {
        self.tunnel = true;
        if !matches!(self.phase, Phase::Body(_)) {
            self.gone(shared);
        }
    }

    /// Skips the rest of the line, as long as the search limit allows.
    pub(super) fn seek(&mut self, bytes: usize, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        if self.confirmed {
            ear.count("bytes read over in search of a start line", bytes as u64);
            return;
        }
        self.seek_bytes_left = self.seek_bytes_left.saturating_sub(bytes);
        if self.seek_bytes_left == 0 {
            self.gone(shared);
        }
    }
}
