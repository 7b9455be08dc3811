//! What the blocks of a ring are. The keeper only keeps the word: the first user says it, and the second one may not
//! contradict.

use crate::wire_codes;

/// What the blocks of a ring are, as requests call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// Frames of the link layer.
    Frame = 1,
    /// Packets without a link layer.
    Packet = 2,
    /// Pieces of byte streams.
    Bytes = 3,
    /// Pieces of messages.
    Message = 4,
    /// Records.
    Record = 5,
}

wire_codes!(Content { Frame = 1, Packet = 2, Bytes = 3, Message = 4, Record = 5 });

impl Content {
    /// All of them.
    pub const ALL: [Content; 5] = [Content::Frame, Content::Packet, Content::Bytes, Content::Message, Content::Record];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Content::Frame => "frame",
            Content::Packet => "packet",
            Content::Bytes => "bytes",
            Content::Message => "message",
            Content::Record => "record",
        }
    }
}
