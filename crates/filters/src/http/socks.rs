//! The words a client and a SOCKS proxy exchange before the connection proper begins: version 4 (and 4a) and 5, with a name
//! and password or without (RFC 1928, RFC 1929). Read over; what is asked for is not looked at.

/// How far one side is. Each step is one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socks {
    /// Version 4, client: so many bytes of command, port and address were read; three zeros begin the address.
    Four { read: u8, named: bool },
    /// Version 4, client: texts that end in a zero; so many are still to come.
    Texts { left: u8, bytes: u8 },
    /// Version 5, client: how many methods it offers.
    Offers,
    /// Version 5, server: the method it chose.
    Choice,
    /// So many bytes, then that.
    Skip { left: u8, then: Then },
    /// A length, then so many bytes, then that.
    Length(Then),
    /// Version 5: negotiation of name and password, or the request or reply.
    Message { server: bool },
    /// Version 5: so many bytes of a request or reply were read.
    Request(u8),
}

/// What comes after bytes that are read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A message of the client or the server.
    Message { server: bool },
    /// A password.
    Password,
    /// The connection proper.
    Done,
}

/// What a run of bytes was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// All of it belongs to the negotiation.
    More,
    /// So much of it does, and what follows is the connection proper.
    Done(usize),
    /// It is no SOCKS.
    No,
}

impl Socks {
    /// Reads the first byte of a side; a server speaks SOCKS only to a client that does.
    pub(super) fn begin(byte: u8, server: bool, peer_does: bool) -> Option<Socks> {
        match (byte, server) {
            (4, false) => Some(Socks::Four { read: 0, named: false }),
            (5, false) => Some(Socks::Offers),
            // Code, port and address.
            (0, true) if peer_does => Some(Socks::Skip { left: 7, then: Then::Done }),
            (5, true) if peer_does => Some(Socks::Choice),
            _ => None,
        }
    }

    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Read {
        for (at, &byte) in bytes.iter().enumerate() {
            match self.next(byte) {
                Some(Some(next)) => *self = next,
                Some(None) => return Read::Done(at + 1),
                None => return Read::No,
            }
        }
        Read::More
    }

    /// One byte: what comes next, `Some(None)` where it was the last, `None` where it does not belong there.
    fn next(self, byte: u8) -> Option<Option<Socks>> {
        Some(Some(match self {
            Socks::Four { read: 0, .. } if !matches!(byte, 1 | 2) => return None,
            // An address of 0.0.0.x says that a name follows the user's.
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
                // The port is part of what a name's length does not count.
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

    /// `rest` bytes follow the negotiation; `None` where it is none.
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
