//! The pseudo header that the checksums of UDP and TCP cover beside the packet (RFC 768, RFC 9293 3.1), and the rule for a
//! checksum that a peer on the same machine left unfinished.

use crate::checksum::Sum;
use std::net::Ipv4Addr;

/// The sum of the pseudo header: two addresses, the protocol, and the length of header and payload in bytes.
#[inline]
pub fn sum(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    let addresses = Sum::number(source.to_bits()).and(Sum::number(target.to_bits()));
    addresses.and(Sum::number(protocol.into())).and(Sum::number(length.into()))
}

/// Is the checksum `field` of `bytes`, in which it stands, right? `pseudo` is the sum of the pseudo header.
///
/// A sender that leaves the checksum to its device writes the folded pseudo header there, and a veth pair has no device
/// that would finish it. With `may_be_unfinished` such a field is right, too.
#[inline]
pub fn holds(pseudo: Sum, field: u16, bytes: &[u8], may_be_unfinished: bool) -> bool {
    let is_unfinished = may_be_unfinished && field == pseudo.folded();
    is_unfinished || pseudo.and(Sum::of(bytes)).checksum() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_field_is_right_only_where_the_rule_says_so() {
        let pseudo = sum(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, 9);
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
