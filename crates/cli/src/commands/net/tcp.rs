//! TCP for `net serve`, `net get`, `net perf`, `net cat` and `net echo`. Two traits hide the kind of stream and
//! listener, so that their protocols do not depend on the stack. Only this file of these commands opens sockets.

use super::parse;
use crate::exit::CommandError;
use crate::place::DaemonArg;
use socket::net::{Options, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Where the flows of a command are.
#[derive(clap::Args)]
pub(super) struct FlowArgs {
    /// The interface, as `streamline net ls` lists it; the only one if not given
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<String>,

    /// The local address, where the interface has several; `::` for its first one of IPv6
    #[arg(long, value_name = "ADDRESS", value_parser = parse::address)]
    pub(super) addr: Option<IpAddr>,

    /// The share of the wire of each flow: 4ms/100ms, 4ms/100ms+slack, fair:3 or background; fair if not given
    #[arg(long, value_name = "SHARE")]
    pub(super) slice: Option<String>,

    #[command(flatten)]
    pub(super) daemon: DaemonArg,
}

/// The addresses of a host, by the system's resolver. An IPv6 address may be in brackets.
pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, CommandError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (bare, port).to_socket_addrs();
    Ok(found.map_err(|error| CommandError::Failed(format!("{host}: {error}")))?.collect())
}

impl FlowArgs {
    /// The options for its sockets. It contacts the daemon first: if there is none, the error says how to start one.
    fn options(&self, purpose: &str) -> Result<Options, CommandError> {
        drop(crate::daemon_client::connect(&self.daemon.path(), purpose)?);
        Ok(Options {
            daemon: self.daemon.path(),
            device: self.device.clone(),
            local: self.addr.map(|address| SocketAddr::new(address, 0)),
            share: self.slice.clone(),
            ..Options::default()
        })
    }
}

pub(super) struct Dialer(Options);

impl Dialer {
    pub(super) fn new(args: &FlowArgs, purpose: &str) -> Result<Dialer, CommandError> {
        Ok(Dialer(args.options(purpose)?))
    }

    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(&self.0, to)
    }

    /// Connects to the first of these addresses that answers, and returns which one. With a local address, only
    /// addresses of its family are tried.
    pub(super) fn connect_first(&self, to: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
        let is_possible = |to: &&SocketAddr| self.0.local.is_none_or(|local| local.is_ipv4() == to.is_ipv4());
        let text = "the host has no address of the IP version of --addr";
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, text);
        for &to in to.iter().filter(is_possible) {
            match self.connect(to) {
                Ok(stream) => return Ok((stream, to)),
                Err(error) => last = io::Error::new(error.kind(), format!("{to}: {error}")),
            }
        }
        Err(last)
    }
}

pub(super) fn listen(args: &FlowArgs, port: u16, purpose: &str) -> Result<TcpListener, CommandError> {
    let options = args.options(purpose)?;
    let at = SocketAddr::new(args.addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
    TcpListener::bind_with(&options, at).map_err(|error| CommandError::Failed(error.to_string()))
}

/// A connection, with the methods of `std::net::TcpStream`.
pub(super) trait Stream: Read + Write + Send + Sized + 'static {
    /// Sets how long a read waits. It then ends with `WouldBlock` or `TimedOut`.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// The same for a write.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// Sends small pieces at once.
    fn set_nodelay(&self, on: bool) -> io::Result<()>;
    /// Sends FIN after everything written.
    fn finish(&self) -> io::Result<()>;
}

/// A listener, with the methods of `std::net::TcpListener`.
pub(super) trait Listener: Send + 'static {
    /// Its connections.
    type Stream: Stream;
    fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)>;
}

/// Implements both traits by the methods of the same names.
macro_rules! sockets {
    ($stream:ty, $listener:ty) => {
        impl Stream for $stream {
            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$stream>::set_read_timeout(self, timeout)
            }
            fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                <$stream>::set_write_timeout(self, timeout)
            }
            fn set_nodelay(&self, on: bool) -> io::Result<()> {
                <$stream>::set_nodelay(self, on)
            }
            fn finish(&self) -> io::Result<()> {
                self.shutdown(std::net::Shutdown::Write)
            }
        }

        impl Listener for $listener {
            type Stream = $stream;
            fn accept(&self) -> io::Result<($stream, SocketAddr)> {
                <$listener>::accept(self)
            }
        }
    };
}

sockets!(TcpStream, TcpListener);
#[cfg(test)]
sockets!(std::net::TcpStream, std::net::TcpListener);

/// Whether the time of `set_read_timeout` or `set_write_timeout` passed.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
