//! Devices: what there is, receiving from them and sending on them.
//!
//! - [`contract`] — what all of them do: [`Receive`], [`Transmit`]. Start reading here. [`frame`] — what they give;
//!   [`filter`] — what they let through.
//! - [`af_packet`] — packet sockets: the device every Linux offers. [`af_xdp`] — frames taken from the driver. [`tuntap`] — devices this program makes. [`loopback`] —
//!   a pair of devices inside a process.
//! - [`device`] — all devices with their facts; [`watch`] — what happens to them; [`counters`] — what the kernel counts.
//! - [`link`], [`address`], [`ethtool`], [`features`], [`netlink`], [`change`] — how that is asked, and changed; [`namespace`] — where;
//!   [`route`] — the host's next hops; [`port`] — ports of the host that are held; [`pair`] — virtual pairs for measurements and tests.
//!
//! Which of its devices a request means, who may use them and what becomes of their frames is decided above. This crate
//! knows no filter and no expression; a filter program comes as instructions. It is one of the few that may use `unsafe`:
//! every device is a file descriptor with rings of memory that the kernel writes, too.

pub mod address;
pub mod af_packet;
pub mod af_xdp;
pub mod change;
pub mod contract;
pub mod counters;
pub mod device;
pub mod error;
pub mod ethtool;
pub mod features;
pub mod filter;
pub mod frame;
pub mod link;
pub mod loopback;
pub mod namespace;
pub mod netlink;
pub mod pair;
pub mod port;
pub mod route;
mod sys;
pub mod tuntap;
pub mod watch;

pub use contract::{Receive, ReceiveStatistics, Transmit, TransmitStatistics, Turn};
pub use error::Error;
pub use filter::Instruction;
pub use frame::{Batch, Frame};
