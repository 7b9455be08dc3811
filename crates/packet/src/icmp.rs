//! ICMP and ICMPv6 headers (RFC 792, RFC 4443), which share their first eight bytes. Not the messages' bodies.

use crate::malformed::Malformed;

/// ICMP echo request.
pub const ECHO_REQUEST: u8 = 8;
/// ICMP echo reply.
pub const ECHO_REPLY: u8 = 0;
/// ICMPv6 echo request.
pub const ECHO_REQUEST_V6: u8 = 128;
/// ICMPv6 echo reply.
pub const ECHO_REPLY_V6: u8 = 129;

/// An ICMP message with complete type, code and checksum.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; 4],
    rest: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks that four bytes are there; `bytes` begin at the header.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Malformed::TruncatedIcmp)?;
        Ok(Self { header, rest })
    }

    /// Type: 0 to 127 are errors in ICMPv6.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Code, within the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// Identifier and sequence number of an echo message; `None` for other types, or if they were not captured.
    #[inline]
    pub fn echo(&self, version: u8) -> Option<(u16, u16)> {
        match (version, self.kind()) {
            (4, ECHO_REQUEST | ECHO_REPLY) | (6, ECHO_REQUEST_V6 | ECHO_REPLY_V6) => {
                let [a, b, c, d] = *self.rest.first_chunk()?;
                Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let check = |bytes: &[u8], version: u8, expected: Option<(u16, u16)>| {
            let packet = Packet::new_checked(bytes).unwrap();
            assert_eq!((packet.kind(), packet.code(), packet.echo(version)), (bytes[0], bytes[1], expected));
        };
        check(&[8, 0, 1, 2, 0, 7, 0, 1], 4, Some((7, 1)));
        check(&[8, 0, 1, 2, 0, 7, 0, 1], 6, None);
        check(&[129, 0, 1, 2, 0, 7, 0, 2], 6, Some((7, 2)));
        check(&[129, 0, 1, 2, 0, 7, 0], 6, None);
        check(&[3, 1, 0, 0], 4, None);
        assert_eq!(Packet::new_checked(&[3, 1, 0]).unwrap_err(), Malformed::TruncatedIcmp);
    }
}
