//! Flow channels: the packets of one flow between an application and the driver of its device (the Rbufs of the Nemesis
//! network stack).
//!
//! - [`Application`] — the half of the application: sends packets, receives packets.
//! - [`Driver`] — the half of the driver: takes packets from the application, delivers packets from the device.
//! - [`bells`] — one doorbell for all channels of an application, in each direction.
//! - [`layout`] — the shared words and their places; `parts.rs` — these parts, as one side maps them.
//!
//! A channel has two segments, each with one writer:
//!
//! - The application's: packets to send, a FIFO of gather records that name them, and a FIFO of empty receive buffers.
//! - The driver's: received packets, a FIFO that names them, the number of records it is done with, and its counts. The
//!   application maps this segment read-only.
//!
//! *Sending is sender-managed*: the application chooses a packet's place, and reuses it once the driver is done with
//! it.
//!
//! *Receiving is receiver-managed*: the driver has all buffers at first, so that packets can come before the
//! application does. It fills a buffer again only after the application gave back its number. A packet longer than a
//! buffer takes several, which are published together. A packet that finds too few empty buffers is dropped and
//! counted: that is the back-pressure of a slow application.
//!
//! The two sides do not trust each other. Each keeps its own indices, loads a word of the other once, checks it and
//! uses the copy. An impossible word of the application is a [`Fault`]: the driver closes that flow only.
//!
//! A driver may end at any moment, and another process may take its place ([`Driver::restore`]). Both segments outlive
//! it, and its own says which records were done and which buffers it had. The application notices a pause.

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
