//! Frames of HTTP/2 (RFC 9113, 4 and 6): their headers, and their contents without padding and priorities.
//! [`hpack`](crate::hpack) decodes header fields. Streams are not tracked.

mod conversation;
pub mod table;

pub use conversation::Conversation;
pub(crate) use conversation::Scratch;

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub mod kind {
    /// Part of a body.
    pub const DATA: u8 = 0;
    /// Header fields.
    pub const HEADERS: u8 = 1;
    /// The priority of a stream.
    pub const PRIORITY: u8 = 2;
    /// Ends a stream early.
    pub const RST_STREAM: u8 = 3;
    /// Settings of the sender.
    pub const SETTINGS: u8 = 4;
    /// Announces a request that the server answers unasked.
    pub const PUSH_PROMISE: u8 = 5;
    /// Ends the connection.
    pub const GOAWAY: u8 = 7;
    /// Allows the peer to send more.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More header fields.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// The last frame of the stream in this direction.
    pub const END_STREAM: u8 = 1;
    /// The last frame of its header fields.
    pub const END_HEADERS: u8 = 4;
    /// The contents begin with the length of the padding.
    pub const PADDED: u8 = 8;
    /// The contents contain a priority.
    pub const PRIORITY: u8 = 32;
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the contents.
    pub length: usize,
    /// One of [`kind`], or another.
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl Header {
    /// Length of a header.
    pub const BYTES: usize = 9;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Header::BYTES]) -> Header {
        let [high, middle, low, kind, flags, a, b, c, d] = *bytes;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        Header { length, kind, flags, stream: u32::from_be_bytes([a & 0x7f, b, c, d]) }
    }

    /// Whether this flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The header fields in the contents of HEADERS, PUSH_PROMISE or CONTINUATION, and the stream that PUSH_PROMISE
    /// announces. `None` if lengths contradict each other.
    pub fn fields<'a>(&self, contents: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let (mut rest, mut promised) = (contents, 0);
        if self.kind == kind::CONTINUATION {
            return Some((rest, promised));
        }
        if self.has(flag::PADDED) {
            let (padding, behind) = rest.split_first()?;
            rest = &behind[..behind.len().checked_sub(usize::from(*padding))?];
        }
        if self.kind == kind::PUSH_PROMISE {
            let (stream, behind) = rest.split_first_chunk()?;
            (promised, rest) = (u32::from_be_bytes(*stream) & 0x7fff_ffff, behind);
        } else if self.has(flag::PRIORITY) {
            rest = rest.get(5..)?;
        }
        Some((rest, promised))
    }
}

/// Whether these bytes can begin the first frame of a server.
pub fn is_settings(bytes: &[u8]) -> bool {
    bytes.first_chunk().map(Header::parse).is_some_and(|header| {
        header.kind == kind::SETTINGS
            && header.flags <= 1
            && header.stream == 0
            && header.length.is_multiple_of(6)
            && header.length <= 120
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let header = Header::parse(&[0, 1, 2, 1, 0x2c, 0x80, 0, 0, 3]);
        assert_eq!(header, Header { length: 258, kind: kind::HEADERS, flags: 0x2c, stream: 3 });
        assert_eq!(header.fields(&[2, 0, 0, 0, 0, 9, 7, 8, 0, 0]), Some((&[7, 8][..], 0)));
        for cut in [&[][..], &[9, 1, 2], &[0, 0, 0]] {
            assert_eq!(header.fields(cut), None);
        }
        let promise = Header { kind: kind::PUSH_PROMISE, flags: 0, ..header };
        assert_eq!(promise.fields(&[0x80, 0, 0, 2, 5]), Some((&[5][..], 2)));
        let more = Header { kind: kind::CONTINUATION, ..header };
        assert_eq!(more.fields(&[1]), Some((&[1][..], 0)));
    }
}
