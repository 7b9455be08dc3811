//! Blocks between processes of one user: what a prefix of requests gives is written into a ring once, and read by each of
//! the requests that go on from there.
//!
//! - [`outlet`] — the end of the prefix, in the process that runs it: copies each block behind a header into the ring.
//! - [`inlet`] — where the rest of a request begins: a source that reads the ring, and can be overtaken.
//!
//! - `reading`, `streams` — what both an inlet and the filter [`ring`](crate::ring) do to read one; `told` — to write one.
//!
//! Inlet and outlet are no filters that a request can name. Which prefix is run where is not decided here: that is for the facade.
//!
//! The facts of a stream go with each of its blocks instead of in a table that both sides map. So whoever joins late or was
//! overtaken knows whose bytes it has, no number of a stream can be met after it went to another, and nobody has to ask; it
//! costs 80 bytes to copy for each block.

pub mod inlet;
pub mod outlet;
pub(crate) mod reading;
pub(crate) mod streams;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod told;

use buffer::keeper::message::WantedWriter;
use filter::ring_header::HEADER_BYTES;

/// What a writer says to a ring's keeper of blocks behind headers.
pub const WITH_HEADERS: WantedWriter = WantedWriter { content: None, header_bytes: HEADER_BYTES as u32 };

/// How one finds out that blocks of a stream are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Continuity {
    /// Of byte streams: by the place of a block's bytes in its stream.
    Bytes = 1,
    /// Of messages: by the number of a block among those of its class.
    Messages = 2,
    /// Of records: each is whole by itself.
    Records = 3,
    /// Of frames and packets: each is whole by itself, and its class is no stream's.
    Frames = 4,
}

buffer::wire_codes!(Continuity { Bytes = 1, Messages = 2, Records = 3, Frames = 4 });

impl Continuity {
    /// Of what comes out of a filter; none where that is nothing that is shared: frames and packets are read by all from the
    /// device's ring.
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
