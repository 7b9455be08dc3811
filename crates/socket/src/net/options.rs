//! Options of sockets beyond `std::net`.

use crate::facts::OnChange;
use crate::runtime::Wanted;
use crate::runtime::tcp::Shape;
use stack::Marks;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that names the control socket of the daemon.
pub const DAEMON: &str = "STREAMLINE_DAEMON";

/// The control socket that the variable [`DAEMON`] names. `None`: it is not set, or empty.
pub fn named_daemon() -> Option<PathBuf> {
    std::env::var_os(DAEMON).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Connections that wait at a listener: the backlog of `std::net`.
const BACKLOG: u32 = 128;

/// How to open a socket, apart from its addresses. `connect` and `bind` use `Options::default()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The daemon's control socket.
    pub daemon: PathBuf,
    /// The interface. `None`: the one that routes to the peer, or the only one.
    pub device: Option<String>,
    /// Address and port of this side of a connection; 0.0.0.0 or `::`: the interface's; port 0: any. Listeners ignore
    /// it.
    pub local: Option<SocketAddr>,
    /// The share of the wire, as `4ms/100ms`: see [`flow::OpenFlow::share`]. `None`: an equal part of the rest.
    pub share: Option<String>,
    /// The blocks of the stack below `tcp` or `udp`. `None`: `ipv4 | ethernet DEVICE`, or `ipv6`.
    pub stack: Option<String>,
    /// Connections that may wait at a listener: up to 1024.
    pub backlog: u32,
    /// Bytes of a connection's receive buffer; 0: 256 KiB.
    pub receive_bytes: u32,
    /// Bytes of a connection's send buffer; 0: 256 KiB.
    pub send_bytes: u32,
    /// Time limit of a connection's handshake. `None`: a minute.
    pub connect_timeout: Option<Duration>,
    /// Fields of the IP header, from the first packet on.
    pub marks: Marks,
    /// Called when the interface changes: see [`Change`](crate::Change). A listener passes it on to its connections.
    pub on_change: Option<OnChange>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            daemon: named_daemon().unwrap_or_else(|| capture::protocol::SOCKET.into()),
            device: None,
            local: None,
            share: None,
            stack: None,
            backlog: BACKLOG,
            receive_bytes: 0,
            send_bytes: 0,
            connect_timeout: None,
            marks: Marks::default(),
            on_change: None,
        }
    }
}

impl Options {
    pub(super) fn wanted(&self) -> Wanted {
        let Options { receive_bytes, send_bytes, marks, .. } = *self;
        Wanted {
            device: self.device.clone(),
            share: self.share.clone(),
            shape: Shape {
                receive_bytes,
                send_bytes,
                below: self.stack.clone(),
                marks,
                on_change: self.on_change.clone(),
            },
            connect_timeout: self.connect_timeout,
        }
    }
}
