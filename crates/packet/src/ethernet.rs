//! Ethernet II and IEEE 802.3 headers, and the ether types that this crate knows. `encapsulation.rs` walks the tags
//! behind the header.

use crate::malformed::Malformed;

/// IPv4.
pub const IPV4: u16 = 0x0800;
/// ARP.
pub const ARP: u16 = 0x0806;
/// Reverse ARP.
pub const REVERSE_ARP: u16 = 0x8035;
/// Ethernet frames inside a tunnel that names its payload by ether type.
pub const TRANSPARENT_BRIDGING: u16 = 0x6558;
/// PPP inside a tunnel that names its payload by ether type.
pub const PPP: u16 = 0x880b;
/// IPv6.
pub const IPV6: u16 = 0x86dd;
/// VLAN tag (IEEE 802.1Q).
pub const VLAN: u16 = 0x8100;
/// Service VLAN tag (IEEE 802.1ad).
pub const SERVICE_VLAN: u16 = 0x88a8;
/// Outer VLAN tag from before 802.1ad.
pub const OLD_VLAN: u16 = 0x9100;
/// Another outer VLAN tag from before 802.1ad.
pub const OLD_VLAN_2: u16 = 0x9200;
/// Another outer VLAN tag from before 802.1ad.
pub const OLD_VLAN_3: u16 = 0x9300;
/// MPLS, unicast.
pub const MPLS: u16 = 0x8847;
/// MPLS, upstream-assigned label (RFC 5332).
pub const MPLS_UPSTREAM: u16 = 0x8848;
/// PPPoE discovery.
pub const PPPOE_DISCOVERY: u16 = 0x8863;
/// PPPoE session.
pub const PPPOE_SESSION: u16 = 0x8864;
/// Backbone service tag (IEEE 802.1ah), in front of a whole Ethernet frame.
pub const PROVIDER_BACKBONE: u16 = 0x88e7;
/// Cisco metadata, which carries security group tags.
pub const CISCO_METADATA: u16 = 0x8909;
/// Cisco VN-tag.
pub const VN_TAG: u16 = 0x8926;
/// Bridge port extension tag (IEEE 802.1BR).
pub const E_TAG: u16 = 0x893f;

/// Service function chaining (NSH, RFC 8300).
pub const SERVICE_FUNCTIONS: u16 = 0x894f;

/// Values up to this are a length (IEEE 802.3), not a type.
pub const LENGTH_LIMIT: u16 = 1500;

/// An Ethernet frame with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; Packet::HEADER_BYTES],
}

impl<'a> Packet<'a> {
    /// Length of the header: two addresses and a type.
    pub const HEADER_BYTES: usize = 14;

    /// Checks that the header is complete.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Ok(Self { header: bytes.first_chunk().ok_or(Malformed::TruncatedLink)? })
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// Type, or length if at most [`LENGTH_LIMIT`].
    #[inline]
    pub fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.header[12], self.header[13]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd, 99];
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(packet.destination(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(packet.source(), [7, 8, 9, 10, 11, 12]);
        assert_eq!(packet.ether_type(), IPV6);
        assert_eq!(Packet::new_checked(&bytes[..13]).unwrap_err(), Malformed::TruncatedLink);
    }
}
