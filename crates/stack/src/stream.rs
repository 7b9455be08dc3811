//! The application's face of a block that carries a byte stream.

use std::time::Duration;

/// Where a connection stands, as an application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The handshake is not over.
    Connecting,
    /// This side can write. The other side may have finished: see [`Stream::is_at_end`].
    Open,
    /// This side finished. What it wrote, or its end, may not be acknowledged yet; the other side may still send.
    Ending,
    /// Both sides finished; late packets of the other side are still answered.
    TimeWait,
    /// The connection is over. `None`: the block does not know why.
    Closed(Option<End>),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides finished.
    Finished,
    /// The other side reset an open connection.
    Reset,
    /// The other side did not answer for too long.
    TimedOut,
    /// This side aborted.
    Aborted,
    /// An error of Linux's number ended it: an ICMP error, or ECONNREFUSED where the other side reset a connection that
    /// was not open yet.
    Reported(i32),
}

impl End {
    /// The error as Linux numbers it; 0 where the connection ended as it should.
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

/// A byte stream in both directions. No call waits, and none sends: packets go out in the next turn of the stack.
pub trait Stream {
    /// Where the connection stands.
    fn state(&self) -> StreamState;

    /// Copies as many of `bytes` as there is room for, and says how many; 0 while the stream is not open, when it is full
    /// and after [`Stream::finish`].
    fn write(&mut self, now: u64, bytes: &[u8]) -> usize;

    /// Copies received bytes out and says how many. 0: nothing is there now, see [`Stream::is_at_end`] and
    /// [`Stream::state`]. What came before a reset can still be read.
    fn read(&mut self, now: u64, to: &mut [u8]) -> usize;

    /// Lends received bytes that lie in one piece to `take`, which says how many of them it took. Says the same. `take` is
    /// not called where there are none.
    fn read_with(&mut self, now: u64, take: &mut dyn FnMut(&[u8]) -> usize) -> usize;

    /// Lends room in one piece to `fill`, which says how many bytes it wrote from the front on. Says the same. `fill` is
    /// not called where there is no room.
    fn write_with(&mut self, now: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize;

    /// As [`Stream::read`], but the bytes stay.
    fn peek(&mut self, to: &mut [u8]) -> usize;

    /// Bytes that [`Stream::read`] would give.
    fn readable(&self) -> usize;

    /// Bytes that [`Stream::write`] would take.
    fn writable(&self) -> usize;

    /// Bytes written that the other side has not acknowledged.
    fn unacknowledged(&self) -> usize;

    /// The other side finished, and everything was read.
    fn is_at_end(&self) -> bool;

    /// Both sides have everything and were told so. What is left of the connection is to answer segments that come again.
    fn is_settled(&self) -> bool;

    /// Ends the write side behind everything written.
    fn finish(&mut self, now: u64);

    /// Gives the connection up and resets the other side.
    fn abort(&mut self, now: u64);

    /// Takes an ICMP error about this connection, as an error of Linux's number. `mtu` is that of the path in bytes where
    /// the error is EMSGSIZE, and 0 where the router did not say.
    fn report(&mut self, now: u64, errno: i32, mtu: u16);

    /// Sends small writes at once, also while earlier ones are unacknowledged (no Nagle's algorithm). Off at first.
    fn set_no_delay(&mut self, on: bool);

    /// Probes a quiet connection at this interval; after ten intervals without an answer it has timed out. `None`, as at
    /// first: no probes.
    fn set_keep_alive(&mut self, interval: Option<Duration>);

    /// How long the handshake may take. `None`: the usual 60 s.
    fn set_connect_timeout(&mut self, timeout: Option<Duration>);
}
