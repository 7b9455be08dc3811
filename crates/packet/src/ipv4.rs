//! IPv4 headers (RFC 791). Does not reassemble fragments or read options.

use std::net::Ipv4Addr;

use crate::malformed::Malformed;

/// An IPv4 packet with a complete header and consistent lengths.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; Packet::HEADER_BYTES],
}

impl<'a> Packet<'a> {
    /// Length of the header without options.
    pub const HEADER_BYTES: usize = 20;

    /// Checks version, header length and total length. `bytes` begin at the header and may be cut behind it.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let packet = Self { header: bytes.first_chunk().ok_or(Malformed::TruncatedIpv4)? };
        if packet.header[0] >> 4 != 4 {
            return Err(Malformed::IpVersion);
        }
        let header_len = usize::from(packet.header_len());
        if header_len < Self::HEADER_BYTES {
            return Err(Malformed::Ipv4HeaderLength);
        }
        if header_len > bytes.len() {
            return Err(Malformed::TruncatedIpv4);
        }
        if packet.total_len() != 0 && packet.total_len() < packet.header_len() {
            return Err(Malformed::Ipv4TotalLength);
        }
        Ok(packet)
    }

    /// Length of the header with options.
    #[inline]
    pub fn header_len(&self) -> u16 {
        u16::from(self.header[0] & 0x0f) * 4
    }

    /// Length of the packet; 0 with segmentation offload.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Shared by the fragments of one packet, together with addresses and protocol.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// More fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.header[6] & 0x20 != 0
    }

    /// Offset of this fragment in the packet, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (u16::from_be_bytes([self.header[6], self.header[7]]) & 0x1fff) << 3
    }

    /// Transport protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Destination address.
    #[inline]
    pub fn target(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 20] = [0x45, 0, 0, 40, 0x12, 0x34, 0x20, 0x03, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    #[test]
    fn fields() {
        let packet = Packet::new_checked(&HEADER).unwrap();
        assert_eq!((packet.header_len(), packet.total_len(), packet.protocol()), (20, 40, 6));
        assert_eq!((packet.identification(), packet.more_fragments(), packet.fragment_offset()), (0x1234, true, 24));
        assert_eq!((packet.source().octets(), packet.target().octets()), ([10, 0, 0, 1], [10, 0, 0, 2]));
    }

    #[test]
    fn refused() {
        let check = |change: &[(usize, u8)], keep: usize, expected: Malformed| {
            let mut header = HEADER;
            for &(at, value) in change {
                header[at] = value;
            }
            assert_eq!(Packet::new_checked(&header[..keep]).unwrap_err(), expected);
        };
        check(&[], 19, Malformed::TruncatedIpv4);
        check(&[(0, 0x65)], 20, Malformed::IpVersion);
        check(&[(0, 0x44)], 20, Malformed::Ipv4HeaderLength);
        check(&[(0, 0x46)], 20, Malformed::TruncatedIpv4);
        check(&[(3, 19)], 20, Malformed::Ipv4TotalLength);
    }
}
