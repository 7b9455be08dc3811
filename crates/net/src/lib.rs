//! Interfaces that Streamline owns. Each has a driver, which moves packets between the device and the channels of applications,
//! and a Flow Manager, which assigns flows to applications. The protocol stack runs in each application (crate `stack`).
//!
//! ```text
//!  application ══ channel ══▶ transmit ─▶ template ─▶ neighbours ─▶ outbox ─▶ device
//!  application ◀═ channel ══  flows ◀─ fragments ◀─ receive ◀──────────────── device
//!                                        └▶ arp, icmp ─▶ answers ─▶ outbox
//! ```
//!
//! - [`Networks`], [`Client`] — the public API. Start reading here, then `interface.rs`: one turn of work
//! - `super_frames.rs` — cuts received super-frames; `fragmenting.rs` — cuts long answers
//! - `receive.rs` — sorts frames; `whole.rs` — a packet behind that; `flows.rs`, `flow_id.rs` — finds a frame's flow; `fragments.rs`, `icmp.rs`, `neighbours.rs`, `routes.rs`
//! - `announce.rs` — announces the interface's addresses when it comes up
//! - `tcp.rs` — segments for listeners and for closed ports; `listeners.rs`, `cookies.rs` — connections that other hosts open
//! - `connection.rs`, `quarantine.rs` — the ends of connections; `answer.rs` — headers of the interface's own packets
//! - `overload.rs` — drops packets of a flow that takes more than its share of receive work
//! - `transmit.rs` — the round of the flows; `template.rs` — rules for headers; `outbox.rs`, `rate.rs`
//! - `manager.rs`, `accept.rs` — open and close flows and listeners; `closing.rs` — the last packets of closed flows
//! - `trace.rs` — copies frames of flows; `ports.rs`, `users.rs` — limits of users and their ports
//! - `changes.rs` — other addresses and routes while flows are open; `dhcp/` — addresses of a DHCP server
//! - `sharing/` — devices that the host keeps: an XDP program selects the packets; the host has routes, neighbours and ports
//! - `process/` — the interface's process and the daemon's end of it; `restore.rs` — state for the process that comes next
//! - `arp.rs`, `ndp.rs` — neighbours' questions and answers; `ipv4.rs`, `ipv6.rs` — headers of received packets
//! - `thread.rs` — turns, sleep, commands; `open.rs` — the devices; `counters.rs`, `work.rs`, `limits.rs`
//!
//! The driver trusts neither applications nor neighbours. An application can harm only its own flow: the driver reads
//! each shared word once, checks the copy and uses the copy. Each packet of a neighbour ends in exactly one counter.

#![forbid(unsafe_code)]

mod accept;
mod announce;
mod answer;
mod arp;
mod changes;
mod client;
mod closing;
mod connection;
mod cookies;
mod counters;
mod dhcp;
mod error;
mod flow_id;
mod flows;
mod fragmenting;
mod fragments;
mod icmp;
mod interface;
mod ipv4;
mod ipv6;
mod limits;
mod listeners;
mod manager;
mod ndp;
mod neighbours;
mod networks;
mod numbers;
mod open;
mod outbox;
mod overload;
mod ports;
mod process;
mod quarantine;
mod rate;
mod receive;
mod restore;
mod routes;
mod share;
mod sharing;
mod super_frames;
mod tcp;
mod template;
mod thread;
mod trace;
mod transmit;
mod users;
mod whole;
mod work;

pub use client::Client;
pub use error::{NetError, NetErrorKind};
pub use networks::Networks;
pub use process::handle::Starter;
pub use process::news::Line;
pub use process::talk::Running;
pub use process::{Surroundings, serve};
pub use share::ShareLimits;
pub use sharing::keeper::{PortKeeper, serve as hold_ports};
pub use template::check_ns as template_check_ns;

#[cfg(test)]
mod tests;
