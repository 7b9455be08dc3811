//! Packet sockets, which work on every Linux device. They copy frames: the host's own stack gets every frame as well.
//!
//! - [`Receiver`] — receives from a ring that the kernel fills; [`SocketFilter`] — changes its filter.
//! - [`options`] — its options; `block.rs` — a block of the ring; `queue.rs` — receiving without a ring.
//! - [`Sender`] — sends many frames with one system call.
//! - [`socket`] — the part that receiving and sending share.

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
