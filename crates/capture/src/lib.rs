//! One capture of a device, shared by any number of readers.
//!
//! ```text
//!                 expressions, wake-ups                      attachment: fds and a line
//!   Writer  ◀──────────────────────────────  CaptureRegistry  ────────────────────────────────▶  Tap
//!   (kernel's program, or a thread)            ▲  a process with the right to capture   any process
//!      │                                       └── daemon, or the reader's own process      ▲
//!      └────────── packets, once, into a live ring (buffer::live) ─────────────────────────┘
//! ```
//!
//! - [`capture_request`] — what a reader asks for (crate `filter`); [`attachment`] — what it gets: plain data and file descriptors,
//!   which may travel.
//! - [`devices`] — who opens devices, by trait.
//! - [`permission`] — what it may see.
//! - [`registry`] — who owns devices' rings: one bit of a packet's set for each reader, set anew whenever one comes or goes.
//! - [`budget`] — what expressions may cost each packet.
//! - [`copying`] — a ring that a thread of this process writes.
//! - [`writer`] — what a device's writer must be able to do; the drivers' are in the facade.
//! - [`reader`] — the reader's half: look, copy, sleep, count. Start reading here.
//! - [`protocol`], [`client`] — the same through a daemon's socket.
//! - [`mod@line`] — what a reader and its owner say on the reader's line.
//!
//! Nothing here opens a device or checks who may: that is for the writer and for the daemon.

#![forbid(unsafe_code)]

pub mod attachment;
pub mod budget;
pub mod client;
pub mod clock;
pub mod copying;
pub mod devices;
pub mod line;
pub mod permission;
pub mod protocol;
pub mod reader;
pub mod registry;
pub mod writer;

pub use attachment::{Attachment, Device, ETHERNET, Exchange, Past, RAW_IP};
pub use budget::Budget;
pub use capture_request::{By, CaptureError, CaptureErrorKind, CaptureRequest, Direction, Mode, Share};
pub use devices::Devices;
pub use filter::capture_request;
pub use permission::{Only, Permission};
pub use reader::{CaptureReader, Ledger};
pub use registry::CaptureRegistry;
pub use writer::{Expression, Opened, Writer};
