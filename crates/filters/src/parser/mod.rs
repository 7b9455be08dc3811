//! Passes blocks between processes of one user: a common prefix of requests writes them into a ring once, and each request
//! reads them from there.
//!
//! - [`outlet`] — the end of the prefix, in the process that runs it: copies each block behind a header into the ring.
//! - [`inlet`] — where the rest of a request begins: a source that reads the ring, and can be overtaken.
//! - `reading`, `streams` — read a ring, for an inlet and for the filter [`ring`](crate::ring). `told` writes one.
//!
//! Requests cannot name inlet and outlet. The facade decides which prefix runs where.
//!
//! Each block carries the facts of its stream: a copy of 80 bytes, in place of a table that both sides map. So a reader that
//! joins late or was overtaken knows whose bytes it has. No reader takes a reused stream number for the old stream, and no
//! side has to ask the other.

pub mod inlet;
pub mod outlet;
pub(crate) mod reading;
pub(crate) mod streams;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod told;

use buffer::keeper::message::WantedWriter;
use filter::ring_header::HEADER_BYTES;

/// The writer to ask a ring's keeper for: one that puts a header before each block.
pub const WITH_HEADERS: WantedWriter = WantedWriter { content: None, header_bytes: HEADER_BYTES as u32 };

/// How a reader notices missing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Continuity {
    /// Byte streams: by the position of a block's bytes in its stream.
    Bytes = 1,
    /// Messages: by the number of a block among those of its class.
    Messages = 2,
    /// Records: each is complete in itself.
    Records = 3,
    /// Frames and packets: each is complete in itself, and its class is no stream.
    Frames = 4,
}

buffer::wire_codes!(Continuity { Bytes = 1, Messages = 2, Records = 3, Frames = 4 });

impl Continuity {
    /// The continuity of a filter's output. `None`: such output is not shared here. All readers take frames and packets from
    /// the device's ring.
    pub fn of(types: filter::Types) -> Option<Continuity> {
        let is = |one| types == filter::Types::of(&[one]);
        match () {
            () if is(filter::Type::Bytes) => Some(Continuity::Bytes),
            () if is(filter::Type::Message) => Some(Continuity::Messages),
            () if is(filter::Type::Record) => Some(Continuity::Records),
            () => None,
        }
    }
}
