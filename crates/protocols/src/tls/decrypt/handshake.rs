//! Handshake messages out of the contents of records. Only hellos are kept: of others the type is enough.

use crate::tls::HELLO_LIMIT;

/// Types of messages (RFC 8446, 4; RFC 5246, 7.4).
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const SERVER_HELLO: u8 = 2;
pub(super) const FINISHED: u8 = 20;
pub(super) const KEY_UPDATE: u8 = 24;

/// A message under way.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// Its header, as far as it has come, and of a hello the bytes behind it.
    part: Vec<u8>,
    /// Bytes to pass over.
    skip: usize,
    /// Its type, while its rest is passed over.
    kind: u8,
}

/// A message, or nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A hello of this side, which [`Handshake::hello`] has.
    Hello,
    /// Another message, of this type.
    Other(u8),
    /// More bytes are needed.
    Unfinished,
    /// A hello is longer than any.
    TooLong,
}

impl Handshake {
    /// The hello that was read last, with its header.
    pub(super) fn hello(&self) -> &[u8] {
        &self.part
    }

    /// Reads on in `bytes`, which become the rest, up to the end of a message.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Message {
        if self.skip == 0 && self.part.len() >= 4 && self.part.len() == self.need() {
            self.part.clear();
        }
        loop {
            if self.skip > 0 {
                let used = self.skip.min(bytes.len());
                (*bytes, self.skip) = (&bytes[used..], self.skip - used);
                return if self.skip > 0 { Message::Unfinished } else { Message::Other(self.kind) };
            }
            let need = self.need();
            if need > 4 + HELLO_LIMIT {
                return Message::TooLong;
            }
            let used = (need - self.part.len()).min(bytes.len());
            let (piece, rest) = bytes.split_at(used);
            self.part.extend_from_slice(piece);
            *bytes = rest;
            if self.part.len() < need {
                return Message::Unfinished;
            }
            let &[kind, high, middle, low] = self.part.first_chunk().unwrap_or(&[0; 4]);
            if matches!(kind, CLIENT_HELLO | SERVER_HELLO) {
                if self.part.len() == self.need() {
                    return Message::Hello;
                }
                continue;
            }
            self.part.clear();
            (self.kind, self.skip) = (kind, u32::from_be_bytes([0, high, middle, low]) as usize);
            if self.skip == 0 {
                return Message::Other(kind);
            }
        }
    }

    /// The length that `part` needs: that of a header, or of a whole hello.
    fn need(&self) -> usize {
        match self.part.first_chunk() {
            Some(&[CLIENT_HELLO | SERVER_HELLO, high, middle, low]) => {
                4 + u32::from_be_bytes([0, high, middle, low]) as usize
            }
            _ => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<Message> {
        let mut handshake = Handshake::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match handshake.next(&mut rest) {
                    Message::Unfinished => {}
                    // The caller gives up the connection.
                    Message::TooLong => return [found, vec![Message::TooLong]].concat(),
                    message => found.push(message),
                }
            }
        }
        found
    }

    #[test]
    fn messages_however_they_are_cut() {
        let bytes = [&[1, 0, 0, 3, 7, 7, 7][..], &[14, 0, 0, 0], &[11, 0, 1, 0], &[9; 256], &[20, 0, 0, 1, 5]].concat();
        let expected = [Message::Hello, Message::Other(14), Message::Other(11), Message::Other(20)];
        for size in [1, 2, 3, 5, 300] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(read(&pieces), expected, "{size}");
        }
        // The header tells that it is too long.
        assert_eq!(read(&[&[2, 1, 0]]), []);
        assert_eq!(read(&[&[2, 1, 0, 1]]), [Message::TooLong]);
        assert_eq!(read(&[&[2, 1, 0, 1, 0]]), [Message::TooLong]);
    }
}
