//! HTTP/1: the parts of its messages. As tolerant as the most tolerant receiver, because whatever one receiver accepts is
//! a message.
//!
//! - [`start`], [`head`]: first line, fields; [`asked`]: requests that wait for their response; [`uri`]: targets in
//!   normal form.
//! - [`chunks`]: the chunked coding; [`decode`]: gzip, deflate, brotli and Zstandard; [`coded`]: the same for callers that
//!   store bodies.
//! - [`body`]: framing and content of a body; [`reading`]: how other clients read it; [`facts`]: what a message says;
//!   [`shared`]: limits and memory of all connections.
//! - [`socks`]: a SOCKS handshake before the first message.

#![expect(missing_docs, reason = "the filter http has the connection, and uses all parts")]

pub mod asked;
pub mod body;
pub mod chunks;
pub mod coded;
pub mod decode;
pub mod facts;
mod format;
pub mod head;
mod lzma;
pub mod reading;
pub mod shared;
pub mod socks;
pub mod start;
pub mod uri;
mod zstd;

pub use facts::Fact;
