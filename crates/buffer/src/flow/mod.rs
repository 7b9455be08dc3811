//! Flow channels: the packets of one flow between an application and the driver of its device (the Rbufs of the Nemesis
//! network stack).
//!
//! - [`Application`] — the half of the application: sends packets, receives packets.
//! - [`Driver`] — the half of the driver: takes what the application sends, delivers what the device received.
//! - [`bells`] — one doorbell for all channels of an application, in each direction.
//! - [`layout`] — the words and where they lie; `parts.rs` — these parts, as one side maps them.
//!
//! A channel has two segments, each with one writer. The application writes the first: packets to send, a FIFO of gather
//! records that name them, and a FIFO of empty receive buffers. The driver writes the second: received packets, a FIFO that
//! names them, how many records it is done with, and what it counts. The application maps the second for reading only.
//!
//! *Sending is sender-managed*: the application chooses where a packet lies, and uses the place again once the driver is done
//! with the record. *Receiving is receiver-managed*: the driver has all buffers at first, so that packets can come before the
//! application; it fills each again only once the application gave its number back. A packet that is longer than a buffer takes
//! several, and is published with all of them at once. A packet that finds too few empty buffers is dropped and counted: that is
//! the back-pressure of a slow application.
//!
//! The two sides do not trust each other. Each keeps its own indices, loads a word of the other once, checks it and uses the
//! copy. A word of the application that makes no sense is a [`Fault`]: the driver closes the flow, and no other notices.
//!
//! A driver may end at any moment, and another process go on in its place ([`Driver::restore`]): both segments outlive it, and its
//! own says what it was done with and which buffers it had. The application notices a pause.

mod application;
pub mod bells;
mod driver;
pub mod layout;
mod parts;

pub use application::{Application, Full, Received};
pub use bells::Bells;
#[cfg(not(loom))]
pub use driver::close_abandoned;
pub use driver::{Delivered, Driver, Fault, Outgoing};
pub use layout::{Drop, Facts, Geometry, GeometryError, State};
#[cfg(loom)]
pub use parts::model;

#[cfg(all(test, not(loom)))]
mod tests;
