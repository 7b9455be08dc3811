//! The kinds of headers in front of a network header, and one step from one to the next.

use crate::malformed::Malformed;

/// The type of the header at the current offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Given by an ether type in the header before it.
    EtherType(u16),
    Ethernet,
    /// IEEE 802.2 header.
    Llc,
    Pppoe,
    Ppp,
    Mpls,
    /// IPv4 or IPv6, by its first nibble.
    Ip,
    /// A protocol without an ether type.
    Other,
}

/// The offset and type of the next header, or why it cannot be found.
pub(crate) type Step = Result<(usize, Layer), Malformed>;
