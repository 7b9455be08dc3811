//! Sockets of applications with their own protocol stacks: a flow of the daemon's interface, and the stack that makes and
//! reads its packets in this process.
//!
//! - [`Connection`] — flows at one daemon. They end with it. When the daemon ends, it claims them at the next one
//!   (`attendant.rs`).
//! - [`UdpSocket`] — datagrams, in the manner of `std::net::UdpSocket`. Start reading here.
//! - [`net`] — `TcpStream`, `TcpListener` and `UdpSocket` with the names, arguments and errors of `std::net`.
//! - [`Facts`], [`OnChange`] — the properties of a flow's interface and address, and a function to call when they change.
//! - [`SocketError`] — the errors. [`errno_of`] returns the number for an error.
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

/// The properties of a flow's interface and address.
pub use buffer::flow::Facts;
pub use connection::Connection;
pub use error::{SocketError, errno_of};
pub use facts::{Change, OnChange};
/// The source of files for [`UdpSocket::open`], and one that opens no files.
pub use stack::{Env, NoEnv};
pub use udp::{Counts, Datagram, UdpOptions, UdpSocket};
