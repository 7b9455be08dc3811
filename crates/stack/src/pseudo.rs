//! Checksums of received packets by the flow's [`ChecksumRule`].

use packet::checksum::Sum;
pub(crate) use packet::pseudo::sum;

use crate::facts::ChecksumRule;

/// Whether `field`, the checksum in `datagram`, is acceptable under `rule`. `pseudo` is the sum of the pseudo header.
pub(crate) fn holds(pseudo: Sum, field: u16, datagram: &[u8], rule: ChecksumRule) -> bool {
    packet::pseudo::holds(pseudo, field, datagram, rule == ChecksumRule::Auto)
}
