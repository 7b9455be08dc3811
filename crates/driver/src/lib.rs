//! Devices: listing them, receiving from them and sending on them.
//!
//! - [`contract`] — the traits of all devices: [`Receive`], [`Transmit`]. Start reading here.
//! - [`frame`] — received frames; [`filter`] — programs that choose them.
//! - [`af_packet`] — packet sockets, which work on every Linux device.
//! - [`af_xdp`] — frames taken from the device's driver.
//! - [`tuntap`] — devices that this program makes.
//! - [`loopback`] — a pair of devices inside a process.
//! - [`device`] — all devices with their facts; [`watch`] — their changes; [`counters`] — the kernel's counts.
//! - [`link`], [`address`], [`ethtool`], [`features`], [`netlink`], [`change`] — asking the kernel, and changing
//!   devices.
//! - [`namespace`] — network namespaces; [`route`] — the host's next hops; [`port`] — held ports of the host.
//! - [`pair`] — virtual pairs for measurements and tests.
//!
//! The crates above choose devices, check rights and use the frames. This crate knows no filter and no expression; a
//! filter program comes as instructions. It is one of the few that may use `unsafe`: every device is a file descriptor
//! with rings of memory to which the kernel writes too.

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
