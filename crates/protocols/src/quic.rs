//! Initial packets of QUIC (RFC 9000, 17.2.2; RFC 9369): their plain headers, and their frames after decryption.
//! `keys` decrypts for the conversation, with the feature `quic`: the keys follow from the packets (RFC 9001, 5.2), but
//! need ciphers.

#[cfg(feature = "quic")]
pub mod conversation;
#[cfg(feature = "quic")]
mod keys;

use crate::gquic;
use packet::bytes::u32_at;

/// A version with readable Initial packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub number: u32,
    /// The salt of the keys, which also depend on the connection's identifier.
    pub salt: &'static [u8; 20],
    /// The prefix of key labels.
    pub label: &'static str,
    /// Bits 4 and 5 of the first byte of an Initial packet.
    initial: u8,
}

const SALT_1: &[u8; 20] = b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const SALT_2: &[u8; 20] = b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
const SALT_DRAFT_29: &[u8; 20] = b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";
const SALT_DRAFT_23: &[u8; 20] = b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";

/// The number of version 2.
pub const VERSION_2: u32 = 0x6b33_43cf;

impl Version {
    /// The version with this number.
    pub fn of(number: u32) -> Option<Version> {
        let (salt, label, initial) = match number {
            1 | 0xff00_0021..=0xff00_0022 => (SALT_1, "quic", 0),
            VERSION_2 => (SALT_2, "quicv2", 1),
            0xff00_001d..=0xff00_0020 => (SALT_DRAFT_29, "quic", 0),
            0xff00_0017..=0xff00_001c => (SALT_DRAFT_23, "quic", 0),
            _ => return None,
        };
        Some(Version { number, salt, label, initial })
    }
}

/// An Initial packet. Its datagram may hold further packets.
#[derive(Clone, Copy, Debug)]
pub struct Initial<'a> {
    /// Its version.
    pub version: Version,
    /// The receiver's identifier; in a client's first packet the keys derive from it.
    pub target: &'a [u8],
    /// The whole packet. Its first byte and packet number are protected, the rest is encrypted.
    pub packet: &'a [u8],
    /// Offset of the packet number.
    pub number_at: usize,
}

/// Whether a datagram begins with an Initial packet, or with a packet of Google's QUIC that names its version.
pub fn begins(datagram: &[u8]) -> bool {
    Initial::parse(datagram).is_some() || gquic::Long::parse(datagram).is_some()
}

/// The sample for header protection: its offset from the start of the packet number, and its length (RFC 9001, 5.4.2).
const SAMPLE: (usize, usize) = (4, 16);

impl<'a> Initial<'a> {
    /// Reads the packet at the start of a datagram, and returns its end; `None` if it is cut or not an Initial packet.
    pub fn parse(datagram: &'a [u8]) -> Option<(Self, usize)> {
        let first = *datagram.first()?;
        let version = Version::of(u32_at(datagram, 1)?)?;
        // Long header, fixed bit.
        if first & 0xc0 != 0xc0 || first >> 4 & 3 != version.initial {
            return None;
        }
        let mut rest = datagram.get(5..)?;
        let target = take_prefixed(&mut rest)?;
        let source = take_prefixed(&mut rest)?;
        if target.len() > 20 || source.len() > 20 {
            return None;
        }
        let token = take_number(&mut rest)?;
        rest = rest.get(usize::try_from(token).ok()?..)?;
        let length = usize::try_from(take_number(&mut rest)?).ok()?;
        let number_at = datagram.len() - rest.len();
        let end = number_at.checked_add(length)?;
        let packet = datagram.get(..end)?;
        packet.get(number_at + SAMPLE.0..number_at + SAMPLE.0 + SAMPLE.1)?;
        Some((Initial { version, target, packet, number_at }, end))
    }

    /// The sample for the protection of the packet number.
    pub fn sample(&self) -> [u8; 16] {
        let start = self.number_at + SAMPLE.0;
        self.packet.get(start..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
    }
}

fn take_prefixed<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first()?;
    let (bytes, behind) = behind.split_at_checked(usize::from(*length))?;
    *rest = behind;
    Some(bytes)
}

