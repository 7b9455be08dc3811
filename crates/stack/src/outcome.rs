//! Outcomes of sending, receiving and moving of state: small enums that are counted, without texts of their own.

use std::fmt;

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
    /// Too few bytes, addresses that are not Ethernet and IPv4, or a group address as sender.
    ArpMalformed = "malformed arp packet",
    /// An ARP packet that is about another address.
    ArpOther = "arp about another address",
    /// An ARP operation other than request and reply.
    ArpOperation = "another arp operation",
    /// A truncated Neighbour Discovery message, one that came through a router, or one with wrong fields or options.
    NdpMalformed = "malformed neighbour discovery",
    /// A Neighbour Discovery message about another address.
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
    /// An extension header. The driver should have skipped it.
    Ipv6Extension = "ipv6 extension header",
    /// A fragment. The driver should have reassembled it.
    Fragment = "fragment",
    /// The packet is for another address.
    OtherAddress = "for another address",
    /// The source is an address that no single station has (RFC 1122, section 3.2.1.3; RFC 4291, section 2.7).
    SourceAddress = "impossible source address",
    /// A unicast IP packet in a frame sent to many stations (RFC 1122, section 3.3.6).
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
    /// The flow has a peer, and the datagram is from elsewhere.
    OtherPeer = "not from the peer",
    /// Fewer bytes than the TCP header needs or claims.
    TcpTruncated = "truncated tcp header",
    /// The checksum does not add up.
    TcpChecksum = "wrong tcp checksum",
    /// Two of SYN, FIN and RST at once.
    TcpFlags = "impossible tcp flags",
    /// An option that is longer than the header, or has the wrong length for its kind.
    TcpOptions = "malformed tcp options",
    /// Data beyond the window that this side announced.
    TcpWindow = "beyond the tcp window",
    /// The queue between two turns of the block is full.
    TcpQueueFull = "tcp queue full",
    /// Fewer bytes than the ICMP message needs.
    IcmpTruncated = "truncated icmp message",
    /// The checksum does not add up.
    IcmpChecksum = "wrong icmp checksum",
    /// An ICMP message that the flow does not use.
    IcmpKind = "another icmp type",
    /// The identifier belongs to another flow.
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
    /// Neither the call nor the stack names a destination, or its address is 0.0.0.0 or `::`, or its port 0.
    NoDestination,
    /// The destination is of another family than the flow's address.
    OtherFamily,
    /// The flow has a peer, and the call names another destination.
    OtherPeer,
    /// A block has no room for the bytes now. Its next turn may make room.
    Full,
    /// A block added a larger header than it announced: a bug in the block, not in the caller.
    HeaderRoom,
    /// The stack carries a byte stream: use [`crate::Stack::stream`].
    IsStream,
    /// A block discarded the packet; the stack counted it.
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
    /// It has none: a fresh block continues just as well.
    NoState,
    /// It has state that cannot be exported: the flow cannot move.
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

/// Why a stack refused state. The stack is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The bytes are not a state, or of another version.
    Malformed,
    /// The state belongs to another flow: another port or identifier.
    OtherFlow,
    /// The state names a block that this stack lacks.
    NoBlock,
    /// A block of this stack accepts no state.
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
