//! Sockets with the names, arguments and errors of `std::net`, over flows of a daemon and protocol stacks in this process.
//!
//! - [`TcpStream`], [`TcpListener`], [`UdpSocket`] — as in `std::net`.
//! - [`Options`] — what `std::net` does not have: the daemon, the interface, the share of the wire, buffers.
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
//! *Addresses* are of IPv4 or IPv6. `0.0.0.0` stands for the interface's first IPv4 address, or its first IPv6 address
//! if it has no IPv4; `::` stands for its first IPv6 address. Neither listens on both. *The daemon* is the one at
//! [`capture::protocol::SOCKET`], or at the path in the environment variable [`DAEMON`].
//!
//! *Polling.* [`AsFd`](std::os::fd::AsFd) returns a file descriptor that is readable while a call to read or accept
//! would not wait. It is not the connection: do not read it, and do not ask whether it can be written.
//! [`TcpStream::writable_fd`] returns another one, which is readable while a call to write would not wait. If the
//! process has no file descriptor left, both are always readable.
//!
//! *Ends.* A stream that is dropped goes on until everything written is acknowledged and both sides have finished, for
//! at most a minute. Unread bytes reset it (RFC 2525, section 2.17). When the process exits, a child of it does the
//! same, without its other files, and the exit does not wait. When a signal kills the process, the daemon resets its
//! connections. When the daemon or the interface goes, calls fail with ENETDOWN.
//!
//! *Changes.* A connection survives changes of the interface's routes, and a move of the interface to another device.
//! When its address is removed, it waits a minute for the address to come back; then calls fail with EADDRNOTAVAIL. The
//! function in [`Options::on_change`] is called on each change, and [`TcpStream::facts`] returns the present state.
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
pub use options::{DAEMON, Options};
pub use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
pub use stream::TcpStream;
pub use udp::UdpSocket;
