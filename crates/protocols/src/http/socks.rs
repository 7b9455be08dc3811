//! The negotiation of a client with a SOCKS proxy: versions 4, 4a and 5, with or without name and password (RFC 1928,
//! RFC 1929). It is skipped; its contents are not recorded.

use crate::proxy::{Read, read_each};

/// The state of one side. Each step reads one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socks {
    /// Version 4, client: in command, port and address. `read`: bytes read; `named`: the address has only zeros so
    /// far.
    Four { read: u8, named: bool },
    /// Version 4, client: in the zero-terminated texts, of which `left` are still to come.
    Texts { left: u8, bytes: u8 },
    /// Version 5, client: the number of methods it offers.
    Offers,
    /// Version 5, server: the method it chose.
    Choice,
    /// `left` bytes to skip, then `then`.
    Skip { left: u8, then: Then },
    /// A length, that many bytes to skip, then this.
    Length(Then),
    /// Version 5: negotiation of name and password, or the request or reply.
    Message { server: bool },
    /// Version 5: in a request or reply, with this many bytes read.
    Request(u8),
}

/// The state after skipped bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// A message of the client or the server.
    Message { server: bool },
    /// A password.
    Password,
    /// The proxied connection.
    Done,
}

impl Socks {
    /// Reads the first byte of a side. A server speaks SOCKS only to a client that does.
    pub fn begin(byte: u8, server: bool, peer_does: bool) -> Option<Socks> {
        match (byte, server) {
            (4, false) => Some(Socks::Four { read: 0, named: false }),
            (5, false) => Some(Socks::Offers),
            // Code, port and address.
            (0, true) if peer_does => Some(Socks::Skip { left: 7, then: Then::Done }),
            (5, true) if peer_does => Some(Socks::Choice),
            _ => None,
        }
    }

    /// Reads more bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Read {
        read_each(self, bytes, Socks::next)
    }

    /// The state behind a byte: see [`read_each`].
    fn next(self, byte: u8) -> Option<Option<Socks>> {
        Some(Some(match self {
            Socks::Four { read: 0, .. } if !matches!(byte, 1 | 2) => return None,
            // An address of 0.0.0.x means that a host name follows the user's name.
            Socks::Four { read: 6, named } => Socks::Texts { left: 1 + u8::from(named && byte != 0), bytes: 0 },
            Socks::Four { read, named } => {
                let named = if read == 3 { byte == 0 } else { named && byte == 0 };
                Socks::Four { read: read + 1, named }
            }
            Socks::Texts { left: 1, .. } if byte == 0 => return Some(None),
            Socks::Texts { left, .. } if byte == 0 => Socks::Texts { left: left - 1, bytes: 0 },
            Socks::Texts { left, bytes } => Socks::Texts { left, bytes: bytes.checked_add(1)? },
            Socks::Offers if byte == 0 => return None,
            Socks::Offers => Socks::Skip { left: byte, then: Then::Message { server: false } },
            Socks::Choice if matches!(byte, 0 | 2) => Socks::Message { server: true },
            Socks::Choice => return None,
            Socks::Skip { left: 0 | 1, then } => return Some(then.begin()),
            Socks::Skip { left, then } => Socks::Skip { left: left - 1, then },
            Socks::Length(then) if byte == 0 => return Some(then.begin()),
            Socks::Length(then) => Socks::Skip { left: byte, then },
            Socks::Message { server: true } if byte == 1 => {
                Socks::Skip { left: 1, then: Then::Message { server: true } }
            }
            Socks::Message { server: false } if byte == 1 => Socks::Length(Then::Password),
            Socks::Message { .. } if byte == 5 => Socks::Request(0),
            Socks::Message { .. } => return None,
            Socks::Request(2) => match byte {
                1 => Socks::Skip { left: 4 + 2, then: Then::Done },
                4 => Socks::Skip { left: 16 + 2, then: Then::Done },
                // The length of a name does not include the port.
                3 => Socks::Request(3),
                _ => return None,
            },
            Socks::Request(3) => Socks::Skip { left: byte.checked_add(2)?, then: Then::Done },
            Socks::Request(read) => Socks::Request(read + 1),
        }))
    }
}

impl Then {
    fn begin(self) -> Option<Socks> {
        match self {
            Then::Message { server } => Some(Socks::Message { server }),
            Then::Password => Some(Socks::Length(Then::Message { server: false })),
            Then::Done => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rest`: bytes after the negotiation; `None` if `bytes` are not SOCKS.
    fn check(bytes: &[u8], server: bool, rest: Option<usize>) {
        for split in 1..=bytes.len() {
            let found = Socks::begin(bytes[0], server, true).and_then(|mut socks| match socks.read(&bytes[1..split]) {
                Read::Done(used) => Some(bytes.len() - 1 - used),
                Read::More => match socks.read(&bytes[split..]) {
                    Read::Done(used) => Some(bytes.len() - split - used),
                    Read::More | Read::No => None,
                },
                Read::No => None,
            });
            assert_eq!(found, rest, "{bytes:?} at {split}");
        }
    }

    #[test]
    fn negotiations() {
        check(b"\x04\x01\x00\x50\x5d\xb8\xd8\x77\x00GET", false, Some(3));
        check(b"\x04\x01\x00\x50\x00\x00\x00\x01me\0www.example.com\0GET", false, Some(3));
        check(b"\x00\x5a\xdf\xb2\x0a\xb4\x9c\xf9HTTP", true, Some(4));
        check(b"\x05\x02\x00\x01\x05\x01\x00\x01\x5d\xb8\xd8\x77\x00\x50GET", false, Some(3));
        check(b"\x05\x01\x02\x01\x02me\x04word\x05\x01\x00\x03\x09a.exampleXXGET", false, Some(3));
        check(b"\x05\x00\x05\x00\x00\x04aaaabbbbccccddddXXHTTP", true, Some(4));
        check(b"\x05\x02\x01\x00\x05\x00\x00\x01\x0a\xb4\x9c\xf9\x81\xbeHTTP", true, Some(4));
        check(b"\x05\x00\x0b\x03\x10\x00", false, None);
        check(b"\x05\xff", true, None);
        check(b"\x04\x09", false, None);
        check(b"GET", false, None);
    }
}
