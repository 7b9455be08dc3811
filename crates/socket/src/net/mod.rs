//! Sockets with the names, arguments and errors of `std::net`, over a daemon's flows and this process's stacks.
//!
//! - [`TcpStream`], [`TcpListener`], [`UdpSocket`] — as in `std::net`.
//! - [`Options`] — additions to `std::net`: the daemon, the interface, the share of the wire, buffers.
//!
//! ```no_run
//! use socket::net::TcpStream;
//! use std::io::{Read, Write};
//!
//! let mut stream = TcpStream::connect("10.0.0.1:80")?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! *Errors.* A method that returns `io::Result` and lists no errors cannot fail; `std::net` has the same signature.
//!
//! *Addresses* are IPv4 or IPv6. `0.0.0.0` stands for the interface's first IPv4 address, or its first IPv6 one if it
//! has no other. `::` stands for its first IPv6 address. Neither listens on both. *The daemon* is the one at the path
//! in the environment variable [`DAEMON`], else at [`capture::protocol::SOCKET`].
//!
//! *Polling.* [`AsFd`](std::os::fd::AsFd) gives a file descriptor that is readable while a read or accept would not
//! block. It is not the connection: do not read it, and do not poll it for writing. [`TcpStream::writable_fd`] is
//! readable while a write would not block. If the process is out of file descriptors, both are always readable.
//!
//! *Ends.* A dropped stream continues, for up to a minute, until the peer has acknowledged everything and both sides
//! have finished. If it has unread bytes, it sends a reset (RFC 2525, section 2.17). When the process exits, a child
//! process does the same without its other files, and the exit does not wait. When a signal kills the process, the
//! daemon resets its connections. When the daemon or the interface goes, calls fail with ENETDOWN.
//!
//! *Changes.* A connection survives changes of the interface's routes, and its move to another device. If the
//! connection's address is removed, it waits for the address for a minute; then calls fail with EADDRNOTAVAIL.
//! [`Options::on_change`] reports changes, and [`TcpStream::facts`] returns the current state.
//!
//! *Processes.* A stream belongs to the process that made it. A child made by `fork` without `exec` must not use it.

mod address;
mod listener;
mod options;
mod stream;
mod udp;

pub use crate::facts::{Change, OnChange};
pub(crate) use address::plain;
pub use buffer::flow::Facts;
pub use listener::{Incoming, TcpListener};
pub use options::{DAEMON, Options, named_daemon};
pub use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
pub use stream::TcpStream;
pub use udp::UdpSocket;
