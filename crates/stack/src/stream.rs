//! The byte stream of a block, as the application uses it.

use std::time::Duration;

/// State of a connection, as an application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// The handshake is not over.
    Connecting,
    /// This side can write. The other side may have finished: see [`Stream::is_at_end`].
    Open,
    /// This side finished. The other side may not have acknowledged all bytes and the FIN yet, and may still send.
    Ending,
    /// Both sides finished; the stack still answers late packets of the other side.
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
    /// This Linux errno: from an ICMP error, or ECONNREFUSED if the other side reset the handshake.
    Reported(i32),
}

impl End {
    /// The Linux errno; 0 if both sides finished.
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

/// Error numbers that Linux shares between x86-64 and ARM.
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

/// A byte stream in both directions. No call waits or sends: packets go out in the stack's next turn.
pub trait Stream {
    /// Current state of the connection.
    fn state(&self) -> StreamState;

    /// Copies as many of `bytes` as fit, and returns how many. 0 when full, not open, or after [`Stream::finish`].
    fn write(&mut self, now: u64, bytes: &[u8]) -> usize;

    /// Copies received bytes out and returns how many. 0 if there are none now: see [`Stream::is_at_end`] and
    /// [`Stream::state`]. Bytes that came before a reset can still be read.
    fn read(&mut self, now: u64, to: &mut [u8]) -> usize;

    /// Lends received bytes in one piece to `take`, if there are any. Returns, as `take` does, how many it took.
    fn read_with(&mut self, now: u64, take: &mut dyn FnMut(&[u8]) -> usize) -> usize;

    /// Lends room in one piece to `fill`, if there is any. Returns, as `fill` does, how many bytes it wrote.
    fn write_with(&mut self, now: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize;

    /// Like [`Stream::read`], but the bytes stay.
    fn peek(&mut self, to: &mut [u8]) -> usize;

    /// Bytes that [`Stream::read`] would give.
    fn readable(&self) -> usize;

    /// Bytes that [`Stream::write`] would take.
    fn writable(&self) -> usize;

    /// Bytes written that the other side has not acknowledged.
    fn unacknowledged(&self) -> usize;

    /// The other side finished, and the application has read everything.
    fn is_at_end(&self) -> bool;

    /// Both sides have everything and have acknowledged it. The connection only answers segments that come again.
    fn is_settled(&self) -> bool;

    /// Ends the write side after everything written so far.
    fn finish(&mut self, now: u64);

    /// Gives the connection up and resets the other side.
    fn abort(&mut self, now: u64);

    /// Handles an ICMP error about this connection, given as a Linux errno. `mtu` is the path MTU in bytes if `errno`
    /// is EMSGSIZE; 0 if the router did not say.
    fn report(&mut self, now: u64, errno: i32, mtu: u16);

    /// Sends small writes at once even while earlier ones are unacknowledged (no Nagle's algorithm). Off by default.
    fn set_no_delay(&mut self, on: bool);

    /// Probes a quiet connection at this interval; ten unanswered intervals end it. `None` (default): no probes.
    fn set_keep_alive(&mut self, interval: Option<Duration>);

    /// Time limit of the handshake. `None`: the usual 60 s.
    fn set_connect_timeout(&mut self, timeout: Option<Duration>);
}
