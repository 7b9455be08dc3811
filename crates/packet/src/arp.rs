//! ARP and RARP packets for IPv4 over Ethernet (RFC 826, RFC 903). Refuses other hardware and protocols.

use std::net::Ipv4Addr;

use crate::bytes::chunk_at;
use crate::ethernet;
use crate::malformed::Malformed;

/// Operation: asks which station has an address.
pub const REQUEST: u16 = 1;
/// Operation: says which station has it.
pub const REPLY: u16 = 2;

/// A complete ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    fields: &'a [u8; Packet::BYTES],
}

impl<'a> Packet<'a> {
    /// Length of a packet for IPv4 over Ethernet.
    pub const BYTES: usize = 28;

    /// Checks length, address types and address lengths; `bytes` begin at the packet.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let fields: &[u8; Packet::BYTES] = bytes.first_chunk().ok_or(Malformed::TruncatedArp)?;
        let [0, 1, high, low, 6, 4, ..] = *fields else { return Err(Malformed::OtherProtocol) };
        if u16::from_be_bytes([high, low]) != ethernet::IPV4 {
            return Err(Malformed::OtherProtocol);
        }
        Ok(Self { fields })
    }

    /// The operation: [`REQUEST`], [`REPLY`] ...
    #[inline]
    pub fn operation(&self) -> u16 {
        u16::from_be_bytes([self.fields[6], self.fields[7]])
    }

    /// Ethernet and IP address of the sender.
    #[inline]
    pub fn sender(&self) -> ([u8; 6], Ipv4Addr) {
        self.pair(8)
    }

    /// Ethernet and IP address of the target.
    #[inline]
    pub fn target(&self) -> ([u8; 6], Ipv4Addr) {
        self.pair(18)
    }

    fn pair(&self, offset: usize) -> ([u8; 6], Ipv4Addr) {
        // At least 10 of the 28 bytes follow both offsets.
        let [a, b, c, d, e, f, ip @ ..] = *chunk_at::<10>(self.fields, offset).unwrap_or(&[0; 10]);
        ([a, b, c, d, e, f], Ipv4Addr::from(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY_BYTES: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 2, 1, 2, 3, 4, 5, 6, 10, 0, 0, 1, 7, 8, 9, 10, 11, 12, 10, 0, 0, 2];

    #[test]
    fn fields() {
        let packet = Packet::new_checked(&REPLY_BYTES).unwrap();
        assert_eq!(packet.operation(), REPLY);
        assert_eq!(packet.sender(), ([1, 2, 3, 4, 5, 6], Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(packet.target(), ([7, 8, 9, 10, 11, 12], Ipv4Addr::new(10, 0, 0, 2)));
    }

    #[test]
    fn refused() {
        assert_eq!(Packet::new_checked(&REPLY_BYTES[..27]).unwrap_err(), Malformed::TruncatedArp);
        let mut other = REPLY_BYTES;
        other[5] = 16;
        assert_eq!(Packet::new_checked(&other).unwrap_err(), Malformed::OtherProtocol);
    }
}
