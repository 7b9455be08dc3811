//! ICMP errors about packets of this flow (RFC 792, RFC 4443). The flow's transport block reads and matches them.

use crate::packets::{Incoming, ProblemKind};
use std::net::IpAddr;

use packet::checksum::Sum;
use packet::frame::protocol;
use packet::{icmp, ipv4, ipv6};

use crate::outcome::Discard;
use crate::pseudo;

/// Types of ICMP errors (RFC 792).
const UNREACHABLE: u8 = 3;
/// The code of [`UNREACHABLE`] for a packet that a link cannot carry (RFC 1191, section 4).
const TOO_BIG: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

/// Destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443, section 3).
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_V6: u8 = 4;

/// Bytes of an ICMP message before the packet that it quotes.
const HEADER_BYTES: usize = 8;

/// An ICMP error: its kind, and the beginning of the packet that it quotes.
pub(crate) struct Report<'a> {
    pub(crate) kind: ProblemKind,
    /// The destination of the quoted packet.
    pub(crate) target: IpAddr,
    /// The first eight bytes behind the IP header of the quoted packet.
    pub(crate) transport: &'a [u8; 8],
}

/// Whether this is the ICMP protocol for the family of `ours`.
pub(crate) fn is_icmp(number: u8, ours: IpAddr) -> bool {
    number == if ours.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }
}

/// Reads an ICMP error about a packet of `protocol` sent from `ours`. Discards any other ICMP message.
pub(crate) fn read<'a>(packet: &Incoming<'a>, ours: IpAddr, protocol: u8) -> Result<Report<'a>, Discard> {
    let message = packet.bytes();
    let header = icmp::Packet::new_checked(message).map_err(|_| Discard::IcmpTruncated)?;
    if sum(message, packet.remote_address(), ours).checksum() != 0 {
        return Err(Discard::IcmpChecksum);
    }
    let words = message.get(4..8).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
    let kind = match ours {
        IpAddr::V4(_) => kind(header.kind(), header.code(), words),
        IpAddr::V6(_) => kind_v6(header.kind(), header.code(), words),
    };
    let kind = kind.ok_or(Discard::IcmpKind)?;
    let about = message.get(HEADER_BYTES..).ok_or(Discard::IcmpTruncated)?;
    let ((source, target), carried, is_first, transport) = match ours {
        IpAddr::V4(_) => {
            let inner = ipv4::Packet::new_checked(about).map_err(|_| Discard::IcmpTruncated)?;
            let ends = (IpAddr::V4(inner.source()), IpAddr::V4(inner.target()));
            (ends, inner.protocol(), inner.fragment_offset() == 0, about.get(usize::from(inner.header_len())..))
        }
        // Flows send no extension headers.
        IpAddr::V6(_) => {
            let inner = ipv6::Packet::new_checked(about).map_err(|_| Discard::IcmpTruncated)?;
            let ends = (IpAddr::V6(inner.source()), IpAddr::V6(inner.target()));
            (ends, inner.next_header(), true, about.get(ipv6::Packet::HEADER_BYTES..))
        }
    };
    let transport = transport.and_then(|rest| rest.first_chunk()).ok_or(Discard::IcmpTruncated)?;
    if source != ours || carried != protocol || !is_first {
        return Err(Discard::OtherFlow);
    }
    Ok(Report { kind, target, transport })
}

/// The checksum of a whole message, with the pseudo header over IPv6: all ones if it is right.
pub(crate) fn sum(message: &[u8], source: IpAddr, target: IpAddr) -> Sum {
    let sum = Sum::of(message);
    match (target, u16::try_from(message.len())) {
        (IpAddr::V6(_), Ok(length)) => sum.and(pseudo::sum(source, target, protocol::ICMPV6, length)),
        _ => sum,
    }
}

/// The problem in an ICMP error. `words`: bytes 4 to 7 of the message.
fn kind(kind: u8, code: u8, words: [u8; 4]) -> Option<ProblemKind> {
    let [_, _, high, low] = words;
    Some(match (kind, code) {
        (UNREACHABLE, TOO_BIG) => ProblemKind::TooBig(u16::from_be_bytes([high, low])),
        (UNREACHABLE, code) => ProblemKind::Unreachable(code),
        (TIME_EXCEEDED, _) => ProblemKind::TimeExceeded,
        (PARAMETER, _) => ProblemKind::Parameter,
        _ => return None,
    })
}

/// The same for ICMPv6. Maps the codes of RFC 4443, section 3.1, to those of RFC 792.
fn kind_v6(kind: u8, code: u8, words: [u8; 4]) -> Option<ProblemKind> {
    Some(match (kind, code) {
        (UNREACHABLE_V6, 0) => ProblemKind::Unreachable(0),
        (UNREACHABLE_V6, 1 | 5 | 6) => ProblemKind::Unreachable(13),
        (UNREACHABLE_V6, 4) => ProblemKind::Unreachable(3),
        (UNREACHABLE_V6, _) => ProblemKind::Unreachable(1),
        (TOO_BIG_V6, _) => ProblemKind::TooBig(u16::try_from(u32::from_be_bytes(words)).unwrap_or(u16::MAX)),
        (TIME_EXCEEDED_V6, _) => ProblemKind::TimeExceeded,
        (PARAMETER_V6, _) => ProblemKind::Parameter,
        _ => return None,
    })
}
