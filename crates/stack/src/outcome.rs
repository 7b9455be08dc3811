//! The results of sending, receiving and moving of state: small enums that are counted, not errors with their own texts.

use std::fmt;

/// Declares the reasons, their names and their number.
macro_rules! discards {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was discarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Discard {
            $($(#[$doc])* $name,)*
        }

        impl Discard {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Discard] = &[$(Discard::$name),*];

            /// The reason in words, as it appears in statistics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Discard::$name => $text,)*
                }
            }
        }
    };
}

discards! {
    /// Fewer than the 14 bytes of an Ethernet header.
    EthernetTruncated = "truncated ethernet header",
    /// The frame is for another station.
    OtherStation = "for another station",
    /// The frame carries another protocol than the block above reads.
    OtherEtherType = "another ether type",
    /// Fewer bytes than the ARP packet needs, addresses that are not of Ethernet and IPv4, or a group address as sender.
    ArpMalformed = "malformed arp packet",
    /// An ARP packet that is about another address.
    ArpOther = "arp about another address",
    /// An ARP operation other than request and reply.
    ArpOperation = "another arp operation",
    /// A message of Neighbour Discovery that is cut, came through a router, or has wrong fields or options.
    NdpMalformed = "malformed neighbour discovery",
    /// A message of Neighbour Discovery that is about another address.
    NdpOther = "neighbour discovery about another address",
    /// Fewer bytes than the IPv4 header has.
    Ipv4Truncated = "truncated ipv4 header",
    /// The version is not 4.
    Ipv4Version = "ip version is not 4",
    /// The header length is below 20 bytes.
    Ipv4HeaderLength = "ipv4 header length below 20",
    /// The header checksum does not add up.
    Ipv4Checksum = "wrong ipv4 header checksum",
    /// The total length is below the header's, or beyond the end of the frame.
    Ipv4TotalLength = "wrong ipv4 total length",
    /// Fewer bytes than the IPv6 header has.
    Ipv6Truncated = "truncated ipv6 header",
    /// The version is not 6.
    Ipv6Version = "ip version is not 6",
    /// The payload length is beyond the end of the frame.
    Ipv6Length = "wrong ipv6 payload length",
    /// An extension header: the driver skips them, so it should not get here.
    Ipv6Extension = "ipv6 extension header",
    /// A fragment: the driver reassembles, so it should not get here.
    Fragment = "fragment",
    /// The packet is for another address.
    OtherAddress = "for another address",
    /// The source is not the address of a single station (RFC 1122, section 3.2.1.3; RFC 4291, section 2.7).
    SourceAddress = "impossible source address",
    /// A packet to one address in a frame to many stations (RFC 1122, section 3.3.6).
    SentToMany = "unicast packet in a broadcast frame",
    /// The packet carries another protocol than the transport block reads.
    OtherProtocol = "another transport protocol",
    /// Fewer than the 8 bytes of a UDP header.
    UdpTruncated = "truncated udp header",
    /// The length is below 8, or beyond the end of the packet.
    UdpLength = "wrong udp length",
    /// The checksum does not add up.
    UdpChecksum = "wrong udp checksum",
    /// A datagram over IPv6 without a checksum (RFC 8200, section 8.1).
    UdpNoChecksum = "no udp checksum",
    /// The datagram is for another port.
    OtherPort = "for another port",
    /// The flow has a peer, and the datagram is from another address.
    OtherPeer = "not from the peer",
    /// Fewer bytes than the TCP header needs, or than its length field says.
    TcpTruncated = "truncated tcp header",
    /// The checksum does not add up.
    TcpChecksum = "wrong tcp checksum",
    /// Two of SYN, FIN and RST at once.
    TcpFlags = "impossible tcp flags",
    /// An option that is longer than the header, or has a length that is wrong for its kind.
    TcpOptions = "malformed tcp options",
    /// Data beyond the window that this side announced.
    TcpWindow = "beyond the tcp window",
    /// More segments came between two turns of the block than its queue holds.
    TcpQueueFull = "tcp queue full",
    /// Fewer bytes than the ICMP message needs.
    IcmpTruncated = "truncated icmp message",
    /// The checksum does not add up.
    IcmpChecksum = "wrong icmp checksum",
    /// An ICMP message that is not for flows.
    IcmpKind = "another icmp type",
    /// The identifier is another flow's.
    IcmpIdentifier = "another icmp identifier",
    /// An ICMP error about a packet that this flow did not send.
    OtherFlow = "icmp error about another flow",
    /// The program of a `bpf` block rejected the packet.
    NoMatch = "rejected by bpf",
}

impl fmt::Display for Discard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl std::error::Error for Discard {}

/// Why a packet could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The payload does not fit: stacks do not fragment.
    MessageTooLong,
    /// Neither the call nor the stack names a destination, or its address is 0.0.0.0 or `::`, or its port is 0.
    NoDestination,
    /// The destination is of another family than the flow's address.
    OtherFamily,
    /// The flow has a peer, and the call names another destination.
    OtherPeer,
    /// A block has no room for the bytes now. It may have room after its next turn.
    Full,
    /// A block put a longer header in front than it announced. The block is wrong, not the caller.
    HeaderRoom,
    /// The stack carries a byte stream, which is written through [`crate::Stack::stream`].
    IsStream,
    /// A block discarded the packet. The stack counts it.
    Discarded(Discard),
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageTooLong => out.write_str("the payload is too long for the MTU"),
            Self::NoDestination => out.write_str("no destination"),
            Self::OtherFamily => out.write_str("the destination has another IP version than the flow"),
            Self::OtherPeer => out.write_str("the flow has another peer"),
            Self::Full => out.write_str("no room now"),
            Self::HeaderRoom => out.write_str("a block put more header in front than it announced"),
            Self::IsStream => out.write_str("the stack carries a stream"),
            Self::Discarded(discard) => write!(out, "discarded: {discard}"),
        }
    }
}

impl std::error::Error for SendError {}

/// Why a block exports no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It has none: a new block goes on as well as this one.
    NoState,
    /// It has state, and cannot export it: the flow cannot move.
    NotExported,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoState => "the block has no state",
            Self::NotExported => "the block cannot export its state",
        })
    }
}

impl std::error::Error for Unsupported {}

/// Why state was not taken. The stack stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The bytes are no state, or have another version.
    Malformed,
    /// The state is that of another flow: another port, or another identifier.
    OtherFlow,
    /// The state contains that of a block which this stack does not have.
    NoBlock,
    /// A block of this stack takes no state.
    NotImported,
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Malformed => "the state cannot be read",
            Self::OtherFlow => "the state is that of another flow",
            Self::NoBlock => "the state is for a block that this stack does not have",
            Self::NotImported => "a block of this stack takes no state",
        })
    }
}

impl std::error::Error for ImportError {}

#[cfg(test)]
mod tests {
    use super::Discard;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_name_and_a_number_of_its_own() {
        let names: BTreeSet<&str> = Discard::ALL.iter().map(|discard| discard.name()).collect();
        assert_eq!(names.len(), Discard::ALL.len());
        for (number, discard) in Discard::ALL.iter().enumerate() {
            assert_eq!(*discard as usize, number);
        }
    }
}
