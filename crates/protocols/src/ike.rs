//! Messages of IKE, versions 1 (RFC 2408) and 2 (RFC 7296): their headers, and the types and bytes of payloads that
//! are not encrypted.

use packet::bytes::u32_at;

/// Types of payloads, in version 1 and in version 2.
pub mod kind {
    /// A Diffie-Hellman public value.
    pub const KEY_EXCHANGE: [u8; 2] = [4, 34];
    /// Random bytes.
    pub const NONCE: [u8; 2] = [10, 40];
    /// A notification for the other side.
    pub const NOTIFY: [u8; 2] = [11, 41];
    /// The program, or one of its features.
    pub const VENDOR: [u8; 2] = [13, 43];
    /// An encrypted payload of version 2.
    pub const ENCRYPTED: u8 = 46;
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The number that the initiator chose.
    pub initiator: [u8; 8],
    /// The number that the responder chose; zeros before that.
    pub responder: [u8; 8],
    /// 1 or 2.
    pub version: u8,
    /// The type of exchange.
    pub exchange: u8,
    /// Its payloads.
    pub payloads: Payloads<'a>,
}

/// Payloads of a message.
#[derive(Clone, Copy, Debug)]
pub struct Payloads<'a> {
    next: u8,
    rest: &'a [u8],
}

const HEADER: usize = 28;

impl<'a> Message<'a> {
    /// Reads a datagram; `None` if it is not IKE. On the port for NAT four zeros precede it (RFC 3948, 2.2).
    pub fn parse(datagram: &'a [u8]) -> Option<Message<'a>> {
        let bytes = datagram.strip_prefix(&[0; 4]).unwrap_or(datagram);
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let [next, version, exchange, flags] = *header[16..].first_chunk()?;
        let length = u32_at(header, 24)? as usize;
        let version = version >> 4;
        let initiator: [u8; 8] = *header.first_chunk()?;
        if !matches!(version, 1 | 2) || length < HEADER || length > bytes.len() || initiator == [0; 8] {
            return None;
        }
        // Version 1 encrypts all payloads or none.
        let rest = if version == 1 && flags & 1 != 0 { &[] } else { &bytes[HEADER..length] };
        let responder = *header[8..].first_chunk()?;
        Some(Message { initiator, responder, version, exchange, payloads: Payloads { next, rest } })
    }
}

impl<'a> Iterator for Payloads<'a> {
    /// The payload's type and bytes.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == 0 || self.next == kind::ENCRYPTED {
            return None;
        }
        let &[next, _, high, low] = self.rest.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let contents = self.rest.get(4..length)?;
        let kind = std::mem::replace(&mut self.next, next);
        self.rest = &self.rest[length..];
        Some((kind, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(first: u8, version: u8, flags: u8, payloads: &[u8]) -> Vec<u8> {
        let length = (HEADER + payloads.len()) as u32;
        [&[1; 8][..], &[2; 8], &[first, version, 2, flags], &[0; 4], &length.to_be_bytes(), payloads].concat()
    }

    #[test]
    fn messages() {
        let bytes = message(4, 0x10, 0, b"\x0a\0\0\x06ke\0\0\0\x05n");
        let found = Message::parse(&bytes).unwrap();
        assert_eq!((found.initiator, found.responder, found.version, found.exchange), ([1; 8], [2; 8], 1, 2));
        assert_eq!(found.payloads.collect::<Vec<_>>(), [(4, &b"ke"[..]), (10, b"n")]);
        assert!(Message::parse(&[&[0; 4], &bytes[..]].concat()).is_some());
        assert_eq!(Message::parse(&message(4, 0x10, 1, b"\0\0\0\x05x")).unwrap().payloads.count(), 0);
        assert_eq!(Message::parse(&message(46, 0x20, 0, b"\0\0\0\x05x")).unwrap().payloads.count(), 0);
        assert_eq!(Message::parse(&message(4, 0x10, 0, b"\0\0\0\x09x")).unwrap().payloads.count(), 0);
        for wrong in [&bytes[..30], &message(4, 0x30, 0, b""), &[0; 40]] {
            assert!(Message::parse(wrong).is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), first: u8) {
            let bytes = message(first, 0x20, 0, &bytes);
            prop_assert!(Message::parse(&bytes).unwrap().payloads.count() <= bytes.len());
        }
    }
}
