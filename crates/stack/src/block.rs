//! The contract of a block: one side up, one side down, a timer, and state that can move to another stack.
//!
//! A block never calls its neighbour. It returns, and the loop in `stack.rs` goes on to the next block.

use crate::facts::Facts;
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing};
use crate::stream::Stream;

/// The way of a packet after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next block gets it.
    Pass,
    /// The block keeps the parts that it needs. The packet ends here, but is not discarded.
    Keep,
}

/// One protocol of a stack.
pub trait Block: Send {
    /// The name of the block in a stack's text.
    fn name(&self) -> &'static str;

    /// The most bytes of header that [`Block::down`] puts in front of a packet. Never changes.
    fn header_bytes(&self) -> usize;

    /// A packet on its way to the driver. The block puts its header in front by [`Outgoing::push`]. A block that sends
    /// later, or in other pieces, copies the payload, returns [`Step::Keep`], and sends by [`Block::tend`].
    fn down(&mut self, now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError>;

    /// A packet on its way to the application. The block checks its header and crops it.
    fn up(&mut self, now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard>;

    /// When the block wants a call of [`Block::tend`], in ns. A time in the past means at once; `None` means not before
    /// the next packet.
    fn next(&self) -> Option<u64> {
        None
    }

    /// The block's turn, at its time or later. It may send packets and deliver bytes that no packet caused. After its
    /// work, a block moves its [`Block::next`] on. A block without room for a packet leaves its time as it is: the
    /// caller waits for room.
    fn tend(&mut self, _now: u64, _out: &mut dyn Out) {}

    /// From now on, the flow has other facts: another link address, another MTU, another prefix of its own address,
    /// which stays. Packets that came before may still have the earlier link address.
    fn facts_changed(&mut self, _now: u64, _facts: &Facts) {}

    /// The byte stream that the block carries. `None` if it carries packets.
    fn stream(&mut self) -> Option<&mut dyn Stream> {
        None
    }

    /// The state that a block of the same name needs to go on with this flow, in a form of its own.
    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NotExported)
    }

    /// Takes the state that another block exported. An error leaves the block as it was.
    fn import(&mut self, _state: &[u8]) -> Result<(), ImportError> {
        Err(ImportError::NotImported)
    }
}

/// The exits for a block in its turn: down through the blocks below it, up through those above it.
pub trait Out {
    /// Is there room for one more packet? A packet that is sent without room may be lost.
    fn has_room(&self) -> bool;

    /// Sends a packet through the blocks below: this block's own header, which is copied into the room for headers and
    /// has at most [`Block::header_bytes`], and a payload, which is not copied.
    fn emit(&mut self, meta: Meta, header: &[u8], payload: &[u8]) -> Result<(), SendError>;

    /// Delivers bytes through the blocks above. If one of them discards the bytes, the stack counts it.
    fn deliver(&mut self, meta: Meta, bytes: &[u8]) -> Result<(), Discard>;

    /// Counts a packet that the block took, and discards in its turn.
    fn discard(&mut self, why: Discard);
}

/// The exit of a stack in its turn: the driver's end.
pub trait Line {
    /// Is there room for one more packet of the greatest length?
    fn has_room(&self) -> bool;

    /// Takes one packet: its headers, and the payload behind them.
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
