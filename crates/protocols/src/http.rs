//! HTTP/1. As tolerant as the most tolerant receiver, because whatever one receiver accepts is a message.
//!
//! - [`Conversation`]: a connection: where messages begin, which response answers which request. Start reading there.
//! - `side`: the state of one direction; `asked`: requests that wait for their response; `socks`: a SOCKS handshake before
//!   the first message.
//! - `start`, `head`: first line, fields; [`uri`]: targets in normal form; `facts`: what a message says.
//! - `body`: framing and content of a body; `chunks`: the chunked coding; `decode`: gzip, deflate, brotli and Zstandard;
//!   `reading`: how other clients read it, with `coded`.
//! - [`upgrade`]: what stands before another protocol that begins behind HTTP/1.
//! - [`shared`]: limits and memory of all connections.

pub(crate) mod asked;
pub(crate) mod body;
mod chunks;
mod coded;
mod conversation;
pub(crate) mod decode;
pub(crate) mod facts;
mod format;
pub(crate) mod framing;
pub(crate) mod head;
mod lzma;
pub(crate) mod reading;
pub mod shared;
mod side;
mod socks;
pub(crate) mod start;
mod step;
pub mod upgrade;
pub mod uri;
mod zstd;

pub use asked::{Method, Question};
pub use conversation::{Conversation, Input, NO_HEAD};
pub use facts::Fact;
pub use head::fields;
pub use start::{StartLine, cut_line, is_interim, start_line, trim, without_end};
