//! Google's QUIC before the IETF's (versions Q044 to Q046): headers with a version, and a client's first message,
//! which is not encrypted. Earlier versions have other headers.

/// A packet whose header names a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long<'a> {
    /// The version: `Q046`.
    pub version: [u8; 4],
    /// It may contain a handshake message.
    pub is_initial: bool,
    /// The bytes behind the header.
    pub contents: &'a [u8],
}

impl<'a> Long<'a> {
    /// Reads a packet's header; `None` if it is truncated or not one of these versions.
    pub fn parse(datagram: &'a [u8]) -> Option<Long<'a>> {
        let (&[first, a, b, c, d, lengths], rest) = datagram.split_first_chunk()?;
        if first & 0xc0 != 0xc0 || [a, b, c] != *b"Q04" || !(b'4'..=b'6').contains(&d) {
            return None;
        }
        // Each half of the byte is 0, or a length minus three.
        let length = |half: u8| if half == 0 { 0 } else { usize::from(half) + 3 };
        let ids = length(lengths >> 4) + length(lengths & 0x0f);
        let contents = rest.get(ids..)?;
        Some(Long { version: [a, b, c, d], is_initial: first & 0x30 == 0, contents })
    }

    /// The client's first message of the handshake, if the packet begins with it.
    pub fn hello(&self) -> Option<Hello<'a>> {
        // The packet's number, and a digest of it.
        let frame = self.contents.get(4 + 12..)?;
        let (&kind, rest) = frame.split_first()?;
        if kind & 0x80 == 0 {
            return None;
        }
        let id_len = usize::from(kind & 3) + 1;
        let offset_len = match kind >> 2 & 7 {
            0 => 0,
            more => usize::from(more) + 1,
        };
        let mut at = id_len + offset_len;
        let mut data = rest.get(at..)?;
        if kind & 0x20 != 0 {
            let length = usize::from(u16::from_be_bytes(*data.first_chunk()?));
            at += 2;
            data = rest.get(at..)?;
            data = &data[..data.len().min(length)];
        }
        // The handshake is stream 1. A second hello begins at a later offset of it.
        let is_handshake = rest.first() == Some(&1) && rest.get(1..id_len)?.iter().all(|byte| *byte == 0);
        let (count, behind) = data.strip_prefix(b"CHLO")?.split_first_chunk()?;
        let tags = usize::from(u16::from_le_bytes(*count));
        let (tags, values) = behind.get(2..)?.split_at_checked(8 * tags)?;
        is_handshake.then_some(Hello { tags, values, from: 0 })
    }
}

/// Values of a client's first message by name, in order. A name is four bytes, padded with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    tags: &'a [u8],
    values: &'a [u8],
    from: usize,
}

impl<'a> Iterator for Hello<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.tags.split_at_checked(8)?;
        let (name, end) = tag.split_at(4);
        let end = u32::from_le_bytes(*end.first_chunk()?) as usize;
        let value = self.values.get(self.from..end)?;
        (self.tags, self.from) = (rest, end);
        let zeros = name.iter().rev().take_while(|byte| **byte == 0).count();
        Some((&name[..4 - zeros], value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hello() {
        let hello = [&b"CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x07\0\0\0"[..], b"a.orgme"].concat();
        let frame = [&[0xa0, 1, 0, hello.len() as u8][..], &hello].concat();
        let packet = [&[0xc3][..], b"Q046\x50", &[7; 8], &[0, 0, 0, 1], &[9; 12], &frame].concat();
        let long = Long::parse(&packet).unwrap();
        assert_eq!((&long.version, long.is_initial), (b"Q046", true));
        let found: Vec<_> = long.hello().unwrap().collect();
        assert_eq!(found, [(&b"SNI"[..], &b"a.org"[..]), (b"UAID", b"me")]);
        for end in 0..6 {
            assert_eq!(Long::parse(&packet[..end]), None);
        }
        assert!(Long::parse(&packet[..40]).unwrap().hello().is_none());
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), like: bool) {
            let bytes = if like { [&b"\xc3Q046\x50"[..], &bytes].concat() } else { bytes };
            if let Some(hello) = Long::parse(&bytes).and_then(|long| long.hello()) {
                prop_assert!(hello.count() <= bytes.len());
            }
        }
    }
}
