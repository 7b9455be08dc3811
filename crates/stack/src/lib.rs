//! Protocol stacks that run inside an application: one small stack per flow, as in the Nemesis operating system. A
//! stack has no sockets, threads or clock: the caller passes in frames and the time (ns of a monotonic clock).
//!
//! A stack is a row of [`Block`]s. A block here is a protocol, not a run of bytes as in requests. A text in the
//! grammar of requests describes the stack, with the application's end first:
//!
//! ```text
//!              udp 4000 | ipv4 | ethernet eth0
//!  application ----- down: each block puts its header in front -----> driver
//!  application <---- up: each block checks its header and crops it -- driver
//! ```
//!
//! How a packet travels:
//!
//! - *Down.* [`Stack::send`] reserves header room for the whole stack; the size is fixed when the stack is built. Each
//!   block writes its header in front of the headers above it. Headers and payload leave as two slices. A block that
//!   needs only headers and checksums does not copy the payload.
//! - *Up.* [`Stack::receive`] starts at the block next to the driver. Each block crops the slice, or discards the
//!   packet with a [`Discard`], which the stack counts. The application gets a slice of the frame itself.
//! - *On its own.* A block may send and deliver without receiving a packet first. [`Block::next`] says when it wants a
//!   turn, and [`Stack::tend`] gives it one. [`Block::tend`] sends through the blocks below and delivers through those
//!   above. `arp` answers this way; `tcp` retransmits and delays acknowledgements this way.
//! - *As a stream.* [`Stack::stream`] reads and writes the bytes of a `tcp` block. Its packets enter by
//!   [`Stack::receive`] and leave only by [`Stack::tend`].
//!
//! The driver finds the flow of a received frame, reassembles fragments, and writes the next hop's link address, which
//! `ethernet` leaves at zero. A stack is no trust boundary: the driver checks every header that a stack sends.
//!
//! To add a block, write one file in `blocks` with a `KIND` and an `impl Block`, and add one line to `blocks.rs`. The
//! kind supplies text, completion, errors and moving of state. [`Stack::of_blocks`] takes blocks defined elsewhere.
//!
//! ```
//! use stack::{ChecksumRule, Description, Facts, NoEnv, TcpFacts};
//! let facts = Facts {
//!     device: "eth0".into(),
//!     mac: [2, 0, 0, 0, 0, 1],
//!     address: "10.0.0.1".parse()?,
//!     prefix: 24,
//!     mtu: 1500,
//!     checksum: ChecksumRule::Strict,
//!     tcp: TcpFacts::default(),
//! };
//! let description = Description::parse("udp 4000")?.complete(&facts)?;
//! assert_eq!(description.canonical(), "udp 4000 | ipv4 | ethernet eth0");
//! let mut stack = description.build(&facts, &mut NoEnv)?;
//! let mut frame = Vec::new();
//! stack.send(0, Some("10.0.0.2:53".parse()?), b"hello", &mut |header, payload| {
//!     frame.extend_from_slice(header);
//!     frame.extend_from_slice(payload);
//! })?;
//! assert_eq!(frame.len(), stack.header_bytes() + 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read next: `block.rs` (the contract), `stack.rs` (the loop), `blocks/udp.rs` (an example), `description.rs` (the
//! text).

#![forbid(unsafe_code)]

mod block;
pub mod blocks;
mod description;
mod facts;
mod kind;
mod outcome;
mod packets;
mod problem;
mod pseudo;
mod stack;
mod state;
mod stream;

pub use block::{Block, Line, Out, Step};
pub use blocks::tcp::{TCP_WINDOW, TCP_WINDOW_SHIFT};
pub use description::{Description, StackError};
pub use facts::{ChecksumRule, Env, Facts, Marks, NoEnv, TapFile, TapSink, TcpFacts};
pub use kind::{Below, Build, Complete, Form, Given, Kind, Layer, Param, Site, Value};
pub use outcome::{Discard, ImportError, SendError, Unsupported};
pub use packets::{Incoming, Meta, Outgoing, Problem, ProblemKind};
pub use stack::{Delivery, Stack};
pub use stream::{End, Stream, StreamState};
