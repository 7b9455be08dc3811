//! IPv6 headers and the chain of extension headers (RFC 8200). Does not reassemble fragments.

use std::net::Ipv6Addr;

use crate::bytes::chunk_at;
use crate::malformed::Malformed;

/// Most extension headers in one packet. The order in RFC 8200, 4.1 has seven; floods of them are an attack.
pub const EXTENSION_LIMIT: u32 = 32;

/// Hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Routing.
pub const ROUTING: u8 = 43;
/// Fragment.
pub const FRAGMENT: u8 = 44;
/// Authentication header (RFC 4302), which IPv4 has too.
pub const AUTHENTICATION: u8 = 51;
/// Nothing follows.
pub const NO_NEXT_HEADER: u8 = 59;
/// Destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

/// An IPv6 packet with a complete fixed header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; Packet::HEADER_BYTES],
}

impl<'a> Packet<'a> {
    /// Length of the fixed header.
    pub const HEADER_BYTES: usize = 40;

    /// Checks the version; `bytes` begin at the header.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let packet = Self { header: bytes.first_chunk().ok_or(Malformed::TruncatedIpv6)? };
        if packet.header[0] >> 4 != 6 {
            return Err(Malformed::IpVersion);
        }
        Ok(packet)
    }

    /// Bytes behind the fixed header; 0 for jumbograms and with segmentation offload.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// Protocol behind the fixed header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        // The header has 40 bytes, so 16 at offset 8 exist.
        Ipv6Addr::from(*chunk_at::<16>(self.header, 8).unwrap_or(&[0; 16]))
    }

    /// Destination address.
    #[inline]
    pub fn target(&self) -> Ipv6Addr {
        Ipv6Addr::from(*chunk_at::<16>(self.header, 24).unwrap_or(&[0; 16]))
    }
}

/// A fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of this fragment in the packet, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Shared by the fragments of one packet.
    pub identification: u32,
    /// Protocol at the start of the fragmented part.
    pub next_header: u8,
    /// Offset of the fragmented bytes, counted as the walk counts.
    pub start: usize,
}

/// The end of a walk over extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The first protocol that is not an extension header.
    pub protocol: u8,
    /// Offset of its header.
    pub offset: usize,
    /// The fragment header of a fragment. `None` for a whole packet, also for an atomic fragment (RFC 6946).
    pub fragment: Option<Fragment>,
    /// The payload length of a jumbogram (RFC 2675).
    pub jumbo_len: Option<u32>,
}

/// Walks the extension headers in `bytes` from `offset`, where there is a header of type `protocol`.
///
/// The walk ends at ESP, which hides the rest, at a later fragment, and at a fragment header inside a fragment.
pub fn walk(bytes: &[u8], offset: usize, protocol: u8) -> Result<Chain, Malformed> {
    let mut chain = Chain { protocol, offset, fragment: None, jumbo_len: None };
    for _ in 0..=EXTENSION_LIMIT {
        let unit_bytes = match chain.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => 8,
            AUTHENTICATION => 4,
            FRAGMENT if chain.fragment.is_none() => 0,
            _ => return Ok(chain),
        };
        let header = chunk_at::<8>(bytes, chain.offset).ok_or(Malformed::TruncatedIpv6Extension)?;
        if unit_bytes == 0 {
            let [next, _, high, low, identification @ ..] = *header;
            let field = u16::from_be_bytes([high, low]);
            let (offset, more) = (field & 0xfff8, field & 1 == 1);
            chain.protocol = next;
            chain.offset += 8;
            if offset != 0 || more {
                let identification = u32::from_be_bytes(identification);
                chain.fragment =
                    Some(Fragment { offset, more, identification, next_header: next, start: chain.offset });
            }
            if offset != 0 {
                return Ok(chain);
            }
        } else {
            // Length without the first 8 bytes, in units of 8 (authentication header: 4).
            let length = 8 + usize::from(header[1]) * unit_bytes;
            let whole = bytes.get(chain.offset..chain.offset + length).ok_or(Malformed::TruncatedIpv6Extension)?;
            if chain.protocol == HOP_BY_HOP && chain.jumbo_len.is_none() {
                chain.jumbo_len = jumbo_option(&whole[2..]);
            }
            chain.protocol = header[0];
            chain.offset += length;
        }
    }
    Err(Malformed::TooManyIpv6Extensions)
}

