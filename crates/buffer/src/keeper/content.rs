//! The content of a ring's blocks. The keeper only stores it: the first user declares it, later users must agree.

use crate::wire_codes;

/// Content of a ring's blocks, as requests call it.
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
    /// All contents.
    pub const ALL: [Content; 5] = [Content::Frame, Content::Packet, Content::Bytes, Content::Message, Content::Record];

    /// Name in requests and messages.
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
