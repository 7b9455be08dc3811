//! Packet sockets: the device every Linux offers.
//!
//! - [`socket`] — what receiving and sending share.

pub mod socket;

pub use socket::PacketSocket;