/// Skips an authentication header (RFC 4302, 2), which IPv4 can have too. Returns the next protocol and its offset.
pub(crate) fn skip_authentication(bytes: &[u8], offset: usize) -> Result<(u8, usize), Malformed> {
    let [next, length, ..] = *chunk_at::<8>(bytes, offset).ok_or(Malformed::TruncatedIpv6Extension)?;
    let end = offset + 8 + usize::from(length) * 4;
    if end > bytes.len() {
        return Err(Malformed::TruncatedIpv6Extension);
    }
    Ok((next, end))
}

/// RFC 2675, 2: option 0xC2 with a 4-byte length.
fn jumbo_option(mut options: &[u8]) -> Option<u32> {
    loop {
        options = match *options {
            [0xc2, 4, a, b, c, d, ..] => return Some(u32::from_be_bytes([a, b, c, d])),
            // Pad1 is the only option without a length.
            [0, ..] => &options[1..],
            [_, length, ref rest @ ..] => rest.get(usize::from(length)..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains() {
        let check = |bytes: &[u8], first: u8, expected: Result<(u8, usize), Malformed>| {
            assert_eq!(walk(bytes, 0, first).map(|chain| (chain.protocol, chain.offset)), expected);
        };
        check(&[], 6, Ok((6, 0)));
        check(&[], 50, Ok((50, 0)));
        check(&[], NO_NEXT_HEADER, Ok((59, 0)));
        check(&[6, 0, 0, 0, 0, 0, 0, 0], DESTINATION_OPTIONS, Ok((6, 8)));
        check(&[60, 0, 0, 0, 0, 0, 0, 0, 17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, Ok((17, 24)));
        check(&[17, 1, 0, 0, 0, 0, 0, 0], ROUTING, Err(Malformed::TruncatedIpv6Extension));
        check(&[17, 1, 0], ROUTING, Err(Malformed::TruncatedIpv6Extension));
        check(&[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], AUTHENTICATION, Ok((6, 12)));
        // Atomic fragment: a whole packet, so the walk continues.
        check(&[60, 0, 0, 0, 1, 2, 3, 4, 6, 0, 0, 0, 0, 0, 0, 0], FRAGMENT, Ok((6, 16)));
        // Later fragment: the bytes that look like destination options are payload.
        check(&[60, 0, 0, 8, 1, 2, 3, 4, 6, 0, 0, 0, 0, 0, 0, 0], FRAGMENT, Ok((60, 8)));
        check(&[0; 8 * 40], HOP_BY_HOP, Err(Malformed::TooManyIpv6Extensions));
    }

    #[test]
    fn fragment_fields() {
        let chain = walk(&[17, 0, 0x05, 0xa9, 0, 0, 0, 7], 0, FRAGMENT).unwrap();
        let expected = Fragment { offset: 1448, more: true, identification: 7, next_header: 17, start: 8 };
        assert_eq!(chain.fragment, Some(expected));
    }

    #[test]
    fn jumbogram() {
        let chain = walk(&[6, 0, 0xc2, 4, 0, 1, 0, 2], 0, HOP_BY_HOP).unwrap();
        assert_eq!(chain.jumbo_len, Some(65_538));
        assert_eq!(jumbo_option(&[0, 1, 1, 9, 0xc2, 4, 0, 0, 0, 1]), Some(1));
        assert_eq!(jumbo_option(&[5, 200, 1]), None);
        assert_eq!(jumbo_option(&[0xc2]), None);
    }
}
