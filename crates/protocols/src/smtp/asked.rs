//! A mail or chunk that the client announced, until the server's reply: bytes behind a refused announcement are
//! commands.

/// Most bytes kept behind an announcement until the server replies.
pub const HELD_BYTES: usize = 64 << 10;

/// Bytes of one connection that are held and read again; then no reply is waited for. Without it, a client that
/// announces many empty mails at once would have the same bytes copied for each of them.
pub(super) const REPLAYED_BYTES: usize = 1 << 20;

/// Reply code: the mail may come.
pub(super) const GO_ON: u16 = 354;

#[derive(Debug)]
pub(super) struct Asked {
    /// Replies up to and including the one that decides.
    pub replies: u32,
    pub is_chunk: bool,
    /// Bytes behind the announcement.
    pub held: Vec<u8>,
    /// When the announcement came.
    pub time: u64,
}

impl Asked {
    /// Bytes that may still be held.
    pub fn room(&self) -> usize {
        HELD_BYTES - self.held.len()
    }

    /// Takes the last line of a reply. Returns whether it refuses the announcement; `None`: it answers an earlier
    /// command.
    pub fn answer(&mut self, code: u16) -> Option<bool> {
        // 354 always answers DATA: do not wait for earlier replies.
        self.replies = if code == GO_ON { 0 } else { self.replies.saturating_sub(1) };
        // Refusing a chunk does not stop it, unless the server does not know BDAT.
        let is_refused = if self.is_chunk { matches!(code, 500..=502) } else { code >= 400 };
        (self.replies == 0).then_some(is_refused)
    }
}