/// A number whose first two bits tell its length (RFC 9000, 16).
fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let (bytes, behind) = rest.split_at_checked(1 << (first >> 6))?;
    *rest = behind;
    Some(
        bytes
            .iter()
            .enumerate()
            .fold(0, |number, (place, byte)| number << 8 | u64::from(if place == 0 { byte & 0x3f } else { *byte })),
    )
}

/// Pieces of the TLS stream in a decrypted packet: offset and bytes. Ends at the first damaged frame, or one that is
/// not allowed in an Initial packet.
#[derive(Clone, Copy, Debug)]
pub struct Crypto<'a> {
    rest: &'a [u8],
}

impl<'a> Crypto<'a> {
    /// `frames`: the decrypted contents of a packet.
    pub fn new(frames: &'a [u8]) -> Self {
        Self { rest: frames }
    }

    fn acknowledgement(&mut self, has_counts: bool) -> Option<()> {
        let _largest = take_number(&mut self.rest)?;
        let _delay = take_number(&mut self.rest)?;
        let ranges = take_number(&mut self.rest)?;
        let _first = take_number(&mut self.rest)?;
        // Each range takes two bytes at least, so the frame's length bounds the loop.
        for _ in 0..ranges {
            let (_gap, _length) = (take_number(&mut self.rest)?, take_number(&mut self.rest)?);
        }
        if has_counts {
            for _ in 0..3 {
                take_number(&mut self.rest)?;
            }
        }
        Some(())
    }
}

impl<'a> Iterator for Crypto<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (kind, behind) = self.rest.split_first()?;
            self.rest = behind;
            match kind {
                // PADDING, PING.
                0 | 1 => {}
                2 | 3 => self.acknowledgement(*kind == 3)?,
                // CRYPTO.
                6 => {
                    let offset = take_number(&mut self.rest)?;
                    let length = usize::try_from(take_number(&mut self.rest)?).ok()?;
                    let (bytes, rest) = self.rest.split_at_checked(length)?;
                    self.rest = rest;
                    return Some((offset, bytes));
                }
                _ => self.rest = &[],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(first: u8, version: u32) -> Vec<u8> {
        [&[first][..], &version.to_be_bytes(), &[2, 8, 9, 1, 7], &[1, 5], &[0x40, 24], &[0xaa; 24], b"next"].concat()
    }

    #[test]
    fn packets() {
        let bytes = packet(0xc3, 1);
        let (initial, end) = Initial::parse(&bytes).unwrap();
        assert_eq!((initial.target, initial.number_at, end), (&[8, 9][..], 14, bytes.len() - 4));
        assert_eq!(initial.sample(), [0xaa; 16]);
        assert!(Initial::parse(&packet(0xd3, VERSION_2)).is_some());
        for (first, version) in [(0xd3, 1), (0xc3, VERSION_2), (0x43, 1), (0xc3, 9)] {
            assert!(Initial::parse(&packet(first, version)).is_none());
        }
        for len in 0..end {
            assert!(Initial::parse(&bytes[..len]).is_none());
        }
    }

    #[test]
    fn frames() {
        let frames =
            [&[0, 1, 2, 1, 0, 1, 0, 3, 4][..], &[6, 0x40, 5, 2, b'a', b'b', 0, 6, 0, 1, b'c', 0x1c, 6, 0, 0]].concat();
        let found: Vec<_> = Crypto::new(&frames).collect();
        assert_eq!(found, [(5, &b"ab"[..]), (0, b"c")]);
        assert_eq!(Crypto::new(&[2, 0, 0, 0xff, 0xff]).count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), like: bool) {
            prop_assert!(Crypto::new(&bytes).count() <= bytes.len());
            let bytes = if like { [&[0xc0, 0, 0, 0, 1][..], &bytes].concat() } else { bytes };
            if let Some((initial, end)) = Initial::parse(&bytes) {
                prop_assert!(end <= bytes.len() && initial.number_at < end);
            }
        }
    }
}
