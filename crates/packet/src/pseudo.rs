//! The pseudo header in the checksums of UDP and TCP (RFC 768, RFC 9293 3.1), over IPv6 also of ICMPv6 (RFC 8200 8.1).
//! Also accepts checksums that a peer on the same machine left unfinished.

use crate::checksum::Sum;
use std::net::IpAddr;

/// The sum of the pseudo header: two addresses, the protocol, and the length of header and payload in bytes.
#[inline]
pub fn sum(source: IpAddr, target: IpAddr, protocol: u8, length: u16) -> Sum {
    address(source).and(address(target)).and(Sum::number(protocol.into())).and(Sum::number(length.into()))
}

#[inline]
fn address(address: IpAddr) -> Sum {
    match address {
        IpAddr::V4(address) => Sum::number(address.to_bits()),
        IpAddr::V6(address) => Sum::of(&address.octets()),
    }
}

/// Whether the checksum `field` in `bytes` is correct. `pseudo` is the sum of the pseudo header.
///
/// A sender that leaves the checksum to its device writes the folded pseudo header there. A veth pair has no device to
/// finish it. `may_be_unfinished` accepts such a field too.
#[inline]
pub fn holds(pseudo: Sum, field: u16, bytes: &[u8], may_be_unfinished: bool) -> bool {
    let is_unfinished = may_be_unfinished && field == pseudo.folded();
    is_unfinished || pseudo.and(Sum::of(bytes)).checksum() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_ipv6_count_whole() {
        let at = |last: u16| IpAddr::from([0xfd00, 0, 0x1234, 0, 0, 0, 0, last]);
        // fd00 + 1234 + 0001 + fd00 + 1234 + 0002 + 003a + 0008, folded.
        assert_eq!(sum(at(1), at(2), 58, 8).folded(), 0x1eaf);
    }

    #[test]
    fn an_unfinished_field_is_right_only_where_the_rule_says_so() {
        let pseudo = sum(IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]), 17, 9);
        // 0a00 + 0001 + 0a00 + 0002 + 0011 + 0009
        assert_eq!(pseudo.folded(), 0x141d);
        let datagram = |field: u16| [0, 1, 0, 2, 0, 9, (field >> 8) as u8, field as u8, 0x80];
        // The words of the datagram without its field: 0001 + 0002 + 0009 + 8000, and the pseudo header.
        let right = !(0x800c + 0x141d);
        let rows = [
            (right, false, true),
            (right, true, true),
            (0x141d, false, false),
            (0x141d, true, true),
            (0x141e, true, false),
        ];
        for (field, may_be_unfinished, expected) in rows {
            assert_eq!(
                holds(pseudo, field, &datagram(field), may_be_unfinished),
                expected,
                "{field:#x} {may_be_unfinished}"
            );
        }
    }
}
