//! Datagrams in the style of `std::net::UdpSocket`, over [`crate::UdpSocket`].

use super::stream::checked;
use super::{Options, address};
use crate::connection::Connection;
use crate::error::{ENETDOWN, SocketError};
use crate::udp::{UdpOptions, is_over};
use buffer::flow::Facts;
use rustix::event::{PollFd, PollFlags, Timespec};
use stack::NoEnv;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Packets taken at once.
const BATCH: usize = 16;

/// How long a call sleeps between checks for room while another call sleeps on the doorbell.
const NAP: Duration = Duration::from_millis(1);

/// A UDP socket whose protocol stack runs in this process.
///
/// A [connected](Self::connect) socket drops datagrams from other senders than its peer, as the kernel's do.
pub struct UdpSocket(Arc<Handle>);

struct Handle {
    local: SocketAddr,
    /// Readable once the driver rang during a call's sleep.
    bell: OwnedFd,
    /// Readable once the daemon has gone and the search for another has failed.
    line: OwnedFd,
    inner: Mutex<Inner>,
    /// One call at a time sleeps on the doorbell; other calls wait for that one here.
    is_sleeping: Mutex<bool>,
    woke: Condvar,
    is_nonblocking: AtomicBool,
    settings: Mutex<(Option<Duration>, Option<Duration>)>,
}

struct Inner {
    socket: crate::UdpSocket,
    peer: Option<SocketAddr>,
    /// Datagrams taken from the flow but not read yet: at most one batch.
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    error: Option<SocketError>,
    /// The driver knows that this side sleeps, for a program that polls.
    is_announced: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UdpSocket {
    /// Binds to the first of these addresses that works. Port 0: any free port.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied` as in `std::net`. `NotFound`: no daemon.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        UdpSocket::bind_with(&Options::default(), addr)
    }

    /// Binds with these options: daemon, device, share and stack.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind). `InvalidInput`: an option is invalid.
    pub fn bind_with<A: ToSocketAddrs>(options: &Options, addr: A) -> io::Result<UdpSocket> {
        address::try_each(addr, &mut |local| Ok(UdpSocket(Arc::new(Handle::open(options, local)?))))
    }

    /// From now on, sends to this peer and receives only from it.
    ///
    /// # Errors
    ///
    /// Those of the address. `Unsupported`: its family differs from the socket's.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        address::try_each(addr, &mut |peer| {
            if peer.is_ipv4() != self.0.local.is_ipv4() {
                let text = format!("no datagram goes from {} to {peer}: they are of two families", self.0.local);
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            self.0.lock().peer = Some(peer);
            Ok(())
        })
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: there was no room within the timeout. Others concern this datagram or an earlier one.
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let Some(first) = address::of(addr)?.into_iter().next() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.0.send(Some(address::plain(first)), buf)
    }

    /// Sends one datagram to the peer.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to); `NotConnected` without a peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.0.send(None, buf)
    }

    /// Waits for a datagram. If `buf` is too short, the rest of the datagram is lost.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: none came within the timeout. `ConnectionRefused` and others report about an earlier datagram.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive(buf, true)
    }

    /// Like [`recv_from`](Self::recv_from), but the datagram stays. Has the same errors.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.receive(buf, false)
    }

    /// Like [`recv_from`](Self::recv_from), without the sender. Has the same errors.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buf).map(|(len, _)| len)
    }

    /// Like [`recv`](Self::recv), but the datagram stays. Has the same errors.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.peek_from(buf).map(|(len, _)| len)
    }

    /// Address and port of this side.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.local)
    }

    /// The peer.
    ///
    /// # Errors
    ///
    /// `NotConnected`: the socket has no peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.lock().peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Another handle of the same socket, which closes with the last one.
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        Ok(UdpSocket(Arc::clone(&self.0)))
    }

    /// How long a receive waits before it fails with `WouldBlock`. `None`: for ever.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: `dur` is 0.
    pub fn set_read_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        lock(&self.0.settings).0 = checked(dur)?;
        Ok(())
    }

    /// See [`set_read_timeout`](Self::set_read_timeout).
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.0.settings).0)
    }

    /// How long a send waits for room before it fails with `WouldBlock`. `None`: for ever.
    ///
    /// # Errors
    ///
    /// `InvalidInput`: `dur` is 0.
    pub fn set_write_timeout(&self, dur: Option<Duration>) -> io::Result<()> {
        lock(&self.0.settings).1 = checked(dur)?;
        Ok(())
    }

    /// See [`set_write_timeout`](Self::set_write_timeout).
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.0.settings).1)
    }

    /// Makes calls fail with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The flow's hardware address and MTU, and whether its address exists.
    pub fn facts(&self) -> Facts {
        let mut inner = self.0.lock();
        inner.look();
        inner.socket.facts()
    }

    /// Takes the last error about a sent datagram.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let mut inner = self.0.lock();
        inner.look();
        Ok(inner.error.take().map(io::Error::from))
    }
}

