//! Listeners in the style of `std::net::TcpListener`.

use super::{Options, TcpStream, address};
use crate::runtime::hub::{Hub, Member};
use crate::runtime::listening::Listening;
use crate::runtime::{self};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A TCP listener. The daemon answers SYNs with cookies (RFC 4987); connections wait a minute for
/// [`accept`](Self::accept).
pub struct TcpListener(Arc<Handle>);

struct Handle {
    hub: Arc<Hub>,
    listening: Arc<Listening>,
    is_nonblocking: AtomicBool,
}

impl TcpListener {
    /// Listens at the first of these addresses that works. Port 0: any free port.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`, `PermissionDenied` as in `std::net`. `NotFound`: no daemon.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        TcpListener::bind_with(&Options::default(), addr)
    }

    /// Listens with these options.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind). `InvalidInput`: an option is invalid.
    pub fn bind_with<A: ToSocketAddrs>(options: &Options, addr: A) -> io::Result<TcpListener> {
        address::try_each(addr, &mut |local| {
            let (hub, listening) = runtime::listen(&options.daemon, &options.wanted(), local, options.backlog)?;
            Ok(TcpListener(Arc::new(Handle { hub, listening, is_nonblocking: AtomicBool::new(false) })))
        })
    }

    /// Waits for a connection, and returns it with the address of its other side.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: nonblocking, and no connection waits. Others: the daemon or its interface has gone.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Handle { hub, listening, is_nonblocking } = &*self.0;
        let mut attempt = || listening.accept(hub);
        let accepted = match is_nonblocking.load(Ordering::Relaxed) {
            true => attempt(),
            false => hub.wait(&listening.waiters, None, &mut attempt).ok(),
        };
        let tcp = accepted.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
        let peer = tcp.peer;
        Ok((TcpStream::new(Arc::clone(hub), tcp), peer))
    }

    /// Endless iterator over accepted connections.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The listener's address and port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.listening.local)
    }

    /// Makes [`accept`](Self::accept) fail with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.is_nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Another handle of the same listener, which closes with the last one.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener(Arc::clone(&self.0)))
    }

    /// Always `None`: only calls report errors.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.hub.is_own() {
            return;
        }
        self.hub.remove(&Member::Listening(Arc::clone(&self.listening)));
        for tcp in self.listening.drain() {
            let mut inner = tcp.lock();
            inner.give_up(self.hub.now(), true);
            let is_done = tcp.work(&self.hub, &mut inner, false);
            drop(inner);
            if is_done {
                self.hub.remove(&Member::Tcp(tcp));
            }
        }
    }
}

/// The accepted connections of a listener, like `std::net::Incoming`.
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.0.listening.readable.fd();
        self.0.listening.tell();
        fd.unwrap_or_else(|_| self.0.hub.always())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("addr", &self.0.listening.local).finish_non_exhaustive()
    }
}
