//! The contract of a block: packets up and down, a timer, and state that can move to another stack.
//!
//! A block never calls its neighbours. It returns, and the loop in `stack.rs` goes on to the next block.

use crate::facts::{Facts, Marks};
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing};
use crate::stream::Stream;

/// What happens to a packet after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next block gets it.
    Pass,
    /// The packet ends here, and the block keeps what it needs. This is no discard.
    Keep,
}

/// One protocol of a stack.
pub trait Block: Send {
    /// The name of the block in a stack's text.
    fn name(&self) -> &'static str;

    /// Most header bytes that [`Block::down`] puts in front of a packet. Never changes.
    fn header_bytes(&self) -> usize;

    /// Handles a packet on its way to the driver. The block adds its header with [`Outgoing::push`]. A block that
    /// sends later or in other pieces copies the payload, returns [`Step::Keep`], and sends in [`Block::tend`].
    fn down(&mut self, now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError>;

    /// Handles a packet on its way to the application: checks its header and crops it.
    fn up(&mut self, now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard>;

    /// When the block wants [`Block::tend`] called, in ns. A past time means at once; `None`: after the next packet.
    fn next(&self) -> Option<u64> {
        None
    }

    /// The block's turn, at or after its time. The block may send packets and deliver bytes of its own accord. When
    /// done, it moves [`Block::next`] on. If a packet found no room, it keeps its time, and the caller waits for room.
    fn tend(&mut self, _now: u64, _out: &mut dyn Out) {}

    /// The flow's link address, MTU or prefix changed. Packets already on their way may have the old link address.
    fn facts_changed(&mut self, _now: u64, _facts: &Facts) {}

    /// The application chose other marks for its packets. Only the block of IP writes them.
    fn set_marks(&mut self, _marks: Marks) {}

    /// The byte stream of the block; `None` if it carries packets.
    fn stream(&mut self) -> Option<&mut dyn Stream> {
        None
    }

    /// The state that a block of the same name needs to continue this flow, in the block's own format.
    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NotExported)
    }

    /// Takes state that another block exported. After an error the block is unchanged.
    fn import(&mut self, _state: &[u8]) -> Result<(), ImportError> {
        Err(ImportError::NotImported)
    }
}

/// What a block can reach in its turn: the blocks below and above it.
pub trait Out {
    /// Whether there is room for one more packet. A packet sent without room may be lost.
    fn has_room(&self) -> bool;

    /// Sends a packet through the blocks below. Copies `header`, at most [`Block::header_bytes`], but not `payload`.
    fn emit(&mut self, meta: Meta, header: &[u8], payload: &[u8]) -> Result<(), SendError>;

    /// Delivers bytes through the blocks above. The stack counts a discard.
    fn deliver(&mut self, meta: Meta, bytes: &[u8]) -> Result<(), Discard>;

    /// Counts a discard of a packet that the block took earlier.
    fn discard(&mut self, why: Discard);
}

/// Where a stack sends in its turn: the driver's end.
pub trait Line {
    /// Whether there is room for one more packet of the longest kind.
    fn has_room(&self) -> bool;

    /// Takes one packet: its headers, and its payload.
    fn emit(&mut self, header: &[u8], payload: &[u8]);
}

/// A function is a line that always has room.
impl<F: FnMut(&[u8], &[u8])> Line for F {
    fn has_room(&self) -> bool {
        true
    }

    fn emit(&mut self, header: &[u8], payload: &[u8]) {
        self(header, payload);
    }
}