impl Handle {
    fn open(options: &Options, local: SocketAddr) -> Result<Handle, SocketError> {
        let connection = Arc::new(Connection::open(&options.daemon, "udp")?);
        let udp = UdpOptions {
            device: options.device.clone(),
            address: Some(local.ip()),
            port: local.port(),
            peer: None,
            stack: options.stack.as_ref().map(|below| format!("udp {} | {below}", local.port())),
            share: options.share.clone(),
            on_change: options.on_change.clone(),
        };
        let socket = crate::UdpSocket::open(connection, &udp, &mut NoEnv)?;
        let clone = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(SocketError::Daemon);
        Ok(Handle {
            local: socket.local_addr(),
            bell: clone(socket.fd())?,
            line: clone(socket.line())?,
            inner: Mutex::new(Inner {
                socket,
                peer: None,
                datagrams: VecDeque::new(),
                error: None,
                is_announced: false,
            }),
            is_sleeping: Mutex::new(false),
            woke: Condvar::new(),
            is_nonblocking: AtomicBool::new(false),
            settings: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    fn send(&self, to: Option<SocketAddr>, payload: &[u8]) -> io::Result<usize> {
        let timeout = lock(&self.settings).1;
        self.until(timeout, &mut |inner| {
            let Some(to) = to.or(inner.peer) else { return Some(Err(io::ErrorKind::NotConnected.into())) };
            match inner.socket.send(Some(to), payload) {
                Err(SocketError::Full) => None,
                Err(SocketError::TooLong) => {
                    Some(Err(io::Error::from_raw_os_error(rustix::io::Errno::MSGSIZE.raw_os_error())))
                }
                sent => Some(sent.map(|()| payload.len()).map_err(io::Error::from)),
            }
        })
    }

    fn receive(&self, buf: &mut [u8], takes: bool) -> io::Result<(usize, SocketAddr)> {
        let timeout = lock(&self.settings).0;
        self.until(timeout, &mut |inner| {
            inner.look();
            let Some((from, datagram)) = inner.datagrams.front() else {
                return inner.error.take().map(|error| Err(error.into()));
            };
            let len = datagram.len().min(buf.len());
            buf[..len].copy_from_slice(&datagram[..len]);
            let received = Ok((len, *from));
            if takes {
                inner.datagrams.pop_front();
            }
            Some(received)
        })
    }

    /// Repeats `act` until it returns something, and waits in between unless the socket is nonblocking.
    fn until<T>(
        &self,
        timeout: Option<Duration>,
        act: &mut dyn FnMut(&mut Inner) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let mut inner = self.lock();
            if std::mem::take(&mut inner.is_announced) {
                inner.socket.awake();
            }
            if let Some(done) = act(&mut inner) {
                return done;
            }
            if self.is_nonblocking.load(Ordering::Relaxed) {
                inner.is_announced = inner.socket.fall_asleep();
                if inner.is_announced {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                // The driver rang just now: forget it and look again.
                inner.socket.awake();
                continue;
            }
            drop(inner);
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.sleep(deadline)?;
        }
    }

    /// Sleeps until the driver rings: on the doorbell, or until the call that sleeps there wakes up.
    fn sleep(&self, deadline: Option<Instant>) -> io::Result<()> {
        let mut is_sleeping = lock(&self.is_sleeping);
        if *is_sleeping {
            // The other call may wake up for this one, or miss its news: hence the short sleep.
            let _ = self.woke.wait_timeout(is_sleeping, NAP).unwrap_or_else(PoisonError::into_inner);
            return Ok(());
        }
        *is_sleeping = true;
        drop(is_sleeping);
        let has_gone = self.doze(deadline);
        *lock(&self.is_sleeping) = false;
        self.woke.notify_all();
        if has_gone { Err(io::Error::from_raw_os_error(ENETDOWN)) } else { Ok(()) }
    }

    /// Sleeps on the doorbell. Returns whether the daemon has gone.
    fn doze(&self, deadline: Option<Instant>) -> bool {
        let may_sleep = self.lock().socket.fall_asleep();
        let mut has_gone = false;
        if may_sleep {
            let mut fds = [
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.line.as_fd(), PollFlags::IN),
            ];
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // A signal ends the sleep too: the caller looks.
            let _ = rustix::event::poll(&mut fds, left.as_ref());
            has_gone = is_over(&fds);
        }
        self.lock().socket.awake();
        has_gone
    }
}

impl Inner {
    /// Takes datagrams from the flow if the batch is used up.
    fn look(&mut self) {
        if !self.datagrams.is_empty() {
            return;
        }
        let Inner { socket, peer, datagrams, error, .. } = self;
        // Skip batches that hold only datagrams from others than the peer.
        while datagrams.is_empty() {
            let looked = socket.receive(BATCH, &mut |datagram| {
                if peer.is_none_or(|peer| peer == datagram.from) {
                    datagrams.push_back((datagram.from, datagram.payload.to_vec()));
                }
            });
            match looked {
                Ok(0) => return,
                Ok(_) => {}
                Err(why) => {
                    *error = Some(why);
                    return;
                }
            }
        }
    }
}

impl AsFd for UdpSocket {
    /// Readable once the driver has news after a call failed with `WouldBlock`: receive until that, then poll. The
    /// socket must be nonblocking.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("addr", &self.0.local).finish_non_exhaustive()
    }
}
