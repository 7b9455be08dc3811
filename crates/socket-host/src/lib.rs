//! Keeps the sockets of unmodified programs: each has a flow with its stack, and a pair of unix sockets to the program.
//!
//! ```text
//!  program ── libstreamline_sockets.so ── Ask ──▶ Desk ─▶ Host: opens flows, makes pairs
//!  program ══ end of a pair ══ bytes ══▶ Proxy ─▶ socket::net::TcpStream ══▶ driver
//! ```
//!
//! - [`Host`] — one loop for all sockets. Start reading `host.rs`
//! - `asks.rs` — questions and answers; `address.rs` — how programs find the host; `ends.rs` — pairs of unix sockets
//! - `interfaces.rs` — the addresses for flows; `families.rs` — IPv4 and IPv6 in one socket
//! - `policy.rs` — selects the sockets that become flows; `doors.rs` — where connections come in; `poll.rs` — the
//!   host's sleep
//! - `proxy.rs` — the bytes of one connection; `datagrams.rs` — those of one UDP socket; `settings.rs` — options of
//!   sockets; `remains.rs` — errors of broken sockets
//!
//! The host outlives its program: bytes that the program wrote before its end are sent, acknowledged and finished. The
//! host has the program's rights, and can only harm its own flows: the driver checks every packet.

#![forbid(unsafe_code)]

mod address;
mod asks;
mod datagrams;
mod doors;
mod ends;
mod families;
mod host;
mod interfaces;
mod policy;
mod poll;
mod proxy;
mod remains;
mod settings;

pub use address::HostAddress;
pub use host::Host;
pub use policy::Policy;
pub use socket_calls::VARIABLE;
