//! WebSockets (RFC 6455): headers of frames, and the mask over a client's data. The [`Conversation`] joins frames to messages
//! and decodes them (RFC 7692).

mod conversation;

use crate::conversation::{About, Kind, Words};
pub use conversation::{Conversation, KEPT_BYTES, UNSEEN};

/// A fact about a message or, behind the first one, about a frame of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The type.
    Opcode,
    /// The upper four bits of the header's first byte.
    Flags,
    /// The mask over the contents, which clients have.
    Mask,
    /// How the contents are coded.
    Coding,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("websocket.opcode", "websocket.opcode", Kind::Word(OPCODES)),
        About::both("", "websocket.flags", Kind::Number),
        About::both("websocket.mask", "websocket.mask", Kind::Number),
        About::both("websocket.coding", "", Kind::Text),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// The names of opcodes (RFC 6455, 5.2).
pub const OPCODES: Words =
    &[("continuation", 0), ("text", 1), ("binary", 2), ("connection_close", 8), ("ping", 9), ("pong", 10)];

/// Types of frames.
pub mod opcode {
    /// A later frame of a message.
    pub const CONTINUATION: u8 = 0;
    /// Text.
    pub const TEXT: u8 = 1;
    /// This and higher opcodes are control frames. They may stand between the frames of a message.
    pub const CONTROL: u8 = 8;
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The upper four bits of its first byte: [`FIN`], [`COMPRESSED`], and two without a meaning.
    pub flags: u8,
    /// One of [`opcode`], or another.
    pub opcode: u8,
    /// The mask over the contents.
    pub mask: Option<[u8; 4]>,
    /// Length of the contents.
    pub length: u64,
    /// Length of the header itself.
    pub bytes: usize,
}

/// The frame is the last of its message.
pub const FIN: u8 = 0x80;
/// The message is compressed (RFC 7692, 6); set on its first frame.
pub const COMPRESSED: u8 = 0x40;

impl Header {
    /// Length of the longest header.
    pub const MOST_BYTES: usize = 14;

    /// Reads the header at the start of `bytes`; `None` if more bytes must come.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let [first, second, rest @ ..] = bytes else { return None };
        let (length, behind) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 2),
            127 => (u64::from_be_bytes(*rest.first_chunk()?), 8),
            short => (u64::from(short), 0),
        };
        let mask = match second & 0x80 {
            0 => None,
            _ => Some(*rest.get(behind..)?.first_chunk()?),
        };
        let bytes = 2 + behind + if mask.is_some() { 4 } else { 0 };
        Some(Header { flags: first & 0xf0, opcode: first & 0x0f, mask, length, bytes })
    }

    /// Whether it is the last frame of its message.
    pub fn is_last(&self) -> bool {
        self.flags & FIN != 0
    }

    /// Whether it is a control frame.
    pub fn is_control(&self) -> bool {
        self.opcode >= opcode::CONTROL
    }

    /// Copies contents without their mask. They stand at `place` in the frame.
    pub fn unmask_copy(&self, place: u64, contents: &[u8], to: &mut [u8]) {
        let mut mask = self.mask.unwrap_or_default();
        mask.rotate_left((place % 4) as usize);
        for (to, bytes) in to.chunks_mut(4).zip(contents.chunks(4)) {
            to.iter_mut().zip(bytes).zip(mask).for_each(|((to, byte), mask)| *to = byte ^ mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of RFC 6455, 5.7.
    #[test]
    fn frames() {
        let header = Header::parse(b"\x81\x05Hello").unwrap();
        assert_eq!(header, Header { flags: FIN, opcode: opcode::TEXT, mask: None, length: 5, bytes: 2 });
        let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        let header = Header::parse(masked).unwrap();
        assert_eq!((header.mask, header.length, header.bytes), (Some([0x37, 0xfa, 0x21, 0x3d]), 5, 6));
        for from in 0..5 {
            let mut contents = vec![0; 5 - from];
            header.unmask_copy(from as u64, &masked[6 + from..], &mut contents);
            assert_eq!(contents, b"Hello"[from..]);
        }
        assert_eq!(Header::parse(b"\x82\x7e\x01\x00").unwrap().length, 256);
        assert_eq!(Header::parse(b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00").unwrap().length, 65536);
        assert!(Header::parse(b"\x89\x05").unwrap().is_control());
        for cut in [&b""[..], b"\x81", b"\x82\x7e\x01", b"\x82\x7f\0\0\0\0\0\0\0", b"\x81\x85\x37\xfa\x21"] {
            assert_eq!(Header::parse(cut), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Some(header) = Header::parse(&bytes) {
                prop_assert!(header.bytes <= bytes.len() && header.bytes <= Header::MOST_BYTES);
            }
        }
    }
}
