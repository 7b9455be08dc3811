//! Packet sockets: the device every Linux offers. A tap: the host's own stack sees every frame as well.
//!
//! - [`Receiver`] — from a ring that the kernel fills, and what lets frames into it ([`SocketFilter`]); [`options`] — what may be asked of it; `block.rs` — what it writes; `queue.rs` — without a ring.
//! - [`Sender`] — many frames with one system call.
//! - [`socket`] — what receiving and sending share.

mod block;
mod hardware_clock;
pub mod options;
mod queue;
mod receiver;
mod sender;
pub mod socket;

pub use options::{Direction, Fanout, FanoutBy, Options, Timestamps};
pub use receiver::{Receiver, SocketFilter};
pub use sender::{Sender, SenderOptions};
pub use socket::PacketSocket;
