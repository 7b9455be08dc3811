//! Sockets of applications whose protocol stacks are their own: a flow of the daemon's interface, and the stack that makes and
//! reads its packets in this process.
//!
//! - [`Connection`] — flows at one daemon. They end with it. When the daemon ends, it claims them at the next one (`attendant.rs`).
//! - [`UdpSocket`] — datagrams, in the manner of `std::net::UdpSocket`. Start reading here.
//! - [`net`] — `TcpStream`, `TcpListener` and `UdpSocket` with the names, arguments and errors of `std::net`.
//! - [`SocketError`] — why not; [`errno_of`] is the number for it.
//!
//! A call sends and receives without a system call while the other side is awake; `wait` sleeps on the doorbell.

#![forbid(unsafe_code)]

mod attendant;
mod connection;
mod error;
pub mod net;
mod runtime;
mod udp;

pub use connection::Connection;
pub use error::{SocketError, errno_of};
/// What [`UdpSocket::open`] asks for files; and nothing that opens none.
pub use stack::{Env, NoEnv};
pub use udp::{Counts, Datagram, UdpOptions, UdpSocket};
