//! One capture of a device, shared by any number of readers.
//!
//! ```text
//!                 expressions, wake-ups                      hand-out: fds and a line
//!   Writer  ◀──────────────────────────────  Taps  ────────────────────────────────▶  Tap
//!   (kernel's program, or a thread)            ▲  a process with the right to capture   any process
//!      │                                       └── daemon, or the reader's own process      ▲
//!      └────────── packets, once, into a live ring (buffer::live) ─────────────────────────┘
//! ```
//!
//! - [`wish`] — what a reader asks for; [`handout`] — what it gets: plain data and file descriptors, which may travel.
//! - [`right`] — what it may see.
//! - [`taps`] — who owns devices' rings: one bit of a packet's set for each reader, set anew whenever one comes or goes.
//! - [`budget`] — what expressions may cost each packet.
//! - [`copying`] — a ring that a thread of this process writes.
//! - [`writer`] — what a device's writer must be able to do; the drivers' are in the facade.
//! - [`tap`] — the reader's half: look, copy, sleep, count. Start reading here.
//! - [`protocol`], [`client`] — the same through a daemon's socket.
//! - [`codec`] — how wishes and hand-outs are written down.
//!
//! Nothing here opens a device or checks who may: that is for the writer and for the daemon.

#![forbid(unsafe_code)]

pub mod budget;
pub mod client;
pub mod clock;
pub mod codec;
pub mod copying;
pub mod handout;
pub mod protocol;
pub mod right;
pub mod tap;
pub mod taps;
pub mod wish;
pub mod writer;

pub use budget::Budget;
pub use handout::{Device, ETHERNET, Exchange, Handout, Past, RAW_IP};
pub use right::{Only, Right};
pub use tap::{Ledger, Tap};
pub use taps::Taps;
pub use wish::{By, Direction, Mode, Share, Wish};
pub use writer::{Expression, Opened, Trouble, Writer};
