//! Keeps the sockets of unmodified programs: behind each a flow with its stack, before each a pair of unix sockets.
//!
//! ```text
//!  program ── libstreamline_sockets.so ── Ask ──▶ Desk ─▶ Host: opens flows, makes pairs
//!  program ══ end of a pair ══ bytes ══▶ Proxy ─▶ socket::net::TcpStream ══▶ driver
//! ```
//!
//! - [`Host`] — one loop for all sockets. Start reading `host.rs`.
//! - `asks.rs` — questions and answers; `place.rs` — where programs find the host; `ends.rs` — pairs of unix sockets.
//! - `interfaces.rs` — which addresses are for flows; `families.rs` — those of IPv4 and IPv6 in one socket.
//! - `policy.rs` — which sockets may become flows; `poll.rs` — what the host sleeps on.
//! - `proxy.rs` — the bytes of one connection; `datagrams.rs` — those of one UDP socket; `remains.rs` — errors of sockets that broke.
//!
//! The host outlives its program: what a program wrote before it ended is sent, acknowledged and finished. It runs with the
//! program's rights, and trusts it with nothing but its own flows: the driver checks every packet.

#![forbid(unsafe_code)]

mod asks;
mod datagrams;
mod ends;
mod families;
mod host;
mod interfaces;
mod place;
mod policy;
mod poll;
mod proxy;
mod remains;

pub use host::Host;
pub use place::Place;
pub use policy::Policy;
pub use socket_calls::VARIABLE;
