//! Running requests as other processes see them. Each process that runs a request listens at a socket of its own. There
//! its user and root may look at its edges, replace the request, and end it.
//!
//! - [`place`] — where the sockets are, and what a request is called.
//! - [`edges`] — what a request's edges are called.
//! - [`protocol`] — one question and one answer for each connection.
//! - [`server`] — the side that runs a request. Start reading here.
//! - [`client`] — the side that asks.
//! - `rings` — rings for copies, kept while they have readers.
//! - [`watched`] — such a ring as a source, for the watching side.
//!
//! Not the daemon: it knows devices and their readers, but not what happens to the packets.

pub mod client;
pub mod edges;
pub mod place;
pub mod protocol;
mod rings;
pub mod server;
pub mod watched;

pub use server::Running;

pub(crate) fn on_one_line(request: &str) -> String {
    request.split_whitespace().collect::<Vec<_>>().join(" ")
}
