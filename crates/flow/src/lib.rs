//! Flows of applications on interfaces of the daemon; the application's own stack makes and reads the packets.
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
//! - `trace` — the form of a flow's traced frames; `fitting` — states that fit into one packet.
//!
//! Packets are only bytes here. The daemon's policy decides about flows. Driver and Flow Manager run in the
//! interface's process, which outlives the daemon: applications claim their flows at the next one (`Question::Claim`).

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
