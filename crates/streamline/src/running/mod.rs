//! Running requests as others see them: each process that runs one listens at a socket of its own, where its user and root
//! may look at its edges, put another request in its place, and end it.
//!
//! - [`place`] — where those sockets are, and what a request is called.
//! - [`edges`] — what the edges of a request are called.
//! - [`protocol`] — what is said: one question and one answer a connection.
//! - [`server`] — the side of who runs a request. Start reading here.
//! - [`client`] — the side of who asks.
//! - `rings` — rings for copies, kept as long as somebody reads them.
//! - [`watched`] — such a ring as a source, for who watches.
//!
//! Not the daemon: that knows devices and their readers, and nothing of what becomes of the packets.

pub mod client;
pub mod edges;
pub mod place;
pub mod protocol;
mod rings;
pub mod server;
pub mod watched;

pub use server::Running;

/// The text of a request as people are shown it.
pub(crate) fn on_one_line(request: &str) -> String {
    request.split_whitespace().collect::<Vec<_>>().join(" ")
}
