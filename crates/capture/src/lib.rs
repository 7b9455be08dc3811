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
//! - [`capture_request`] — a reader's request (crate `filter`); [`attachment`] — the answer to it: plain data and file
//!   descriptors, which may go to another process.
//! - [`devices`] — opens devices, as a trait.
//! - [`permission`] — the packets that a reader may see.
//! - [`registry`] — owns the rings of devices. Each reader gets one bit of a packet's set; the bits are set again
//!   whenever a reader comes or goes.
//! - [`budget`] — what expressions may cost each packet.
//! - [`copying`] — a ring that a thread of this process writes.
//! - [`writer`] — the trait of a device's writer; the drivers' writers are in the facade.
//! - [`reader`] — the reader's half: look, copy, sleep, count. Start reading here.
//! - [`protocol`], [`client`] — the same through a daemon's socket.
//! - [`mod@line`] — messages between a reader and the registry on the reader's line.
//!
//! This crate does not open devices or check rights: the writer and the daemon do that.

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
pub use capture_request::{By, CaptureError, CaptureErrorKind, CaptureRequest, Direction, Mode, Partition};
pub use devices::Devices;
pub use filter::capture_request;
pub use permission::{Only, Permission};
pub use reader::{CaptureReader, Ledger};
pub use registry::CaptureRegistry;
pub use writer::{Expression, Opened, Writer};
