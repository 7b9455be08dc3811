//! What routers and the other end report about packets of this flow: ICMP errors (RFC 792), read and matched by the
//! transport block of the flow.

use std::net::{Ipv4Addr, SocketAddrV4};

use packet::checksum::Sum;
use packet::{icmp, ipv4};

use crate::outcome::Discard;

/// Destination unreachable (RFC 792).
const UNREACHABLE: u8 = 3;
/// The code of [`UNREACHABLE`] for a packet that a link cannot carry (RFC 1191, section 4).
const TOO_BIG: u8 = 4;
/// Time exceeded (RFC 792).
const TIME_EXCEEDED: u8 = 11;
/// Parameter problem (RFC 792).
const PARAMETER: u8 = 12;

/// Bytes of an ICMP message in front of the packet that it is about.
const HEADER_BYTES: usize = 8;

/// A report about a packet that this flow sent. It is no proof: any station that knows the flow
/// can send one (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What happened.
    pub kind: ProblemKind,
    /// Where the packet should have gone. Echo requests have their sequence number in place of the port.
    pub to: SocketAddrV4,
    /// The station that reports.
    pub reporter: Ipv4Addr,
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Not deliverable; the code is that of RFC 792: 1 is the host, 3 the port.
    Unreachable(u8),
    /// Too big for a link on the way, which carries packets of this many bytes; 0 where the router does not say.
    TooBig(u16),
    /// On the way for too long.
    TimeExceeded,
    /// A field of a header is wrong.
    Parameter,
}

/// What an ICMP error says: its kind, and the beginning of the packet it is about.
pub(crate) struct Report<'a> {
    pub(crate) kind: ProblemKind,
    /// The destination of that packet.
    pub(crate) target: Ipv4Addr,
    /// The first eight bytes behind that packet's IP header.
    pub(crate) transport: &'a [u8; 8],
}

/// Reads an ICMP error about a packet of `protocol` from `ours`. Any other ICMP message is a discard.
pub(crate) fn read(message: &[u8], ours: Ipv4Addr, protocol: u8) -> Result<Report<'_>, Discard> {
    let header = icmp::Packet::new_checked(message).map_err(|_| Discard::IcmpTruncated)?;
    if Sum::of(message).checksum() != 0 {
        return Err(Discard::IcmpChecksum);
    }
    let kind = match (header.kind(), header.code()) {
        (UNREACHABLE, TOO_BIG) => {
            let next_mtu = message.get(6..8).and_then(|bytes| bytes.first_chunk()).ok_or(Discard::IcmpTruncated)?;
            ProblemKind::TooBig(u16::from_be_bytes(*next_mtu))
        }
        (UNREACHABLE, code) => ProblemKind::Unreachable(code),
        (TIME_EXCEEDED, _) => ProblemKind::TimeExceeded,
        (PARAMETER, _) => ProblemKind::Parameter,
        _ => return Err(Discard::IcmpKind),
    };
    let about = message.get(HEADER_BYTES..).ok_or(Discard::IcmpTruncated)?;
    let inner = ipv4::Packet::new_checked(about).map_err(|_| Discard::IcmpTruncated)?;
    let transport = about.get(usize::from(inner.header_len())..).and_then(|rest| rest.first_chunk());
    let transport = transport.ok_or(Discard::IcmpTruncated)?;
    if inner.source() != ours || inner.protocol() != protocol || inner.fragment_offset() != 0 {
        return Err(Discard::OtherFlow);
    }
    Ok(Report { kind, target: inner.target(), transport })
}
