//! TCP connections in the style of `std::net::TcpStream`.

use super::{Options, address};
use crate::runtime::hub::{Hub, Member, TimedOut};
use crate::runtime::tcp::{Inner, Tcp};
use crate::runtime::{self};
use buffer::flow::Facts;
use stack::Marks;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A TCP connection whose protocol stack runs in this process.
///
/// A dropped stream still sends everything written: see [`net`](super).
pub struct TcpStream(Arc<Handle>);

/// The part that clones of a stream share.
struct Handle {
    hub: Arc<Hub>,
    tcp: Arc<Tcp>,
    is_nonblocking: AtomicBool,
    settings: Mutex<Settings>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    linger: Option<Duration>,
    is_no_delay: bool,
}

impl TcpStream {
    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable` and others as in `std::net`. `NotFound`: no daemon.
    /// `PermissionDenied`: its policy refuses.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        TcpStream::connect_with(&Options::default(), addr)
    }

    /// Connects to one address within `timeout`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect). `InvalidInput`: `timeout` is 0.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let options = Options { connect_timeout: Some(timeout), ..Options::default() };
        TcpStream::connect_with(&options, addr)
    }

    /// Connects with these options.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect). `InvalidInput`: an option is invalid.
    pub fn connect_with<A: ToSocketAddrs>(options: &Options, addr: A) -> io::Result<TcpStream> {
        if options.connect_timeout == Some(Duration::ZERO) {
            return Err(zero());
        }
        address::try_each(addr, &mut |peer| {
            let wanted = options.wanted();
            let (hub, tcp) = runtime::connect(&options.daemon, &wanted, options.local, peer)?;
            let stream = TcpStream::new(hub, tcp);
            stream.finish_connecting(options.connect_timeout)?;
            Ok(stream)
        })
    }

    /// Starts to connect without waiting. The stream is nonblocking; see [`handshake`](Self::handshake).
    ///
    /// # Errors
    ///
    /// As [`connect_with`](Self::connect_with), without those of the handshake.
    pub fn start(options: &Options, peer: SocketAddr) -> io::Result<TcpStream> {
        let (hub, tcp) = runtime::connect(&options.daemon, &options.wanted(), options.local, peer)?;
        let stream = TcpStream::new(hub, tcp);
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// How the handshake of a [started](Self::start) stream ended; `None` while it goes on. The stream becomes
    /// writable ([`writable_fd`](Self::writable_fd)) when it ends.
    pub fn handshake(&self) -> Option<io::Result<()>> {
        self.0.tcp.lock().handshake()
    }

    pub(super) fn new(hub: Arc<Hub>, tcp: Arc<Tcp>) -> TcpStream {
        let is_nonblocking = AtomicBool::new(false);
        TcpStream(Arc::new(Handle { hub, tcp, is_nonblocking, settings: Mutex::default() }))
    }

    /// Waits until the handshake is over.
    fn finish_connecting(&self, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let tcp = &self.0.tcp;
        let connected = self.0.hub.wait(&tcp.waiters, deadline, &mut || tcp.lock().handshake());
        connected.unwrap_or_else(|TimedOut| Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out")))
    }

    /// Acts on the connection, and gives its stack a turn if that is due.
    fn with<T>(&self, act: impl FnOnce(&mut Inner, u64) -> T) -> T {
        self.0.act(act)
    }

    /// Repeats `act` until it returns something, and waits in between unless the stream is nonblocking.
    fn until<T>(
        &self,
        timeout: Option<Duration>,
        act: &mut dyn FnMut(&mut Inner, u64) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let Handle { hub, tcp, .. } = &*self.0;
        let mut attempt = || {
            let mut inner = tcp.lock();
            let mut done = act(&mut inner, hub.now());
            if done.is_none() && inner.has_received() {
                tcp.work(hub, &mut inner, false);
                done = act(&mut inner, hub.now());
            }
            if done.is_some() {
                // Announce room to the other side, or send bytes.
                tcp.work(hub, &mut inner, false);
            }
            done
        };
        if self.0.is_nonblocking.load(Ordering::Relaxed) {
            return attempt().unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()));
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waited = hub.wait(&tcp.waiters, deadline, &mut attempt);
        waited.unwrap_or_else(|TimedOut| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.0.settings()
    }

    /// Reads without consuming.
    ///
    /// # Errors
    ///
    /// As [`Read::read`].
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.take_by(buf.is_empty(), &mut |stream, _| stream.peek(buf))
    }

    fn take_by(&self, is_empty: bool, take: &mut dyn FnMut(&mut dyn stack::Stream, u64) -> usize) -> io::Result<usize> {
        if is_empty {
            return Ok(0);
        }
        let timeout = self.settings().read_timeout;
        self.until(timeout, &mut |inner, now| inner.read(&mut |stream| take(stream, now)))
    }

    /// Lends received bytes to `take` and returns, as `take` does, how many it took. Blocks as a read does until
    /// `take` takes some. 0: the other side finished.
    ///
    /// # Errors
    ///
    /// As [`Read::read`].
    pub fn read_with(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<usize> {
        self.take_by(false, &mut |stream, now| stream.read_with(now, take))
    }

    /// Lends room for bytes to send to `fill` and returns, as `fill` does, how many it wrote. Blocks until that is
    /// some.
    ///
    /// # Errors
    ///
    /// As [`Write::write`].
    pub fn write_with(&self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> io::Result<usize> {
        let timeout = self.settings().write_timeout;
        self.until(timeout, &mut |inner, now| inner.write(&mut |stream| stream.write_with(now, fill)))
    }

    /// Ends reading, writing, or both. Bytes already written still go out.
    ///
    /// # Errors
    ///
    /// `NotConnected`: the connection is over.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.with(|inner, now| {
            if inner.is_over() {
                return Err(io::ErrorKind::NotConnected.into());
            }
            // Waiting calls must check again.
            inner.has_news = true;
            inner.reads_no_more |= how != Shutdown::Write;
            if how != Shutdown::Read {
                inner.writes_no_more = true;
                inner.stream().into_iter().for_each(|stream| stream.finish(now));
            }
            Ok(())
        })
    }

    /// Sends small writes at once (no Nagle's algorithm).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.settings().is_no_delay = nodelay;
        self.with(|inner, _| inner.stream().into_iter().for_each(|stream| stream.set_no_delay(nodelay)));
        Ok(())
    }

    /// Whether small writes are sent at once.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.settings().is_no_delay)
    }

    /// Probes a quiet connection at this interval; ten without answer end it (`TimedOut`). `None` (default): no
    /// probes.
    pub fn set_keepalive(&self, interval: Option<Duration>) -> io::Result<()> {
        self.with(|inner, _| inner.stream().into_iter().for_each(|stream| stream.set_keep_alive(interval)));
        Ok(())
    }

    /// Sets fields of the IP header of all later packets that this side's stack sends. The driver answers a SYN, and
    /// late segments of a finished connection, without them.
    pub fn set_marks(&self, marks: Marks) -> io::Result<()> {
        self.with(|inner, _| inner.set_marks(marks));
        Ok(())
    }

    /// How long a read waits before it fails with `WouldBlock`. `None`: for ever.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: `dur` is 0.
    pub fn set_read_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        self.settings().read_timeout = checked(dur)?;
        Ok(())
    }

    /// See [`set_read_timeout`](Self::set_read_timeout).
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.settings().read_timeout)
    }

    /// How long a write waits before it fails with `WouldBlock`. `None`: for ever.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: `dur` is 0.
    pub fn set_write_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        self.settings().write_timeout = checked(dur)?;
        Ok(())
    }

    /// See [`set_write_timeout`](Self::set_write_timeout).
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.settings().write_timeout)
    }

    /// Makes calls fail with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// How long dropping the last clone waits for acknowledgements. `None` (default): not at all. 0: it resets.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.settings().linger = linger;
        Ok(())
    }

    /// See [`set_linger`](Self::set_linger).
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.settings().linger)
    }

    /// Takes the connection's error, unless a call has reported it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.with(|inner, _| inner.take_error()).map(io::Error::from_raw_os_error))
    }

    /// Address and port of this side.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.tcp.local)
    }

    /// Address and port of the other side, even after the end, when `std::net` fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.tcp.peer)
    }

    /// The flow's hardware address and MTU, and whether its address exists.
    pub fn facts(&self) -> Facts {
        self.with(|_, _| ());
        self.0.tcp.lock().facts()
    }

    /// Another handle of the same connection, which ends with the last one.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(TcpStream(Arc::clone(&self.0)))
    }

    /// Readable while a write would not block: see [`net`](super).
    pub fn writable_fd(&self) -> BorrowedFd<'_> {
        let fd = self.0.tcp.writable.fd();
        self.with(|_, _| ());
        fd.unwrap_or_else(|_| self.0.hub.always())
    }
}

fn zero() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "cannot set a 0 duration timeout")
}

/// Rejects a timeout of 0, as `std::net` does.
pub(super) fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    if timeout == Some(Duration::ZERO) { Err(zero()) } else { Ok(timeout) }
}

impl Handle {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act<T>(&self, act: impl FnOnce(&mut Inner, u64) -> T) -> T {
        let mut inner = self.tcp.lock();
        let done = act(&mut inner, self.hub.now());
        self.tcp.work(&self.hub, &mut inner, false);
        done
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.hub.is_own() {
            return;
        }
        let linger = self.settings().linger;
        self.act(|inner, now| inner.give_up(now, linger == Some(Duration::ZERO)));
        if let Some(deadline) = linger.and_then(|linger| Instant::now().checked_add(linger)) {
            let mut ready = || self.tcp.lock().is_acknowledged().then_some(());
            // The connection lingers without the application.
            let _ = self.hub.wait(&self.tcp.waiters, Some(deadline), &mut ready);
        }
        if self.tcp.lock().is_over() {
            self.hub.remove(&Member::Tcp(Arc::clone(&self.tcp)));
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.take_by(buf.is_empty(), &mut |stream, now| stream.read(now, buf))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let timeout = self.settings().write_timeout;
        self.until(timeout, &mut |inner, now| inner.write(&mut |stream| stream.write(now, buf)))
    }

    /// Does nothing: written bytes are already on their way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.0.tcp.readable.fd();
        self.with(|_, _| ());
        fd.unwrap_or_else(|_| self.0.hub.always())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = (self.0.tcp.local, self.0.tcp.peer);
        f.debug_struct("TcpStream").field("addr", &local).field("peer", &peer).finish_non_exhaustive()
    }
}
