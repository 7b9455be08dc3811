//! Two different bytes for one place of a stream: noticed where a segment is compared with what waits, and with what was given,
//! as far as that is remembered. Whose bytes count is not said here.

use super::piece::{Piece, differing};
use buffer::BlockTable;
use filter::prelude::*;

/// What the bytes of a segment were to those of the same places that came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differs {
    /// They differ from some that were waiting.
    pub held: bool,
    /// They differ from some that were given: whoever reads the stream has others than the receiver may have.
    pub given: bool,
}

/// A place that came twice, with different bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conflict {
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

/// What the segment under way has shown.
#[derive(Debug, Default)]
pub(super) struct Conflicts {
    pub differs: Differs,
    /// The places, where somebody wants them; whoever does takes them out after each segment.
    pub found: Vec<Conflict>,
    pub are_wanted: bool,
    /// Bytes that differ.
    pub bytes: u64,
}

impl Conflicts {
    /// Another segment.
    pub fn begin(&mut self) {
        (self.differs, self.bytes) = (Differs::default(), 0);
    }

    /// Compares two pieces of one range, of which one counts; `offset` is where that range begins in its stream.
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
