//! TCP as `net serve`, `net get`, `net perf`, `net cat` and `net echo` see it: streams and listeners of any kind behind two traits, so that their
//! protocols do not depend on the stack below. This is the only file of these commands that opens sockets.

use crate::exit::CommandError;
use socket::net::{Options, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Where the flows of a command are.
#[derive(clap::Args)]
pub(super) struct FlowArgs {
    /// The interface, as `streamline net ls` lists it; the only one if not given
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<String>,

    /// The local address, where the interface has several
    #[arg(long, value_name = "ADDRESS")]
    pub(super) addr: Option<Ipv4Addr>,

    /// The share of the wire of each flow: 4ms/100ms, 4ms/100ms+slack, fair:3 or background; fair if not given
    #[arg(long, value_name = "SHARE")]
    pub(super) slice: Option<String>,

    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    pub(super) daemon: PathBuf,
}

/// The IPv4 addresses of a host, by the system's resolver.
pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddrV4>, CommandError> {
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| CommandError::Failed(format!("{host}: {error}")))?;
    let is_v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    Ok(found.filter_map(is_v4).collect())
}

impl FlowArgs {
    /// How its sockets are opened. The daemon is asked first whether it is there: it says for all commands how one is started.
    fn options(&self, purpose: &str) -> Result<Options, CommandError> {
        drop(crate::daemon_client::connect(&self.daemon, purpose)?);
        Ok(Options {
            daemon: self.daemon.clone(),
            device: self.device.clone(),
            local: self.addr.map(|address| SocketAddrV4::new(address, 0)),
            share: self.slice.clone(),
            ..Options::default()
        })
    }
}

/// What opens the connections of a command.
pub(super) struct Dialer(Options);

impl Dialer {
    pub(super) fn new(args: &FlowArgs, purpose: &str) -> Result<Dialer, CommandError> {
        Ok(Dialer(args.options(purpose)?))
    }

    /// Opens a connection.
    pub(super) fn connect(&self, to: SocketAddrV4) -> io::Result<TcpStream> {
        TcpStream::connect_with(&self.0, to)
    }
}

/// Opens a listener.
pub(super) fn listen(args: &FlowArgs, port: u16, purpose: &str) -> Result<TcpListener, CommandError> {
    let options = args.options(purpose)?;
    let at = SocketAddrV4::new(args.addr.unwrap_or(Ipv4Addr::UNSPECIFIED), port);
    TcpListener::bind_with(&options, at).map_err(|error| CommandError::Failed(error.to_string()))
}

/// A connection, with the methods of `std::net::TcpStream`.
pub(super) trait Stream: Read + Write + Send + Sized + 'static {
    /// A read that waits longer ends with `WouldBlock` or `TimedOut`; none waits for ever.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// The same for a write.
    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    /// Sends small pieces at once.
    fn set_nodelay(&self, on: bool) -> io::Result<()>;
    /// Sends FIN after everything written.
    fn finish(&self) -> io::Result<()>;
}

/// What accepts connections, with the methods of `std::net::TcpListener`.
pub(super) trait Listener: Send + 'static {
    /// The connections.
    type Stream: Stream;
    /// Waits for a connection.
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

/// Did the time of `set_read_timeout` or `set_write_timeout` pass?
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
