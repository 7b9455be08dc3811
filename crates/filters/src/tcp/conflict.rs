//! Different bytes for one place of a stream. They are noticed when a segment is compared with data that waits, or
//! with remembered data that was given. Which bytes count is decided elsewhere.

use super::piece::{Piece, differing};
use buffer::BlockTable;
use filter::prelude::*;

/// How a segment's bytes compare with earlier ones of the same places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differs {
    /// They differ from bytes that waited.
    pub held: bool,
    /// They differ from bytes that were given: the stream's reader may have other bytes than the receiver.
    pub given: bool,
}

/// A place that came twice, with different bytes.
#[derive(Clone, Copy, Debug)]
pub struct Conflict {
    pub class: Class,
    /// Bytes of the stream before it.
    pub offset: u64,
    /// How many of the bytes differ.
    pub bytes: u64,
    /// The bytes that count.
    pub taken: Descriptor,
    /// The bytes that do not.
    pub other: Descriptor,
}

/// The findings of the current segment.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    pub differs: Differs,
    /// The places, if `are_wanted`; the caller takes them after each segment.
    pub found: Vec<Conflict>,
    pub are_wanted: bool,
    pub bytes: u64,
}

impl Conflicts {
    /// Forgets the findings of the last segment.
    pub fn begin(&mut self) {
        (self.differs, self.bytes) = (Differs::default(), 0);
    }

    /// Compares two pieces of one range, of which `taken` counts. `offset`: where the range begins in the stream.
    pub fn see(&mut self, class: Class, offset: u64, taken: &Piece, other: &Piece, rings: &BlockTable) -> bool {
        let bytes = differing(taken, other, rings);
        if bytes == 0 {
            return false;
        }
        self.bytes += bytes;
        if self.are_wanted {
            self.found.push(Conflict { class, offset, bytes, taken: taken.block, other: other.block });
        }
        true
    }
}
