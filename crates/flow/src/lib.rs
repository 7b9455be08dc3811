//! Flows of applications: an application opens a flow on an interface that the daemon owns, and its own protocol stack makes
//! and reads the packets.
//!
//! ```text
//!  application                              daemon, interface process
//!  stack ── Application ══ channel ══ Driver ── driver ── device
//!    │        (buffer::flow)                      │
//!    └────── Question / Answer ──────────▶  Flow Manager      addresses, ports, neighbours, routes
//! ```
//!
//! - [`message`] — questions and answers about interfaces and flows. Start reading here.
//! - [`host`] — the application's side: its flows and listeners, and their doorbell.
//!
//! This crate knows no protocol: packets are bytes. The daemon's policy decides about flows. Driver and Flow Manager
//! run in a process of the interface, which outlives the daemon for a while. The application then claims its flows at
//! the next daemon (`Question::Claim`).

#![forbid(unsafe_code)]

mod fitting;
pub mod host;
pub mod message;
mod trace;

pub use fitting::{FLOWS_NOT_LISTED, LISTENERS_NOT_LISTED, NEIGHBOURS_NOT_LISTED, fit};
pub use host::{Flow, Host, Listener};
pub use message::{
    ACCEPTED, Answer, BACKLOG, Change, FlowState, Granted, InterfaceState, LeaseState, ListenerState, Listening,
    NeighbourState, OpenFlow, OpenInterface, OpenListener, Question, RouteState, bits, common, holds,
};
pub use trace::{Direction, TRACE_GEOMETRY, TraceHead};
