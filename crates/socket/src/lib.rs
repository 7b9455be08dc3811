//! Sockets with a protocol stack inside the application: each has a flow of the daemon's interface, and a stack that
//! makes and reads its packets in this process.
//!
//! - [`Connection`] — flows at one daemon. When the daemon ends, its successor takes them over (`line.rs`,
//!   `attendant.rs`).
//! - [`UdpSocket`] — datagrams, in the manner of `std::net::UdpSocket`. Start reading here.
//! - [`net`] — `TcpStream`, `TcpListener` and `UdpSocket` with the names, arguments and errors of `std::net`.
//! - [`Facts`], [`OnChange`] — the interface of a flow, and the callback after its changes.
//! - [`SocketError`] — errors; [`errno_of`] gives the errno.
//!
//! A call makes no system call while the other side is awake; `wait` sleeps on the doorbell.

#![forbid(unsafe_code)]

mod attendant;
mod connection;
mod error;
mod facts;
mod line;
pub mod net;
mod runtime;
mod udp;

/// Facts about a flow's interface.
pub use buffer::flow::Facts;
pub use connection::Connection;
pub use error::{SocketError, errno_of};
pub use facts::{Change, OnChange};
/// Fields of the IP header: see [`net::TcpStream::set_marks`].
pub use stack::Marks;
/// Opens files for [`UdpSocket::open`]; [`NoEnv`] opens none.
pub use stack::{Env, NoEnv};
pub use udp::{Counts, Datagram, UdpOptions, UdpSocket};
