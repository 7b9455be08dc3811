//! Interfaces that Streamline owns: for each a driver, which moves packets between the device and the channels of applications,
//! and a Flow Manager, which decides which application has which flow. The protocol stack itself lives in each application (crate `stack`).
//!
//! ```text
//!  application ══ channel ══▶ transmit ─▶ template ─▶ neighbours ─▶ outbox ─▶ device
//!  application ◀═ channel ══  flows ◀─ fragments ◀─ receive ◀──────────────── device
//!                                        └▶ arp, icmp ─▶ answers ─▶ outbox
//! ```
//!
//! - [`Networks`], [`Client`] — everything that others call. Start reading here, then `interface.rs`: one turn of work.
//! - `receive.rs` — what becomes of a frame; `flows.rs` — whose it is; `fragments.rs`, `icmp.rs`, `neighbours.rs`, `routes.rs`.
//! - `overload.rs` — drops packets of a flow that takes more than its share of receive work while others wait.
//! - `transmit.rs` — the round of the flows; `template.rs` — what headers must look like; `outbox.rs`, `rate.rs`.
//! - `manager.rs` — opens and closes flows; `ports.rs`, `users.rs` — limits of users and their ports.
//! - `thread.rs` — turns, sleep, commands; `open.rs` — the devices; `counters.rs`, `work.rs`, `limits.rs`.
//!
//! Neither applications nor neighbours are trusted. What an application writes harms its own flow alone: the driver reads each
//! shared word once, checks the copy and uses the copy. What a neighbour sends ends in exactly one counter.

#![forbid(unsafe_code)]

mod counters;
mod error;
mod flows;
mod fragments;
mod icmp;
mod interface;
mod limits;
mod manager;
mod neighbours;
mod networks;
mod open;
mod outbox;
mod overload;
mod ports;
mod rate;
mod receive;
mod routes;
mod share;
mod template;
mod thread;
mod transmit;
mod users;
mod work;

pub use error::{NetError, NetErrorKind};
pub use networks::{Client, Networks};
pub use open::Opened;

#[cfg(test)]
mod tests;
