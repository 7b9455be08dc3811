//! Protocol stacks that run inside an application: one small stack for each flow, as in the Nemesis operating system. No
//! sockets, no threads, no clock: the caller brings frames and the time, in nanoseconds of a monotonic clock.
//!
//! A stack is a row of [`Block`]s: protocols, unlike the byte sequences that requests call blocks. It is built from a text in
//! the grammar of requests, the application's end first:
//!
//! ```text
//!              udp 4000 | ipv4 | ethernet eth0
//!  application ----- down: each block puts its header in front -----> driver
//!  application <---- up: each block checks its header and crops it -- driver
//! ```
//!
//! How a packet travels:
//!
//! - *Down.* [`Stack::send`] has header room for the whole stack, whose size is known once the stack is built. Each block
//!   writes its header in front of the headers above it. Headers and payload leave as two slices: a block that only needs
//!   headers and checksums does not copy the payload, and no bytes are moved.
//! - *Up.* [`Stack::receive`] starts at the block next to the driver. Each block crops the slice, or discards the packet with a
//!   [`Discard`], which the stack counts. The application gets a slice of the frame itself.
//! - *On its own.* A block may send and deliver without a packet that caused it: [`Block::next`] returns when it wants a turn,
//!   and [`Stack::tend`] gives it one. [`Block::tend`] may send through the blocks below it and deliver through those above it.
//!   An `arp` block answers this way, and a `tcp` block sends retransmissions and delayed acknowledgements this way.
//! - *As a stream.* [`Stack::stream`] reads and writes the bytes of a `tcp` block. Packets come up by [`Stack::receive`], and
//!   go out only by [`Stack::tend`].
//!
//! The driver does the rest: it finds the flow of a received frame, reassembles fragments, and writes the link address of the
//! next hop, which `ethernet` leaves at zero. A stack is no boundary of trust: it lives in the application, so the driver
//! checks every header that comes out of one.
//!
//! How to add a block: one file in `blocks` with a `KIND` and an `impl Block`, and one line in `blocks.rs`. Text, completion,
//! errors and the moving of state follow from the kind. [`Stack::of_blocks`] takes blocks from other places.
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
//! Read next: `block.rs` for the contract, `stack.rs` for the loop, `blocks/udp.rs` for an example, `description.rs`
//! for the text.

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
pub use facts::{ChecksumRule, Env, Facts, NoEnv, TapFile, TapSink, TcpFacts};
pub use kind::{Below, Build, Complete, Form, Given, Kind, Layer, Param, Site, Value};
pub use outcome::{Discard, ImportError, SendError, Unsupported};
pub use packets::{Incoming, Meta, Outgoing};
pub use problem::{Problem, ProblemKind};
pub use stack::{Delivery, Stack};
pub use stream::{End, Stream, StreamState};
