//! Sockets of applications whose protocol stacks are their own: a flow of the daemon's interface, and the stack that makes and
//! reads its packets in this process.
//!
//! - [`Connection`] — flows at one daemon. They end with it. When the daemon ends, it claims them at the next one (`attendant.rs`).
//! - [`UdpSocket`] — datagrams, in the manner of `std::net::UdpSocket`. Start reading here.
//! - [`net`] — `TcpStream`, `TcpListener` and `UdpSocket` with the names, arguments and errors of `std::net`.
//! - [`Facts`], [`OnChange`] — what a flow runs on, and who is told when it changes.
//! - [`SocketError`] — why not; [`errno_of`] is the number for it.
//!
//! A call sends and receives without a system call while the other side is awake; `wait` sleeps on the doorbell.

#![forbid(unsafe_code)]

mod attendant;
mod connection;
mod error;
mod facts;
pub mod net;
mod runtime;
mod udp;

/// What a flow runs on.
pub use buffer::flow::Facts;
pub use connection::Connection;
pub use error::{SocketError, errno_of};
pub use facts::{Change, OnChange};
/// What [`UdpSocket::open`] asks for files; and nothing that opens none.
pub use stack::{Env, NoEnv};
pub use udp::{Counts, Datagram, UdpOptions, UdpSocket};
