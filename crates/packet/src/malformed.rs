//! Why a frame could not be read: one small enum for all header parsers, with a text for each reason. A malformed frame
//! is a counted drop, not a failed operation, so only the reason is kept.
//!
//! Read next: `frame.rs`, which returns these.

use std::fmt;

/// The reason for which a header could not be read.
///
/// "Truncated" means that the captured bytes end too early, whether the wire or the snap length cut them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Malformed {
    /// A valid frame that carries another protocol than IP (ARP, spanning tree, PPP control ...).
    NotIp,
    /// `frame` does not read this link type.
    UnsupportedLink,
    /// The link header is cut.
    TruncatedLink,
    /// Part of a packet: 802.11 fragments are not reassembled.
    WlanFragment,
    /// Several packets in one 802.11 frame (an A-MSDU), which is not split.
    WlanAggregate,
    /// A VLAN tag, MPLS label, PPPoE or other header between link and IP is cut.
    TruncatedEncapsulation,
    /// More headers between link and IP than [`crate::frame::ENCAPSULATION_LIMIT`].
    TooManyEncapsulations,
    /// The first nibble of the IP header is neither 4 nor 6.
    IpVersion,
    /// Fewer than 20 bytes, or fewer than the header length says.
    TruncatedIpv4,
    /// The header length field says less than 20 bytes.
    Ipv4HeaderLength,
    /// The total length is shorter than the header.
    Ipv4TotalLength,
    /// Fewer than 40 bytes.
    TruncatedIpv6,
    /// An extension header is cut.
    TruncatedIpv6Extension,
    /// An extension header goes beyond the payload length.
    Ipv6ExtensionLength,
    /// More extension headers than [`crate::ipv6::EXTENSION_LIMIT`].
    TooManyIpv6Extensions,
    /// The frame has another transport protocol than requested.
    OtherProtocol,
    /// A GRE tunnel (RFC 2784), not opened.
    GreTunnel,
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213), not opened.
    IpTunnel,
    /// A VXLAN tunnel (RFC 7348), not opened.
    VxlanTunnel,
    /// A Geneve tunnel (RFC 8926), not opened.
    GeneveTunnel,
    /// A GTP-U tunnel (3GPP TS 29.281), not opened.
    GtpTunnel,
    /// An L2TP tunnel (RFC 2661, RFC 3931), not opened.
    L2tpTunnel,
    /// A Teredo tunnel (RFC 4380), not opened.
    TeredoTunnel,
    /// The header of a tunnel is cut.
    TruncatedTunnel,
    /// The header of a tunnel has impossible values.
    TunnelHeader,
    /// A later fragment: the transport header is in the first one.
    LaterFragment,
    /// Fewer than 20 bytes.
    TruncatedTcp,
    /// The data offset is below 20 bytes or beyond the end of the segment.
    TcpHeaderLength,
    /// Fewer than 8 bytes.
    TruncatedUdp,
    /// The length field is below 8.
    UdpLength,
    /// Fewer than 4 bytes.
    TruncatedIcmp,
    /// Fewer bytes than the address lengths need.
    TruncatedArp,
    /// Fewer than 24 bytes.
    TruncatedNdp,
    /// The target is a multicast address.
    NdpTarget,
    /// An option whose length is 0, beyond the end, or not that of its kind.
    NdpOption,
    /// Fewer than 240 bytes.
    TruncatedDhcp,
}

impl Malformed {
    /// Number of reasons. `reason as usize` is below it, so it sizes an array of counters.
    pub const COUNT: usize = Self::TruncatedDhcp as usize + 1;

    /// The reason in words, as it appears in statistics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotIp => "not ip",
            Self::UnsupportedLink => "unsupported link type",
            Self::TruncatedLink => "truncated link header",
            Self::WlanFragment => "802.11 fragment",
            Self::WlanAggregate => "several packets in an 802.11 frame",
            Self::TruncatedEncapsulation => "truncated encapsulation header",
            Self::TooManyEncapsulations => "too many headers below ip",
            Self::IpVersion => "ip version is neither 4 nor 6",
            Self::TruncatedIpv4 => "truncated ipv4 header",
            Self::Ipv4HeaderLength => "ipv4 header length below 20",
            Self::Ipv4TotalLength => "ipv4 total length shorter than its header",
            Self::TruncatedIpv6 => "truncated ipv6 header",
            Self::TruncatedIpv6Extension => "truncated ipv6 extension header",
            Self::Ipv6ExtensionLength => "ipv6 extension header longer than the packet",
            Self::TooManyIpv6Extensions => "too many ipv6 extension headers",
            Self::OtherProtocol => "another transport protocol",
            Self::GreTunnel => "gre tunnel",
            Self::IpTunnel => "ip in ip tunnel",
            Self::VxlanTunnel => "vxlan tunnel",
            Self::GeneveTunnel => "geneve tunnel",
            Self::GtpTunnel => "gtp tunnel",
            Self::L2tpTunnel => "l2tp tunnel",
            Self::TeredoTunnel => "teredo tunnel",
            Self::TruncatedTunnel => "truncated tunnel header",
            Self::TunnelHeader => "malformed tunnel header",
            Self::LaterFragment => "not the first fragment",
            Self::TruncatedTcp => "truncated tcp header",
            Self::TcpHeaderLength => "tcp header length out of bounds",
            Self::TruncatedUdp => "truncated udp header",
            Self::UdpLength => "udp length below 8",
            Self::TruncatedIcmp => "truncated icmp header",
            Self::TruncatedArp => "truncated arp packet",
            Self::TruncatedNdp => "truncated neighbour discovery message",
            Self::NdpTarget => "neighbour discovery about several stations",
            Self::NdpOption => "wrong neighbour discovery option",
            Self::TruncatedDhcp => "truncated dhcp message",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason())
    }
}

impl std::error::Error for Malformed {}
