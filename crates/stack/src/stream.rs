//! The application's side of a block that carries a byte stream.

use std::time::Duration;

/// The state of a connection, as an application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The handshake is not over.
    Connecting,
    /// This side can write. The peer may have finished: see [`Stream::is_at_end`].
    Open,
    /// This side finished. The peer may not have acknowledged all written bytes or the end yet, and may still send.
    Ending,
    /// Both sides finished. Late packets of the peer are still answered.
    TimeWait,
    /// The connection is over. `None`: the block does not know why.
    Closed(Option<End>),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides finished.
    Finished,
    /// The peer reset an open connection.
    Reset,
    /// The peer did not answer for too long.
    TimedOut,
    /// This side aborted.
    Aborted,
    /// An error with Linux's number ended it: an ICMP error, or ECONNREFUSED if the peer reset a connection that was
    /// not open yet.
    Reported(i32),
}

impl End {
    /// Linux's number of the error; 0 if the connection ended normally.
    pub fn errno(self) -> i32 {
        match self {
            End::Finished => 0,
            End::Reset => errno::ECONNRESET,
            End::TimedOut => errno::ETIMEDOUT,
            End::Aborted => errno::ECONNABORTED,
            End::Reported(errno) => errno,
        }
    }
}

/// The numbers of errors that Linux has on x86-64 and ARM alike.
pub(crate) mod errno {
    pub(crate) const ENONET: i32 = 64;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const EMSGSIZE: i32 = 90;
    pub(crate) const ENOPROTOOPT: i32 = 92;
    pub(crate) const EOPNOTSUPP: i32 = 95;
    pub(crate) const ENETUNREACH: i32 = 101;
    pub(crate) const ECONNABORTED: i32 = 103;
    pub(crate) const ECONNRESET: i32 = 104;
    pub(crate) const ETIMEDOUT: i32 = 110;
    pub(crate) const ECONNREFUSED: i32 = 111;
    pub(crate) const EHOSTDOWN: i32 = 112;
    pub(crate) const EHOSTUNREACH: i32 = 113;
}

/// A byte stream in both directions. No call waits or sends: packets go out in the next turn of the stack.
pub trait Stream {
    /// The state of the connection.
    fn state(&self) -> StreamState;

    /// Copies as many of `bytes` as there is room for, and returns how many. 0 while the stream is not open, when it is
    /// full and after [`Stream::finish`].
    fn write(&mut self, now: u64, bytes: &[u8]) -> usize;

    /// Copies received bytes out and returns how many. 0: there are none now, see [`Stream::is_at_end`] and
    /// [`Stream::state`]. Bytes that came before a reset can still be read.
    fn read(&mut self, now: u64, to: &mut [u8]) -> usize;

    /// Lends received bytes without a gap to `take`, which returns how many of them it took. Returns the same number.
    /// Does not call `take` without bytes.
    fn read_with(&mut self, now: u64, take: &mut dyn FnMut(&[u8]) -> usize) -> usize;

    /// Lends room without a gap to `fill`, which writes from the front and returns how many bytes it wrote. Returns the
    /// same number. Does not call `fill` without room.
    fn write_with(&mut self, now: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize;

    /// The same as [`Stream::read`], but the bytes stay.
    fn peek(&mut self, to: &mut [u8]) -> usize;

    /// Bytes that [`Stream::read`] would return.
    fn readable(&self) -> usize;

    /// Bytes that [`Stream::write`] would take.
    fn writable(&self) -> usize;

    /// Written bytes that the peer has not acknowledged.
    fn unacknowledged(&self) -> usize;

    /// The peer finished, and everything was read.
    fn is_at_end(&self) -> bool;

    /// Each side has everything, and knows that the other has it. The connection now only answers repeated segments.
    fn is_settled(&self) -> bool;

    /// Ends the write side after everything written.
    fn finish(&mut self, now: u64);

    /// Gives the connection up and resets the peer.
    fn abort(&mut self, now: u64);

    /// Takes an ICMP error about this connection, as an error with Linux's number. `mtu` is that of the path in bytes
    /// if the error is EMSGSIZE, and 0 if the router did not report it.
    fn report(&mut self, now: u64, errno: i32, mtu: u16);

    /// Sends small writes at once, even while earlier ones are unacknowledged (turns Nagle's algorithm off). Off by default.
    fn set_no_delay(&mut self, on: bool);

    /// Probes a quiet connection at this interval. After ten intervals without an answer it has timed out. `None`, the
    /// default: no probes.
    fn set_keep_alive(&mut self, interval: Option<Duration>);

    /// How long the handshake may take. `None`: the default of 60 s.
    fn set_connect_timeout(&mut self, timeout: Option<Duration>);
}
